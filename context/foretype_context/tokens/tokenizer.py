"""Tokenizers: exact token counts, and text that can never become a control token.

Two adapters stand behind one port. Byte-level BPE families go through tiktoken, which is ten times faster and releases the
GIL; every other family goes through `tokenizers`. Source text is *always* encoded as ordinary text: a file that contains
`<|fim_middle|>` is just a file.

The loosest :class:`~foretype_context.tokens.cuts.CutRule` that adds up is chosen when the tokenizer is loaded.
"""

from __future__ import annotations

import codecs
import functools
import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

import msgspec

from foretype_context.errors import TokenizerConversionError, TokenizerError, UnknownControlError
from foretype_context.text.strings import well_formed
from foretype_context.tokens.cuts import CutRule, coarse_pieces, cut_points, split_pieces
from foretype_context.tokens.tokenizer_file import bytes_by_id, characters_of, is_control, split_pattern, without_prefix

__all__ = [
    "CutRule",
    "StreamDecoder",
    "Tokenizer",
    "coarse_pieces",
    "cut_points",
    "has_blanks",
    "load_tokenizer",
    "rule_of_pieces",
    "split_pieces",
    "tokenizer_from_bytes",
]

_CACHE_ENTRIES: Final = 20_000
_CACHED_PIECE_CHARS: Final = 2_000
_CACHE_WHOLES: Final = 256
_CACHED_WHOLE_CHARS: Final = 40_000
_MOST_BLANKS: Final = 4096
"""White-space characters in a row that are encoded in one piece: tiktoken's regular expressions take time in the square of a run that
ends in something else (half a second for 60,000), and panic (a BaseException, past every `except Exception`) between 600,000 and
1,000,000. Longer runs are encoded in parts of this length, by every process alike.
"""
_LONG_BLANK: Final = re.compile(rf"(?<!\s)\s{{{_MOST_BLANKS},}}")


def has_blanks(text: str, length: int) -> bool:
    """Whether so many white-space characters may stand in a row: none do where this is False. Costs next to nothing."""
    step = length // 2  # a run of this length holds a whole block of half of it, wherever it begins
    for at in range(0, len(text) - step + 1, step):
        if text[at].isspace() and text[at : at + step].isspace():
            return True
    return False


class Tokenizer(Protocol):
    """Text to ids and back. Implementations are immutable except for a cache, and safe to share between threads."""

    @property
    def vocabulary_tokens(self) -> int:
        """One more than the largest id."""
        ...

    @property
    def digest(self) -> str:
        """Hex BLAKE2b-128 of the bytes of the tokenizer file."""
        ...

    @property
    def cut_rule(self) -> CutRule: ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as ordinary text; never a control id. Lone surrogates count as U+FFFD."""
        ...

    def count(self, text: str) -> int:
        """`len(encode(text))`, from a cache of pieces, so that a repeated count costs what changed."""
        ...

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of `ids`, possibly an incomplete UTF-8 sequence at the end. Control ids have none."""
        ...

    def control(self, token: str) -> int:
        """The id of a control token. Raises UnknownControlError."""
        ...

    def controls(self) -> frozenset[str]:
        """The texts of all control tokens."""
        ...


_Utf8Decoder: Final = codecs.getincrementaldecoder("utf-8")


