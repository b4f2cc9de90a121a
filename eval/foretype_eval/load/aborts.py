"""When the scripted engine was told to abort: it writes that down, and the generator knows when it sent the cancel.

Both clocks are `time.perf_counter`, which counts from one moment for all processes of a machine (`CLOCK_MONOTONIC` on Linux).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class AbortLog:
    """Reads what an engine with the option `abort_log` appends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0

    def news(self) -> dict[str, float]:
        """Seconds of every abort since the last call, by the client's id of the request; of several the first."""
        if not self._path.exists():
            return {}
        with self._path.open("rb") as log:
            log.seek(self._read_bytes)
            text, _, _ = log.read().rpartition(b"\n")
        self._read_bytes += len(text) + 1 if text else 0
        found: dict[str, float] = {}
        for line in text.decode().splitlines():
            nanoseconds, _, key = line.partition(" ")
            found.setdefault(_id_of(key), int(nanoseconds) / 1e9)
        return found


def _id_of(key: str) -> str:
    """The engine knows a request by its connection, `c7:12-3`, and a second attempt by a suffix, `c7:12-3~2`."""
    return key.partition(":")[2].partition("~")[0]


def relayed_s(sent_s: Mapping[str, float], aborted_s: Mapping[str, float]) -> list[float]:
    """From a cancel's send to the engine's abort, where it caused one: others came too late, or the request had no engine yet."""
    return [aborted_s[id] - sent for id, sent in sent_s.items() if aborted_s.get(id, 0.0) >= sent]
