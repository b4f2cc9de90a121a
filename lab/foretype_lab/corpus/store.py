"""A text store: whole files one after the other, and where each begins.

It keeps *text*, not tokens, because holes are cut at characters: a middle that starts inside a word has other ids than the
same characters had in the whole file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

CHARACTERS_PER_TOKEN = 3.6
"""A little under what tokenizers reach on code, so that a window rarely overflows its row."""

_HEADER = re.compile(r"\A(?:#[^\n]*\n)+\s*")


def without_licence_header(text: str) -> str:
    """Drops the comment block at the top where it is a licence notice.

    A third of all windows are the top of a file; a hundred times the same notice teaches nothing and costs tokens. The
    licences themselves are kept where they bind: in the manifest.
    """
    found = _HEADER.match(text)
    if found and re.search(r"licen[cs]e|copyright", found.group(), re.IGNORECASE):
        return text[found.end() :]
    return text


def build_store(documents: Iterable[dict[str, str]], folder: Path) -> None:
    """Writes ``text.bin`` (UTF-8, files one after the other) and ``index.json`` (repo, path, offset, bytes)."""
    folder.mkdir(parents=True, exist_ok=True)
    index: list[tuple[str, str, int, int]] = []
    offset = 0
    with (folder / "text.bin").open("wb") as stream:
        for document in documents:
            # Line ends as they come: CRLF files stay CRLF, so the model meets both.
            raw = without_licence_header(document["text"]).encode()
            stream.write(raw)
            index.append((document["repo"], document["path"], offset, len(raw)))
            offset += len(raw)
    (folder / "index.json").write_text(json.dumps(index))


class Store:
    """Read-only view of a text store."""

    def __init__(self, folder: Path) -> None:
        self._text = np.memmap(folder / "text.bin", dtype=np.uint8, mode="r")
        self.index: list[tuple[str, str, int, int]] = [
            tuple(row) for row in json.loads((folder / "index.json").read_text())
        ]
        self.repository_range: dict[str, tuple[int, int]] = {}
        for number, (repo, *_) in enumerate(self.index):
            first, _ = self.repository_range.get(repo, (number, number))
            self.repository_range[repo] = (first, number + 1)

    def __len__(self) -> int:
        return len(self.index)

    def text(self, number: int) -> str:
        """Text of a file."""
        _, _, offset, size = self.index[number]
        return bytes(self._text[offset : offset + size]).decode()

    def slice(self, number: int, start: int, size: int) -> str:
        """Text of about ``size`` bytes from byte ``start`` of a file, from a line's start to a line's end."""
        _, _, offset, total = self.index[number]
        raw = bytes(self._text[offset + start : offset + min(total, start + size)])
        if start:
            raw = raw[raw.find(b"\n") + 1 :]
        if start + size < total:
            raw = raw[: raw.rfind(b"\n") + 1]
        # A cut inside a character can only be at the ends, which are on line ends unless there is no newline at all.
        return raw.decode("utf-8", "ignore")
