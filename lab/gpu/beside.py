"""The planner's prediction beside what was measured of a model's shape, and the constants that a measurement moves."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from foretype_plan.catalogue import catalogue
from foretype_plan.measured import alone
from foretype_plan.scenario import Scenario, values
from foretype_plan.sheet import evaluate
from foretype_plan.simulation.engine import HOST_BYTES_PER_S, spec_of

TOLERANCE = 0.2
"""A constant that a measurement moves by more is named."""
BITS = {"bf16": (16, 16), "float32": (16, 16), "ngram": (16, 16), "fp8": (8, 16), "int8": (8, 16)} | {
    "int4": (4, 16),
    "fp8 KV": (16, 8),
    "all together": (8, 8),
}
"""Of weights, and of keys and values, by row of deploy/gpu/bench.py."""
_HOST = "HOST_BYTES_PER_S"


class Case(NamedTuple):
    """A figure, what the planner calls it, its inputs, and the constant that it stands on most."""

    what: str
    measured_ms: float
    quantity: str
    given: dict[str, float]
    constant: str


def card_of(device: str) -> str | None:
    """The catalogue's name of a GPU, by what its driver calls it."""
    words = device.lower().replace("-", " ").split()
    return next((name for name in catalogue().hardware if name in words), None)


def beside(rows: dict[str, Any], card: str, shape: Path) -> list[dict[str, Any]]:
    """Of each figure `measured_ms`, `predicted_ms`, their `ratio`, and the constant with what would make them equal.

    Args:
        rows: of deploy/gpu/bench.py, by name.
        shape: the config.json of what was measured.
    """
    made = [_row(case) for name, row in rows.items() if name in BITS for case in _cases(name, row, card, shape)]
    host = rows.get("host tier", {}).get("host_tier", {})
    if host.get("n"):
        tokens = host["prompt_tokens"] * host["cached_share"]
        tier = alone(str(shape), card, host["prompt_tokens"], 1)
        load_ms = 1000 * tokens * spec_of(tier, chunk_tokens=2048).load_s
        found = values(Scenario(), tier) | {"new_tokens": host["prompt_tokens"] - tokens + 6}
        warm_ms = 1000 * evaluate(found, only="warm_s")["warm_s"]
        predicted = load_ms + warm_ms
        would = HOST_BYTES_PER_S * load_ms / max(1e-3, host["p50_ms"] - warm_ms)
        made.append(
            _told("host tier: first token from host memory", host["p50_ms"], predicted, _HOST, HOST_BYTES_PER_S, would)
        )
    return made


def moved(compared: list[dict[str, Any]]) -> dict[str, Any]:
    """Constants that the measurements, taken together, differ from by more than :data:`TOLERANCE`."""
    by_name: dict[str, list[float]] = {}
    for one in compared:
        if one["would_be"] is not None:
            by_name.setdefault(one["constant"], []).append(one["would_be"])
    found: dict[str, Any] = {}
    for name, would in by_name.items():
        now = HOST_BYTES_PER_S if name == _HOST else catalogue().input[name].value
        if abs(median(would) / now - 1) > TOLERANCE:
            found[name] = {
                "now": now,
                "median": median(would),
                "least": min(would),
                "most": max(would),
                "of": len(would),
            }
    return found


def _cases(name: str, row: dict[str, Any], card: str, shape: Path) -> list[Case]:
    made: list[Case] = []

    def given(prompt: float, output: float, **more: float) -> dict[str, float]:
        weight_bits, kv_bits = BITS[name]
        tier = alone(str(shape), card, prompt, output, bits=weight_bits, kv_bits=kv_bits)
        return values(Scenario(), tier) | more

    for part in ("ttft", "ttft_long"):
        one = row.get(part, {}).get("1")
        if one is None:
            continue
        size = one["prompt_tokens"]
        made.append(Case(f"{name}: cold first token, {size:,} tokens", one["cold"]["p50_ms"], "cold_s", given(size, 1), "prefill_efficiency"))  # fmt: skip
        new = size * (1 - one["warm_cached_share"]) + 6
        warm = given(size, 1, new_tokens=new)
        made.append(Case(f"{name}: warm first token, {size:,} tokens", one["warm"]["p50_ms"], "warm_s", warm, "overhead_s"))  # fmt: skip
    for at_once, one in row.get("decode", {}).items():
        more = {"batch": float(at_once), "tokens_per_step": one["tokens_per_step"]}
        written = given(one["prompt_tokens"], one["output_tokens"], **more)
        made.append(
            Case(f"{name}: a token, {at_once} sequences", one["p50_ms"], "tpot_s", written, "decode_efficiency")
        )
    return made


def _row(case: Case) -> dict[str, Any]:
    predicted = 1000 * evaluate(case.given, only=case.quantity)[case.quantity]
    return _told(case.what, case.measured_ms, predicted, case.constant, case.given[case.constant], _would_be(case))


def _told(
    what: str, measured: float, predicted: float, constant: str, now: float, would: float | None
) -> dict[str, Any]:
    return {
        "what": what,
        "measured_ms": measured,
        "predicted_ms": round(predicted, 3),
        "ratio": round(predicted / measured, 3),
        "constant": constant,
        "now": now,
        "would_be": None if would is None else float(f"{would:.3g}"),
    }


def _would_be(case: Case) -> float | None:
    """The constant's value at which the prediction is the measurement, by halving; None where no value within a factor of 1,000 is."""

    def above(value: float) -> bool:
        known = evaluate(case.given | {case.constant: value}, only=case.quantity)
        return 1000 * known[case.quantity] > case.measured_ms

    low, high = case.given[case.constant] / 1000, case.given[case.constant] * 1000
    at_low = above(low)
    if at_low == above(high):
        return None
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if above(middle) == at_low else (low, middle)
    return high
