"""Grammars: how each model family wants a prompt, byte for byte, as data.

A grammar names control tokens, headers and the place of the tail; :func:`render` turns segments into pieces and
:func:`encode_prompt` turns those into ids. The client calls it to count, the gateway to decide: both get the same ids.

Where formats come from: Qwen2.5-Coder's README (repository and file level), StarCoder2's paper section 5 (`<fim_prefix>`
stands *before* the path), Code Llama's paper section 2.3 and its tokenizer's infilling mode (no space is put before the
parts), DeepSeek-Coder's README (repository level: `#path` above each file), Mistral's `encode_fim` (suffix first) with the
`+++++ path` headers that Codestral saw.

What a family costs that was not trained on a tail token: the text right of the cursor then stands at the *start* of the
suffix (llama.vim's order), so that a change of it (an auto-inserted bracket, a jump inside a line) recomputes the whole
suffix; ours recomputes the tail alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from foretype_context.segments import Kind, Segment
from foretype_context.tokens import Tokenizer

__all__ = [
    "GRAMMARS",
    "PSM_CLASSIC",
    "PSM_GROWING",
    "PSM_LINE_LAST",
    "SPM",
    "Control",
    "EncodedPrompt",
    "Grammar",
    "Piece",
    "SegmentOrder",
    "Text",
    "UnknownGrammar",
    "count_prompt",
    "detect",
    "encode_prompt",
    "grammar",
    "healed_suffix",
    "render",
]

PSM_CLASSIC: Final = "psm_classic"
PSM_LINE_LAST: Final = "psm_line_last"
PSM_GROWING: Final = "psm_growing"
SPM: Final = "spm"


class UnknownGrammar(LookupError):
    """No grammar has this id; the message lists those that exist."""


class SegmentOrder(ValueError):
    """Segments stand in an order that this grammar cannot render; the message says which order it wants."""


@dataclass(frozen=True, slots=True)
class Control:
    """One control token, a single id."""

    token: str


@dataclass(frozen=True, slots=True)
class Text:
    """Ordinary text, encoded by itself. `segment_index` is the segment that it belongs to."""

    text: str
    segment_index: int


Piece = Control | Text
Header = tuple[Control | str, ...]
"""Control tokens and literal texts; `{path}` and `{name}` are filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """One model family.

    Attributes:
        start: tokens before everything else.
        repository, file, current: what stands before the repository's name, another file, the current file.
        fim_prefix, fim_suffix, fim_middle: tokens before the three parts; in suffix-first families without a middle token
            `fim_middle` is empty and the prefix's own token introduces the prefix.
        tail: token before the text right of the cursor, or empty: then that text begins the suffix.
        prefix_opens: the prefix token stands before the context, since the family has no place for other files outside.
        suffix_first: the suffix precedes everything else (Codestral).
        layouts: what :class:`~foretype_context.assemble.Assembler` may send, the default first.
        end_tokens: control tokens that end a generation.
        heals: the model was not trained on cuts at arbitrary characters, so a prompt must end at a pre-token boundary.
        telltale: control tokens by which :func:`detect` knows the family.
    """

    id: str
    fim_prefix: str
    fim_suffix: str
    fim_middle: str
    start: tuple[Control, ...] = ()
    repository: Header = ()
    file: Header = ()
    current: Header = ()
    tail: str = ""
    prefix_opens: bool = False
    suffix_first: bool = False
    layouts: tuple[str, ...] = (PSM_LINE_LAST, PSM_GROWING, PSM_CLASSIC)
    end_tokens: tuple[str, ...]
    heals: bool = False
    telltale: frozenset[str]

    def controls(self) -> frozenset[str]:
        """Every control token that this grammar can put into a prompt or that ends its generations."""
        headers = (*self.start, *self.repository, *self.file, *self.current)
        own = {part.token for part in headers if isinstance(part, Control)}
        own |= {self.fim_prefix, self.fim_suffix, self.fim_middle, self.tail, *self.end_tokens}
        return frozenset(own - {""})


def _grammar(**fields: object) -> Grammar:
    telltale = frozenset(str(fields[name]) for name in ("fim_prefix", "fim_suffix", "fim_middle")) - {""}
    return Grammar(**{"telltale": telltale, **fields})  # pyright: ignore[reportArgumentType]


