"""Formats of models that predict edits, as data: how their prompts are written, token for token, and how they answer.

A format is one file of `files`, with its sources. Its texts may hold `{path}`, and of the question `{window}`, `{before}`, `{above}`,
`{below}`, `{change}` (what the last edit did to the window, as a unified diff), `{regions}` (the window with numbered markers and the
cursor); a part that is written for each recent edit `{old}`, `{new}`, `{hunks}` besides, one for each related text `{text}`. A text is
written without its last line ending; with a plus (`{above+}`) as whole lines, and nothing where it is empty.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from foretype_context.edit_models.question import EditWindow
from foretype_context.errors import UnknownFormatError
from foretype_context.folder.small_files import read_small
from foretype_context.grammars.grammar import Control, Header

_FILES: Final = Path(__file__).parent / "files"
_FILE_BYTES: Final = 16 << 10

_Count = Annotated[int, Meta(ge=1, le=200)]


class PromptPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a prompt.

    Attributes:
        write: control tokens and texts.
        each: written once for each of these; once where empty.
        needs: written only where the question has these.
    """

    write: Header
    each: Literal["", "edits", "related"] = ""
    needs: Literal["", "edits", "related"] = ""


class EditFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of models.

    Attributes:
        models, source: which, and where it was read; for people.
        start: tokens before everything else.
        parts: in the order of the prompt.
        end_tokens: control tokens that end an answer; the first is the family's own, the others may be missing.
        words: texts of the format that are one token where the vocabulary has them, and are spelled where it has not; markers and the
            cursor are such words too.
        marker: of the places between which a text is answered, numbered from 1; empty where the whole window is answered.
        marker_lines: fewest and most lines between two of them.
        cursor: what stands where the cursor is; an answer may hold it once.
        nothing: whole answers that say that there is no edit.
        window: what such a model is asked about.
    """

    id: str
    models: str
    source: str
    start: tuple[Control, ...] = ()
    parts: tuple[PromptPart, ...]
    end_tokens: tuple[str, ...]
    words: tuple[str, ...] = ()
    marker: str = ""
    marker_lines: tuple[_Count, _Count] = (6, 16)
    cursor: str = ""
    nothing: tuple[str, ...] = ()
    window: EditWindow

    def controls(self) -> frozenset[str]:
        """What a vocabulary must have: what is written, and the first end token."""
        written = (*self.start, *(one for part in self.parts for one in part.write))
        return frozenset({one.token for one in written if isinstance(one, Control)} | {self.end_tokens[0]})

    def marker_at(self, number: int) -> str:
        return self.marker.replace("{n}", str(number))

    def owns(self, text: str) -> bool:
        """Whether a text holds what means something to this format, so that it cannot be told from the format itself."""
        return any(word in text for word in self.own_words)

    @property
    def own_words(self) -> tuple[str, ...]:
        """What means something to this format; of its markers, what they begin with."""
        return _own_words(self)


@cache
def _own_words(one: EditFormat) -> tuple[str, ...]:
    numbered = one.marker.partition("{n}")[0]
    words = {*one.controls(), *one.end_tokens, *one.words, one.cursor, numbered}
    return tuple(sorted(words - {""}))


class _Shipped(Mapping[str, EditFormat]):
    """Those that ship, by id; each file is read when it is first asked for."""

    def __init__(self) -> None:
        self._read: dict[str, EditFormat] = {}

    @cached_property
    def _ids(self) -> tuple[str, ...]:
        return tuple(sorted(path.stem for path in _FILES.glob("*.toml")))

    def __getitem__(self, id: str) -> EditFormat:
        if id not in self._ids:
            raise KeyError(id)
        found = self._read.get(id)
        if found is None:
            data: Any = tomllib.loads(read_small(_FILES / f"{id}.toml", _FILE_BYTES, links=True).decode())
            found = self._read[id] = msgspec.convert(data["format"], EditFormat)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


FORMATS: Final[Mapping[str, EditFormat]] = _Shipped()


def edit_format(id: str) -> EditFormat:
    """The format with this id. Raises UnknownFormatError, which lists them."""
    try:
        return FORMATS[id]
    except KeyError:
        raise UnknownFormatError(f"no format {id!r} of next edits here; there are {', '.join(FORMATS)}") from None
