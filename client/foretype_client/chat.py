"""The gateway's larger models: chat, streamed, and the rest of a function from `class: block`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import msgspec
from foretype_context.errors import ProfileError, TokenizerError, UnknownGrammarError
from foretype_context.prompt.plan import PlanState
from foretype_context.prompt.profile import BLOCK_ANSWER_TOKENS
from foretype_context.syntax.document import Snapshot
from foretype_wire.errors import GatewayGoneError, TokenInClearError
from foretype_wire.messages import RequestClass

from foretype_client.asking import ask
from foretype_client.client import Client
from foretype_client.errors import ChatRefusedError, TokenizerFetchError
from foretype_client.ports import Endpoint
from foretype_client.session.connecting import http_base, http_client

_TIMEOUT_S: Final = 10.0
_READ_TIMEOUT_S: Final = 120.0
_ANSWER_CHARS: Final = 200_000
_BLOCK_LINES: Final = 80


class Tiers:
    """What a client's gateway offers beside suggestions."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def chat(self, messages: Sequence[Mapping[str, str]], *, template: str, max_tokens: int) -> AsyncGenerator[str]:
        """Pieces of an answer. Iterating raises ChatRefusedError and GatewayGoneError; closing the iterator stops the model."""
        return stream_chat(self._client.session.endpoint, messages, template=template, max_tokens=max_tokens)

    async def block(self, snapshot: Snapshot, offset: int) -> tuple[str, str]:
        """What goes on at `offset`, up to the end of its block, and where that is nothing the reason. Cancelling stops the model.

        Raises:
            ChatRefusedError, RequestRefusedError, GatewayGoneError: there is no answer.
        """
        try:
            assembler = (await self._client.ready(10.0)).for_blocks()
        except (TokenizerFetchError, TokenizerError, UnknownGrammarError, ProfileError) as error:
            raise ChatRefusedError("no_prompt", f"no prompt can be made for this gateway: {error}") from error
        plan, _ = assembler.plan(PlanState.empty(), snapshot, offset, block=True, now=0.0)
        plan = replace(plan, stop=msgspec.structs.replace(plan.stop, max_lines=_BLOCK_LINES))
        answer = await ask(
            self._client.session, plan, snapshot, offset, class_=RequestClass.BLOCK, max_tokens=BLOCK_ANSWER_TOKENS
        )
        return answer.text, answer.reason or ""


async def stream_chat(
    endpoint: Endpoint, messages: Sequence[Mapping[str, str]], *, template: str, max_tokens: int
) -> AsyncGenerator[str]:
    """Pieces of the answer to `messages` from `/v1/chat/completions` of the gateway at `endpoint`.

    Args:
        template: what the messages are made by, for the gateway's hit rates (`[a-z0-9_-]`, up to 32).

    Raises:
        ChatRefusedError: the gateway said why.
        GatewayGoneError: it cannot be reached, or broke off.
    """
    import httpx  # an editor that never chats does without it

    if not endpoint.url:
        raise GatewayGoneError("not connected to a gateway yet")
    url = f"{http_base(endpoint.url)}/v1/chat/completions"
    try:
        headers = {"x-foretype-template": template, **endpoint.headers()}
    except TokenInClearError as error:
        raise GatewayGoneError(str(error)) from error
    timeout = httpx.Timeout(_TIMEOUT_S, read=_READ_TIMEOUT_S)
    body = {"messages": [dict(message) for message in messages], "stream": True, "max_tokens": max_tokens}
    characters = 0
    try:
        async with (
            http_client(url, timeout) as http,
            http.stream("POST", url, json=body, headers=headers) as response,
        ):
            if response.status_code != 200:
                raise _refusal(response.status_code, await response.aread())
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                if (data := line[5:].strip()) == "[DONE]":
                    return
                piece = _piece(data)
                characters += len(piece)
                if piece:
                    yield piece
                if characters > _ANSWER_CHARS:
                    return
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise GatewayGoneError(f"the gateway cannot be reached: {type(error).__name__}") from error
    raise GatewayGoneError("the gateway broke the answer off")


def _piece(data: str) -> str:
    """The text of one event. Raises ChatRefusedError where it is an error."""
    event = _object(data.encode())
    if "error" in event:
        raise _refusal(200, data.encode())
    choices = event.get("choices")
    first: Any = cast("list[Any]", choices)[0] if isinstance(choices, list) and choices else None
    delta: Any = cast("dict[str, Any]", first).get("delta") if isinstance(first, dict) else None
    content: Any = cast("dict[str, Any]", delta).get("content") if isinstance(delta, dict) else None
    return content if isinstance(content, str) else ""


def _refusal(status: int, body: bytes) -> ChatRefusedError:
    told: Any = _object(body).get("error")
    fields = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    message, code = fields.get("message"), fields.get("code")
    if status in (401, 403):
        return ChatRefusedError("forbidden", f"the gateway refused this client ({status}): check the token")
    if not isinstance(message, str) or not message:
        message = f"the gateway answered {status}; it may be older than this editor"
    return ChatRefusedError(code if isinstance(code, str) else str(status), message)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
