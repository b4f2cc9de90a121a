"""Whether this machine has anything to spare for a suggestion that nobody asked for: its battery saver, and processors that others take.

Looked at when a key comes, never by a timer, and only for a gateway on this machine. What Linux tells is read; elsewhere nothing is
known, and nothing is spared.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from foretype_context.errors import NotSmallError
from foretype_context.folder.small_files import read_small

_FILE_BYTES_MAX: Final = 1 << 20
_LOOK_S: Final = 3.0
"""Between two looks: three files of the kernel's, a tenth of a millisecond."""
_STALE_S: Final = 30.0
"""What was taken on average since before says nothing about now."""
_TAKEN: Final = 0.9
_SAVERS: Final = (
    (Path("/sys/firmware/acpi/platform_profile"), "low-power"),
    (Path("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference"), "power"),
)
"""Where Linux keeps what a desktop's power saver chose, and what it then says."""


class Spared(StrEnum):
    """Why the machine is left alone, for people."""

    BATTERY = "the battery saver is on"
    BUSY = "other programs take all processors"


class Reading(NamedTuple):
    """Processor seconds since the machine started, of all processors: `busy_s` of everybody but niced programs, `ours_s` of ours."""

    at_s: float
    busy_s: float
    ours_s: float


Reader = Callable[[float, int], Reading | None]
"""Reads the machine at a time (monotonic seconds), for a gateway's process; None where it cannot be read."""


class Machine:
    """Remembers the last reading, since what others take is a difference.

    Args:
        gateway: process of the gateway that is asked; None where it is on another machine.
        read, saves: the kernel's counters, and whether a battery saver is on.
    """

    def __init__(
        self,
        gateway: Callable[[], int | None],
        *,
        read: Reader | None = None,
        saves: Callable[[], bool] | None = None,
        processors: int = os.cpu_count() or 1,
    ) -> None:
        self._gateway = gateway
        self._read = read or read_linux
        self._saves = saves or saver_is_on
        self._processors = processors
        self._last: Reading | None = None
        self._looked_s = -_LOOK_S
        self._found: Spared | None = None

    def spared(self, now: float) -> Spared | None:
        """Why nothing should be computed unasked at `now` (monotonic seconds); None where it may be."""
        process = self._gateway()
        if process is None:
            return None
        if now - self._looked_s >= _LOOK_S:
            self._looked_s = now
            self._found = Spared.BATTERY if self._saves() else self._busy(now, process)
        return self._found

    def _busy(self, now: float, process: int) -> Spared | None:
        last, self._last = self._last, self._read(now, process)
        if last is None or self._last is None or now - last.at_s > _STALE_S:
            return None
        others_s = (self._last.busy_s - last.busy_s) - (self._last.ours_s - last.ours_s)
        return Spared.BUSY if others_s >= _TAKEN * self._processors * (now - last.at_s) else None


def read_linux(now: float, process: int) -> Reading | None:
    """From `/proc`: the gateway's process, the children that it has, and this one are ours."""
    if sys.platform != "linux":
        return None
    try:
        ticks = os.sysconf("SC_CLK_TCK")
        user, _, system, _, _, interrupts, soft = map(int, _read("/proc/stat").split(None, 8)[1:8])
        children = _read(f"/proc/{process}/task/{process}/children").split()
        ours = sum(_used(each) for each in (str(process), *children)) / ticks
    except (OSError, NotSmallError, ValueError, IndexError, AttributeError):
        return None
    own = os.times()
    return Reading(now, (user + system + interrupts + soft) / ticks, ours + own.user + own.system)


def saver_is_on() -> bool:
    """Whether a desktop's power saver says so."""
    for path, word in _SAVERS:
        with suppress(OSError, NotSmallError):
            if _read(path).strip() == word:
                return True
    return False


def _used(process: str) -> int:
    """Ticks of user and system time; its name, which may hold anything, ends at the last bracket."""
    fields = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _read(path: str | Path) -> str:
    return read_small(path, _FILE_BYTES_MAX, links=True).decode(errors="replace")
