"""From the segments of the wire to the token ids of the prompt.

The server owns the model, so it owns the template: the client says what stands where, and the gateway renders it with
the grammar of the profile. :func:`resolve` runs in the order of the wire and is synchronous, since it moves the
connection's segment cache; :meth:`Renderer.encode` may run beside it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from foretype_context.errors import SegmentOrderError
from foretype_context.prompt.segments import STABLE_KINDS, Kind, PlacedSegment, Segment
from foretype_context.prompt.templates import Grammar, IdsOf, PromptEncoder, encode_prompt
from foretype_context.tokens.tokenizer import Tokenizer
from foretype_wire.errors import InvalidRequestError
from foretype_wire.messages import WireSegment
from foretype_wire.segment_cache import SegmentCache

from foretype_backend.serving.encoded_texts import MemoTokenizer
from foretype_backend.serving.encoding import INLINE_CHARS, EncodePool, is_short

MAX_PROMPT_CHARS: Final = 1 << 19
"""Most characters of one prompt. A digest is 16 bytes and may stand for a megabyte, so the sum is bounded here. It also
keeps clear of tiktoken's regular expressions, which panic (past `except Exception`) on a million blanks in a row.
"""

MAX_PATH_CHARS: Final = 4096
DIGEST_BYTES: Final = 16
_NOTHING: Final = re.compile(r"((?!))")
_SEGMENT_CHARS: Final = 64
"""What a segment costs beside its text, in characters that take as long."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as an engine takes it: token ids, and the same as text for engines that refuse ids.

    Attributes:
        ids: packed as in :class:`foretype_context.prompt.templates.EncodedPrompt`.
        placed: its segments with their token ranges; none where a client rendered the prompt itself.
    """

    ids: array[int]
    text: str
    placed: tuple[PlacedSegment, ...] = ()


class Resolved(NamedTuple):
    """The segments of a request with their texts, or the digests that are `missing` (then nothing else is wrong)."""

    wires: Sequence[WireSegment] = ()
    segments: Sequence[Segment] = ()
    kinds: Sequence[Kind] = ()
    grammar: Grammar | None = None
    missing: Sequence[bytes] = ()

    def again(self, wires: Sequence[WireSegment]) -> list[Segment]:
        """The segments that another request begins with as this one does, as they are there: each has its text, and was checked."""
        found: list[Segment] = []
        for wire, before, known in zip(wires, self.wires, self.segments, strict=False):
            digest, source = wire.digest, wire.source
            if digest is None or digest != before.digest or wire.text is not None or wire.kind is not before.kind:
                break
            if source.path != before.source.path:
                break
            found.append(Segment(kind=wire.kind, scope=wire.scope, source=source, text=known.text))
        return found


def resolve(
    cache: SegmentCache,
    segments: Sequence[WireSegment],
    grammar: Grammar,
    *,
    max_segments: int,
    former: Resolved = Resolved(),  # noqa: B008 - it is empty and cannot change
) -> Resolved:
    """Look up digests and move the cache, by the rule that both ends run.

    Every segment is run through the cache even when the request is refused, or the two ends would drift apart; but none of one that
    has more of them than are allowed.

    Args:
        former: the request before, of which nothing was missing: what both begin with was looked at, and is taken over.

    Raises:
        InvalidRequestError: naming the field of the first offending segment.
    """
    if len(segments) > max_segments:
        raise InvalidRequestError("segments", f"{len(segments)} segments, at most {max_segments} are allowed")
    found = former.again(segments)
    same = len(found)
    missing = dict.fromkeys(cache.receive_digests([wire.digest or b"" for wire in segments[:same]]))
    fault: InvalidRequestError | None = None
    for index in range(same, len(segments)):
        wire = segments[index]
        text, problem = _look_up(cache, wire, index)
        if problem is None:
            problem = _check_source(wire, index)
        if problem is not None:
            fault = fault or problem
        elif text is None:
            if wire.digest is not None:
                missing[wire.digest] = None
        else:
            found.append(Segment(kind=wire.kind, scope=wire.scope, source=wire.source, text=text))
    if fault is not None:
        raise fault
    if not segments:
        raise InvalidRequestError("segments", "empty; a prompt has at least one segment")
    _check_size(sum([len(one.text) for one in found]), "segments")
    kinds = [wire.kind for wire in segments]
    if kinds != former.kinds or grammar is not former.grammar:
        check_order(kinds, grammar)
    return Resolved(segments, found, kinds, grammar, list(missing))


def _check_size(characters: int, field: str) -> None:
    if characters > MAX_PROMPT_CHARS:
        raise InvalidRequestError(field, f"{characters} characters of text, at most {MAX_PROMPT_CHARS} are allowed")


def check_order(kinds: Sequence[Kind], grammar: Grammar) -> None:
    """Kinds stand in the order in which `grammar` renders them, single ones once.

    Context, prefix, suffix, tail, middle; a suffix before the prefix is `spm`; a family without a tail token puts the tail
    at the start of its suffix; a suffix-first family puts the suffix before everything, a plain one before the prefix.

    Raises:
        InvalidRequestError: naming the first segment that is out of order.
    """
    below = (Kind.SUFFIX, Kind.TAIL) if grammar.tail else (Kind.TAIL, Kind.SUFFIX)
    spm = Kind.SUFFIX in kinds and Kind.PREFIX in kinds and kinds.index(Kind.SUFFIX) < kinds.index(Kind.PREFIX)
    if grammar.suffix_first:
        order = (*below, *_CONTEXT, Kind.PREFIX, Kind.MIDDLE)
    elif spm or grammar.plain:
        order = (*_CONTEXT, *below, Kind.PREFIX, Kind.MIDDLE)
    else:
        order = (*_CONTEXT, Kind.PREFIX, *below, Kind.MIDDLE)
    highest = -1
    for index, kind in enumerate(kinds):
        rank = order.index(kind)
        if kind in below and not grammar.sees_below:
            told = f"{grammar.id} shows nothing below the cursor: leave the `{kind}` out"
            raise InvalidRequestError(f"segments[{index}].kind", told)
        if rank < highest:
            raise InvalidRequestError(f"segments[{index}].kind", f"`{kind}` may not stand after `{kinds[index - 1]}`")
        if rank == highest and kind in _SINGLE:
            raise InvalidRequestError(f"segments[{index}].kind", f"a second `{kind}`; there is at most one")
        highest = rank


_CONTEXT: Final = (Kind.REPOSITORY, Kind.FILE, Kind.PATH)
_SINGLE: Final = frozenset({Kind.REPOSITORY, Kind.PATH, Kind.TAIL})


def _look_up(cache: SegmentCache, wire: WireSegment, index: int) -> tuple[str | None, InvalidRequestError | None]:
    if (wire.digest is None) == (wire.text is None):
        return None, InvalidRequestError(f"segments[{index}]", "exactly one of `digest` and `text` must be present")
    if wire.text is not None:
        cache.receive_text(wire.kind, wire.text)
        return wire.text, None
    digest = wire.digest or b""
    if wire.kind not in STABLE_KINDS:
        return None, InvalidRequestError(f"segments[{index}].digest", f"a `{wire.kind}` always travels as text")
    if len(digest) != DIGEST_BYTES:
        return None, InvalidRequestError(f"segments[{index}].digest", f"{len(digest)} bytes, must be {DIGEST_BYTES}")
    return cache.receive_digest(wire.kind, digest), None


def _check_source(wire: WireSegment, index: int) -> InvalidRequestError | None:
    path = wire.source.path
    if len(path) > MAX_PATH_CHARS:
        return InvalidRequestError(f"segments[{index}].source.path", f"longer than {MAX_PATH_CHARS} characters")
    if "\n" in path or "\r" in path:
        return InvalidRequestError(f"segments[{index}].source.path", "a path has no line ending")
    if wire.kind is Kind.REPOSITORY and wire.text is not None and "\n" in wire.text:
        return InvalidRequestError(f"segments[{index}].text", "a repository's name has no line ending")
    return None


class SessionEncoder(PromptEncoder):
    """Encodes prompts of one session; see :meth:`Renderer.remembering`."""

    def __init__(self, memo: MemoTokenizer, grammar: Grammar) -> None:
        super().__init__(memo, grammar)
        self._memo = memo

    def fresh_chars(self, segments: Sequence[Segment], same: int) -> int:
        """Characters of a prompt that are not remembered, and have to be encoded; it begins with `same` segments of the last one."""
        return sum([_work_chars(one, known=self._memo.knows(one.text)) for one in segments[same:]])


def _work_chars(segment: Segment, *, known: bool = False) -> int:
    """What it takes to encode a segment, in characters of ordinary text that take as long; very many where it takes too long for the loop."""
    path, text = segment.source.path, "" if known else segment.text
    size = len(text) + len(path) + _SEGMENT_CHARS
    return size if is_short(text) and is_short(path) else size + INLINE_CHARS


class Renderer:
    """Renders prompts with one tokenizer and grammar, and checks them against the context of the model."""

    def __init__(
        self, tokenizer: Tokenizer, grammar: Grammar, *, context_limit_tokens: int, pool: EncodePool | None = None
    ) -> None:
        self.pool = pool or EncodePool()
        self.tokenizer = tokenizer
        self.grammar = grammar
        self.context_limit_tokens = context_limit_tokens
        present = tokenizer.controls()
        self._control_ids = {token: tokenizer.control(token) for token in grammar.controls() if token in present}
        longest_first = sorted(self._control_ids, key=len, reverse=True)
        self._controls = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else _NOTHING

    @property
    def end_token_ids(self) -> frozenset[int]:
        """Ids that end a generation: the grammar's end tokens, and every other control token of its, which must not leak."""
        return frozenset(self._control_ids.values())

    def remembering(self) -> SessionEncoder:
        """An encoder for the prompts of one session, which resemble each other. It holds ids of source text: drop it with it."""
        return SessionEncoder(MemoTokenizer(self.tokenizer), self.grammar)

    def at_once(
        self,
        segments: Sequence[Segment],
        encoder: SessionEncoder | None = None,
        *,
        check: bool = True,
        ids_of: IdsOf | None = None,
    ) -> Prompt | None:
        """Encode here and now, where that holds up nobody; None where it belongs in a thread. Raises as :meth:`encode`."""
        # What is remembered is no work, however long it is: it is not even looked at.
        same = 0 if encoder is None else encoder.same(segments)
        work = sum(map(_work_chars, segments)) if encoder is None else encoder.fresh_chars(segments, same)
        if work > INLINE_CHARS:
            _check_size(sum([len(segment.text) + len(segment.source.path) for segment in segments]), "segments")
            return None
        prompt = self.encode_now(segments, encoder, same, ids_of)
        return self.check(prompt) if check else prompt

    async def encode(
        self,
        segments: Sequence[Segment],
        *,
        encoder: SessionEncoder | None = None,
        tenant: str = "",
        ids_of: IdsOf | None = None,
    ) -> Prompt:
        """Render and encode. Raises InvalidRequestError when the prompt leaves no room for a single token of output.

        Args:
            encoder: one that remembers, used for all but very long prompts.
            tenant: whose it is: a long one waits for the others of its tenant.
            ids_of: in place of the tokenizer's `encode`, for all but very long prompts and without `encoder`.
        """
        prompt = self.at_once(segments, encoder, ids_of=ids_of)
        return prompt or self.check(await self.pool.run(tenant, lambda: self.encode_now(segments)))

    def encode_now(
        self,
        segments: Sequence[Segment],
        encoder: PromptEncoder | None = None,
        same: int | None = None,
        ids_of: IdsOf | None = None,
    ) -> Prompt:
        """Render and encode, whatever it takes; `same` as of :meth:`PromptEncoder.encode`, `ids_of` as of :meth:`encode`."""
        try:
            if encoder is None:
                encoded = encode_prompt(self.tokenizer, self.grammar, segments, ids_of=ids_of)
            else:
                encoded = encoder.encode(segments, same)
        except SegmentOrderError as error:
            raise InvalidRequestError("segments", str(error)) from error
        placed = tuple(
            PlacedSegment(segment=segment, start=start, end=end)
            for segment, (start, end) in zip(segments, encoded.ranges, strict=True)
        )
        return Prompt(ids=encoded.ids, text=encoded.text, placed=placed)

    async def encode_raw(self, text: str, *, tenant: str = "", ids_of: IdsOf | None = None) -> Prompt:
        """As :meth:`encode`, of a prompt that its client rendered."""
        _check_size(len(text), "prompt")
        if is_short(text):
            return self.check(self.raw_now(text, ids_of), field="prompt")
        return self.check(await self.pool.run(tenant, lambda: self.raw_now(text)), field="prompt")

    def raw_now(self, text: str, ids_of: IdsOf | None = None) -> Prompt:
        """Encode a prompt that carries the grammar's control tokens itself: they are parsed, the rest is ordinary text.

        For doors whose clients render on their own; never for text that comes out of a file.
        """
        ids: array[int] = array("Q")
        encode = ids_of or self.tokenizer.encode
        for part in self._controls.split(text):
            if part in self._control_ids:
                ids.append(self._control_ids[part])
            elif part:
                ids.extend(encode(part))
        return Prompt(ids=ids, text=text)

    def check(self, prompt: Prompt, *, field: str = "segments") -> Prompt:
        if len(prompt.ids) >= self.context_limit_tokens:
            raise InvalidRequestError(
                field,
                f"{len(prompt.ids)} tokens; the model's context of {self.context_limit_tokens} must hold prompt and "
                "output. Send fewer or shorter segments",
            )
        return prompt
