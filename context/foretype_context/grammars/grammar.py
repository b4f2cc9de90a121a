"""Grammars as data: how the prompts of a model family are written, token for token.

A grammar is a bounded, versioned description. Those that ship are the files in `files`, each with its sources; a gateway
sends the one that it serves in its profile, so that a client takes a family that it has never heard of without a release.
What comes from outside goes through :func:`described`, which refuses what it does not know or cannot trust, by field.

What a family costs that was not trained on a tail token: the text right of the cursor then stands at the *start* of the
suffix (llama.vim's order), so that a change of it (an auto-inserted bracket, a jump inside a line) recomputes the whole
suffix; ours recomputes the tail alone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Meta

from foretype_context.errors import GrammarError, UnknownControlError, UnknownGrammarError, UnknownLayoutError
from foretype_context.folder.small_files import read_small

FORMAT: Final = 3
"""The version of the description that is understood here. What changes the meaning of a prompt raises it."""

PSM_CLASSIC: Final = "psm_classic"
PSM_LINE_LAST: Final = "psm_line_last"
PSM_GROWING: Final = "psm_growing"
SPM: Final = "spm"
SPM_PLAIN: Final = "spm_plain"
SPM_PLAIN_GROWING: Final = "spm_plain_growing"
LEFT_TO_RIGHT: Final = "left_to_right"

MAX_BYTES: Final = 8192
"""Of a description, as JSON."""

_PLAIN_LAYOUTS: Final = frozenset({SPM_PLAIN, SPM_PLAIN_GROWING})
_ALL_LAYOUTS: Final = _PLAIN_LAYOUTS | {PSM_CLASSIC, PSM_LINE_LAST, PSM_GROWING, SPM, LEFT_TO_RIGHT}
_LEFT_TO_RIGHT_SINCE: Final = 2
_FILES: Final = Path(__file__).parent / "files"
_FILE_BYTES: Final = 64 << 10
_ORDERS: Final = (
    ("context", "prefix", "suffix"),
    ("suffix", "context", "prefix"),
    ("context", "suffix", "prefix"),
)
_PLACEHOLDER: Final = re.compile(r"\{[a-z_]*\}")
_UNSAFE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
_Token = Annotated[str, Meta(min_length=2, max_length=96, pattern=r"^\S+$")]
_MaybeToken = Annotated[str, Meta(max_length=96, pattern=r"^\S*$")]
_Text = Annotated[str, Meta(min_length=1, max_length=120)]


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"token": "control"}):
    """One control token, a single id."""

    token: _Token


Header = Annotated[tuple[Control | _Text, ...], Meta(max_length=8)]
"""Control tokens and literal texts; `{path}` and `{name}` are filled in."""


class Grammar(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One model family. :func:`described` checks what the types alone do not.

    Attributes:
        format: version of the description.
        start: tokens before everything else.
        repository, file, current: what stands before the repository's name, another file, the current file.
        order: how context of other files, prefix and suffix stand: prefix before suffix (PSM), the suffix before everything
            (Codestral), or between the two (Mellum). What was typed comes last in each.
        fim_prefix, fim_suffix, fim_middle: tokens before the three parts; in families that end with the prefix and have no
            middle token `fim_middle` is empty. A model that never learned to fill in has none of the three: it is asked left to
            right and sees nothing below the cursor (since format 2).
        begins: the prompt begins with the first of these that the vocabulary has; :meth:`for_vocabulary` makes it `start`.
        tail: token before the text right of the cursor, or empty: then that text begins the suffix.
        tail_lines: how many lines after the cursor's the tail may hold too, down to a frozen suffix; what the model was
            trained on.
        fresh_lines: how many lines above the cursor's a fresh hole of `psm_growing` holds from the start: a small model goes
            on better from lines than from nothing.
        prefix_opens: the prefix token stands before the context, since the family has no place for other files outside.
        dummy_space: the first text behind the prefix token gets the space that SentencePiece puts before a text.
        layouts: what :class:`~foretype_context.prompt.assemble.Assembler` may send, the default first. One that is not known to a
            client is refused where a profile asks for it.
        end_tokens: control tokens that end a generation; the first is the family's own, the others may be missing. Left to right
            any may be.
        stops: texts that end a generation.
        instead: how the answer of a model begins that was trained to talk, not to fill in.
        heals: the model was not trained on cuts at arbitrary characters, so a prompt must end at a pre-token boundary.
        breaks_hold_indentation: a token may hold a line break and the indentation behind it, so that no prompt that heals ends
            between them (GPT-2's pre-tokeniser and its relatives).
    """

    id: _Name
    format: int = 1
    start: Annotated[tuple[Control, ...], Meta(max_length=4)] = ()
    repository: Header = ()
    file: Header = ()
    current: Header = ()
    order: Annotated[tuple[str, ...], Meta(max_length=3)] = _ORDERS[0]
    begins: Annotated[tuple[_Token, ...], Meta(max_length=16)] = ()
    fim_prefix: _MaybeToken = ""
    fim_suffix: _MaybeToken = ""
    fim_middle: _MaybeToken = ""
    tail: _MaybeToken = ""
    tail_lines: Annotated[int, Meta(ge=0, le=16)] = 0
    fresh_lines: Annotated[int, Meta(ge=0, le=16)] = 0
    prefix_opens: bool = False
    dummy_space: bool = False
    layouts: Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=8)] = (PSM_LINE_LAST, PSM_GROWING, PSM_CLASSIC)
    end_tokens: Annotated[tuple[_Token, ...], Meta(min_length=1, max_length=16)]
    stops: Annotated[tuple[_Text, ...], Meta(max_length=8)] = ()
    instead: Annotated[tuple[_Text, ...], Meta(max_length=16)] = ("```", "Here is", "Here's", "Sure", "Certainly")
    heals: bool = False
    breaks_hold_indentation: bool = False

    @property
    def suffix_first(self) -> bool:
        """The suffix precedes everything else (Codestral)."""
        return self.order[0] == "suffix"

    @property
    def plain(self) -> bool:
        """The suffix precedes the prefix, whatever the layout says: there is no other way to say it."""
        return self.order[-1] == "prefix"

    @property
    def sees_below(self) -> bool:
        """Prompts hold what stands below the cursor; else the model goes on from the text above it, left to right."""
        return bool(self.fim_suffix)

    def for_vocabulary(self, have: Collection[str]) -> Grammar:
        """This grammar as a vocabulary with the control tokens `have` is asked in it. Raises UnknownControlError."""
        if not self.begins:
            return self
        found = next((token for token in self.begins if token in have), None)
        if found is None:
            raise UnknownControlError(self.begins[0])
        return msgspec.structs.replace(self, start=(Control(found),), begins=())

    def emitted(self) -> frozenset[str]:
        """Every control token that this grammar can put into a prompt: without one of them it cannot be used."""
        headers = (*self.start, *self.repository, *self.file, *self.current)
        own = {part.token for part in headers if isinstance(part, Control)}
        return frozenset((own | {self.fim_prefix, self.fim_suffix, self.fim_middle, self.tail}) - {""})

    def needed(self) -> frozenset[str]:
        """What a vocabulary must have to be served by this grammar: what is emitted, and of a hole the first end token."""
        return self.emitted() | {self.end_tokens[0]} if self.sees_below else self.emitted()

    def controls(self) -> frozenset[str]:
        """Every control token that this grammar can put into a prompt or that ends its generations."""
        return self.emitted() | frozenset((*self.begins, *self.end_tokens))

    def layout(self, configured: str | None = None, own: object = None) -> str:
        """The layout that serves a model of this family: the configured one, else the model's own, else the family's default.

        A configured one that the family lacks counts as none: configuration outlives models.

        Raises:
            UnknownLayoutError: `own`, from the model's `index.json`, is none of this family's.
        """
        if configured in self.layouts:
            return configured
        return self.layouts[0] if own is None else self.known_layout(own)

    def known_layout(self, name: object) -> str:
        """`name`, if it is one of `layouts`. Raises UnknownLayoutError, which lists them."""
        for one in self.layouts:
            if one == name:
                return one
        raise UnknownLayoutError(f"{name!r} is not one of {', '.join(self.layouts)} of {self.id}")


