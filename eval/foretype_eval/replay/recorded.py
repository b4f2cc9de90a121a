"""An edit recording as what was typed in it, so that it can be replayed like commits.

What was written at one place without going elsewhere is one stretch, and its text is what finally stood there: a developer with
help would not type the corrections again. Ten minutes of a recording stand where a commit stands in the statistics.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from foretype_context.syntax.document import Edit

from foretype_eval.errors import RecordingError, RepositoryError
from foretype_eval.replay.commits import Commit, Stretch
from foretype_eval.replay.edit_events import Changed, Loaded
from foretype_eval.replay.edit_recording import load_recording

_PASTE_CHARS: Final = 200
"""One edit that brings more was pasted or generated, and is nobody's typing."""

_UNIT_S: Final = 600.0


def load_recorded(path: Path) -> list[Commit]:
    """The stretches of a recording (formats: :mod:`foretype_eval.replay.edit_recording`), newest unit first, as with commits.

    Raises:
        RepositoryError: not a recording, or nothing was typed in it.
    """
    try:
        events = load_recording(path).events
    except (RecordingError, OSError) as error:
        raise RepositoryError(f"{error}; give a git repository or a recording of edits") from error
    writer = _Writer()
    for event in events:
        if isinstance(event, Loaded):
            writer.load(event.path, event.text)
        elif isinstance(event, Changed):
            for edit in event.edits:
                writer.edit(event.time_s, event.path, edit)
    for document in list(writer.open):
        writer.close(document)
    if not writer.found:
        raise RepositoryError(f"{path}: nothing was typed in this recording ({dict(writer.skipped) or 'no edits'})")
    name = f"{zlib.crc32(path.read_bytes()):08x}"
    units: dict[int, list[Stretch]] = defaultdict(list)
    first_s = writer.found[0][0]
    for time_s, stretch in sorted(writer.found, key=lambda item: item[0]):
        units[int((time_s - first_s) // _UNIT_S)].append(stretch)
    commits = [Commit(f"{name}-{unit:04d}", tuple(stretches)) for unit, stretches in sorted(units.items())]
    commits[-1].skipped.update(writer.skipped)
    return commits[::-1]


class _Run:
    """Text that is being written: it stands at `[start, end)` of its document."""

    __slots__ = ("began_s", "end", "start")

    def __init__(self, began_s: float, start: int, end: int) -> None:
        self.began_s, self.start, self.end = began_s, start, end


class _Writer:
    """Follows every document, with at most one open run each."""

    def __init__(self) -> None:
        self.open: dict[str, _Run] = {}
        self.found: list[tuple[float, Stretch]] = []
        self.skipped: Counter[str] = Counter()
        self._texts: dict[str, str] = {}

    def load(self, path: str, text: str) -> None:
        self.close(path)
        self._texts[path] = text

    def edit(self, time_s: float, path: str, edit: Edit) -> None:
        run = self.open.get(path)
        inside = run is not None and run.start <= edit.start and edit.end <= run.end
        pasted = len(edit.text) > _PASTE_CHARS
        if pasted:
            self.skipped["pasted"] += 1
        if not inside or pasted:
            self.close(path)
            run = None
        text = self._texts[path]
        self._texts[path] = f"{text[: edit.start]}{edit.text}{text[edit.end :]}"
        if run is not None:
            run.end += edit.growth
        elif edit.text and not pasted:
            self.open[path] = _Run(time_s, edit.start, edit.start + len(edit.text))

    def close(self, path: str) -> None:
        run = self.open.pop(path, None)
        if run is None:
            return
        text = self._texts[path]
        target = text[run.start : run.end]
        if target.strip():
            self.found.append((run.began_s, Stretch(path, text[: run.start], target, text[run.end :])))
