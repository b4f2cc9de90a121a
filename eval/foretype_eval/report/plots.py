"""Plots as SVG text, told apart by hatch, marker and dash as well as by grey, so that they read without colour."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

from foretype_eval.errors import EvalError

_HATCHES: Final = ("", "//", "..", "xx", "--", "\\\\", "oo", "++")
_DASHES: Final = ("-", "--", ":", "-.")
_GREYS: Final = ("0.25", "0.55", "0.75", "0.9")


def bars(title: str, entries: Sequence[tuple[str, float, tuple[float, float] | None]], *, percent: bool = True) -> str:
    """Horizontal bars with intervals; every bar carries its value as text."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7.5, 0.45 * max(2, len(entries)) + 0.9))
    for at, (_, value, interval) in enumerate(entries):
        axes.barh(at, value, color="0.85", edgecolor="black", hatch=_HATCHES[at % len(_HATCHES)], height=0.6)
        end = value
        if interval is not None:
            axes.plot(interval, (at, at), color="black", marker="|", markersize=8)
            end = max(value, interval[1])
        axes.annotate(
            f" {value:.1%}" if percent else f" {value:.3f}",
            (end, at),
            va="center",
            xytext=(4, 0),
            textcoords="offset points",
        )
    axes.set_yticks(range(len(entries)), [name for name, _, _ in entries])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(title, loc="left")
    return _svg(figure)


def curves(title: str, lines: Sequence[tuple[str, Sequence[float]]], unit: str) -> str:
    """Cumulative distributions, one line each."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7.5, 3.6))
    for at, (name, values) in enumerate(lines):
        ordered = sorted(values)
        shares = [(n + 1) / len(ordered) for n in range(len(ordered))]
        axes.step(
            ordered,
            shares,
            where="post",
            label=name,
            linestyle=_DASHES[at % 4],
            color=_GREYS[at // 4 % 4],
            linewidth=1.6,
        )
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(unit)
    axes.set_ylabel("share of requests")
    axes.grid(visible=True, color="0.9")
    axes.legend(fontsize="small", ncols=2)
    axes.set_title(title, loc="left")
    return _svg(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise EvalError("plots need matplotlib; install it with `pip install 'foretype[report]'`") from error
    matplotlib.rcdefaults()  # a `matplotlibrc` of the working directory has been read, and may say anything
    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    matplotlib.rcParams["svg.hashsalt"] = "foretype"  # equal input, equal bytes
    from matplotlib import pyplot  # pyright: ignore[reportMissingTypeStubs]

    return pyplot


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.tight_layout()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    _pyplot().close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
