"""Commits of a repository, typed a part of: what comes next is known.

Every file that a commit changed is typed edit by edit, from the top down, and after each edit the rest is what is expected: all splits of
a commit in one pass. Its renames and changed signatures are typed once more, each alone: the declaration by hand, the rest expected.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from foretype_context.syntax.languages import LANGUAGES

from foretype_eval.next_edit.changes import edits_between
from foretype_eval.next_edit.developer import Developer, File
from foretype_eval.next_edit.named_changes import NamedChange, met, renames, signatures
from foretype_eval.next_edit.offers import Predictor
from foretype_eval.next_edit.tally import ClusterTally
from foretype_eval.replay.commits import changed_files, commits_of

SUFFIXES: Final = tuple(suffix for spec in LANGUAGES.values() if spec.wheel for suffix in spec.suffixes)
_EDITS_MAX: Final = 60
"""Of one file: a file that was changed in more places was not typed so."""
_CHARS_MAX: Final = 200_000
_LINE_CHARS_MAX: Final = 1_000
_BUILT: Final = re.compile(r"(^|/)(dist|build|vendor|node_modules|third_party)/|\.min\.|\.pb\.")
_INSERTED_MAX: Final = 4_000


@dataclass(frozen=True, slots=True)
class CommitCases:
    """What one commit gives.

    Attributes:
        skipped: files left out, by reason.
    """

    id: str
    files: tuple[File, ...]
    named: tuple[NamedChange, ...]
    skipped: Counter[str] = field(default_factory=Counter[str])


class CommitBounds(StrEnum):
    """What a commit may contain and be chosen for."""

    RENAME = "rename"
    SIGNATURE = "signature"


def commit_cases(
    repo: Path, selection: str | int, suffixes: Sequence[str], holding: Collection[CommitBounds] = ()
) -> Iterator[tuple[CommitCases | None, int, int]]:
    """Yields commits, newest first, with their number and how many there are.

    Args:
        holding: commits that contain none of these are yielded as None; empty: every commit counts.

    Raises:
        RepositoryError: no repository, or no such commits.
    """
    commits = commits_of(repo, selection, suffixes=suffixes)
    for number, commit in enumerate(commits, 1):
        files: list[File] = []
        named: list[NamedChange] = []
        skipped = Counter[str]()
        for path, old, new in changed_files(repo, commit, suffixes=suffixes, skipped=skipped):
            if max(len(old), len(new)) > _CHARS_MAX:
                skipped["large"] += 1
                continue
            if _BUILT.search(path) or max(map(len, new.splitlines()), default=0) > _LINE_CHARS_MAX:
                skipped["built, not typed"] += 1
                continue
            edits = edits_between(old, new)
            named += (*renames(path, old, new), *signatures(path, old, new))
            if len(edits) > _EDITS_MAX or any(len(edit.text) > _INSERTED_MAX for edit in edits):
                skipped["many or long edits"] += 1
                continue
            files.append(File(path, old, new))
        kept = not holding or any(
            (CommitBounds.SIGNATURE if one.kind == "signature" else CommitBounds.RENAME) in holding for one in named
        )
        yield CommitCases(commit, tuple(files), tuple(named), skipped) if kept else None, number, len(commits)


def typed_commit(predictor: Callable[[], Predictor], case: CommitCases) -> ClusterTally:
    """The whole of a commit, by one developer with one predictor."""
    tally = ClusterTally(case.id)
    Developer(predictor(), case.files, tally).work()
    return tally


def typed_named(predictor: Callable[[], Predictor], case: CommitCases) -> Iterator[tuple[str, ClusterTally]]:
    """Each rename and each signature with its kind."""
    for change in case.named:
        tally = ClusterTally(case.id)
        developer = Developer(predictor(), [change.file], tally)
        developer.work()
        tally.opportunities, tally.met = len(change.wanted), met(change, developer.texts[change.file.path])
        yield change.kind, tally
