"""What the HTTP doors answer, as types: the schemas of the OpenAPI document are made from them."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from foretype_context.profile import Stop
from foretype_context.segments import Kind, Scope, Source

__all__ = [
    "Cached",
    "ChatCompletion",
    "ChatCompletionChunk",
    "Completion",
    "FinishedText",
    "GatewayError",
    "Health",
    "InfillAnswer",
    "InfillError",
    "Login",
    "LoginCode",
    "Models",
    "PageError",
    "PlannedPrompt",
    "Probe",
    "Purge",
    "Status",
    "Unready",
    "Usage",
]


class ErrorDetail(TypedDict):
    """`code` is for programs, `message` for people; `param` names the field that is wrong."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str


class GatewayError(TypedDict):
    """OpenAI's form of an error."""

    error: ErrorDetail


class InfillErrorDetail(TypedDict):
    code: int
    message: str
    type: Literal["invalid_request_error", "unavailable_error"]


class InfillError(TypedDict):
    """llama.cpp's form of an error."""

    error: InfillErrorDetail


class PageErrorDetail(TypedDict):
    code: str
    message: str
    field: str | None


class PageError(TypedDict):
    """The playground's form of an error."""

    error: PageErrorDetail


class CachedTokens(TypedDict):
    cached_tokens: int


class Usage(TypedDict):
    """OpenAI's `usage`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class CompletionChoice(TypedDict):
    """`finish_reason` is null in all but the last event of a stream."""

    index: int
    text: str
    logprobs: None
    finish_reason: Literal["stop", "length"] | None


class Completion(TypedDict):
    """OpenAI's completion; an event of a stream is one with the text since the last."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: NotRequired[Usage]


class Model(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(TypedDict):
    object: Literal["list"]
    data: list[Model]


class AssistantMessage(TypedDict):
    role: Literal["assistant"]
    content: str


class ChatChoice(TypedDict):
    index: int
    message: AssistantMessage
    finish_reason: Literal["stop", "length"]


class ChatCompletion(TypedDict):
    """OpenAI's chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatDelta(TypedDict):
    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]


class ChatChunkChoice(TypedDict):
    index: int
    delta: ChatDelta
    finish_reason: Literal["stop", "length"] | None


class ChatCompletionChunk(TypedDict):
    """One event of a streamed chat completion; the one with `usage` has no choice."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: NotRequired[Usage]


class GenerationSettings(TypedDict):
    n_ctx: int
    n_predict: int


class InfillTimings(TypedDict):
    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class InfillAnswer(TypedDict, total=False):
    """llama.cpp's answer; with `response_fields` only those, under the very names that were asked for."""

    index: int
    content: str
    stop: bool
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    truncated: bool
    generation_settings: GenerationSettings
    stop_type: Literal["eos", "word", "limit"]
    timings: InfillTimings


class Probe(TypedDict):
    status: Literal["ok"]


class Unready(TypedDict):
    status: Literal["unready"]
    reason: Literal["draining", "engine", "issuer"]


class EngineFigures(TypedDict):
    """Counters are since the engine's start; `kv_use` is the share of its cache that running requests hold, if it says."""

    running: int
    waiting: int
    restarts: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    tokens_after_cancel: int
    kv_use: float | None


class Health(TypedDict):
    """`authorized`: the credential of this request is right, or none is asked for."""

    status: Literal["ok", "draining"]
    model: str
    grammar: str
    version: str
    connections: int
    running: int
    waiting: int
    engine: EngineFigures
    authorized: bool


class PoolStatus(TypedDict):
    model: str
    running: int
    stopping: int
    waiting: int
    slots: int
    queued_uncached_tokens: int
    hit_rate: float | None
    shedding_level: int
    p99_ttft_ms: dict[str, float]
    decisions: dict[str, dict[str, int]]
    engine: EngineFigures
    replicas: int


class ChatTemplate(TypedDict):
    template: str
    requests: int
    hit_rate: float | None
    changing: bool
    stable_characters: int


class IdentityStatus(TypedDict):
    """`age_s`: how old the list of tenants and keys is that this gateway decides by."""

    version: int
    age_s: float


class Status(TypedDict):
    """A gateway at a glance; `rungs`, how much less a tenant is served, of one's own tenant and `other_rungs` of how many more."""

    version: str
    uptime_s: float
    connections: int
    draining: bool
    service: str
    rungs: dict[str, int]
    pools: dict[str, PoolStatus]
    chat_tpot_p99_ms: dict[str, float]
    chat_templates: list[ChatTemplate]
    identity: IdentityStatus | None
    other_rungs: NotRequired[int]
    workers: NotRequired[int]


class CachedDocument(TypedDict):
    document: str
    scope: Scope
    blocks: int
    tokens: int
    retired_blocks: int
    sessions: int
    replicas: list[str]
    since_s: float
    last_used_s: float


class ReplicaHealth(TypedDict):
    standing: str
    reason: str
    in_flight: int
    outages: int
    checks: int


class CacheAgreement(TypedDict):
    """What was predicted to be cached, beside what the engines said."""

    requests: int
    within_block: int
    predicted_tokens: int
    cached_tokens: int


class Cached(TypedDict):
    """What is believed, or known by the replicas' events, to be cached of a repository."""

    tenant: str
    repository: str
    tokens: int
    block_tokens: int
    documents: list[CachedDocument]
    replicas: dict[str, ReplicaHealth]
    agreement: CacheAgreement


class NotReached(TypedDict):
    gateway: str
    why: str


class Purge(TypedDict):
    """`blocks`: how many were believed to be cached, where somebody counts. Who was not reached follows when it can."""

    tenant: str
    repository: str
    blocks: int | None
    epoch: int
    complete: bool
    reached: list[str]
    not_reached: list[NotReached]


class LoginCode(TypedDict):
    code: str
    seconds: float


class Login(TypedDict):
    """The half of a login that the page keeps; the other is a cookie."""

    page: str


class PlannedSegment(TypedDict):
    kind: Kind
    scope: Scope
    source: Source
    text: str


class PlannedComplete(TypedDict):
    """A `complete` of the stream, without its id."""

    document: str
    version: int
    language: str
    segments: list[PlannedSegment]
    max_tokens: int
    stop: Stop
    prompt_tokens: int


class DroppedPart(TypedDict):
    kind: Kind
    tokens: int
    reason: str


class PlannedPrompt(TypedDict):
    """A prompt as a `complete` of the stream, and what the page shows of it; ranges are of tokens."""

    complete: PlannedComplete
    ranges: list[list[int]]
    layout: str
    kind: str
    budget_tokens: int
    healed: str
    dropped: list[DroppedPart]
    frozen: int
    timings_ms: dict[str, float]


class FinishedText(TypedDict):
    """What an editor would show, and how many characters right of the cursor it takes the place of."""

    text: str
    replaces: int
    reason: str | None
