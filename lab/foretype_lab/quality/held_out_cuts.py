"""Cuts in held-out projects, and the prompts that a layout makes of them: what every figure of a model is measured on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foretype_lab.training import fim
from foretype_lab.training.data import Store, encode_pieces
from foretype_lab.training.tokenizer import SPECIAL_IDS

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class HeldOutCut:
    """One hole in a held-out file.

    Attributes:
        kind: ``next_line`` (cursor after Enter and indentation) or ``line_fill`` (cursor at any character of a line).
        repo, path: where it is.
        text: the whole file.
        hole: the cut; its middle is the answer.
    """

    kind: str
    repo: str
    path: str
    text: str
    hole: fim.Hole

    @property
    def answer(self) -> str:
        """The characters that were cut out."""
        return self.text[self.hole.start : self.hole.end]


def draw_cases(store: Store, per_kind: int, seed: int = 11) -> list[HeldOutCut]:
    """Draws the same number of cases of each kind from every project in turn, so that no project dominates."""
    draw = random.Random(seed)
    cases: list[HeldOutCut] = []
    repositories = sorted(store.repository_range)
    for kind in ("next_line", "line_fill"):
        for number in range(per_kind):
            first, last = store.repository_range[repositories[number % len(repositories)]]
            while True:
                file = draw.randrange(first, last)
                text = store.text(file)
                at = draw.randrange(len(text))
                start, end = fim.line_start(text, at), fim.line_end(text, at)
                line = text[start:end].rstrip("\r")
                indent = fim.indent_of(line)
                # Comments are not what the model is judged by; a line needs one above it to follow from.
                if start > 0 and len(line.strip()) >= 3 and not line.strip().startswith("#"):
                    break
            column = indent if kind == "next_line" else draw.randrange(indent, len(line.rstrip()))
            hole = fim.Hole(start + column, start + len(line), "line")
            repo, path, _, _ = store.index[file]
            cases.append(HeldOutCut(kind, repo, path, text, hole))
    return cases


def copy_line(case: HeldOutCut) -> str:
    """The baseline: rest of the most recent line above that starts like this one."""
    start = fim.line_start(case.text, case.hole.start)
    typed = case.text[start : case.hole.start]
    for line in reversed(case.text[:start].splitlines()):
        if line.startswith(typed) and line.strip():
            return line[len(typed) :]
    return ""


def prompt(case: HeldOutCut, layout: str, encode: Encode, budget: int, context: Sequence[int] = ()) -> list[int]:
    """The prompt of a case in a layout, in at most ``budget`` tokens, context included.

    ``psm_growing`` is rebased a fixed number of lines above, drawn from the case alone.

    Raises:
        ValueError: a layout that the model was not trained on.
    """
    if layout not in fim.LAYOUT_WEIGHTS:
        raise ValueError(f"no cases in layout {layout}; there are {', '.join(fim.LAYOUT_WEIGHTS)}")
    first = fim.line_start(case.text, max(0, case.hole.start - 4 * budget))
    window = case.text[first : case.hole.end + 2 * budget]
    hole = fim.Hole(case.hole.start - first, case.hole.end - first, "line")
    if layout == "psm_classic":
        pieces = fim.psm_classic(window, hole)
    elif layout == "spm":
        pieces = fim.spm(window, hole)
    else:
        above = fim.line_start(window, hole.start)
        if layout == "psm_growing":
            draw = random.Random(f"{case.path}:{case.hole.start}")
            for _ in range(draw.randint(fim.FRESH_LINES, fim.GROWING_LINES)):
                above = fim.line_start(window, above - 1) if above else 0
        pieces = fim.psm_line_last(window, hole, above=above)
    below = pieces.index(fim.SUFFIX) + 1
    suffix = encode(str(pieces[below]))[: budget // 4]
    header = [*context, SPECIAL_IDS["<|file_sep|>"], *encode(case.path + "\n")]
    without = [*pieces[:below], "", *pieces[below + 1 : -2], "", fim.END]
    rest = encode_pieces(without, encode, budget - len(header) - len(suffix))
    at = rest.index(SPECIAL_IDS["<|fim_suffix|>"]) + 1
    return header + rest[:at] + suffix + rest[at:-1]
