"""Commits of a repository as a recording: as if somebody had typed them, one key at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

from foretype_context.syntax.document import Edit, difference
from foretype_eval.errors import RecordingError
from foretype_eval.replay.commits import Stretch, commits_of, load_commit
from foretype_eval.replay.edit_events import Changed, Event, Loaded, Moved, Recording
from foretype_eval.replay.edit_recording import load_recording
from foretype_eval.replay.typist import gap_s, next_key

_JUMP_S: Final = 2.0
_SWITCH_S: Final = 10.0
_COMMIT_S: Final = 60.0
"""Pauses before typing goes on elsewhere. In the one real session the medians are 0.8 s after a jump of up to ten lines, 7 s
after a longer one and 31 s after a change of file; what matters here is on which side of a client's idle time they lie."""


def recording_of(
    source: Path,
    selection: str | int,
    *,
    suffixes: Sequence[str] = (".py",),
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
) -> Recording:
    """A repository's commits typed into one session, oldest first; or the recording that a file holds.

    Args:
        selection: the newest N commits, or a range `A..B`.
        seed: of the typist's rhythm.

    Raises:
        RepositoryError: not a repository, or an unknown range.
        RecordingError: the commits hold nothing to type, or the file is no recording.
    """
    if not source.is_dir():
        return load_recording(source)
    identities = commits_of(source, selection, suffixes=suffixes)[::-1]
    typist = _Typist(Random(seed))
    for done, identity in enumerate(identities):
        progress("commits", done, len(identities))
        loaded = load_commit(source, identity, suffixes=suffixes)
        typist.notes.update(loaded.skipped)
        for stretch in loaded.stretches:
            typist.type(stretch, commit=identity)
    progress("commits", len(identities), len(identities))
    if not typist.events:
        raise RecordingError(f"{source}: {len(identities)} commits, none of which adds a line to {', '.join(suffixes)}")
    return Recording(
        f"{len(identities)} commits, {identities[0][:12]} to {identities[-1][:12]}",
        tuple(typist.events),
        dict(typist.notes),
    )


class _Typist:
    def __init__(self, rng: Random) -> None:
        self.events: list[Event] = []
        self.notes: Counter[str] = Counter()
        self._rng = rng
        self._now_s = 0.0
        self._texts: dict[str, str] = {}
        self._commits: dict[str, str] = {}
        self._last = ("", "")

    def type(self, stretch: Stretch, *, commit: str) -> None:
        path, start = stretch.path, len(stretch.before)
        wanted = stretch.before + stretch.after
        if self._last[0] != commit:
            self._now_s += _COMMIT_S
        else:
            self._now_s += _SWITCH_S if self._last[1] != path else _JUMP_S
        text = self._texts.get(path)
        # What changed between the commits is not this developer's work: the file is read again.
        if text is None or (self._commits.get(path) != commit and text != wanted):
            self.events.append(Loaded(self._now_s, path, wanted))
        elif text != wanted:
            self.events.append(Changed(self._now_s, path, (difference(text, wanted),)))
        self.events.append(Moved(self._now_s, path, start))
        done, target = 0, stretch.target
        while done < len(target):
            key = next_key(target[done:])
            self._now_s += gap_s(self._rng, after_newline=done > 0 and target[done - 1] == "\n")
            self.events.append(Changed(self._now_s, path, (Edit(start + done, start + done, key),)))
            done += len(key)
        self._texts[path] = stretch.before + target + stretch.after
        self._commits[path] = commit
        self._last = (commit, path)
