"""The engine port: what every inference engine looks like from inside the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec
from foretype_wire.messages import RequestClass

from foretype_backend.prefix.origin import Origin

WARM_PRIORITY: Final = len(RequestClass) - 1
"""The lowest, of what nobody waits for."""


class EngineFinish(StrEnum):
    END_TOKEN = "end_token"  # one of `GenerationParams.end_token_ids` was produced (and is not part of the output)
    LENGTH = "length"
    ABORTED = "aborted"


class GenerationParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to generate.

    Attributes:
        max_tokens: most tokens to generate, at least 1.
        end_token_ids: generation ends before any of these; they are never delivered.
        temperature: 0 is greedy.
        stop_strings: at most four; a hint, since the gateway enforces its own stop rules on text.
        begins: what the output must begin with, since the prompt was healed (:mod:`foretype_context.prompt.healing`); one line break
            stands for white space that holds some. A hint too: an answer that begins otherwise is begun by the gateway.
        first_of: with `max_tokens` 1, the ids that this token is to be one of; none says any. A hint as well.
    """

    max_tokens: int
    end_token_ids: frozenset[int] = frozenset()
    temperature: float = 0.0
    stop_strings: tuple[str, ...] = ()
    begins: str = ""
    first_of: tuple[int, ...] = ()


class GenerationRequest(msgspec.Struct, frozen=True):
    """What an engine is asked: a prompt, and how to go on after it.

    Attributes:
        id: unique among live requests of the engine; `abort` names it.
        token_ids: the prompt; not changed by anybody from here on.
        prompt_text: the same prompt as text, for engines that refuse token ids.
        priority: lower runs first (0 interactive … 5 warm).
        salt: isolates the prefix cache; None shares it.
        deadline: on the event loop's clock, seconds; work not started by then is dropped.
        origin: what the prompt is made of, for engines that route or keep tiers.
        traceparent: the gateway's span (W3C Trace Context), for servers that trace as well; "" where nothing is traced.
        handed: what a replica that computed the prompt says of where it is.
        take: is given a chunk that is not the last in the very moment in which it comes, by engines that can, and returns whether it takes
            the next one as well. What it took is not yielded; the chunk with which it ended is, and what follows. It never raises.
    """

    id: str
    token_ids: Sequence[int]
    params: GenerationParams
    prompt_text: str | None = None
    priority: int = 0
    salt: str | None = None
    deadline: float | None = None
    origin: Origin | None = None
    traceparent: str = ""
    handed: Mapping[str, Any] = {}
    take: Callable[[Chunk], bool] | None = None


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Some more output.

    Attributes:
        token_ids: generated tokens, in order; empty where the engine speaks text only.
        logprobs: natural log-probability of each token in `token_ids` (same length), or empty if unknown. With `text`,
            of the tokens that the text is made of.
        text: set by engines that speak text only (`Capabilities.token_ids` is false), else None.
        cached_tokens: prompt tokens not computed, on the first chunk (on the last, from an engine that counts in the
            end); None where unknown.
        prompt_tokens, generated_tokens: on the last chunk, of an engine that counts for itself; None where it does not.
        finish: set on the last chunk.
        end_logprob: on the last chunk, the natural log-probability of the end token; None where none came, or it is not known.
        queue_ms, prefill_ms: on the first chunk: queue wait and prefill duration as the engine measured them.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    text: str | None = None
    cached_tokens: int | None = None
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    finish: EngineFinish | None = None
    end_logprob: float | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do; a gateway with more than one tenant refuses to start on an engine without `salt`."""

    salt: bool
    priority: bool
    cached_tokens: bool
    token_ids: bool
    logprobs: bool
    context_limit_tokens: int
    block_tokens: int
    model: str
    notes: tuple[str, ...] = field(default=())


class EngineStatistics(NamedTuple):
    """A consistent snapshot of an engine's counters.

    `kv_use` is the share of its key-value cache that running requests hold, 0 to 1; None where the engine does not say.
    """

    running: int
    waiting: int
    restarts: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    tokens_after_cancel: int
    kv_use: float | None = None


@runtime_checkable
class KnowsMemory(Protocol):
    """An engine that knows how much its cache memory holds."""

    def can_admit(self, tokens: int) -> bool:
        """Whether so many tokens more would be held beside those of the requests that run."""
        ...


class Engine(Protocol):
    """An inference engine.

    `generate` yields chunks until one carries `finish`. Closing the iterator early (``aclose``) aborts the request and
    frees its slot; `abort` does the same by id and is idempotent, also for ids that are unknown or not yet started. It is no
    coroutine, so that a cancel waits for nothing that an event loop has to do first: what an engine must be sent is on its way, or in
    a task of the engine's own, when it returns.
    Errors: :class:`PromptRefusedError` before the first chunk; :class:`EngineUnavailableError` at any time.
    """

    async def start(self) -> None:
        """Load the model; return when the first request can be served. Raises EngineUnavailableError with the remedy."""
        ...

    async def close(self) -> None: ...

    async def ready(self) -> None:
        """Raises EngineUnavailableError where nothing could be generated now. Cheap: it makes no model work."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]: ...

    def abort(self, request_id: str) -> None: ...

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        """Compute and cache the prefix at the lowest priority; dropped silently under load."""
        ...

    @property
    def restarts(self) -> int:
        """Times that it was started anew, as its statistics have it. Looked at with each request, which need not count all the rest."""
        ...

    def statistics(self) -> EngineStatistics: ...

    def capabilities(self) -> Capabilities: ...
