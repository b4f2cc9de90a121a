"""The JSON object and the table of a latency bench."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from foretype_context.prompt.profile import Profile

from foretype_eval.console import print_table
from foretype_eval.latency.options import LatencyFigures, LatencyOptions

_GOALS: Final = {
    "typethrough_ms": "p99 ≤ 10",
    "warm_ttft_ms": "p50 ≤ 20, p99 < 100",
    "overhead_ms": "p50 ≤ 5",
    "didchange_ms": "p99 < 5",
    "next_edit_ms": "p99 ≤ 20",
    "cancel_ms decode": "p99 ≤ 10",
    "cancel_ms prefill": "≤ one prefill chunk",
    "start_to_any_suggestion_ms": "≤ 768",
    "start_to_first_suggestion_ms": "≤ 5,000",
}
_ROWS: Final = (
    "typethrough",
    "warm_ttft",
    "cold_ttft",
    "warm_ttft_6000",
    "cold_ttft_6000",
    "shown",
    "shown_cold",
    "overhead",
    "assemble",
    "engine",
    "didchange",
    "didchange_work",
    "next_edit",
    "first_sight",
    "first_sight_without",
    "first_sight_indexed",
    "first_sight_indexed_without",
    "start_to_any_suggestion",
    "start_to_first_suggestion",
    "noise",
)
_ENGINE_PACKAGES: Final = ("openvino-genai", "openvino", "xllamacpp", "vllm")
_PREFILL_CHUNK_TOKENS: Final = 128


def report(figures: LatencyFigures, options: LatencyOptions, profile: Profile) -> dict[str, Any]:
    """The object that `--json` prints; every `_ms` row has `n`, `p50`, `p95`, `p99`, and null where nothing was measured."""
    facts = dict(figures.facts)
    decode_after = facts.pop("cancel_decode_tokens_after", 0)
    prefill_after = facts.pop("cancel_prefill_tokens_after", 0)
    return {
        **{f"{name}_ms": figures.row(name) for name in _ROWS},
        "cancel_ms": {
            "decode": {**figures.row("cancel_decode"), "tokens_after_cancel": decode_after},
            "prefill": {**figures.row("cancel_prefill"), "tokens_after_cancel": prefill_after},
        },
        "tokens_after_cancel": decode_after + prefill_after,
        "prefill_chunk_ms": _prefill_chunk_ms(figures),
        "cached_share": {
            f"{name}{suffix}": _share(facts, f"{name}_cached_tokens{suffix}", f"{name}_prompt_tokens{suffix}")
            for name in ("cold", "warm")
            for suffix in ("", "_6000")
        },
        "facts": facts,
        "notes": figures.notes,
        "model": {
            "name": profile.model,
            "grammar": profile.grammar,
            "layout": profile.layout,
            "context_limit_tokens": profile.context_limit_tokens,
        },
        "machine": machine(),
        "command": " ".join(["foretype", *sys.argv[1:]]),
        "seed": options.seed,
        "definitions": {
            "typethrough_ms": "language server, request to answer while a suggestion is typed through, no request needed",
            "ttft": "request sent to first delta at the client; debounce and assembly excluded",
            "overhead_ms": "warm TTFT minus the engine's queue, prefill and first decode, as the gateway timed them",
            "shown_ms": "language server, request to answer of a fresh request on a warm prefix, debounce included",
            "shown_cold_ms": "the same at the first sight of a file",
            "assemble_ms": "building the prompt of a warm request; runs while the debounce runs",
            "engine_ms": "the engine's part of a warm TTFT",
            "didchange_ms": "change sent to answer of a status request sent right behind it, generations running",
            "didchange_work_ms": "processor time of the server in the same span, without waiting for a processor (Linux)",
            "next_edit_ms": "processor time of a key and of the question for the next edit behind it, in 5,000 lines of Python; no parse",
            "first_sight_ms": "a folder of 200 files that was never open: first message to first suggestion, next edits asked for at every key",
            "first_sight_indexed_ms": "the same until its index is there; `_without`: without next edits, in turns",
            "noise_ms": "how late a timer fires in the bench during the changes: other work on the machine adds this to them",
            "cancel_ms": "cancel called to `done` received, which the gateway sends once the engine's slot is free",
        },
    }


def _prefill_chunk_ms(figures: LatencyFigures) -> float | None:
    """What one chunk of the prefill costs, from the cold rows: the bound for a cancel during prefill."""
    for suffix in ("_6000", ""):
        median = figures.row(f"cold_ttft{suffix}")["p50"]
        tokens = figures.facts.get(f"prompt_tokens{suffix}")
        if median is not None and tokens:
            return round(median * _PREFILL_CHUNK_TOKENS / ((tokens["min"] + tokens["max"]) / 2), 3)
    return None


def _share(facts: dict[str, Any], part: str, whole: str) -> float | None:
    return round(facts[part] / facts[whole], 4) if facts.get(whole) else None


def machine() -> dict[str, Any]:
    """Facts without which a latency means nothing."""
    packages: dict[str, str] = {}
    for name in ("foretype", *_ENGINE_PACKAGES):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": packages,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def show(result: dict[str, Any]) -> None:
    """The figures for people, with what they should reach."""
    measured: dict[str, dict[str, Any]] = {f"{name}_ms": result[f"{name}_ms"] for name in _ROWS}
    measured |= {f"cancel_ms {phase}": result["cancel_ms"][phase] for phase in ("decode", "prefill")}
    rows = [
        (name, row["n"], *(f"{row[point]:,.1f}" for point in ("p50", "p95", "p99")), _GOALS.get(name, ""))
        for name, row in measured.items()
        if row["n"]
    ]
    rows.append(("tokens after cancel", result["tokens_after_cancel"], "", "", "", ""))
    columns = ("measure", "n", "p50 ms", "p95 ms", "p99 ms", "goal")
    print_table(f"{result['model']['name']}, {result['model']['layout']}", columns, rows, words=("goal",))
