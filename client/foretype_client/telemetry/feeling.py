"""When somebody may be asked whether completions feel instant: rarely, in a pause, and when there is something to judge."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from foretype_client.telemetry.recorder import Recorder

ANSWERS: Final = ("yes", "mostly", "no")
WEEKS: Final = 12
"""Between two questions to one user, answered or not, in whatever editor."""
_SUGGESTIONS: Final = 200
_QUIET_S: Final = (5.0, 60.0)
"""A pause: somebody who typed a moment ago, and is not typing."""


class Feeling:
    """Decides when one editor's user is asked.

    Args:
        directory: of the user's telemetry; a file in it says when any editor asked last.
        wall_s: Unix seconds.
    """

    def __init__(
        self, recorder: Recorder, directory: Path, *, clock: Callable[[], float], wall_s: Callable[[], float]
    ) -> None:
        self._recorder = recorder
        self._directory = directory
        self._clock = clock
        self._wall_s = wall_s

    def is_time(self) -> bool:
        """Whether there is enough to judge, and a pause. Costs nothing."""
        quiet_s = self._clock() - self._recorder.changed_s
        return self._recorder.shown.count >= _SUGGESTIONS and _QUIET_S[0] <= quiet_s <= _QUIET_S[1]

    def claim(self) -> bool:
        """Whether nobody has asked this user for so long; then it is said that somebody does now. Blocking.

        What cannot be written down is never asked: it would be asked again and again.
        """
        asked = self._directory / "asked"
        fresh = self._directory / "asked.new"
        now_s = self._wall_s()
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # of several editors one gets it
            with contextlib.suppress(FileNotFoundError):
                if abs(now_s - asked.stat().st_mtime) < WEEKS * 7 * 86_400:
                    fresh.unlink()
                    return False
            os.utime(fresh, (now_s, now_s))
            fresh.replace(asked)
        except FileExistsError:
            with contextlib.suppress(OSError):
                if now_s - fresh.stat().st_mtime > 86_400:  # of a process that ended in between
                    fresh.unlink()
            return False
        except OSError:
            return False
        return True

    def answered(self, answer: str) -> None:
        """Record one of `ANSWERS` with what this editor has measured."""
        if answer in ANSWERS:
            self._recorder.felt(answer)
