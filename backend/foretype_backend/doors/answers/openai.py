"""Answers of the doors that speak OpenAI's protocol."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


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
