"""Training rows: one hole in one window each, laid out as serving lays it out; row ``i`` of a seed is always the same."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from foretype_lab.adapter import holes
from foretype_lab.adapter.base import CONTROL, PAD
from foretype_lab.corpus.store import CHARACTERS_PER_TOKEN, Store

END = CONTROL["<|end_of_middle|>"]

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    """Ids of (length,), padded, and what of it is the answer's own: ``ids[begin:end]``, its end token included."""

    ids: Ids
    begin: int
    end: int


class Sampler:
    """Draws rows of a length from a store.

    Args:
        layouts: weight by layout.
        context_share: of rows of at least 384 tokens, with pieces of other files of the repository in front.
        python_share: of the rows; the other languages share the rest by their bytes.
    """

    def __init__(
        self,
        store: Store,
        tokenizer: Tokenizer,
        layouts: dict[str, float],
        seed: str,
        context_share: float = 0.2,
        python_share: float = 0.5,
    ) -> None:
        self._store, self._tokenizer, self._seed = store, tokenizer, seed
        self._layouts, self._context_share, self._python_share = layouts, context_share, python_share
        sizes = np.array([size for _, _, _, size in store.index], dtype=np.int64)
        python = np.array([path.endswith((".py", ".pyi")) for _, path, _, _ in store.index])
        self._groups = [np.flatnonzero(python), np.flatnonzero(~python)]
        self._ends = [np.cumsum(sizes[group]) for group in self._groups]

    def row(self, number: int, length: int) -> Row:
        """Row ``number`` of ``length`` tokens."""
        draw = random.Random(f"{self._seed}/{length}/{number}")
        while True:
            if (found := self._try(draw, length)) is not None:
                return found

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _told(self, answer: holes.Piece, typed: int) -> int:
        """Tokens of an answer that hold nothing but what was typed already: serving allows no others, so they are no choice."""
        if not typed or not isinstance(answer, str):
            return 0
        offsets = self._tokenizer.encode(answer, add_special_tokens=False).offsets
        return sum(end <= typed for _, end in offsets)

    def _file(self, draw: random.Random) -> int:
        """A file, drawn by its bytes."""
        group = 0 if (draw.random() < self._python_share or not len(self._groups[1])) and len(self._groups[0]) else 1
        at = draw.randrange(int(self._ends[group][-1]))
        return int(self._groups[group][np.searchsorted(self._ends[group], at, side="right")])

    def _try(self, draw: random.Random, length: int) -> Row | None:
        file = self._file(draw)
        repo, path, _, size = self._store.index[file]
        parts: list[int] = []
        room = length
        if length >= 384 and draw.random() < self._context_share:
            parts = self._context(file, repo, length // 2, draw)
            room -= len(parts)
        header = [CONTROL["<|file_sep|>"], *self._encode(path + "\n")]
        if not parts and draw.random() < 0.3:
            header = [CONTROL["<|repo_name|>"], *self._encode(repo + "\n"), *header]
        budget = room - len(header)
        if budget < 64:
            return None
        # Windows fill their row in most cases; a quarter is shorter, so that short files are not strangers.
        wanted = budget if draw.random() < 0.75 else draw.randint(48, budget)
        reach = int(wanted * CHARACTERS_PER_TOKEN)
        start = draw.randrange(max(1, size - reach // 2)) if size > reach and draw.random() < 0.85 else 0
        text = self._store.slice(file, start, reach)
        hole = holes.choose_hole(text, draw)
        if hole is None:
            return None
        layout = draw.choices(list(self._layouts), list(self._layouts.values()))[0]
        pieces, typed = holes.lay_out(text, hole, layout, draw)
        ids = self._fitted(pieces, budget)
        if ids is None:
            return None
        answer = ids.pop()
        whole = parts + header + [token for part in ids for token in part]
        begin = len(whole) + self._told(pieces[-2], typed)
        whole += answer
        row = np.full(length, PAD, dtype=np.int64)
        row[: len(whole)] = whole
        return Row(row, begin, len(whole))

    def _fitted(self, pieces: list[holes.Piece], budget: int) -> list[list[int]] | None:
        """Ids by piece, the answer with its end last; the longer of the other pieces gives first where they do not fit."""
        ids = [[CONTROL[piece.token]] if isinstance(piece, holes.Special) else self._encode(piece) for piece in pieces]
        ids = [*ids[:-2], ids[-2] + ids[-1]]
        if sum(map(len, ids)) <= budget:
            return ids
        cuttable = [at for at, piece in enumerate(pieces[:-2]) if isinstance(piece, str)]
        room = budget - sum(len(part) for at, part in enumerate(ids) if at not in cuttable)
        if room < 0:
            return None
        keep = max(cap for cap in range(room + 1) if sum(min(cap, len(ids[at])) for at in cuttable) <= room)
        for at in cuttable:
            below = at and pieces[at - 1] == holes.SUFFIX
            ids[at] = ids[at][:keep] if below else ids[at][max(0, len(ids[at]) - keep) :]
        return ids

    def _context(self, file: int, repo: str, room: int, draw: random.Random) -> list[int]:
        """Pieces of other files of the repository, as serving puts them before the file."""
        first, last = self._store.repository_range[repo]
        near = [number for number in range(max(first, file - 6), min(last, file + 7)) if number != file]
        parts = [CONTROL["<|repo_name|>"], *self._encode(repo + "\n")]
        while near and len(parts) < room - 64:
            other = near.pop(draw.randrange(len(near)))
            _, path, _, size = self._store.index[other]
            take = min(room - len(parts), draw.randint(64, 300))
            begin = draw.randrange(max(1, size - int(take * CHARACTERS_PER_TOKEN)))
            text = self._store.slice(other, begin, int(take * CHARACTERS_PER_TOKEN))
            if text and not text.endswith("\n"):
                text += "\n"
            parts += [CONTROL["<|file_sep|>"], *self._encode(path + "\n"), *self._encode(text)]
        return parts[:room]
