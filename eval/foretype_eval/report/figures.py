"""What a report says, as data: usefulness first, acceptance with its denominator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from foretype_eval.compare.runs import Run
from foretype_eval.replay.results import CommitRow, summary
from foretype_eval.statistics import percentiles, wilson


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What computing costs. Tokens are priced by the engine's time for them; both rates come from a bench.

    Attributes:
        hour: price of one hour of the machine.
        prefill_tokens_per_s, decode_tokens_per_s: what that machine does in the meantime, all requests together.
    """

    hour: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float

    def of(self, computed_prompt_tokens: int, generated_tokens: int) -> float:
        seconds = computed_prompt_tokens / self.prefill_tokens_per_s + generated_tokens / self.decode_tokens_per_s
        return self.hour * seconds / 3600


def run_figures(run: Run, *, prices: Prices | None = None, seed: int = 0) -> dict[str, Any]:
    """Per system of a replay: summary, slices, latency by stage, cost."""
    systems: dict[str, Any] = {}
    for system in run.systems():
        rows = list(run.of(system).values())
        found: dict[str, Any] = dict(summary(rows, seed=seed))
        right, read = sum(row.sessions_right for row in rows), sum(row.sessions for row in rows)
        found["acceptance"] = {
            "definition": "A-line: suggestion sessions whose line was what was written / all suggestion sessions",
            "accepted": right,
            "denominator": read,
            "rate": round(right / read, 6) if read else None,
        }
        found["retained_per_opportunity"] = None
        found["retention_note"] = (
            "in-commit retention is 100 % by construction under A-line, so a replay cannot measure it"
        )
        found["slices"] = _slices(rows)
        found["stages_ms"] = _stages(rows)
        found["cost"] = _cost(rows, prices)
        systems[system] = found
    return {"run": run.name, "kind": "replay", "systems": systems}


def _slices(rows: Sequence[CommitRow]) -> dict[str, Any]:
    sums: dict[str, list[int]] = {}
    for row in rows:
        for name, counts in row.slices.items():
            into = sums.setdefault(name, [0, 0, 0])
            for at, count in enumerate(counts):
                into[at] += count
    found: dict[str, Any] = {}
    for name, (sessions, right, characters) in sorted(sums.items()):
        kind, _, value = name.partition(":")
        entry: dict[str, Any] = {"sessions": sessions, "right": right, "accepted_chars": characters}
        if sessions:
            entry |= {"rate": round(right / sessions, 4), "ci": [round(bound, 4) for bound in wilson(right, sessions)]}
        found.setdefault(kind, {})[value] = entry
    return found


def _stages(rows: Sequence[CommitRow]) -> dict[str, Any]:
    samples: dict[str, list[float]] = {}
    for row in rows:
        for stage, values in row.stages_ms.items():
            samples.setdefault(stage, []).extend(values)
    return {stage: percentiles(values)._asdict() | {"values": values} for stage, values in sorted(samples.items())}


def _cost(rows: Sequence[CommitRow], prices: Prices | None) -> dict[str, Any]:
    requests = sum(row.requests for row in rows)
    computed = sum(row.prompt_tokens - row.cached_tokens for row in rows)
    generated = sum(row.generated_tokens for row in rows)
    accepts, characters = sum(row.accepts for row in rows), sum(row.accepted_chars for row in rows)

    def per(value: float, count: int) -> float | None:
        return round(value / count, 8) if count else None

    found: dict[str, Any] = {
        "computed_prompt_tokens": computed,
        "generated_tokens": generated,
        "tokens_after_cancel": sum(row.tokens_after_cancel for row in rows),
        "requests_per_accept": per(requests, accepts),
        "tokens_per_accepted_character": per(computed + generated, characters),
    }
    if prices is not None and requests:
        price = prices.of(computed, generated)
        found |= {
            "price": round(price, 8),
            "per_completion": per(price, requests),
            "per_accept": per(price, accepts),
            "per_accepted_character": per(price, characters),
            "per_accepted_token": per(price, round(characters / 4)),
            "token_rule": "an accepted token is four accepted characters",
        }
    return found
