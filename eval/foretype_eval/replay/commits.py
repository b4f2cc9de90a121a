"""Commits of a repository, as stretches of text that somebody typed.

A commit (parent, child) becomes, per text file, an ordered list of :class:`Stretch`: a place in the file and the text that
was put there. Hunks are taken from git and typed top-down; deleted lines are removed first and moved lines are typed, since
line diffs cannot tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from foretype_client.adaptive.neighbours import BYTES_MAX, FILE_BYTES_MAX, FILES_MAX
from foretype_context.errors import GitError
from foretype_context.folder.git import Repository, repository_at

from foretype_eval.errors import RepositoryError

MAX_FILE_BYTES = 1 << 20
_GIT_S: Final = 120.0
_COMMITS_MAX: Final = 300
"""Files that none of so many commits changed are old, and equally so."""
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Text typed at one place: the file is `before + target[:k] + after` once `k` characters stand there."""

    path: str
    before: str
    target: str
    after: str


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit to replay.

    Attributes:
        skipped: files left out, counted by reason (`binary`, `huge`, `not utf-8`, `missing`).
    """

    id: str
    stretches: tuple[Stretch, ...]
    skipped: Counter[str] = field(default_factory=Counter[str])


def _git(repo: Path, *arguments: str) -> bytes:
    try:
        return _repository(repo).run(*arguments, time_s=_GIT_S)
    except GitError as error:
        raise RepositoryError(str(error)) from error


def _repository(repo: Path) -> Repository:
    found = repository_at(repo) if repo.is_dir() else None
    if found is None:
        raise RepositoryError(f"{repo} is not a git repository; give a folder with the commits that are to be typed")
    return found


def commits_of(repo: Path, selection: str | int, *, suffixes: Sequence[str]) -> list[str]:
    """Commit ids, newest first: the last N (an int) or a range `A..B`, without merges, touching files with `suffixes`.

    Raises:
        RepositoryError: not a repository, or an unknown range.
    """
    globs = [f"*{suffix}" for suffix in suffixes]
    found = _repository(repo)
    try:
        pick = ["-n", str(selection)] if isinstance(selection, int) else [found.revisions(selection)]
    except GitError as error:
        raise RepositoryError(f"--commits {selection}: {error}") from error
    try:
        _git(repo, "rev-parse", "--verify", "--quiet", "HEAD")
    except RepositoryError as error:
        raise RepositoryError(f"{repo} has no commits yet; give a repository with commits that can be typed") from error
    return _git(repo, "log", "--no-merges", "--format=%H", *pick, "--", *globs).decode().split()


def _changed_paths(repo: Path, commit: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield (status, old path, new path) of every changed file."""
    raw = _git(repo, "diff-tree", "-r", "-M", "-z", "--root", "--no-commit-id", "--name-status", commit)
    parts = iter(raw.decode("utf-8", "surrogateescape").split("\0"))
    for status in parts:
        if not status:
            return
        first = next(parts)
        if status[0] in "RC":
            yield status[0], first, next(parts)
        else:
            yield status[0], (None if status[0] == "A" else first), first


def _blob(repo: Path, commit: str, path: str, skipped: Counter[str]) -> str | None:
    try:
        size = int(_git(repo, "cat-file", "-s", f"{commit}:{path}"))
        if size > MAX_FILE_BYTES:
            skipped["huge"] += 1
            return None
        data = _git(repo, "cat-file", "blob", f"{commit}:{path}")
    except RepositoryError:  # a partial clone lists blobs that it does not have
        skipped["missing"] += 1
        return None
    if b"\0" in data:
        skipped["binary"] += 1
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        skipped["not utf-8"] += 1
        return None


def files_before(
    repo: Path, commit: str, *, suffixes: Sequence[str], files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX
) -> dict[str, str]:
    """The neighbours: files as they stood before `commit`, up to `bytes_max` in all, the latest changed of them, and that one last.

    As the client reads a folder that somebody works in, where what was changed lately lies latest on disk.
    """
    try:
        listing = _git(repo, "ls-tree", "-r", "-z", "-l", f"{commit}^").decode("utf-8", "surrogateescape")
    except RepositoryError:  # the root commit has no parent
        return {}
    ages = _ages(repo, f"{commit}^", suffixes)
    found: list[tuple[int, str, str, int]] = []
    for entry in filter(None, listing.split("\0")):
        head, path = entry.split("\t", 1)
        _, _, id, size = head.split()
        if path.endswith(tuple(suffixes)) and size.isdigit() and 0 < int(size) <= FILE_BYTES_MAX:
            found.append((ages.get(path, len(ages)), path, id, int(size)))
    wanted: list[tuple[str, str]] = []
    for _, path, id, size in sorted(found)[:files_max]:
        bytes_max -= size
        if bytes_max < 0:
            break
        wanted.append((path, id))
    wanted.reverse()
    texts = _texts(repo, [id for _, id in wanted])
    return {path: text for (path, _), text in zip(wanted, texts, strict=True) if text is not None}


