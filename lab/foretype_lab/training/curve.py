"""The loss curve of a run, as a picture and as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_log(path: Path) -> list[dict[str, Any]]:
    """Reads ``log.jsonl``; a last line cut short by a kill is left out."""
    lines: list[dict[str, Any]] = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return _without_rewound(lines)


def _without_rewound(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drops what a resume ran again: a later line with an earlier step replaces what stood after it."""
    kept: list[dict[str, Any]] = []
    for line in lines:
        while kept and kept[-1]["step"] > line["step"]:
            kept.pop()
        kept.append(line)
    return kept


def write_curve(log: Path, folder: Path) -> None:
    """Writes ``loss.json`` and ``loss.png`` for a run's log."""
    import matplotlib

    matplotlib.rcdefaults()  # a `matplotlibrc` of the working directory has been read, and may say anything
    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = read_log(log)
    training = [(line["tokens"], line["loss"]) for line in lines if "loss" in line]
    held_out = [(line["tokens"], line["held_out"], line["held_out_long"]) for line in lines if "held_out" in line]
    folder.mkdir(parents=True, exist_ok=True)
    data = {"training": training, "held_out": held_out, "columns": ["tokens", "nats at 512", "nats at 2048"]}
    (folder / "loss.json").write_text(json.dumps(data) + "\n")
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    axes.plot([x / 1e6 for x, _ in training], [y for _, y in training], lw=0.8, label="training")
    axes.plot([x / 1e6 for x, *_ in held_out], [y for _, y, _ in held_out], "o-", ms=3, label="held out, 512 tokens")
    axes.plot([x / 1e6 for x, *_ in held_out], [y for *_, y in held_out], "s-", ms=3, label="held out, 2,048 tokens")
    axes.set(xlabel="million tokens", ylabel="nats per token", title="Loss on the training mixture")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(folder / "loss.png", dpi=110, metadata={"Software": None})
    pyplot.close(figure)
