"""Training rows drawn from a text store, deterministically: row ``i`` of a seed is always the same tokens.

The store keeps *text*, not tokens, because holes are cut at characters: a middle that starts inside a word has other
ids than the same characters had in the whole file. Encoding costs under 1 % of a CPU training step (tiktoken does
about 15 MB/s, a step uses some 30 KB a second), every epoch gets new holes, and the position in the data is one
integer, which makes resuming exact. Token streams that are fixed, for validation, are packed once by :func:`pack`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from foretype_lab.training import fim
from foretype_lab.training.tokenizer import SPECIAL_IDS

if TYPE_CHECKING:
    import tiktoken

PAD = SPECIAL_IDS["<|fim_pad|>"]
FIM_SHARE = 0.85
CHARACTERS_PER_TOKEN = 3.6
"""A little under what the tokenizer reaches, so that a window rarely overflows its row."""

TYPED = 1 << 15
"""Marks a token of a row that stands between ``<|fim_middle|>`` and the cursor: given, never to be generated."""

Tokens = npt.NDArray[np.uint16]


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


@dataclass(frozen=True)
class Shape:
    """What a row looks like.

    Attributes:
        length: tokens of a row, without the one more that targets need.
        context_share: share of rows with other files of the repository in front.
        short_share: share of holes in a short window, of which several fit in one row: more middles per token.
    """

    length: int = 512
    context_share: float = 0.0
    short_share: float = 0.8


class Sampler:
    """Draws rows. Windows are visited in a random order per epoch, so that no text is seen twice before all was once."""

    def __init__(self, store: Store, encoding: tiktoken.Encoding, shape: Shape, seed: int) -> None:
        self._store, self._encode, self._shape, self._seed = store, encoding.encode_ordinary, shape, seed
        self._window_bytes = int(shape.length * CHARACTERS_PER_TOKEN * 1.15)
        starts: list[tuple[int, int]] = []
        for number, (_, _, _, size) in enumerate(store.index):
            starts += [
                (number, start) for start in range(0, max(1, size - self._window_bytes // 4), self._window_bytes)
            ]
        self._windows = np.array(starts, dtype=np.int64)
        self._order: tuple[int, npt.NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        """Windows of one epoch."""
        return len(self._windows)

    def row(self, number: int) -> Tokens:
        """Row ``number``: uint16, shape (length + 1,), padded with ``<|fim_pad|>``."""
        return self.marked_row(number) & (TYPED - 1)

    def marked_row(self, number: int) -> Tokens:
        """The same with :data:`TYPED` in every token that was typed already."""
        draw = random.Random(f"{self._seed}/{number}")
        room = self._shape.length + 1
        parts: list[int] = []
        window = self._window(number)
        while room - len(parts) > 48:
            left = room - len(parts)
            file, start = window
            if parts:
                # What is left of a row is filled with pieces of anywhere.
                file, start = (int(value) for value in self._windows[draw.randrange(len(self._windows))])
            parts += self._sample(file, start, left, draw)
        row = np.full(room, PAD, dtype=np.uint16)
        row[: min(room, len(parts))] = parts[:room]
        return row

    def _window(self, number: int) -> tuple[int, int]:
        epoch, place = divmod(number, len(self._windows))
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, np.random.default_rng((self._seed, epoch)).permutation(len(self._windows)))
        file, start = self._windows[self._order[1][place]]
        return int(file), int(start)

    def _sample(self, file: int, start: int, room: int, draw: random.Random) -> list[int]:
        repo, path, _, _ = self._store.index[file]
        use_fim = draw.random() < FIM_SHARE
        context: list[int] = []
        if room > 1024 and draw.random() < self._shape.context_share:
            context = self._context(file, repo, room // 2, draw)
            room -= len(context)
        if use_fim and not context and room > 160 and draw.random() < self._shape.short_share:
            room = draw.randint(96, min(room, 320))
        header = [SPECIAL_IDS["<|file_sep|>"], *self._encode(path + "\n")]
        if not context and draw.random() < 0.3:
            # Serving names the repository also where no other file is in the prompt.
            header = [SPECIAL_IDS["<|repo_name|>"], *self._encode(repo + "\n"), *header]
        budget = room - len(header)
        text = self._store.slice(file, start, int(max(budget, 32) * CHARACTERS_PER_TOKEN))
        if use_fim and (hole := fim.choose_hole(text, draw)) is not None:
            pieces = fim.lay_out(text, hole, fim.choose_layout(draw), draw)
            return context + header + encode_pieces(pieces, self._encode, budget, mark=TYPED)
        body = self._encode(text)
        whole = start == 0 and len(text.encode()) == self._store.index[file][3]
        return context + header + body[:budget] + ([SPECIAL_IDS["<|endoftext|>"]] if whole else [])

    def _context(self, file: int, repo: str, room: int, draw: random.Random) -> list[int]:
        """Other files of the repository, neighbours in path order first, as serving puts them before the file."""
        first, last = self._store.repository_range[repo]
        near = [number for number in range(max(first, file - 6), min(last, file + 7)) if number != file]
        parts = [SPECIAL_IDS["<|repo_name|>"], *self._encode(repo + "\n")]
        while near and len(parts) < room - 96:
            other = near.pop(draw.randrange(len(near)))
            _, path, _, size = self._store.index[other]
            take = min(room - len(parts), draw.randint(96, 700))
            begin = draw.randrange(max(1, size - int(take * CHARACTERS_PER_TOKEN)))
            text = self._store.slice(other, begin, int(take * CHARACTERS_PER_TOKEN))
            if text and not text.endswith("\n"):
                text += "\n"
            parts += [SPECIAL_IDS["<|file_sep|>"], *self._encode(path + "\n"), *self._encode(text)]
        return parts


def encode_pieces(
    pieces: list[fim.Piece], encode: Callable[[str], list[int]], budget: int, *, mark: int = 0
) -> list[int]:
    """Encodes pieces one by one and cuts the lines above and the suffix so that the whole fits.

    The middle is never cut: a middle without its end would teach the model not to stop. A middle longer than the budget
    gives an empty list. ``mark`` is set in the tokens of what was typed.
    """
    ids = [[SPECIAL_IDS[piece.token]] if isinstance(piece, fim.Special) else encode(piece) for piece in pieces]
    if sum(map(len, ids)) > budget:
        answer = len(pieces) - 2
        cuttable = [at for at, piece in enumerate(pieces) if isinstance(piece, str) and at != answer]
        room = budget - sum(len(part) for at, part in enumerate(ids) if at not in cuttable)
        if room < 0:
            return []
        # The longer side gives first, so that both sides of the hole stay in view.
        keep = max(cap for cap in range(room + 1) if sum(min(cap, len(ids[at])) for at in cuttable) <= room)
        for at in cuttable:
            is_below = at and pieces[at - 1] == fim.SUFFIX
            ids[at] = ids[at][:keep] if is_below else ids[at][max(0, len(ids[at]) - keep) :]
    # Middle and end are the last two; before them stands what was typed, or the token that begins the middle.
    if isinstance(pieces[-3], str):
        ids[-3] = [token | mark for token in ids[-3]]
    return [token for part in ids for token in part]


def pack(sampler: Sampler, rows: int, path: Path) -> None:
    """Writes the first rows as a uint16 ``.npy`` of shape (rows, length + 1), for a validation set that never moves."""
    np.save(path, np.stack([sampler.row(number) for number in range(rows)]))