def _ages(repo: Path, commit: str, suffixes: Sequence[str]) -> dict[str, int]:
    """How many files were changed later than each, of those that the last commits changed."""
    globs = [f"*{suffix}" for suffix in suffixes]
    log = _git(repo, "log", "--no-merges", f"-n{_COMMITS_MAX}", "--format=", "--name-only", "-z", commit, "--", *globs)
    paths = dict.fromkeys(filter(None, log.decode("utf-8", "surrogateescape").split("\0")))
    return {path: age for age, path in enumerate(paths)}


def _texts(repo: Path, ids: Sequence[str]) -> Iterator[str | None]:
    """Blobs as text; None for what is missing, binary or not UTF-8."""
    try:
        for data in _repository(repo).blobs(ids, time_s=_GIT_S):
            try:
                yield None if data is None or b"\0" in data else data.decode("utf-8")
            except UnicodeDecodeError:
                yield None
    except GitError as error:
        raise RepositoryError(str(error)) from error


def stretches_of(path: str, old: str, new: str, hunks: Sequence[tuple[int, int, int, int]]) -> list[Stretch]:
    """Turn the hunks of one file into stretches, top-down.

    Args:
        hunks: (old start, old count, new start, new count) as in a unified diff with no context, 1-based.
    """
    old_lines, new_lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    found: list[Stretch] = []
    for old_start, old_count, new_start, new_count in hunks:
        if not new_count:
            continue
        resume = old_start if old_count == 0 else old_start - 1 + old_count
        before = "".join(new_lines[: new_start - 1])
        target = "".join(new_lines[new_start - 1 : new_start - 1 + new_count])
        after = "".join(old_lines[resume:])
        # A new line is opened first and filled then: its line end stands right of the cursor, as in an editor.
        if target.endswith("\n"):
            target, after = target[:-1], "\n" + after
        if target.strip():
            found.append(Stretch(path, before, target, after))
    return found


def changed_files(
    repo: Path, commit: str, *, suffixes: Sequence[str], skipped: Counter[str]
) -> Iterator[tuple[str, str, str]]:
    """Yields (path, text before, text after) of every file that was changed, not of those that came, went or were copied.

    Args:
        skipped: counts what is left out, by reason.
    """
    for status, old_path, path in _changed_paths(repo, commit):
        if status not in "MR" or old_path is None or not path.endswith(tuple(suffixes)):
            continue
        new = _blob(repo, commit, path, skipped)
        old = _blob(repo, f"{commit}^", old_path, skipped)
        if new is not None and old is not None and old != new:
            yield path, old, new


def load_commit(repo: Path, commit: str, *, suffixes: Sequence[str]) -> Commit:
    """Read one commit.

    Raises:
        RepositoryError: the commit does not exist.
    """
    skipped: Counter[str] = Counter()
    stretches: list[Stretch] = []
    for status, old_path, path in _changed_paths(repo, commit):
        if status == "D" or not path.endswith(tuple(suffixes)):
            continue
        new = _blob(repo, commit, path, skipped)
        old = "" if old_path is None else _blob(repo, f"{commit}^", old_path, skipped)
        if new is None or old is None:
            continue
        if old_path is None:
            hunks = [(0, 0, 1, len(new.splitlines()))]
        else:
            diff = _git(repo, "diff", "-U0", "-M", "--no-color", f"{commit}^:{old_path}", f"{commit}:{path}")
            text = diff.decode("utf-8", "replace")
            hunks = [(int(a), int(b or 1), int(c), int(d or 1)) for a, b, c, d in _HUNK.findall(text)]
        stretches += stretches_of(path, old, new, hunks)
    return Commit(commit, tuple(stretches), skipped)