class StreamDecoder:
    """Turns ids into text as they arrive and holds back an incomplete UTF-8 sequence until its last byte is there."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._decoder: codecs.IncrementalDecoder | None = None  # from the first character on that is not ASCII

    def feed(self, ids: Sequence[int]) -> str:
        data = self._decode(ids)
        if self._decoder is None:
            if data.isascii():
                return data.decode("ascii")
            self._decoder = _Utf8Decoder("replace")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """The rest; an incomplete sequence becomes U+FFFD."""
        return "" if self._decoder is None else self._decoder.decode(b"", True)


class _Base:
    """What both adapters share: file, control tokens and the cache of counts."""

    def __init__(
        self, *, digest: str, control_ids: dict[str, int], vocabulary_tokens: int, joins_lines: bool, rule: CutRule
    ) -> None:
        self.digest = digest
        self.joins_lines = joins_lines
        """Whether a token may hold the end of a line and more of the next one than a count or a window has to know."""
        self.cut_rule = rule
        self.vocabulary_tokens = vocabulary_tokens
        self._control_ids = control_ids
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._wholes: OrderedDict[str, int] = OrderedDict()

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: Sequence[int]) -> bytes:
        raise NotImplementedError

    def count(self, text: str) -> int:
        rule = self.cut_rule
        if rule is CutRule.NOWHERE or len(text) < 64:
            return self._count_piece(text)
        wholes = self._wholes
        found = wholes.get(text)
        if found is None:
            found = sum(map(self._count_piece, split_pieces(text, rule)))
            if len(text) <= _CACHED_WHOLE_CHARS:
                wholes[text] = found
                if len(wholes) > _CACHE_WHOLES:
                    wholes.popitem(last=False)
        return found

    def _count_piece(self, piece: str) -> int:
        counts = self._counts
        found = counts.get(piece)
        if found is not None:
            return found
        found = len(self.encode(piece))
        if len(piece) <= _CACHED_PIECE_CHARS:
            counts[piece] = found
            if len(counts) > _CACHE_ENTRIES:
                # Dropping the oldest tenth at once keeps the common path free of bookkeeping.
                for _ in range(_CACHE_ENTRIES // 10):
                    counts.popitem(last=False)
        return found

    def control(self, token: str) -> int:
        try:
            return self._control_ids[token]
        except KeyError:
            raise UnknownControlError(token) from None

    def controls(self) -> frozenset[str]:
        return frozenset(self._control_ids)


class _Tiktoken(_Base):
    """Byte-level BPE through tiktoken.

    Its class of Python keeps the whole vocabulary once more, 8 MiB in the language server and in the gateway: what it wraps is taken
    (`tests/context/test_tokens.py` tries both of its functions).

    Args:
        apart: texts by id of those below `vocabulary_tokens` that no text is encoded as: none of control tokens and of gaps.
        lacking: characters of which the vocabulary lacks a byte. `tokenizers` leaves them out and merges what stood around them, where
            tiktoken panics (a BaseException): a text with one of them goes to `reference`, which no other text loads.
    """

    def __init__(
        self,
        core: Any,
        *,
        apart: dict[int, bytes],
        normalise: bool,
        lacking: re.Pattern[str] | None,
        reference: Callable[[], Tokenizer],
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self._encode: Any = core.encode_ordinary
        self._texts: Any = core.decode_bytes
        self._apart = apart
        self._normalise = normalise
        self._lacking = lacking
        self._reference = reference

    def encode(self, text: str) -> list[int]:
        if self._normalise and not text.isascii():
            import unicodedata

            text = unicodedata.normalize("NFC", text)
        text = well_formed(text)
        if self._lacking is not None and self._lacking.search(text):
            return self._reference().encode(text)
        if not has_blanks(text, _MOST_BLANKS):
            return self._encode(text)
        runs = _LONG_BLANK.finditer(text)
        cuts = (at for run in runs for at in range(run.start() + _MOST_BLANKS, run.end() + 1, _MOST_BLANKS))
        edges = [0, *cuts, len(text)]
        return [identity for start, end in itertools.pairwise(edges) for identity in self._encode(text[start:end])]

    def decode(self, ids: Sequence[int]) -> bytes:
        # Embeddings are padded: a model has rows for more ids than its tokenizer has texts.
        known, apart = [identity for identity in ids if identity < self.vocabulary_tokens], self._apart
        if apart.keys().isdisjoint(known):
            return self._texts(known)
        return b"".join([apart[one] if one in apart else self._texts([one]) for one in known])


class _HuggingFace(_Base):
    """Any family through `tokenizers`, with its control tokens removed so that no text can produce one."""

    def __init__(self, inner: Any, *, token_bytes: list[bytes], renumbered: dict[int, int], **rest: Any) -> None:
        super().__init__(vocabulary_tokens=len(token_bytes), **rest)
        self._token_bytes = token_bytes
        self._inner: Any = inner
        self._renumbered = renumbered
        self._control_set = frozenset(self._control_ids.values())

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._inner.encode(well_formed(text), add_special_tokens=False).ids
        if self._renumbered:
            ids = [self._renumbered.get(identity, identity) for identity in ids]
        if self._control_set.isdisjoint(ids):
            return ids
        # A vocabulary may list control tokens as ordinary pieces (Unigram does): break their text at its first character.
        joined: list[int] = []
        for part in _broken_at(text, self._control_ids):
            ids = self._inner.encode(well_formed(part), add_special_tokens=False).ids
            joined.extend(self._renumbered.get(identity, identity) for identity in ids)
        return [identity for identity in joined if identity not in self._control_set]

    def decode(self, ids: Sequence[int]) -> bytes:
        token_bytes, known = self._token_bytes, self.vocabulary_tokens
        return b"".join([token_bytes[identity] for identity in ids if identity < known])


def _broken_at(text: str, controls: dict[str, int]) -> Iterator[str]:
    """Parts of `text` none of which contains a whole control token."""
    cuts = {0, len(text)}
    for token in controls:
        for shown in {token, token.replace("▁", " ")}:
            at = text.find(shown)
            while at >= 0 and len(shown) > 1:
                cuts.add(at + 1)
                at = text.find(shown, at + 1)
    edges = sorted(cuts)
    return (text[start:end] for start, end in itertools.pairwise(edges))


PROBE: Final = (
    "def f(x: int) -> str:\n    '''Doc.'''\n\n    return x + 1  # it's\n\n\n\tif a:\r\n\r\n  b = [1,22, 333]\r\n"
    "class A:\n\n    pass\n    \n\t\nx\n\n\n    y = {'k': \"v\"}\nnaïve Ünïcode 漢字かな한글 🙂👩‍👩‍👧 é\u0301 ﬁ\n"
    "# <|fim_middle|> <|endoftext|> <EOT> [SUFFIX] <s>\n for(;;){i++;}\n//-->!=\n)\n\n)\n    (\n foo\x00bar\x0c\ntail  "
)
"""Text on which a conversion must agree with the model's own tokenizer, and on which cut rules must add up."""