def described(data: object) -> Grammar:
    """The grammar that `data` describes, as it stood in a file or came over the wire.

    Raises:
        GrammarError: of a later version, with a field that is not known here, out of bounds, or contradictory.
    """
    if not isinstance(data, dict):
        raise GrammarError("grammar: is no table of fields")
    fields = cast("dict[str, Any]", data)
    version = fields.get("format", 1)
    if not isinstance(version, int) or not 1 <= version <= FORMAT:
        raise GrammarError(f"grammar.format: {version!r} is not known here, {FORMAT} is; update foretype on this side")
    try:
        size = len(msgspec.json.encode(fields))
        found = msgspec.convert(fields, Grammar)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        where = where.strip("`").removeprefix("$").lstrip(".")
        raise GrammarError(f"grammar{'.' * bool(where)}{where}: {message}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise GrammarError(f"grammar: is not readable ({error})") from error
    if size > MAX_BYTES:
        raise GrammarError(f"grammar: has {size} bytes, at most {MAX_BYTES} are taken")
    for field, wrong in _wrong(found):
        raise GrammarError(f"grammar.{field}: {wrong}")
    return found


def _wrong(one: Grammar) -> Iterator[tuple[str, str]]:
    """Fields that contradict each other or would not do what they say, and how."""
    if one.order not in _ORDERS:
        yield "order", f"{', '.join(one.order)} is not one of {'; '.join(', '.join(order) for order in _ORDERS)}"
    yield from _wrong_parts(one)
    if one.sees_below and not one.fim_middle and not one.plain:
        yield "fim_middle", "is missing; only a family whose prompts end with the prefix has none"
    parts = [token for token in (one.fim_prefix, one.fim_suffix, one.fim_middle, one.tail) if token]
    if len(set(parts)) != len(parts):
        yield "fim_prefix", "the tokens before prefix, suffix, middle and tail must differ"
    if one.tail and one.plain:
        yield "tail", "has no place where the suffix stands before the prefix"
    if one.tail_lines and not one.tail:
        yield "tail_lines", "needs a `tail` token"
    if (_ALL_LAYOUTS - _layouts_of(one)) & set(one.layouts):
        order = f"the order {', '.join(one.order)}" if one.sees_below else "prompts without a suffix"
        yield "layouts", f"{', '.join(one.layouts)} do not go with {order}"
    if len(one.controls()) > 32:
        yield "end_tokens", f"{len(one.controls())} control tokens altogether, at most 32 are taken"
    holes = {"repository": "{name}", "file": "{path}", "current": "{path}"}
    for field, hole in holes.items():
        texts = [part for part in getattr(one, field) if isinstance(part, str)]
        named = [place for text in texts for place in _PLACEHOLDER.findall(text)]
        if named.count(hole) > 1 or set(named) - {hole}:
            yield field, f"may hold {hole} once, and no other placeholder"
        if any(token in text for text in texts for token in one.controls()):
            yield field, "has a control token as text, which would never be one; write it as { control = … }"
        if any(_UNSAFE.search(text) for text in texts):
            yield field, "has a control character"


def _layouts_of(one: Grammar) -> frozenset[str]:
    """The layouts known here that its prompts can have."""
    if not one.sees_below:
        return frozenset({LEFT_TO_RIGHT})
    if not one.plain:
        return _ALL_LAYOUTS - _PLAIN_LAYOUTS - {LEFT_TO_RIGHT}
    return _PLAIN_LAYOUTS | {SPM} if one.fim_middle else frozenset({SPM})


def _wrong_parts(one: Grammar) -> Iterator[tuple[str, str]]:
    """Of the tokens before the parts: a hole needs those of prefix and suffix, left to right there are none."""
    if one.sees_below:
        if not one.fim_prefix:
            yield "fim_prefix", "is missing; with `fim_suffix` it says how a hole is shown"
    elif any((one.fim_prefix, one.fim_middle, one.tail)):
        yield (
            "fim_suffix",
            "is missing; left to right there is none of `fim_prefix`, `fim_suffix`, `fim_middle`, `tail`",
        )
    elif one.format < _LEFT_TO_RIGHT_SINCE:
        yield "format", f"prompts without `fim_prefix` and `fim_suffix` are understood since {_LEFT_TO_RIGHT_SINCE}"
    elif one.plain:
        yield "order", "has no meaning where no suffix is shown"


def grammar_file(stem: str) -> dict[str, Any]:
    """The tables of one of our own files, `grammar` and what :mod:`foretype_context.grammars.families` reads."""
    return tomllib.loads(read_small(_FILES / f"{stem}.toml", _FILE_BYTES, links=True).decode())


class _Shipped(Mapping[str, Grammar]):
    """Those that ship, by id; each file is read when it is first asked for."""

    def __init__(self) -> None:
        self._read: dict[str, Grammar] = {}

    @cached_property
    def _ids(self) -> tuple[str, ...]:
        return tuple(sorted(path.stem for path in _FILES.glob("[!_]*.toml")))

    def __getitem__(self, id: str) -> Grammar:
        if id not in self:
            raise KeyError(id)
        found = self._read.get(id)
        if found is None:
            found = self._read[id] = described(grammar_file(id)["grammar"])
        return found

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


GRAMMARS: Final[Mapping[str, Grammar]] = _Shipped()


def grammar(id: str) -> Grammar:
    """The grammar with this id. Raises UnknownGrammarError."""
    try:
        return GRAMMARS[id]
    except KeyError:
        raise UnknownGrammarError(
            f"no grammar {id!r} here; there are {', '.join(GRAMMARS)}. Update foretype, or let the gateway describe it"
        ) from None


def announced(id: str, rules: object = None) -> Grammar:
    """The grammar of a profile: the one that it describes, else the one that ships under its name.

    Raises:
        GrammarError: `rules` cannot be taken, or describe another than `id`.
        UnknownGrammarError: nothing is described, and none of this name ships.
    """
    if rules is None:
        return grammar(id)
    found = described(rules)
    if found.id != id:
        raise GrammarError(f"grammar.id: {found.id!r} is not the grammar {id!r} that the profile names")
    return found
