"""One hole in a line of code, before a server that is not ours is said to be ready: a wrong grammar, prose or a template is told then."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final, cast

from foretype_context.grammars.families import known_controls
from foretype_context.grammars.grammar import Grammar
from foretype_context.prompt.templates import encode_prompt
from foretype_context.tokens.tokenizer import StreamDecoder, Tokenizer

from foretype_backend.config.config import Config
from foretype_backend.config.settings import RUNNING_SERVERS
from foretype_backend.config.tenants import server_field
from foretype_backend.doors.http import fim_segments
from foretype_backend.engines.port import Chunk, Engine, GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_backend.errors import ConfigError, EngineUnavailableError, PromptRefusedError
from foretype_backend.serving.served_revision import BlockPool
from foretype_backend.start.prepare import Parts

if TYPE_CHECKING:
    from foretype_backend.fleet.pool import ReplicaPool

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
        field = server_field(config)

        async def canary(replica: Engine) -> None:
            await check_answer(replica, parts.tokenizer, parts.grammar, layout=layout, field=field)
            await _check_tokenizer(replica, parts.tokenizer, field)

        await cast("ReplicaPool", engine).expect(canary)
    elif name in ("openai", *RUNNING_SERVERS):
        try:
            await check_answer(engine, parts.tokenizer, parts.grammar, layout=layout)
        except EngineUnavailableError as error:
            raise ConfigError("engine", str(error)) from error
    else:
        return False
    return True


async def check_blocks(pool: BlockPool) -> None:
    """Ask the servers of whole blocks; those that are away come into use when they are there. Raises ConfigError."""
    from foretype_backend.fleet.pool import ReplicaPool

    renderer, engine, field = pool.renderer, pool.service.engine, "pool.quality.url"
    layout = renderer.grammar.layouts[0]

    async def canary(server: Engine) -> None:
        await check_answer(server, renderer.tokenizer, renderer.grammar, layout=layout, field=field)
        await _check_tokenizer(server, renderer.tokenizer, field)

    with contextlib.suppress(EngineUnavailableError):
        await (engine.expect(canary) if isinstance(engine, ReplicaPool) else canary(engine))


async def _check_tokenizer(replica: Engine, tokenizer: Tokenizer, field: str) -> None:
    """The server's own tokenizer, where it says, makes the same ids: a revision of another one may have its name."""
    if isinstance(replica, VllmServerEngine):
        text = _PREFIX + _SUFFIX
        ids = await replica.tokens_of(text)
        if ids is not None and ids != list(tokenizer.encode(text)):
            told = "has another tokenizer than the profile; serve the model that it was made for, or name its own with [model] tokenizer"
            raise ConfigError(field, f"{replica.capabilities().model} {told}")


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
    decoder, text, counted, highest = StreamDecoder(tokenizer), "", 0, 0
    try:
        async with contextlib.aclosing(cast("AsyncGenerator[Chunk]", engine.generate(request))) as chunks:
            async for chunk in chunks:
                text += chunk.text if chunk.text is not None else decoder.feed(chunk.token_ids)
                highest = max((highest, *chunk.token_ids))
                counted = chunk.prompt_tokens or counted
    except PromptRefusedError as error:
        raise ConfigError(field, str(error)) from error
    if highest >= tokenizer.vocabulary_tokens:
        wrong = f"writes token {highest}, and tokenizer has {tokenizer.vocabulary_tokens}; name the model's own with [model] tokenizer"
    else:
        wrong = _wrong(text, counted, len(prompt.ids), grammar)
    if wrong:
        raise ConfigError(field, f"{engine.capabilities().model} {wrong}")


def _wrong(text: str, counted: int, tokens: int, grammar: Grammar) -> str:
    """What an answer shows of the server that gave it, and what to do; empty if it shows nothing.

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
