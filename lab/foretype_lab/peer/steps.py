"""A recording as steps of one developer, and what each of them went on to write.

What somebody types next is known only from what stood there in the end. A *visit* is a run of changes that stay within one line
while the caret stays there too; the line as the visit left it says what was wanted at each of its moments, whatever was mistyped
or completed by an editor in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from foretype_context.syntax.document import Edit
from foretype_eval.replay.edit_events import Changed, Loaded, Moved, Recording

from foretype_lab.prefill.asking_moments import shifted

_CARET_FOLLOWS_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event, and where it leaves the caret.

    Attributes:
        loaded: the file's text where it was read, else None.
        asks: a change at the caret, after which an editor asks.
        wanted: what was still to be written right of the caret, on this line; empty where nothing or something else was.
        visit_end: number of the last step of this visit.
    """

    time_s: float
    path: str
    loaded: str | None = None
    edits: tuple[Edit, ...] = ()
    caret: int = 0
    asks: bool = False
    wanted: str = ""
    visit_end: int = 0


@dataclass(slots=True)
class _Line:
    visit: int
    text: str
    column: int


def steps_of(recording: Recording) -> list[Step]:
    """The steps of a recording, with what each wanted."""
    merged = _merged(recording)
    texts: dict[str, str] = {}
    carets: dict[str, int] = {}
    steps: list[Step] = []
    lines: list[_Line] = []
    visit = -1
    last: tuple[str, int, int] = ("", 0, 0)  # path, start and end of the visited line
    for event, follows in merged:
        path = event.path
        stays = path == last[0]
        if isinstance(event, Loaded):
            texts[path], stays = event.text, False
            carets.setdefault(path, 0)
            edits: tuple[Edit, ...] = ()
        elif isinstance(event, Moved):
            edits = ()
            carets[path] = min(event.offset, len(texts[path]))
        else:
            edits = event.edits
        _, start, end = last
        caret, touched = carets[path], False
        for edit in edits:
            text = texts[path]
            inside = start <= edit.start and edit.end <= end and "\n" not in edit.text
            stays = stays and inside
            end += edit.growth
            texts[path] = text[: edit.start] + edit.text + text[edit.end :]
            touched = touched or edit.start <= caret <= edit.end
            caret = shifted(caret, edit)
        caret = min(follows if follows is not None else caret, len(texts[path]))
        carets[path] = caret
        text = texts[path]
        stays = stays and start <= caret <= end
        if not stays:
            visit += 1
            start = text.rfind("\n", 0, caret) + 1
            end = text.find("\n", caret)
            end = len(text) if end < 0 else end
        last = (path, start, end)
        lines.append(_Line(visit, text[start:end], caret - start))
        steps.append(
            Step(
                time_s=event.time_s,
                path=path,
                loaded=event.text if isinstance(event, Loaded) else None,
                edits=edits,
                caret=caret,
                asks=touched,
            )
        )
    return _with_ends(steps, lines)


def _merged(recording: Recording) -> list[tuple[Loaded | Changed | Moved, int | None]]:
    """Events; a move that only tells where a change left the caret belongs to that change. Selections ask for nothing."""
    found: list[tuple[Loaded | Changed | Moved, int | None]] = []
    for event in recording.events:
        if isinstance(event, Moved):
            before = found[-1][0] if found else None
            if (
                isinstance(before, Changed)
                and before.path == event.path
                and event.time_s - before.time_s <= _CARET_FOLLOWS_S
            ):
                found[-1] = (before, event.offset)
                continue
        found.append((event, None))
    return found


def _with_ends(steps: Sequence[Step], lines: Sequence[_Line]) -> list[Step]:
    done: list[Step] = []
    end = len(steps) - 1
    for number in range(len(steps) - 1, -1, -1):
        if number + 1 < len(steps) and lines[number].visit != lines[number + 1].visit:
            end = number
        here, final = lines[number], lines[end].text
        left, right = here.text[: here.column], here.text[here.column :]
        fits = final.startswith(left) and final.endswith(right) and len(final) >= len(left) + len(right)
        wanted = final[len(left) : len(final) - len(right)] if fits else ""
        done.append(replace(steps[number], wanted=wanted, visit_end=end))
    return done[::-1]
