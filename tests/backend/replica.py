"""A replica of `vllm serve` that can be told to be difficult: its wire, its prefix cache, its metrics, no model."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import uvicorn
from backend.model_servers import KEPT
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

VOCABULARY = 1_000


class Replica:
    """A server on a port of its own, started and stopped by `async with` or by hand. The port is its own until it is stopped.

    Attributes:
        behaviour: `ok`, `silent` (takes and says nothing), `endless`, `garbage`, `html`, `dies` (mid-stream), `error`
            (500), `busy` (503), `slow` (one token a tenth of a second).
        salting: `keeps` apart what is under different salts, `ignores` them, or `refuses` the field.
        counting: `cached` tokens, the `prompt` alone, or `nothing`.
        chats: whether it has a chat template.
        echoes: its errors quote what it was asked.
        probed: prompts of one token of output that were asked whole, by their salts.
    """

    def __init__(
        self,
        *,
        model: str = "coder",
        context: int = 4096,
        block: int = 16,
        aborts: bool = True,
        ids: bool = True,
        vocabulary: int = VOCABULARY,
    ) -> None:
        self.vocabulary = vocabulary
        self.kv_use = 0.0
        self.guesses = 0
        """Tokens guessed per step by its own counters."""
        self.model, self.context, self.aborts, self.ids = model, context, aborts, ids
        self.cache = ShadowPrefixCache(4096, block)
        self.behaviour = "ok"
        self.salting = "keeps"
        self.counting = "cached"
        self.chats = True
        self.echoes = False
        self.tokenizes: Callable[[str], list[int]] | None = None
        """Its own tokenizer, where it says."""
        self.writes: tuple[int, ...] = ()
        """Ids that it writes, over and over, in place of what nobody reads."""
        self.probed: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.aborted: list[str] = []
        self.disconnects = self.starts = self.computed_tokens = 0
        self._live: dict[str, asyncio.Event] = {}
        # Bound until it is stopped, and never listened on: no other process gets the port before the start or between two.
        self._kept = self._bound(0)
        self.port: int = self._kept.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.starts += 1
        self.cache.clear()
        listener = self._listener()
        config = uvicorn.Config(self._app(), log_level="critical", lifespan="off", **KEPT, timeout_graceful_shutdown=0)
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        while not self._server.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.005)

    def _listener(self) -> socket.socket:
        return self._bound(self.port)

    def _bound(self, port: int) -> socket.socket:
        # The protocol is named, or asyncio leaves Nagle's algorithm on: an answer's first token would wait 40 ms.
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("127.0.0.1", port))
        return made

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self, *, keeps_port: bool = False) -> None:
        """Ends; with `keeps_port` to be started again."""
        if not keeps_port:
            self._kept.close()
        if self._server is not None and self._task is not None:
            self._server.force_exit = self._server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._server = self._task = None

    def _app(self) -> Starlette:
        async def models(_: Request) -> Any:
            if self.behaviour == "html":
                return PlainTextResponse("<html>")
            await self._maybe_hang()
            return JSONResponse({"data": [{"id": self.model, "max_model_len": self.context}]})

        async def health(_: Request) -> Any:
            return PlainTextResponse("", 503 if self.behaviour == "error" else 200)

        async def metrics(_: Request) -> Any:
            return PlainTextResponse(
                f'vllm:num_requests_running{{engine="0"}} {len(self._live)}\n'
                'vllm:num_requests_waiting{engine="0"} 0\n'
                f'vllm:cache_config_info{{block_size="{self.cache.block_tokens}",num_gpu_blocks="512"}} 1.0\n'
                f'vllm:kv_cache_usage_perc{{engine="0"}} {self.kv_use}\n'
                f"vllm:spec_decode_num_drafts_total {100 * bool(self.guesses)}\n"
                f"vllm:spec_decode_num_draft_tokens_total {100 * self.guesses}\n"
                f"process_start_time_seconds {1000 + self.starts}\n"
            )

        async def completions(request: Request) -> Any:
            body = _in_tokens(await request.json())
            if "messages" in body and not self.chats:
                return JSONResponse({"error": {"message": "no chat template"}}, 400)
            if self.salting == "refuses" and "cache_salt" in body:
                return JSONResponse({"error": {"message": "unknown field cache_salt"}}, 400)
            if self.behaviour in ("error", "busy"):
                status = 500 if self.behaviour == "error" else 503
                return JSONResponse({"error": {"message": str(body) if self.echoes else "told to"}}, status)
            if any(not 0 <= one < self.vocabulary for one in body["prompt"]):
                return JSONResponse({"error": {"message": "Token id is out of vocabulary"}}, 400)
            if not body.get("stream"):
                await self._maybe_hang()
                cached = 0
                if len(body["prompt"]) > 1:
                    self.bodies.append(body)
                    cached = self._compute(body)
                    if body["max_tokens"] == 1:
                        self.probed.append(body.get("cache_salt", ""))
                choice: dict[str, Any] = {"text": "x", **({"token_ids": [1]} if self.ids else {})}
                return JSONResponse({"choices": [choice], **self._usage(body, cached)})
            if len(body["prompt"]) > 1:  # not a health check
                self.bodies.append(body)
                self.headers.append(dict(request.headers))
            name = f"cmpl-{request.headers.get('x-request-id', id(body))}-0"
            return StreamingResponse(self._stream(name, body), media_type="text/event-stream")

        async def abort(request: Request) -> Any:
            if not self.aborts:
                return JSONResponse({"detail": "Not Found"}, 404)
            for name in (await request.json())["request_ids"]:
                self.aborted.append(name)
                if name in self._live:
                    self._live[name].set()
            return JSONResponse({})

        async def tokenize(request: Request) -> Any:
            if self.tokenizes is None:
                return JSONResponse({"detail": "Not Found"}, 404)
            return JSONResponse({"tokens": self.tokenizes((await request.json())["prompt"])})

        return Starlette(
            routes=[
                Route("/tokenize", tokenize, methods=["POST"]),
                Route("/v1/models", models, methods=["GET"]),
                Route("/health", health, methods=["GET"]),
                Route("/metrics", metrics, methods=["GET"]),
                Route("/v1/completions", completions, methods=["POST"]),
                Route("/v1/chat/completions", completions, methods=["POST"]),
                Route("/inference/v1/abort_requests", abort, methods=["POST"]),
            ]
        )

    async def _maybe_hang(self) -> None:
        if self.behaviour == "silent":
            await asyncio.sleep(60)

    def _compute(self, body: dict[str, Any]) -> int:
        prompt = body["prompt"]
        keys = self.cache.keys(prompt, salt=body.get("cache_salt", "") if self.salting == "keeps" else "")
        cached = self.cache.insert(keys, len(prompt))
        cached = min(cached, (len(prompt) - 1) // self.cache.block_tokens * self.cache.block_tokens)
        self.computed_tokens += len(prompt) - cached if len(prompt) > 1 else 0
        return cached

    def _usage(self, body: dict[str, Any], cached: int) -> dict[str, Any]:
        if self.counting == "nothing":
            return {}
        usage: dict[str, Any] = {"prompt_tokens": len(body["prompt"]), "completion_tokens": 1}
        if self.counting == "cached":
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return {"usage": usage}

    async def _stream(self, name: str, body: dict[str, Any]) -> AsyncIterator[str]:
        def event(**data: Any) -> str:
            return f"data: {json.dumps(data)}\n\n"

        stopped = self._live[name] = asyncio.Event()
        finish = "length"
        try:
            await self._maybe_hang()
            cached = self._compute(body)
            endless = self.behaviour in ("endless", "slow")
            for at in range(10**6 if self.behaviour == "endless" else body["max_tokens"]):
                if self.behaviour == "garbage":
                    yield "data: {{{\n\n"
                    return
                if self.behaviour == "dies" and at == 1:
                    raise RuntimeError("told to die")
                token = self.writes[at % len(self.writes)] if self.writes else (sum(body["prompt"]) + at) % VOCABULARY
                said = {"text": "t", "token_ids": [token], "logprobs": {"token_logprobs": [-0.5]}}
                yield event(choices=[{"delta": {"content": "t"}} if "messages" in body else said])
                if endless:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.1 if self.behaviour == "slow" else 0.01):
                            await stopped.wait()
                if stopped.is_set():
                    finish = "abort"
                    break
                if token in body.get("stop_token_ids", ()):
                    finish = "stop"
                    break
            yield event(choices=[{"text": "", "token_ids": [], "finish_reason": finish}])
            yield event(choices=[], **self._usage(body, cached))
            yield "data: [DONE]\n\n"
        except (asyncio.CancelledError, GeneratorExit):
            self.disconnects += 1
            raise
        finally:
            del self._live[name]


def _in_tokens(body: dict[str, Any]) -> dict[str, Any]:
    """A text, or a conversation, is a token for each byte."""
    if "messages" in body:
        body["prompt"] = json.dumps(body["messages"])
    if isinstance(body["prompt"], str):
        body["prompt"] = list(body["prompt"].encode())
    return body
