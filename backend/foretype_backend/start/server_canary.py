"""One hole in a line of code, before a server that is not ours is said to be ready: a wrong grammar, prose or a template is told then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final, cast

from foretype_context.grammars.families import known_controls
from foretype_context.grammars.grammar import Grammar
from foretype_context.prompt.templates import encode_prompt
from foretype_context.tokens.tokenizer import StreamDecoder, Tokenizer

from foretype_backend.config.load import Config
from foretype_backend.config.settings import RUNNING_SERVERS
from foretype_backend.doors.http import fim_segments
from foretype_backend.engines.port import Chunk, Engine, GenerationParams, GenerationRequest
from foretype_backend.errors import ConfigError, EngineUnavailableError, PromptRefusedError
from foretype_backend.start.prepare import Parts

if TYPE_CHECKING:
    from foretype_backend.chat.pool import BlockPool
    from foretype_backend.fleet.pool import ReplicaPool

__all__ = ["check_answer", "check_blocks", "check_server"]

_PREFIX: Final = "def add(a, b):\n    return "
_SUFFIX: Final = "\n\n\ndef subtract(a, b):\n    return a - b\n"
_TOKENS: Final = 16
_OWN_TOKENS: Final = 4
"""What a server may put into a prompt without a template: a begin token, SentencePiece's spaces."""
_RAW: Final = "take the base model, and a server that is asked raw (llama-server, vLLM, or Ollama with --engine ollama)"


async def check_server(config: Config, parts: Parts, *, layout: str) -> bool:
    """Ask every server behind the engine of a gateway. False where it computes itself, and nobody was asked.

    Raises:
        ConfigError: as :func:`check_answer`, or the one server does not answer.
    """
    engine, name = parts.engine, config.engine.name
    if name == "vllm-server":
        await _check_all(cast("ReplicaPool", engine).in_service(), parts, layout)
    elif name in ("openai", *RUNNING_SERVERS):
        try:
            await check_answer(engine, parts.tokenizer, parts.grammar, layout=layout)
        except EngineUnavailableError as error:
            raise ConfigError("engine", str(error)) from error
    else:
        return False
    return True


async def check_blocks(pool: BlockPool) -> None:
    """Ask the server of whole blocks; one that is away comes into use when it is there. Raises ConfigError."""
    renderer = pool.renderer
    with contextlib.suppress(EngineUnavailableError):
        await check_answer(
            pool.service.engine,
            renderer.tokenizer,
            renderer.grammar,
            layout=renderer.grammar.layouts[0],
            field="pool.quality.url",
        )


async def _check_all(replicas: Sequence[Engine], parts: Parts, layout: str) -> None:
    """At once. One that is away is left to the checks of its health."""
    asked = (
        check_answer(one, parts.tokenizer, parts.grammar, layout=layout, field="pool.fast.replicas") for one in replicas
    )
    for fault in await asyncio.gather(*asked, return_exceptions=True):
        if fault is not None and not isinstance(fault, EngineUnavailableError):
            raise fault


async def check_answer(
    engine: Engine, tokenizer: Tokenizer, grammar: Grammar, *, layout: str, field: str = "engine.model"
) -> None:
    """Ask for what stands in the hole. A weak model may write anything but this.

    Args:
        field: of the configuration, that names the server.

    Raises:
        ConfigError: the server refuses the prompt or puts it into a template of its own, or it answers in prose, with a control token as
            text, or with what stands before the hole.
        EngineUnavailableError: it does not answer at all.
    """
    prompt = encode_prompt(tokenizer, grammar, fim_segments(grammar, _PREFIX, _SUFFIX, layout=layout))
    present = tokenizer.controls()
    ends = frozenset(tokenizer.control(token) for token in grammar.controls() if token in present)
    params = GenerationParams(max_tokens=_TOKENS, end_token_ids=ends)
    request = GenerationRequest("foretype-canary", prompt.ids, params, prompt_text=prompt.text, salt="foretype")
    decoder, text, counted = StreamDecoder(tokenizer), "", 0
    try:
        async with contextlib.aclosing(cast("AsyncGenerator[Chunk]", engine.generate(request))) as chunks:
            async for chunk in chunks:
                text += chunk.text if chunk.text is not None else decoder.feed(chunk.token_ids)
                counted = chunk.prompt_tokens or counted
    except PromptRefusedError as error:
        raise ConfigError(field, str(error)) from error
    wrong = _wrong(text, counted, len(prompt.ids), grammar)
    if wrong:
        raise ConfigError(field, f"{engine.capabilities().model} {wrong}")


def _wrong(text: str, counted: int, tokens: int, grammar: Grammar) -> str:
    """What an answer shows of who gave it, with what to do; empty where it shows nothing.

    Args:
        counted: prompt tokens by the server's own count; 0 where it does not say.
        tokens: as they were sent.
    """
    leaked = next((token for token in sorted(grammar.controls() | known_controls()) if token in text), None)
    if leaked is not None:
        return (
            f"writes the control token {leaked} as text; its grammar is not {grammar.id}: name it with `[model] grammar` in "
            "--profile FILE"
        )
    if text.lstrip().startswith(grammar.instead):
        return (
            f"answers in prose ({text.strip()[:40]!r}): it was trained to chat, or the server has a template of its own; "
            f"{_RAW}"
        )
    if text.lstrip().startswith(_PREFIX.partition("\n")[0]):
        return (
            f"says again what stands before the hole: it does not fill holes in {grammar.id}, or the server echoes prompts; "
            f"{_RAW}"
        )
    if counted > tokens + _OWN_TOKENS:
        return (
            f"counts {counted} tokens in a prompt of {tokens}: its server puts prompts into a template, or takes control tokens for "
            f"text; {_RAW}, and the tokenizer of this very model"
        )
    return ""