_ALL: Final = (
    _grammar(
        id="foretype-1",
        repository=(Control("<|repo_name|>"), "{name}\n"),
        file=(Control("<|file_sep|>"), "{path}\n"),
        current=(Control("<|file_sep|>"), "{path}\n"),
        fim_prefix="<|fim_prefix|>",
        fim_suffix="<|fim_suffix|>",
        fim_middle="<|fim_middle|>",
        tail="<|fim_tail|>",
        layouts=(PSM_LINE_LAST, PSM_GROWING, PSM_CLASSIC, SPM),
        end_tokens=("<|end_of_middle|>", "<|endoftext|>", "<|file_sep|>", "<|repo_name|>", "<|fim_prefix|>"),
        telltale=frozenset({"<|fim_tail|>", "<|end_of_middle|>", "<|fim_middle|>"}),
    ),
    _grammar(
        id="qwen2.5-coder",
        repository=(Control("<|repo_name|>"), "{name}\n"),
        file=(Control("<|file_sep|>"), "{path}\n"),
        current=(Control("<|file_sep|>"), "{path}\n"),
        fim_prefix="<|fim_prefix|>",
        fim_suffix="<|fim_suffix|>",
        fim_middle="<|fim_middle|>",
        end_tokens=("<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>"),
        heals=True,
    ),
    _grammar(
        id="starcoder2",
        repository=(Control("<repo_name>"), "{name}"),
        file=(Control("<file_sep>"), "{path}\n"),
        current=(Control("<file_sep>"), Control("<fim_prefix>"), "{path}\n"),
        fim_prefix="<fim_prefix>",
        fim_suffix="<fim_suffix>",
        fim_middle="<fim_middle>",
        end_tokens=("<|endoftext|>", "<file_sep>", "<repo_name>"),
    ),
    _grammar(
        id="codellama",
        start=(Control("<s>"),),
        file=("# {path}\n",),
        fim_prefix="▁<PRE>",
        fim_suffix="▁<SUF>",
        fim_middle="▁<MID>",
        prefix_opens=True,
        end_tokens=("▁<EOT>", "</s>"),
    ),
    _grammar(
        id="deepseek-coder",
        start=(Control("<｜begin▁of▁sentence｜>"),),
        file=("#{path}\n",),
        current=("#{path}\n",),
        fim_prefix="<｜fim▁begin｜>",
        fim_suffix="<｜fim▁hole｜>",
        fim_middle="<｜fim▁end｜>",
        prefix_opens=True,
        end_tokens=("<｜end▁of▁sentence｜>", "<|EOT|>"),
        heals=True,
    ),
    _grammar(
        id="codestral",
        start=(Control("<s>"),),
        file=("+++++ {path}\n",),
        current=("+++++ {path}\n",),
        fim_prefix="[PREFIX]",
        fim_suffix="[SUFFIX]",
        fim_middle="",
        suffix_first=True,
        layouts=(SPM,),
        end_tokens=("</s>",),
        heals=True,
    ),
)

GRAMMARS: Final = MappingProxyType({one.id: one for one in _ALL})


def grammar(id: str) -> Grammar:
    """The grammar with this id. Raises UnknownGrammar."""
    try:
        return GRAMMARS[id]
    except KeyError:
        raise UnknownGrammar(f"no grammar {id!r}; there are {', '.join(GRAMMARS)}") from None


def detect(control_tokens: Iterable[str]) -> Grammar | None:
    """The first grammar all of whose telltale tokens are among `control_tokens`; the most particular one is tried first."""
    known = frozenset(control_tokens)
    return next((one for one in _ALL if one.telltale <= known), None)


