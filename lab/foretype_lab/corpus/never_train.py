"""The never-train rules: by project name, by folder, and by content.

Content is what counts in the end: a renamed copy of an evaluation file is still that file. A corpus file is refused
when it shares a run of 50 lexical tokens with a never-train file, or when the two are 0.7 alike by MinHash.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from foretype_lab.corpus import duplicates

SIMILARITY = 0.7


def normalise(name: str) -> str:
    """Normalises a project name as package indexes do (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True)
class NeverTrain:
    """The rules as data.

    Attributes:
        projects: normalised project names.
        packages: import names whose folder (or single module) is a vendored copy.
        vendor_folders: folder names that hold other people's code.
        content_check: projects whose text the content check is made from.
    """

    projects: frozenset[str]
    packages: frozenset[str]
    vendor_folders: frozenset[str]
    content_check: tuple[str, ...]

    @classmethod
    def load(cls, path: Path) -> NeverTrain:
        """Reads ``never_train.toml``."""
        data = tomllib.loads(path.read_text("utf-8"))
        return cls(
            projects=frozenset(normalise(name) for name in data["projects"]),
            packages=frozenset(data["packages"]),
            vendor_folders=frozenset(data["vendor_folders"]),
            content_check=tuple(data["content_check"]),
        )

    def refuses_project(self, name: str) -> bool:
        """Says whether a project is on the list; ``llm-d/anything`` counts as ``llm-d``."""
        parts = [normalise(part) for part in name.split("/")]
        return any(part in self.projects for part in parts) or parts[0].startswith("llm-d-")

    def refuses_path(self, path: str) -> str | None:
        """Names the rule a path breaks: ``vendored`` or ``never_train_path``, or None."""
        pure = PurePosixPath(path)
        folders = {part.lower() for part in pure.parts[:-1]}
        if folders & self.vendor_folders:
            return "vendored"
        # Only nested ones: "rich" as the top folder of its own wheel is caught by the project's name, while
        # "textual/rich/…" is a copy. A top folder of that name in another wheel is refused just the same.
        if folders & self.packages or pure.stem.lower() in {"human_eval", "humaneval", "safim"}:
            return "never_train_path"
        return None


@dataclass
class ContentCheck:
    """Runs and signatures of everything that must not be trained on."""

    _runs: duplicates.Hashes = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    _near: duplicates.NearIndex = field(default_factory=lambda: duplicates.NearIndex(SIMILARITY))
    _bits: np.ndarray[tuple[int], np.dtype[np.bool_]] = field(default_factory=lambda: np.zeros(1 << 24, dtype=np.bool_))

    @classmethod
    def build(cls, texts: Iterable[tuple[str, str, str]]) -> ContentCheck:
        """Makes the check from (name, text, language)."""
        check = cls()
        runs: list[duplicates.Hashes] = []
        for name, text, language in texts:
            tokens = duplicates.lexical_tokens(text, language)
            runs.append(duplicates.windows(tokens, duplicates.RUN_TOKENS))
            if len(tokens) >= duplicates.SHINGLE_TOKENS:
                check._near.add(name, duplicates.signature(tokens))
        if runs:
            check._runs = np.unique(np.concatenate(runs))
            check._bits[(check._runs >> np.uint64(40)).astype(np.int64)] = True
        return check

    @property
    def runs(self) -> int:
        """Number of distinct 50-token runs held."""
        return len(self._runs)

    def digest(self) -> str:
        """Names the content of the check."""
        return hashlib.sha256(self._runs.tobytes()).hexdigest()

    def matches(self, tokens: duplicates.Hashes, signature: duplicates.Hashes) -> str | None:
        """Names what a file matches: ``never_train_run``, ``never_train_similar``, or None."""
        candidates = duplicates.windows(tokens, duplicates.RUN_TOKENS)
        # A bitmap first: nearly every window is unknown, and a binary search per window would cost minutes.
        candidates = candidates[self._bits[(candidates >> np.uint64(40)).astype(np.int64)]]
        if len(candidates) and len(self._runs):
            at = np.minimum(np.searchsorted(self._runs, candidates), len(self._runs) - 1)
            if bool((self._runs[at] == candidates).any()):
                return "never_train_run"
        return "never_train_similar" if self._near.similar(signature) is not None else None
