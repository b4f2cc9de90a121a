"""`docs/measurements/shipped-model.md` from the report of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["page"]


def page(report: dict[str, Any], command: str) -> str:
    """The whole page; every figure is of `report`."""
    trace = report["trace"]
    repos = ", ".join(f"{name} up to `{id}`" for name, id in zip(report["repositories"], report["newest"], strict=True))
    lines = [
        "# The shipped model",
        "",
        "Generated; do not edit. Made by",
        "",
        f"    {command}",
        "",
        f"- **Model:** `{report['model']}` (`{report['model_digest'][:12]}`), grammar `{report['grammar']}`.",
        (
            f"- **Commits:** {report['commits']} that the model was not trained on ({repos}), {report['keys']:,} keystrokes, typed key by "
            "key through the real client. The gateway's answers are the model's own."
        ),
        (
            f"- **Latencies:** from a trace measured with this model, {trace['rows']} requests: first text p50 "
            f"{_ms(trace['ttft_ms']['p50'])}, p99 {_ms(trace['ttft_ms']['p99'])} ms, whole answer p50 {_ms(trace['total_ms']['p50'])}, "
            f"p99 {_ms(trace['total_ms']['p99'])} ms."
        ),
        (
            f"- **Accepting:** a line that equals what was written ({report['accept_rule']}), after {report['decide_ms']} ms of reading: an "
            "upper bound that ranks systems and does not forecast."
        ),
        (
            "- **Columns:** *saved* is keystrokes saved; *right* the share of suggestion sessions whose line was right; *requests* are per "
            "1,000 keystrokes. Intervals: 95 %, commits resampled."
        ),
        "",
        "## Systems, at the default settings",
        "",
        *_table("system", [(entry["system"], entry) for entry in report["systems"]], report["keys"]),
        "",
        "`model` is the product: the adaptive candidate if it is sure, else the network's answer if its confidence reaches the threshold",
        "of its profile. `unfiltered` has no threshold. `network` is the neural model alone and unfiltered, `adaptive` the client's own",
        "candidate alone, `copy_line` the floor.",
        "",
        "## The product, unfiltered, by debounce",
        "",
        *_table("debounce", [(f"{entry['debounce_ms']:g} ms", entry) for entry in report["product"]], report["keys"]),
        "",
        "## The neural model by layout, debounce and client",
        "",
        *_table(
            "layout, debounce, client",
            [(f"`{e['layout']}`, {e['debounce_ms']:g} ms, {e['client']}", e) for e in report["sweep"]],
            report["keys"],
        ),
        "",
        *_left_out(report),
        *_choice(report),
        "",
    ]
    return "\n".join(lines)


def _table(head: str, entries: Sequence[tuple[str, dict[str, Any]]], keys: int) -> list[str]:
    lines = [
        f"| {head} | saved | 95 % | CPO | right | sessions | shown | late | requests |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, entry in entries:
        ci = entry["ci"]["ksr"]
        cells = (
            name,
            _percent(entry["ksr"]),
            "–" if ci is None else f"{_percent(ci[0])} to {_percent(ci[1])}",
            "–" if entry["cpo"] is None else f"{entry['cpo']:.3f}",
            _percent(entry["a_line_precision"]),
            f"{entry['sessions']:,}",
            _percent(entry["show_rate"]),
            _percent(entry["late_rate"]),
            f"{entry['requests'] * 1000 / keys:,.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _choice(report: dict[str, Any]) -> list[str]:
    chosen = report["chosen"]
    if chosen is None:
        return []
    default, best, choice = chosen["default"], chosen["best"], chosen["choice"]
    moved = choice["name"] != default["name"]
    why = (
        f"only {chosen['right']} suggestions were right in the best setting, and fewer than {chosen['right_min']} move no default"
        if chosen["right"] < chosen["right_min"]
        else "its paired interval says so"
        if moved
        else "no setting saves enough for its requests, or needs a fifth fewer for the same keystrokes, with its whole paired interval"
    )
    return [
        "## Default settings",
        "",
        (
            f"**{_setting(choice['name'])}**{' takes the place of ' + _setting(default['name']) if moved else ' stays'}: {why}. The best "
            f"of this table is {_setting(best['name'])} with {_percent(best['ksr'])}; against the default "
            f"{_percent(default['ksr'])}, paired {_gain(best['gain'])}. Prompt tokens computed per layout are measured by "
            "`foretype bench prefill`."
        ),
    ]


def _setting(name: str) -> str:
    _, layout, debounce, client = name.split()
    return f"`{layout}`, {debounce} ms, {client} client"


def _gain(gain: list[float | None] | None) -> str:
    if gain is None or gain[0] is None:
        return "–"
    _, low, high = gain
    spread = "no interval" if low is None or high is None else f"{low * 100:+.1f} to {high * 100:+.1f}"
    return f"{gain[0] * 100:+.1f} points ({spread})"


def _left_out(report: dict[str, Any]) -> list[str]:
    names = report["left_out"]
    return [f"Not measured yet, for want of time: {', '.join(names)}.", ""] if names else []


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.1f} %"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"