class _Renderer:
    """Builds pieces; control tokens wait for the segment that follows, so that its range includes them."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.pieces: list[Piece] = []
        self.owners: list[int] = []
        self.prefix_open = self.suffix_open = self.middle_open = False

    def control(self, token: str, owner: int) -> None:
        self.pieces.append(Control(token))
        self.owners.append(owner)

    def text(self, text: str, owner: int) -> None:
        if text:
            self.pieces.append(Text(text, owner))
            self.owners.append(owner)

    def header(self, header: Header, owner: int, value: str) -> None:
        for part in header:
            if isinstance(part, Control):
                self.prefix_open = self.prefix_open or part.token == self._grammar.fim_prefix
                self.control(part.token, owner)
            else:
                self.text(part.replace("{path}", value).replace("{name}", value), owner)

    def open_prefix(self, owner: int) -> None:
        if not self.prefix_open:
            self.prefix_open = True
            self.control(self._grammar.fim_prefix, owner)

    def open_suffix(self, owner: int) -> None:
        self.open_prefix(owner)
        if not self.suffix_open:
            self.suffix_open = True
            self.control(self._grammar.fim_suffix, owner)

    def open_middle(self, owner: int) -> None:
        self.open_suffix(owner)
        if not self.middle_open:
            self.middle_open = True
            self.control(self._grammar.fim_middle, owner)


def _rendered(grammar: Grammar, segments: Sequence[Segment]) -> _Renderer:
    out = _Renderer(grammar)
    for control in grammar.start:
        out.control(control.token, 0)
    if grammar.suffix_first:
        _render_suffix_first(out, grammar, segments)
        return out
    if grammar.prefix_opens:
        out.open_prefix(0)
    for at, segment in enumerate(segments):
        kind, path = segment.kind, segment.source.path
        if kind in (Kind.REPOSITORY, Kind.FILE, Kind.PATH) and (out.suffix_open or out.middle_open):
            raise SegmentOrder(f"{kind} stands behind the suffix; {grammar.id} wants context before the hole")
        if kind is Kind.REPOSITORY:
            # A family without a place for the name does not get it.
            out.header(grammar.repository, at, segment.text)
        elif kind is Kind.FILE:
            out.header(grammar.file, at, path)
            out.text(segment.text, at)
        elif kind is Kind.PATH:
            out.header(grammar.current, at, path)
            out.open_prefix(at)
        elif kind is Kind.PREFIX:
            if out.suffix_open and not out.middle_open:
                # Suffix before prefix is SPM: both stand behind the middle token, as in joint PSM/SPM training.
                out.open_middle(at)
            out.open_prefix(at)
            out.text(segment.text, at)
        elif kind in (Kind.SUFFIX, Kind.TAIL):
            if out.middle_open:
                raise SegmentOrder(f"{kind} stands behind the middle; it must come before")
            out.open_suffix(at)
            if kind is Kind.TAIL and grammar.tail and segment.text:
                out.control(grammar.tail, at)
            out.text(segment.text, at)
        else:
            out.open_middle(at)
            out.text(segment.text, at)
    out.open_middle(max(len(segments) - 1, 0))
    return out


def _render_suffix_first(out: _Renderer, grammar: Grammar, segments: Sequence[Segment]) -> None:
    out.control(grammar.fim_suffix, 0)
    opened = False
    for at, segment in enumerate(segments):
        if segment.kind in (Kind.SUFFIX, Kind.TAIL):
            if opened:
                raise SegmentOrder(f"{segment.kind} stands behind the prefix; {grammar.id} wants the suffix first")
            out.text(segment.text, at)
            continue
        if not opened:
            opened = True
            out.control(grammar.fim_prefix, at)
        if segment.kind is Kind.REPOSITORY:
            out.header(grammar.repository, at, segment.text)
        elif segment.kind is Kind.FILE:
            out.header(grammar.file, at, segment.source.path)
            out.text(segment.text, at)
        elif segment.kind is Kind.PATH:
            out.header(grammar.current, at, segment.source.path)
        else:
            out.text(segment.text, at)
    if not opened:
        out.control(grammar.fim_prefix, max(len(segments) - 1, 0))


def render(grammar: Grammar, segments: Sequence[Segment]) -> list[Piece]:
    """The pieces of a prompt.

    Segments stand in prompt order. `PREFIX… SUFFIX… [TAIL] MIDDLE` is PSM, `SUFFIX… PREFIX… MIDDLE` is SPM; each part may be
    missing. Raises SegmentOrder where the grammar has no way to say it.
    """
    return _rendered(grammar, segments).pieces


class EncodedPrompt(NamedTuple):
    """A prompt as ids; `ranges` holds `[start, end)` per segment and covers all ids; `text` is for engines without ids."""

    ids: list[int]
    ranges: list[tuple[int, int]]
    text: str


def encode_prompt(tokenizer: Tokenizer, grammar: Grammar, segments: Sequence[Segment]) -> EncodedPrompt:
    """Encodes segments. Raises SegmentOrder, and UnknownControl where the grammar is not this model's."""
    ids: list[int] = []
    shown: list[str] = []
    out = _rendered(grammar, segments)
    ends = [0] * len(segments)
    for piece, owner in zip(out.pieces, out.owners, strict=True):
        if isinstance(piece, Control):
            ids.append(tokenizer.control(piece.token))
            # Servers that take text put the start token there themselves, and know SentencePiece's mark as a space.
            shown.append("" if piece in grammar.start else piece.token.replace("▁<", " <"))
        else:
            ids.extend(tokenizer.encode(piece.text))
            shown.append(piece.text)
        if segments:
            ends[owner] = len(ids)
    return EncodedPrompt(ids, _ranges(ends), "".join(shown))


def count_prompt(
    tokenizer: Tokenizer, grammar: Grammar, segments: Sequence[Segment], count: Callable[[str], int] | None = None
) -> list[tuple[int, int]]:
    """The ranges of :func:`encode_prompt` from cached counts, without ids."""
    count = count or tokenizer.count
    out = _rendered(grammar, segments)
    ends = [0] * len(segments)
    total = 0
    for piece, owner in zip(out.pieces, out.owners, strict=True):
        total += 1 if isinstance(piece, Control) else count(piece.text)
        if segments:
            ends[owner] = total
    return _ranges(ends)


def _ranges(ends: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    start = 0
    for end in ends:
        # A segment that renders to nothing has an empty range where it stands.
        end = max(end, start)
        ranges.append((start, end))
        start = end
    return ranges


_LAST_PRE_TOKEN: Final = re.compile(r"(?:[^\S\r\n]?[^\W\d_]+|\d|[^\S\r\n]?(?:[^\w\s]|_)+|[^\S\r\n]+)\Z")


def healed_suffix(typed: str) -> str:
    """What a prompt must back up by, so that it ends where the pre-tokeniser cuts: the last pre-token of `typed`.

    A model whose training never cut inside a token cannot continue `retu` well. The prompt then leaves these characters out
    and the output must begin with them; the caller strips them. Follows Qwen2's pattern, in which a space belongs to the
    word behind it.
    """
    found = _LAST_PRE_TOKEN.search(typed[-64:])
    return found.group() if found else ""
