"""What the seconds of an engine's start went into, by what `vllm serve` writes about itself. Pure."""

from __future__ import annotations

import re
from typing import Final

PHASES: Final = ("image", "import", "weights", "load", "compile", "init", "warm")
"""In their order: until the replica's process runs; the engine's own imports and processes; reading weights; building the model around
them; compiling, and capturing graphs; the cache and its trial run; the first completion."""

_SECONDS: Final = {
    "weights": re.compile(r"Loading weights took ([0-9.]+) seconds"),
    "loaded": re.compile(r"Model loading took .* ([0-9.]+) seconds"),
    "compile": re.compile(r"torch\.compile took ([0-9.]+) s in total"),
    "graphs": re.compile(r"Graph capturing finished in ([0-9.]+) secs"),
    "init": re.compile(r"init engine \(.*\) took ([0-9.]+) s"),
}


def start_phases(log: str, *, image_s: float, engine_s: float, warm_s: float) -> dict[str, float]:
    """Seconds by phase.

    Args:
        log: what the engine wrote until it was ready. What it does not speak of takes no time; of several workers the slowest counts.
        image_s: from the start of the replica's process until the engine was spawned.
        engine_s: from there until it answered.
        warm_s: the first completion.
    """
    told = {name: max((float(one) for one in found.findall(log)), default=0.0) for name, found in _SECONDS.items()}
    compile_s = told["compile"] + told["graphs"]
    phases = {
        "image": image_s,
        "weights": told["weights"],
        "load": max(0.0, told["loaded"] - told["weights"]),
        "compile": compile_s,
        "init": max(0.0, told["init"] - compile_s),
        "warm": warm_s,
    }
    inside = sum(phases[name] for name in ("weights", "load", "compile", "init"))
    phases["import"] = max(0.0, engine_s - inside)
    return {name: round(phases[name], 3) for name in PHASES}
