"""Answers of `/infill`, as llama.cpp gives them."""

from __future__ import annotations

from typing import Literal, TypedDict


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
