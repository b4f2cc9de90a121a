"""Rows of a replay in which every count is 0 that a test does not name."""

from typing import Any

from foretype_eval.replay.results import CommitRow

_FILLED = ("system", "commit", "by_source", "slices", "stages_ms")


def commit_row(commit: object, **given: Any) -> CommitRow:
    zero: dict[str, Any] = {name: 0 for name in CommitRow.__struct_fields__ if name not in _FILLED}
    return CommitRow(**(zero | {"system": "model", "commit": str(commit), "by_source": {}} | given))
