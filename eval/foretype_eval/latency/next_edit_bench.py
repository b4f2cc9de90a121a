"""The row of the bench that needs neither gateway nor editor: the question for the next edit behind each key, in a file of 5,000 lines."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Final

from foretype_context.edits.next_edit import NextEdit, NextEditRules
from foretype_context.syntax.document import Edit
from foretype_context.syntax.parsing import parse_bounded
from foretype_wire.garbage_collection import calm_collector
from tree_sitter import Tree

from foretype_eval.errors import EvalError
from foretype_eval.latency.options import LatencyFigures, Progress

RETYPED: Final = {
    "a function": ("python", "area", "surface"),
    "parameters": ("python", "width, height", "height, width"),
    "a local": ("python", "total", "sum_of"),
    "a method": ("java", "area", "surface"),
}
"""What is deleted key by key, and what is typed in its place: a name with 280 calls, parameters with as many, a name nearby, and a method
of a class of which variables of several kinds have to be told from those of others."""

_LINES: Final = 5_000
_CALLS: Final = 280


def measure_next_edits(count: int, figures: LatencyFigures, *, progress: Progress) -> None:
    """So many keys of all kinds in turns; a file is begun anew whenever a kind is done."""
    asked = itertools.chain.from_iterable(retyped(*words) for words in itertools.cycle(RETYPED.values()))
    with calm_collector(full=False):  # as in the language server
        for done, (_, spent_s) in enumerate(itertools.islice(asked, count), 1):
            figures.add("next_edit", 1000 * spent_s)
            progress("next edits", done, count)


def retyped(
    language: str, old: str, new: str, *, clock: Callable[[], float] = time.thread_time
) -> Iterator[tuple[NextEdit | None, float]]:
    """The answer behind each key, and what the key and the question cost by `clock`; the tree of the text is made before."""
    text = _FILES[language]()
    at = text.index(old)
    deleted = [Edit(end - 1, end, "") for end in range(at + len(old), at, -1)]
    typed = [Edit(at + offset, at + offset, one) for offset, one in enumerate(new)]
    engine = NextEditRules(language, text)
    before = _parsed(text.encode(), language)
    for number, edit in enumerate([*deleted, *typed]):
        text = text[: edit.start] + edit.text + text[edit.end :]
        source = text.encode()
        tree = _parsed(source, language)
        started = clock()
        engine.changed([edit], text, number, root=before.root_node)
        found = engine.next(text, tree.root_node, source, edit.start, number + 1.0, lambda _: True)
        yield found, clock() - started
        before = tree


def _parsed(source: bytes, language: str) -> Tree:
    tree = parse_bounded(source, language)
    if tree is None:
        raise EvalError("a file of 5,000 lines was not parsed: the machine is too busy; run the bench again")
    return tree


def _functions() -> str:
    parts = ["def area(width, height):\n    return width * height\n\n\n"]
    for index in range((_LINES - 4) // 6):
        name = "area" if index < _CALLS else "other"
        parts.append(
            f"def f{index}(a, b):\n    total = a + b\n    x = {name}(total, {index})\n    return old.call(x)\n\n\n"
        )
    return "".join(parts)


def _methods() -> str:
    parts = ["class A {\n  private final Log log = Log.of();\n  private A one;\n\n  void area() {}\n\n"]
    for index in range((_LINES - 7) // 6):
        name = "area" if index < _CALLS else "other"
        variable = ("log", "a", "one", f"it{index % 7}")[index % 4]
        parts.append(
            f"  int f{index}(A a, int b) {{\n    int total = a.x + b;\n    {variable}.{name}(total, {index});\n"
        )
        parts.append("    return old(total);\n  }\n\n")
    return "".join([*parts, "}\n"])


_FILES: Final = {"python": _functions, "java": _methods}
