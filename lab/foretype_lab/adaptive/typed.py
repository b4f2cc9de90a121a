"""`python -m foretype_lab.adaptive.typed --repo A --repo B …`: keys saved on lines drawn from commits, with paired intervals.

A replay types whole commits, so that one giant decides. Here every commit gives about as many keys: blocks of lines drawn from what
it wrote are typed with the replay's rhythm and its primary accept rule (A-line), each system on its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import typer
from foretype_client.adaptive.candidates import CopyLine, LocalModel
from foretype_client.adaptive.mixture import Weights, read_weights
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.table import shipped_table
from foretype_context.syntax.languages import language_of
from foretype_context.text.document import Document
from foretype_eval.console import fail, print_json
from foretype_eval.errors import RepositoryError
from foretype_eval.replay.accept import MIN_LINE_CHARS
from foretype_eval.replay.commits import Commit, Stretch
from foretype_eval.replay.typist import gap_s

from foretype_lab.adaptive.fit import EditsSoFar, WithFiles, commits_with_files

__all__ = ["Counts", "Line", "drawn", "main", "report", "typed"]

_BLOCK_LINES: Final = 8
_DECIDE_S: Final = 0.2
_TURN_S: Final = 0.005
"""What each further turn of a search that was cut short is taken to last: the flow goes on with it until the next key."""
_RESAMPLES: Final = 4000


class Counts(NamedTuple):
    """Keys without help and with it, keys at which a text stood there, suggestion sessions, and those that were right."""

    without: int = 0
    keys: int = 0
    shown: int = 0
    sessions: int = 0
    right: int = 0


class Line(NamedTuple):
    """Characters `begin` to `end` of what a commit wrote at one place."""

    stretch: Stretch
    begin: int
    end: int


def typed(
    item: WithFiles,
    local: LocalModel,
    *,
    keys_max: int,
    edits_so_far: bool = True,
    knows: AdaptiveModel | None = None,
) -> Counts:
    """One system types about `keys_max` keys of one commit; the same lines and the same rhythm for each system.

    Args:
        knows: what the system knows files by, where it is no adaptive model itself.
        edits_so_far: other files that come earlier in the commit are as it left them, as in a replay; else as before it.
    """
    commit, files = item
    known = local if isinstance(local, AdaptiveModel) else knows
    edits = None if known is None else EditsSoFar(known, commit, files)
    total = np.zeros(len(Counts._fields), np.int64)
    rhythm = random.Random(commit.id)
    for line in drawn(commit, keys_max, random.Random(commit.id)):
        if edits is not None and edits_so_far:
            edits.reached(line.stretch.path)
        total += _typed_line(line, local, rhythm)
    return Counts(*map(int, total))


def _typed_line(line: Line, local: LocalModel, rhythm: random.Random) -> Counts:
    stretch = line.stretch
    text = stretch.target[line.begin : line.end]
    keys = shown = sessions = right = 0
    visible, since_s, now_s = "", 0.0, 0.0
    for done in range(len(text) + 1):
        gap = gap_s(rhythm, after_newline=done == 0)
        fresh = not visible
        if fresh:
            left = stretch.before + stretch.target[: line.begin + done]
            document = Document(stretch.path, left + stretch.after, language=language_of(stretch.path))
            snapshot, since_s = document.snapshot(), now_s
            found = local.suggest(snapshot, len(left))
            while local.unfinished and since_s + _TURN_S < now_s + gap:
                found, since_s = local.suggest(snapshot, len(left)), since_s + _TURN_S
            visible = "" if found is None else found.text.rstrip()
        rest = text[done:]
        is_right = len(rest) >= MIN_LINE_CHARS and visible == rest
        if visible:
            shown += 1
            sessions += fresh
            right += fresh and is_right
        if is_right and max(since_s + _DECIDE_S, now_s) < now_s + gap:
            return Counts(len(text) + 1, keys + 2, shown, sessions, right)  # the key that accepts, and Enter
        keys += 1
        now_s += gap
        visible = visible[1:] if rest and visible[:1] == rest[:1] else ""
    return Counts(len(text) + 1, keys, shown, sessions, right)


def drawn(commit: Commit, keys_max: int, rng: random.Random) -> Iterator[Line]:
    """Blocks of lines in their order, drawn until `keys_max` keys are reached."""
    lines: list[Line] = []
    for stretch in commit.stretches:
        at = 0
        for line in stretch.target.split("\n"):
            if line.strip():
                lines.append(Line(stretch, at + len(line) - len(line.lstrip()), at + len(line.rstrip())))
            at += len(line) + 1
    blocks = [lines[at : at + _BLOCK_LINES] for at in range(0, len(lines), _BLOCK_LINES)]
    kept: list[int] = []
    for number in rng.sample(range(len(blocks)), len(blocks)):
        if keys_max <= 0:
            break
        keys_max -= sum(line.end - line.begin + 1 for line in blocks[number])
        kept.append(number)
    for number in sorted(kept):
        yield from blocks[number]


def report(rows: Mapping[str, Sequence[Counts]], *, seed: int = 0) -> dict[str, Any]:
    """Per system, and adaptive by copy-line; 95 % intervals, commits resampled, both systems together."""
    counts = {name: np.array(found, np.float64) for name, found in rows.items()}
    size = len(next(iter(counts.values())))
    picks = np.random.default_rng(seed).integers(0, size, (_RESAMPLES, size))

    def saved(table: Any) -> Any:
        return 1 - table[..., 1].sum(-1) / np.maximum(table[..., 0].sum(-1), 1)

    def precision(table: Any) -> Any:
        return table[..., 4].sum(-1) / np.maximum(table[..., 3].sum(-1), 1)

    def ends(exact: Any, draws: Any) -> list[float]:
        return [round(float(value), 4) for value in (exact, *np.percentile(draws, [2.5, 97.5]))]

    result: dict[str, Any] = {"commits": size, "keys": int(counts["adaptive"][:, 0].sum())}
    for name, table in counts.items():
        result[name] = {
            "saved": ends(saved(table), saved(table[picks])),
            "right": ends(precision(table), precision(table[picks])),
            "show_rate": round(float(table[:, 2].sum() / max(1.0, table[:, 1].sum())), 4),
        }
    if "beside" in counts:
        one, other = counts["adaptive"], counts["beside"]
        result["over_beside"] = ends(saved(one) - saved(other), saved(one[picks]) - saved(other[picks]))
    one, other = counts["adaptive"], counts["copy_line"]
    below = saved(other[picks])
    if (
        float(saved(other)) > 0 and (below > 0).all()
    ):  # else there is nothing to divide by, or an interval without an end
        result["by_copy_line"] = ends(saved(one) / saved(other), saved(one[picks]) / below)
    return result


def main(
    repo: Annotated[list[Path], typer.Option(help="Git repository that nothing was fitted on.")],
    commits: Annotated[int, typer.Option(min=1, help="Newest commits of each.")] = 25,
    keys: Annotated[int, typer.Option(min=10, help="Keys typed of each commit, about.")] = 150,
    edits_so_far: Annotated[bool, typer.Option(help="Earlier files of a commit are known as it left them.")] = True,
    suffix: Annotated[list[str] | None, typer.Option(help="File endings that are typed; default .py.")] = None,
    beside: Annotated[
        Path | None, typer.Option(help="Other weights on the same lines: a row, and the difference.")
    ] = None,
) -> None:
    """Measure the adaptive model on lines of commits, beside copying a line."""
    table = shipped_table()
    suffixes = tuple(suffix or (".py",))
    rows: dict[str, list[Counts]] = {"adaptive": [], "copy_line": []}
    other: Weights | None = None
    if beside is not None:
        try:
            other = read_weights(beside.read_text("utf-8"), beside.name)
        except (OSError, ValueError, KeyError) as error:
            fail(f"--beside {beside}: {error}; name a file that `python -m foretype_lab.adaptive.fit` wrote")
        rows["beside"] = []
    try:
        for path in repo:
            systems: dict[str, LocalModel] = {"adaptive": AdaptiveModel(table), "copy_line": CopyLine()}
            if other is not None:
                systems["beside"] = AdaptiveModel(table, weights=other)
            for item in commits_with_files(path, commits, suffixes=suffixes):
                for name, local in systems.items():
                    rows[name].append(typed(item, local, keys_max=keys, edits_so_far=edits_so_far))
    except RepositoryError as error:
        fail(str(error))
    if not rows["adaptive"]:
        fail(f"these repositories have no commit that wrote {', '.join(suffixes)}; name others with --repo")
    print_json(report(rows))


if __name__ == "__main__":
    typer.run(main)
