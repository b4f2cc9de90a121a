"""What git and the user's globs leave out of a root, which may be a folder inside a repository, or hold repositories."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from foretype_context.folder.git import is_repository, repository_at
from foretype_context.folder.ignore_rules import IGNORE_FILE, Rules, is_ignored, rules_of_user, with_file
from foretype_context.folder.user_excludes import user_excludes

_Stamp = tuple[int, int, int]


def _ignore(path: Path) -> None:
    """The default for `look_at`."""


def rules_at(root: Path, own: Rules = (), look_at: Callable[[Path], None] = _ignore) -> Rules | None:
    """The rules that hold for a root before its own `.gitignore` is read; None: git leaves out the root itself.

    Outside of a repository these rules are `own`. Inside one they are, weakest first: the user's file for all repositories,
    `info/exclude`, `own`, and each `.gitignore` from the top of the work tree down to the root's parent.

    Args:
        own: rules of the user for the root.
        look_at: called with each file that holds rules, or would hold some if it existed, before that file is read.
    """
    try:
        real = Path(os.path.realpath(root))
    except ValueError:  # a NUL in the name
        return own
    for top in (real, *real.parents):
        look_at(top / ".git")
        if is_repository(top):
            break
    else:
        return own
    names = real.relative_to(top).parts
    rules = weak = _repository_rules(top, "", look_at)
    for at in range(len(names)):
        rules = _with_gitignore(rules, top, "/".join(names[:at]), look_at)
        if is_ignored("/".join(names[: at + 1]) + "/", rules):
            return None
    below = "".join(f"{name}/" for name in names)
    moved = [one._replace(inside="", above=below[len(one.inside) :]) for one in rules]
    return (*moved[: len(weak)], *own, *moved[len(weak) :])


def rules_below(
    rules: Rules, root: Path, folder: str, own: Rules = (), look_at: Callable[[Path], None] = _ignore
) -> Rules:
    """The rules that hold inside `folder` (relative to `root`), given those that hold for it.

    Args:
        own: rules of the user for the root. Only these hold inside a repository within another, such as a submodule: git's rules for
            the outer repository end there.
    """
    if folder and is_repository(root / folder):
        rules = (*_repository_rules(root / folder, f"{folder}/", look_at), *own)
    return _with_gitignore(rules, root, folder, look_at)


def _repository_rules(top: Path, inside: str, look_at: Callable[[Path], None]) -> Rules:
    """A repository's rules that stand in no `.gitignore`. Git follows links to the files of these rules, but none to a `.gitignore`."""
    rules: Rules = ()
    repository = repository_at(top)
    for file in (user_excludes(look_at), repository and repository.common_dir / "info" / "exclude"):
        if file is not None:
            look_at(top / file)
            rules = with_file(rules, top / file, inside, links=True)
    return rules


def _with_gitignore(rules: Rules, root: Path, folder: str, look_at: Callable[[Path], None]) -> Rules:
    path = root / folder / IGNORE_FILE
    look_at(path)
    return with_file(rules, path, f"{folder}/" if folder else "")


class Ignored:
    """Says of single files of a root whether they are left out, and remembers the rules of the folders above them until rules change.

    Args:
        root: of the workspace.
        globs: of the user.

    Attributes:
        changes: how often rules were found changed.
    """

    def __init__(self, root: Path, globs: Sequence[str] = ()) -> None:
        self.root = root
        self._own = rules_of_user(globs)
        self._rules: dict[str, Rules | None] = {}
        self._stamps: dict[Path, _Stamp | None] = {}
        self.changes: int = 0

    def look(self) -> None:
        """Forget all rules if any file of rules has changed: a stat for each such file, also for those that do not exist."""
        if any(stamp != _stamp(path) for path, stamp in self._stamps.items()):
            self.changes += 1
            self._rules.clear()
            self._stamps.clear()

    def __call__(self, path: Path) -> bool:
        """Whether a file is left out. Files outside of the root are not."""
        if not path.is_relative_to(self.root):
            return False
        inside = PurePosixPath(path.relative_to(self.root).as_posix())
        self.look()
        rules = self._inside(inside.parent)
        return rules is None or is_ignored(inside.as_posix(), rules)

    def _inside(self, folder: PurePosixPath) -> Rules | None:
        """The rules inside a folder; None: the folder itself is left out, and git looks at nothing in it."""
        name = "" if folder == PurePosixPath() else folder.as_posix()
        if name not in self._rules:
            if name:
                rules = self._inside(folder.parent)
                if rules is not None and is_ignored(f"{name}/", rules):
                    rules = None
            else:
                rules = rules_at(self.root, self._own, self._remember_stamp)
            self._rules[name] = (
                None if rules is None else rules_below(rules, self.root, name, self._own, self._remember_stamp)
            )
        return self._rules[name]

    def _remember_stamp(self, path: Path) -> None:
        if path not in self._stamps:
            self._stamps[path] = _stamp(path)


def _stamp(path: Path) -> _Stamp | None:
    """A value that changes when a file of rules changes, or when a folder becomes a repository or ceases to be one."""
    try:
        status = os.stat(path, follow_symlinks=path.name != IGNORE_FILE)
    except (OSError, ValueError):
        return None
    # Git writes into its folder all the time.
    return (status.st_ino, 0, 0) if path.name == ".git" else (status.st_ino, status.st_mtime_ns, status.st_size)
