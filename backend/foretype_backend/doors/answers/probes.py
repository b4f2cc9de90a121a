"""What probes and clients that start up are told."""

from __future__ import annotations

from typing import Literal, TypedDict


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
