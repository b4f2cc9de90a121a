"""Reading `items.jsonl` of a replay or of a fill-in-the-middle run, and joining two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretype_eval.errors import EvalError
from foretype_eval.fim.grade import GradedRow
from foretype_eval.replay.results import CommitRow


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one run: replay rows by (system, commit), or benchmark rows by item id."""

    name: str
    replay: Mapping[tuple[str, str], CommitRow] = {}
    fim: Mapping[str, GradedRow] = {}

    def systems(self) -> list[str]:
        return list(dict.fromkeys(system for system, _ in self.replay))

    def of(self, system: str) -> dict[str, CommitRow]:
        return {commit: row for (name, commit), row in self.replay.items() if name == system}


def load_run(path: Path) -> Run:
    """Read an `items*.jsonl`, or the one in a folder.

    Raises:
        EvalError: nothing there, several files in a folder, or a line that is no row.
    """
    path = _file(path)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise EvalError(f"{path}: {error.strerror}; give the folder that --out named") from error
    replay: dict[tuple[str, str], CommitRow] = {}
    fim: dict[str, GradedRow] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
            if "commit" in fields:
                row = msgspec.convert(fields, CommitRow)
                replay[row.system, row.commit] = row
            else:
                item = msgspec.convert(fields, GradedRow)
                fim[item.id] = item
        except msgspec.DecodeError as error:
            raise EvalError(f"{path}:{number}: {error}; is this a file of `eval replay` or `eval fim`?") from error
    if not replay and not fim:
        raise EvalError(f"{path}: no rows")
    if replay and fim:
        raise EvalError(f"{path}: rows of a replay and of a benchmark in one file")
    return Run(name=path.parent.name if path.name == "items.jsonl" else path.stem, replay=replay, fim=fim)


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found: Sequence[Path] = sorted(path.glob("items*.jsonl"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise EvalError(f"{path}: no items*.jsonl; give the folder that --out named")
    raise EvalError(f"{path}: several runs ({', '.join(each.name for each in found)}); name one of these files")
