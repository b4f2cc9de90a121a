"""Lines that stand where lines like those above stand: what came next there, with this place's names.

A template is an earlier line whose neighbours above have the shape of ours, or that begins like ours. Names that differ in what
can be compared (the lines above, and what is typed of this line) are substitutions; what the template says next has them
applied. This is copying a line, generalised: with renaming, and with a chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from foretype_client.adaptive.evidence import Ints
from foretype_client.adaptive.lexemes import CLASSES, LINE_END, Vocabulary
from foretype_client.adaptive.other_files import OtherFiles
from foretype_client.adaptive.renaming import renamed
from foretype_client.adaptive.scoring import RIGHT_STEP, RIVALS_STEP, Classes, Scorer, features_of
from foretype_client.adaptive.stream import HEAD, MARGIN, SHAPE, LexemeStream, Marks

_ABOVE: Final = 4
"""Lines above that are compared."""
_BY_SHAPE_MAX: Final = 16
_BY_HEAD_MAX: Final = 32
_OTHERS_MAX: Final = 12
_RENAMES_TRIED: Final = 6
_TYPED_MAX: Final = 256
"""A line of more lexemes is data: no other is like it, and what was found at each of its places would fill the memory."""

_NEAR: Final = (3, 20, 100)


class TemplateProposal(NamedTuple):
    """The lexeme that templates say comes next, and the features of the surest of them (indices below `FEATURES`).

    Attributes:
        score: log-odds that it is right, before anything else is known.
    """

    id: int
    features: tuple[int, ...]
    score: float


class Scene(NamedTuple):
    """Where templates are looked for.

    Attributes:
        stream: this file.
        line: the line that is written.
        others: other files.
    """

    stream: LexemeStream
    line: int
    others: OtherFiles


class _Template(NamedTuple):
    """An earlier line, and what is known of it before anything of ours is compared.

    Attributes:
        step: how its indentation changes, and whether a gap stands above it; -1 for a first line.
    """

    ids: list[int]
    subs: dict[int, int]
    source: int
    depth: int
    step: int
    near: int


class _Aligned(NamedTuple):
    """A template after what is typed: how many of its lexemes were right and wrong, and the substitutions that follow; `renames` of them change a name."""

    template: _Template
    subs: dict[int, int]
    renames: int
    right: int
    wrong: int

    @classmethod
    def untyped(cls, template: _Template) -> _Aligned:
        return cls(template, template.subs, _renames(template.subs), 0, 0)


class _Saying(NamedTuple):
    """What a template says next: a lexeme, and how that is known (the class `what`)."""

    aligned: _Aligned
    id: int
    what: int


def _renames(subs: dict[int, int]) -> int:
    return sum(old != new for old, new in subs.items())


class LineTemplates:
    """Templates of one line. Made once per line; `proposals` keeps what it found for the keys that follow."""

    def __init__(self, vocabulary: Vocabulary, common: int, scene: Scene) -> None:
        self._vocabulary = vocabulary
        self._common = common
        self._scene = scene
        self._place = int(np.searchsorted(scene.stream.written, scene.line))
        self._lines = scene.stream.written[scene.stream.written != scene.line]
        self._marks = scene.stream.marks[self._lines]
        self._above: list[tuple[int, list[int]]] = []
        for at in range(self._place - 1, max(-1, self._place - 1 - _ABOVE), -1):
            self._above.append((int(self._marks[at, SHAPE]), scene.stream.line(int(self._lines[at]))))
        by_shape = list(self._by_shape())
        self._known: dict[tuple[int, ...], list[_Saying]] = {(): self._saying(map(_Aligned.untyped, by_shape), 0)}

    def proposals(self, typed: Sequence[int], half: str, margin: int, scorer: Scorer) -> list[TemplateProposal]:
        """What comes after the lexemes `typed` of this line, surest first; nothing on a line of data.

        Args:
            half: what of it is typed already.
            margin: the line's indentation.
        """
        if len(typed) > _TYPED_MAX:
            return []
        step = self._step(margin)
        best: dict[int, tuple[float, Classes]] = {}
        votes: dict[int, int] = {}
        halved = 0 if not half else 1 if len(half.strip()) < 3 else 2
        for one, id, what in self._after_typed(tuple(typed)):
            template = one.template
            if half and not self._vocabulary.lexeme(id).startswith(half):
                continue
            votes[id] = votes.get(id, 0) + 1
            classes = Classes(
                template.source,
                template.depth,
                RIGHT_STEP[min(one.right, len(RIGHT_STEP) - 1)],
                min(one.wrong, 2),
                what,
                halved,
                int(template.step == step),
                min(one.renames, 2),
                template.near,
            )
            score = scorer(classes)
            if id not in best or score > best[id][0]:
                best[id] = (score, classes)
        rivals = RIVALS_STEP[min(len(best), len(RIVALS_STEP)) - 1]
        found = [
            (id, classes._replace(votes=min(votes[id] - 1, 2), rivals=rivals)) for id, (_, classes) in best.items()
        ]
        scored = sorted((-scorer(classes), id, classes) for id, classes in found)
        return [TemplateProposal(id, features_of(classes), -score) for score, id, classes in scored[:3]]

    def _after_typed(self, typed: tuple[int, ...]) -> list[_Saying]:
        known = self._known.get(typed)
        if known is None:
            at, new = len(typed) - 1, typed[-1]
            before = self._after_typed(typed[:-1])
            if not at:
                before = [*before, *self._saying(self._by_head(new), 0)]
            after = (self._after(one, at, new) for one in before)
            known = self._known[typed] = self._saying((one for one in after if one is not None), at + 1)
        return known

    def _saying(self, aligned: Iterable[_Aligned], at: int) -> list[_Saying]:
        """Those that go on at `at`, and what they say there."""
        return [_Saying(one, *self._said(one, one.template.ids[at])) for one in aligned if at < len(one.template.ids)]

    def _after(self, saying: _Saying, at: int, new: int) -> _Aligned | None:
        """After one more lexeme was typed; None where it cannot be the template's."""
        one, said, _ = saying
        if said == new:
            return one._replace(right=one.right + 1)
        old = one.template.ids[at]
        first, second = self._vocabulary.classes((old, new))
        if first != second or first >= CLASSES or one.wrong >= 3:
            return None
        subs = {**one.subs, old: new}
        return one._replace(subs=subs, renames=_renames(subs), wrong=one.wrong + 1)

    def _said(self, one: _Aligned, old: int) -> tuple[int, int]:
        """What a template's lexeme is here, and how that is known (the class `what`)."""
        kind = self._vocabulary.classes((old,))[0]
        if kind >= CLASSES:
            return old, 0
        if (new := one.subs.get(old)) is not None:
            return new, 4
        if kind < 2:
            lexeme = self._vocabulary.lexeme(old)
            name = lexeme.lstrip(" ")
            for before, after in list(one.subs.items())[: -_RENAMES_TRIED - 1 : -1]:
                if before == after:
                    continue
                first = self._vocabulary.lexeme(before).lstrip(" ")
                second = self._vocabulary.lexeme(after).lstrip(" ")
                if first == name:
                    made: str | None = second
                else:
                    made = renamed(name, first, second)
                if made is not None:
                    spelled = lexeme[: len(lexeme) - len(name)] + made
                    return self._vocabulary.ids((spelled,))[0], 5
        if kind >= 2:
            return old, 1
        return old, 2 if old < self._common else 3

    def _step(self, margin: int) -> int:
        """How the line above relates to one with that indentation (as `_Template.step`)."""
        if not self._place:
            return -1
        above = self._marks[self._place - 1, MARGIN]
        gap = self._scene.line - int(self._lines[self._place - 1]) > 1
        return int(np.sign(margin - above) + 1) * 2 + gap

    def _by_shape(self) -> Iterator[_Template]:
        """Lines below such as stands above ours, here and in other files."""
        if not self._above:
            return
        shape = self._above[0][0]
        shapes = self._marks[:, SHAPE]
        at = np.flatnonzero(shapes[:-1] == shape) + 1
        at = at[at != self._place]
        for place, depth in self._deepest(shapes, at, np.abs(at - self._place), _BY_SHAPE_MAX):
            yield self._template(self._scene.stream, self._lines, self._marks, place, 0, depth)
        streams, _, shapes, begins = self._scene.others
        at = np.flatnonzero(shapes[:-1] == shape) + 1
        at = at[shapes[at] != 0]  # nothing comes after a file's last line
        for place, depth in self._deepest(shapes, at, -at, _OTHERS_MAX):
            number = int(np.searchsorted(begins, place, side="right")) - 1
            stream = streams[number]
            yield self._template(stream, stream.written, stream.looks, place - int(begins[number]), 1, depth)

    def _deepest(self, shapes: Ints, at: Ints, away: Ints, count: int) -> list[tuple[int, int]]:
        """Those of the places `at` with most lines above alike, the least `away` first, and how many lines that are."""
        depth = np.ones(len(at), np.int64)
        alive = np.arange(len(at))
        for back, (shape, _) in enumerate(self._above[1:], start=2):
            place = at[alive] - back
            alive = alive[(place >= 0) & (shapes[place] == shape)]
            depth[alive] = back
        # One number for both, and for the place among equals, so that few are picked without sorting all.
        size = len(at)
        least = away.min(initial=0)
        keys = ((_ABOVE - depth) * (away.max(initial=0) - least + 1) + away - least) * size + np.arange(size)
        picks = np.argpartition(keys, count)[:count] if size > count else np.arange(size)
        picks = picks[np.argsort(keys[picks])]
        return list(zip(at[picks].tolist(), depth[picks].tolist(), strict=True))

    def _template(
        self,
        stream: LexemeStream,
        lines: Ints,
        marks: Marks,
        at: int,
        source: int,
        depth: int,
    ) -> _Template:
        subs: dict[int, int] = {}
        for back in range(depth, 0, -1):
            old = stream.line(int(lines[at - back]))
            for one, other in zip(old, self._above[back - 1][1], strict=False):
                if one != other or one in subs:
                    subs[one] = other
        step = -1
        if at:
            gap = int(lines[at] - lines[at - 1]) > 1
            step = int(np.sign(marks[at, MARGIN] - marks[at - 1, MARGIN]) + 1) * 2 + gap
        away = abs(at - self._place)
        near = len(_NEAR) if source else sum(away > limit for limit in _NEAR)
        return _Template(stream.line(int(lines[at])), subs, source, depth, step, near)

    def _by_head(self, first: int) -> list[_Aligned]:
        """Lines of this file that begin with a lexeme like `first`, whatever stands above them; the nearest."""
        head = self._vocabulary.classes((first,))[0]
        if head == LINE_END + CLASSES:
            return []
        shape = self._above[0][0] if self._above else 0
        at = np.flatnonzero(self._marks[:, HEAD] == head)
        if self._above and len(at):
            at = at[(at == 0) | (self._marks[at - 1, SHAPE] != shape)]  # those are known by their shape
        near = np.argsort(np.abs(at - self._place), kind="stable")[:_BY_HEAD_MAX]
        stream, lines, marks = self._scene.stream, self._lines, self._marks
        made = [self._template(stream, lines, marks, int(at[pick]), 0, 0) for pick in near.tolist()]
        return [_Aligned.untyped(one) for one in made]
