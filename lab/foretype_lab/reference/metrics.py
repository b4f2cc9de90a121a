"""Every metric that the gateway and a fleet's directory make, read from the calls that make them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import foretype_backend

from foretype_lab.errors import LabError
from foretype_lab.reference.documented import linked

_KINDS: Final = {
    "Counter": "counter",
    "CounterMetricFamily": "counter",
    "Gauge": "gauge",
    "GaugeMetricFamily": "gauge",
    "_watch": "gauge",
    "Histogram": "histogram",
}


class Metric(NamedTuple):
    """A metric as Prometheus shows it, with the names of its labels."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def metrics_page() -> str:
    """As Markdown, by name."""
    lines = [
        "# Metrics\n",
        (
            "What `GET /metrics` of a gateway tells, in the Prometheus text format; `foretype_fleet_…` is told by the directory of"
            " `foretype fleet`. Those of a second pool carry the label `pool` too. [Operations](../operations.md) says who may scrape"
            " them, [deploy](../deploy.md) what to be alarmed by.\n"
        ),
        "| metric | kind | labels | |",
        "|---|---|---|---|",
    ]
    for one in every_metric():
        labels = ", ".join(f"`{label}`" for label in one.labels)
        lines.append(f"| `{one.name}` | {one.kind} | {labels} | {linked(one.text)} |")
    return "\n".join(lines) + "\n"


def every_metric() -> list[Metric]:
    """By name. Raises LabError."""
    root = Path(foretype_backend.__file__).parent
    return sorted({one for path in sorted(root.rglob("*.py")) for one in _metrics(path)})


def _metrics(path: Path) -> Iterator[Metric]:
    source = path.read_text("utf-8")
    if "prometheus_client" not in source:
        return
    for scope in ast.walk(ast.parse(source)):
        if not isinstance(scope, ast.FunctionDef):
            continue
        texts = dict(_texts(scope))
        for node in ast.walk(scope):
            if not isinstance(node, ast.Call) or scope.name == "_watch":
                continue
            kind = _KINDS.get(_called(node))
            if kind is not None and (found := _found(node, kind, texts)):
                yield found


def _found(call: ast.Call, kind: str, texts: dict[str, str]) -> Metric | None:
    if not call.args:
        return None  # collections.Counter()
    name = _text(call.args[0], texts)
    if name is None and not any(isinstance(one, ast.Constant | ast.Name) for one in call.args[1:2]):
        return None  # collections.Counter(of something)
    text = _text(call.args[1], texts)
    if name is None or text is None:
        raise LabError(f"line {call.lineno}: give the metric's name and its description as they are")
    given = call.args[2:3] + [one.value for one in call.keywords if one.arg == "labels"]
    labels = tuple(_strings(given[0])) if given and isinstance(given[0], ast.List) else ()
    return Metric(name + "_total" * (kind == "counter"), kind, labels, text)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _texts(scope: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Names that are given a text in a function."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield node.targets[0].id, value.value


def _text(node: ast.expr, texts: dict[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return texts.get(node.id) if isinstance(node, ast.Name) else None


def _strings(node: ast.List) -> Iterator[str]:
    return (one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str))
