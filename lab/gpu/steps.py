"""What a campaign does, in order of worth, and what of it fits into the time that is left. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

TRIES = 2
_VLLM = ("small.tar", "vllm.tar")


@dataclass(frozen=True)
class Step:
    """One thing to do.

    Attributes:
        needs: files that have to have come.
        least_s: it is not begun with less time than this. most_s: it gets no more.
        row: of deploy/gpu/bench.py; a step without one trains.
        lacks: why it cannot be done here.
    """

    name: str
    needs: tuple[str, ...]
    least_s: float
    most_s: float
    row: str = ""
    lacks: str = ""


STEPS = (
    Step("train", ("base.gguf", "store.tar.xz", "small.tar"), 0, float("inf")),
    Step("bf16", _VLLM, 120, 260, "bf16"),
    Step("fp8", _VLLM, 90, 140, "fp8"),
    Step("ngram", _VLLM, 90, 140, "ngram"),
    Step("host tier", _VLLM, 90, 120, "host tier"),
    Step("int8", _VLLM, 90, 140, "int8"),
    Step("all together", _VLLM, 90, 140, "all together"),
    Step("fp8 KV", _VLLM, 90, 120, "fp8 KV"),
    Step("int4", _VLLM, 90, 120, "int4"),
)
"""The training begins once what it needs has come, while the rest is carried, and stands still while a row is measured."""


_CPU_ROWS = {"bf16": "float32", "ngram": "ngram"}


def toy() -> tuple[Step, ...]:
    """The same for a machine without a GPU, which may be busy: two rows, and a training of seconds."""
    return tuple(
        replace(one, row=_CPU_ROWS.get(one.name, ""), least_s=30, most_s=280 if one.row else 900)
        if one.name in _CPU_ROWS or not one.row
        else replace(one, lacks="needs a GPU")
        for one in STEPS
    )


def choose(
    steps: Iterable[Step], done: Mapping[str, Mapping[str, Any]], waits: Mapping[str, list[str]], left_s: float
) -> tuple[Step | None, dict[str, str]]:
    """The first step that is to be done, has what it needs, and fits; and why others were passed over, by name.

    Args:
        done: by step, `done` and `tries`.
        waits: by file, sentences on what it waits for.
    """
    passed: dict[str, str] = {}
    for step in steps:
        so_far = done.get(step.name, {})
        lacking = [said for need in step.needs for said in waits.get(need, [f"{need} is not in the manifest"])]
        if so_far.get("done"):
            if "failed" in so_far:
                passed[step.name] = so_far["failed"]
        elif step.lacks:
            passed[step.name] = step.lacks
        elif step.row and so_far.get("tries", 0) >= TRIES:
            passed[step.name] = so_far.get("failed", f"was begun {TRIES} times and did not end")
        elif lacking:
            passed[step.name] = "; ".join(lacking)
        elif left_s < step.least_s:
            passed[step.name] = f"needs {step.least_s:.0f} s, and {max(0, left_s):.0f} s were left"
        else:
            return step, passed
    return None, passed