CONVERTED: Final = frozenset({"f64ade36b642a160c1856a155d26635f", "d2ba8f75e2c44faca3a1387765099323"})
"""Digests of files whose conversion is checked by our tests, so that no user's machine need: those of the model and of the embedder that ship.

Loading `tokenizers` to compare takes 16 MiB, which are not given back, and 80 ms, in the language server and in the gateway.
"""


def load_tokenizer(path: Path) -> Tokenizer:
    """Opens a Hugging Face `tokenizer.json`.

    Raises:
        TokenizerError: the file is absent or not a tokenizer.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}; run `foretype doctor`") from error
    return tokenizer_from_bytes(raw, name=str(path))


def tokenizer_from_bytes(raw: bytes, *, name: str = "tokenizer.json", convert: bool = True) -> Tokenizer:
    """Like :func:`load_tokenizer`, from the bytes of the file.

    Args:
        convert: try tiktoken for byte-level BPE; where ids differ on the probe text, `tokenizers` is used instead.
    """
    try:
        data = msgspec.json.decode(raw, type=_File)
        added = data.added_tokens or []
        control_ids = {token["content"]: int(token["id"]) for token in added if is_control(token)}
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise TokenizerError(f"{name} is not a tokenizer.json ({error}); fetch it again") from error
    vocabulary = data.model.vocab
    ids = vocabulary if isinstance(vocabulary, dict) else {entry[0]: at for at, entry in enumerate(vocabulary)}
    kept = [token for token in added if not is_control(token)]
    digest = blake2b(raw, digest_size=16).hexdigest()
    reference_again = functools.cache(lambda: tokenizer_from_bytes(raw, name=name, convert=False))
    if convert and digest in CONVERTED:
        token_bytes = _bytes_of(data, ids, kept, control_ids)
        known = _converted(data, ids, kept, control_ids, token_bytes, digest, reference_again)
        known.cut_rule = _loosest_rule(known)
        return known
    import tokenizers as hf

    ordinary: dict[str, Any] = {**msgspec.json.decode(raw), "added_tokens": kept, "post_processor": None}
    ordinary |= {"truncation": None, "padding": None}
    ordinary["normalizer"] = without_prefix(data.normalizer)
    ordinary["pre_tokenizer"] = without_prefix(data.pre_tokenizer)
    try:
        inner: Any = hf.Tokenizer.from_str(msgspec.json.encode(ordinary).decode())
    except Exception as error:  # tokenizers raises bare Exception
        raise TokenizerError(f"{name} is not a tokenizer that `tokenizers` reads ({error})") from error
    token_bytes = _bytes_of(data, ids, kept, control_ids)
    # Without the control tokens in front of them the remaining added tokens are numbered anew: translate back.
    renumbered = {inner.token_to_id(token["content"]): int(token["id"]) for token in kept}
    renumbered = {own: wanted for own, wanted in renumbered.items() if own != wanted}
    reference = _HuggingFace(
        inner,
        renumbered=renumbered,
        digest=digest,
        control_ids=control_ids,
        token_bytes=token_bytes,
        joins_lines=_joins_lines(data, kept),
        rule=CutRule.NOWHERE,
    )
    chosen: _Base = reference
    if convert:
        try:
            chosen = _converted(data, ids, kept, control_ids, token_bytes, digest, reference_again)
            _check_equal(chosen, reference)
        except TokenizerConversionError:
            chosen = reference
    chosen.cut_rule = _loosest_rule(chosen)
    return chosen


class _Model(msgspec.Struct):
    """Merges are not read: tiktoken takes them from the order of the vocabulary, and they are most of a file."""

    vocab: dict[str, int] | list[list[Any]]
    type: str | None = None


class _File(msgspec.Struct):
    """What is read here of a `tokenizer.json`."""

    model: _Model
    added_tokens: list[dict[str, Any]] | None = None
    pre_tokenizer: Any = None
    normalizer: Any = None
    decoder: Any = None


def _joins_lines(data: _File, kept: list[dict[str, Any]]) -> bool:
    """Tokens that take along the white space beside them; and patterns that go on from a sign, over a line's end, to slashes (o200k's)."""
    takes_along = any(token.get("lstrip") or token.get("rstrip") for token in kept)
    return takes_along or r"\\n/]" in msgspec.json.encode(data.pre_tokenizer).decode()


def _bytes_of(data: _File, ids: dict[str, int], kept: list[dict[str, Any]], control_ids: dict[str, int]) -> list[bytes]:
    byte_level = '"ByteLevel"' in msgspec.json.encode([data.pre_tokenizer, data.decoder]).decode()
    return bytes_by_id(ids, kept, control_ids, byte_level=byte_level)


def _converted(
    data: _File,
    ids: dict[str, int],
    kept: list[dict[str, Any]],
    control_ids: dict[str, int],
    token_bytes: list[bytes],
    digest: str,
    reference: Callable[[], Tokenizer],
) -> _Tiktoken:
    """The same tokenizer in tiktoken, as far as its file tells. Raises TokenizerConversionError where it cannot be the same."""
    pattern = split_pattern(data.pre_tokenizer)
    normalizer = cast("dict[str, Any] | None", data.normalizer)
    if data.model.type != "BPE" or pattern is None or kept:
        raise TokenizerConversionError("not a plain byte-level BPE")
    if normalizer is not None and normalizer.get("type") != "NFC":
        raise TokenizerConversionError(f"normalizer {normalizer.get('type')} is not known to tiktoken")
    ranks = {token_bytes[identity]: identity for token, identity in ids.items() if token not in control_ids}
    absent = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if any(0x80 <= byte < 0xC0 for byte in absent):
        raise TokenizerConversionError("its vocabulary lacks a byte of most characters")
    library: Any = import_module("tiktoken._tiktoken")
    return _Tiktoken(
        library.CoreBPE(ranks, {}, pattern),
        apart={one: token_bytes[one] for one in set(range(len(token_bytes))).difference(ranks.values())},
        normalise=normalizer is not None,
        lacking=characters_of(absent),
        reference=reference,
        digest=digest,
        joins_lines=_joins_lines(data, kept),
        control_ids=dict(control_ids),
        vocabulary_tokens=len(token_bytes),
        rule=CutRule.NOWHERE,
    )


def _check_equal(converted: _Tiktoken, reference: _HuggingFace) -> None:
    """Raises TokenizerConversionError."""
    for text in (PROBE, PROBE.upper(), PROBE.replace("\n", "\n    "), PROBE.replace(" ", "\n")):
        if converted.encode(text) != reference.encode(text):
            raise TokenizerConversionError("tiktoken gives other ids on the probe text")


def _loosest_rule(
    tokenizer: Tokenizer, rules: Sequence[CutRule] = (CutRule.LINE, CutRule.NON_BLANK_LINE, CutRule.OUTER_LINE)
) -> CutRule:
    """The first of the rules, looser ones first, that adds up on the probe text."""
    texts = (PROBE, PROBE.replace("\n", "\n    "), PROBE.replace("\n", "\r\n"), PROBE.replace(" ", "\n"))
    wholes = [tokenizer.encode(text) for text in texts]
    for rule in rules:
        if all(
            [identity for piece in split_pieces(text, rule) for identity in tokenizer.encode(piece)] == whole
            for text, whole in zip(texts, wholes, strict=True)
        ):
            return rule
    return CutRule.NOWHERE


def rule_of_pieces(tokenizer: Tokenizer) -> CutRule:
    """The loosest rule for pieces whose ids are sent, and of which nobody asks that they begin a line. Takes a millisecond."""
    if isinstance(tokenizer, _Base) and tokenizer.joins_lines:
        return CutRule.NOWHERE
    if tokenizer.cut_rule is not CutRule.OUTER_LINE:
        return tokenizer.cut_rule
    return _loosest_rule(tokenizer, (CutRule.LINE_END, CutRule.OUTER_LINE))
