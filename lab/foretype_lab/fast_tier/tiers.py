"""What a tier of vLLM's prefix cache is worth: first tokens of prompts that lie in it, its bandwidth, and for which models it pays.

A tier pays where a token's keys and values come sooner than they are computed. Both are measured here for one model; for others its bytes follow
from their shapes, and its prefill rate from their FLOPs (:mod:`foretype_plan.formulas`), on this same machine.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.engines.vllm.metrics import read_metrics
from foretype_backend.engines.vllm.options import read_shape
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.salt import SaltBook
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from foretype_plan.catalogue import Model, model
from foretype_plan.formulas import flop_per_token, kv_bytes_per_token
from prometheus_client import REGISTRY, generate_latest

from foretype_lab.fast_tier.asking import Answered, ClaimOptions, ask, drawn, started

_STABLE_TOKENS: Final = 1024
_TOKENS: Final = _STABLE_TOKENS + 8
TENANT: Final = "opted"
_SETTLES_S: Final = 0.5
SHIPPED: Final = Model(parameters=134_515_008, layers=30, heads=9, kv_heads=3, head_dim=64)
_OTHERS: Final = ("qwen2.5-coder-1.5b", "qwen2.5-coder-7b")


async def measure(options: ClaimOptions) -> dict[str, Any]:
    """Rows by tokens of a block, and models by what a tier takes beside computing. Raises EngineUnavailableError, ValueError."""
    rows: list[dict[str, Any]] = []
    wide = 2 * read_shape(options.model).kv_bytes  # in float32
    for block in options.blocks:
        with tempfile.TemporaryDirectory(prefix="foretype-tiers-") as folder:
            secret = Path(folder) / "salt"
            secret.write_bytes(secrets.token_bytes(32))
            redis = {"redis_url": options.redis_url, "redis_secret_file": str(secret), "redis_tenants": (TENANT,)}
            given = {
                "context_tokens": 2048,
                "cache_gib": 0.5,
                "host_tier_gib": 0.5,
                "host_copies": True,
                "shared": True,
            }
            async with started(
                options.model, block_tokens=block, **given, **(redis if options.redis_url else {})
            ) as engine:
                rows.append({"block_tokens": block} | summary(*await _tiers(engine, options), bytes_per_token=wide))
    return {"bytes_per_token": wide, "stable_tokens": _STABLE_TOKENS, "rows": rows, "models": models(rows[0])}


def summary(
    first_ms: dict[str, list[float]], cached: dict[str, int], by_tier: dict[str, int], *, bytes_per_token: int
) -> dict[str, Any]:
    """Medians, prefill rate, and the bandwidth that the time above the device's stands for; none for a tier that is no slower."""
    median = {tier: statistics.median(times) for tier, times in first_ms.items()}
    computed_ms = median["computed"] - median["device"]
    size = _STABLE_TOKENS * bytes_per_token
    return {
        "first_ms": {tier: round(ms, 1) for tier, ms in median.items()},
        "cached_tokens": cached,
        "by_tier": by_tier,
        "prefill_tokens_per_s": round(1000 * _STABLE_TOKENS / computed_ms, 1),
        "bytes_per_s": {
            tier: round(1000 * size / (ms - median["device"]))
            for tier, ms in median.items()
            if tier != "computed" and ms > median["device"]
        },
    }


def models(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each model: seconds to compute a thousand tokens here, to load them from each tier, and the bandwidth at which both are equal."""
    told: list[dict[str, Any]] = []
    for named, shape in {"shipped": SHIPPED, **{name: model(name) for name in _OTHERS}}.items():
        rate = row["prefill_tokens_per_s"] * _flops(SHIPPED) / _flops(shape)
        size = kv_bytes_per_token(shape.layers, shape.kv_heads, shape.head_dim, 16)
        told.append(
            {
                "model": named,
                "bytes_per_token": round(size),
                "compute_s": round(1000 / rate, 3),
                "load_s": {tier: round(1000 * size / speed, 4) for tier, speed in row["bytes_per_s"].items()},
                "breaks_even_bytes_per_s": round(size * rate),
            }
        )
    return told


def _flops(shape: Model) -> float:
    return flop_per_token(shape.parameters, shape.layers, shape.heads, shape.head_dim, _STABLE_TOKENS)


async def _tiers(
    engine: VllmEngine, options: ClaimOptions
) -> tuple[dict[str, list[float]], dict[str, int], dict[str, int]]:
    draw = random.Random(6)
    book = SaltBook(draw.randbytes(32))
    llm, _ = engine.library()
    names = iter(range(1 << 30))
    first: dict[str, list[float]] = defaultdict(list)
    cached: dict[str, int] = defaultdict(int)

    async def told(ids: list[int]) -> Answered:
        salt = book.salt(book.namespace(TENANT))
        return await ask(engine, f"t{next(names)}", ids, salt=salt, origin=origin())

    async def forget(*, host: bool) -> None:
        await told(drawn(draw, 64))  # stores of the last step begin with the next
        await asyncio.sleep(_SETTLES_S)
        while not await llm.reset_prefix_cache(reset_connector=host):  # noqa: ASYNC110 - it is refused while blocks are in use
            await asyncio.sleep(0.02)

    before = by_tier()
    sides = {"computed": None, "device": None, "host": False} | ({"redis": True} if options.redis_url else {})
    for _ in range(max(3, options.samples // 8)):
        ids = drawn(draw, _TOKENS)
        for tier, host in sides.items():
            if host is not None:
                await forget(host=host)
            answer = await told(ids)
            first[tier].append(answer.first_ms)
            cached[tier] += answer.cached_tokens
    after = by_tier()
    return dict(first), dict(cached), {tier: count - before.get(tier, 0) for tier, count in after.items()}


def origin(stable_tokens: int = _STABLE_TOKENS, tokens: int = _TOKENS, document: str = "a.py") -> Origin:
    """A prompt whose first part may leave the device."""

    def segment(kind: Kind, scope: Scope) -> Segment:
        return Segment(kind=kind, scope=scope, source=Source(document=document, version=1, start=0, end=1), text="")

    placed = (
        PlacedSegment(segment=segment(Kind.PREFIX, Scope.FILE), start=0, end=stable_tokens),
        PlacedSegment(segment=segment(Kind.MIDDLE, Scope.SESSION), start=stable_tokens, end=tokens),
    )
    return Origin(tenant=TENANT, document=document, placed=placed)


def by_tier() -> dict[str, int]:
    """Prompt tokens so far, as this process's vLLM counts them."""
    return dict(read_metrics(generate_latest(REGISTRY).decode()).prompt_tokens_by_tier)
