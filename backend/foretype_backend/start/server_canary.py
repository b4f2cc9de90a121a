"""One hole in a line of code, before a server that is not ours is said to be ready: prose, or control tokens as text, are told then."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final, cast

from foretype_context.grammars.grammar import Grammar
from foretype_context.prompt.templates import encode_prompt
from foretype_context.tokens.tokenizer import StreamDecoder, Tokenizer

from foretype_backend.doors.http import fim_segments
from foretype_backend.engines.port import Chunk, Engine, GenerationParams, GenerationRequest
from foretype_backend.errors import ConfigError, EngineUnavailableError, PromptRefusedError

__all__ = ["check_answer"]

_PREFIX: Final = "def add(a, b):\n    return "
_SUFFIX: Final = "\n\n\ndef subtract(a, b):\n    return a - b\n"
_TOKENS: Final = 16


async def check_answer(engine: Engine, tokenizer: Tokenizer, grammar: Grammar, *, layout: str) -> None:
    """Ask for what stands in the hole. A weak model may write anything but this.

    Raises:
        ConfigError: a chat answer, or a control token as text: the grammar is not this model's, or the server has a template of its own.
    """
    prompt = encode_prompt(tokenizer, grammar, fim_segments(grammar, _PREFIX, _SUFFIX, layout=layout))
    present = tokenizer.controls()
    ends = frozenset(tokenizer.control(token) for token in grammar.controls() if token in present)
    params = GenerationParams(max_tokens=_TOKENS, end_token_ids=ends)
    request = GenerationRequest("foretype-canary", prompt.ids, params, prompt_text=prompt.text, salt="foretype")
    decoder, text = StreamDecoder(tokenizer), ""
    try:
        async with contextlib.aclosing(cast("AsyncGenerator[Chunk]", engine.generate(request))) as chunks:
            async for chunk in chunks:
                text += chunk.text if chunk.text is not None else decoder.feed(chunk.token_ids)
    except (EngineUnavailableError, PromptRefusedError) as error:
        raise ConfigError("engine", str(error)) from error
    model = engine.capabilities().model
    leaked = next((token for token in grammar.controls() if token in text), None)
    if leaked is not None:
        raise ConfigError(
            "engine.model",
            f"{model} writes the control token {leaked} as text; its grammar is not {grammar.id}: name it with `[model] grammar` in "
            "--profile FILE",
        )
    if text.lstrip().startswith(grammar.instead):
        raise ConfigError(
            "engine.model",
            f"{model} answers in prose ({text.strip()[:40]!r}): it was trained to chat, or the server has a template of its own; "
            "take the base model, and a server that is asked raw (llama-server, or Ollama with --engine ollama)",
        )
