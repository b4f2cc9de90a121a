"""Rows of a replay on disk: written as they are made, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from foretype_eval.replay.results import CommitRow
from foretype_eval.replay.trace import TraceRow


class _Line(CommitRow, frozen=True, kw_only=True):
    """A row as it is stored: with the latencies that were measured for it, which a saved trace is made of."""

    latencies: list[TraceRow] | None = None


class FinishedRows:
    """Rows by system and commit, kept in `folder` under a name made of the settings they belong to.

    Args:
        folder: None keeps them in memory only.
        settings: everything that can change a row; another setting is another file.
    """

    def __init__(self, folder: Path | None, settings: object) -> None:
        self._rows: dict[tuple[str, str], _Line] = {}
        self._path: Path | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            key = zlib.crc32(msgspec.json.encode(settings, enc_hook=str))
            self._path = folder / f"items-{key:08x}.jsonl"
            self._read(self._path)

    def get(self, system: str, commit: str) -> CommitRow | None:
        return self._rows.get((system, commit))

    def forget(self, system: str) -> None:
        """Make the rows of a system anew; of two lines the later one counts."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != system}

    def latencies(self, system: str, commit: str) -> list[TraceRow] | None:
        """What was measured for a row; None where a version that did not keep it made the row."""
        return self._rows[system, commit].latencies

    def add(self, row: CommitRow, latencies: Sequence[TraceRow] = ()) -> None:
        fields = {name: getattr(row, name) for name in CommitRow.__struct_fields__}
        line = self._rows[row.system, row.commit] = _Line(**fields, latencies=list(latencies))
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")

    def _read(self, path: Path) -> None:
        data = path.read_bytes() if path.exists() else b""
        whole, _, half = data.rpartition(b"\n")
        for line in whole.splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                row = msgspec.json.decode(line, type=_Line)
                self._rows[row.system, row.commit] = row
        if half:  # the run was stopped while it wrote its last line
            path.write_bytes(whole + b"\n" if whole else b"")
