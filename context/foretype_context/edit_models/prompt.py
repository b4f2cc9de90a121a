"""The prompt of a question, byte for byte, in the format of a model: texts and control tokens, and those as ids. Pure.

Texts that stand next to each other are encoded as one, as a tokenizer does that finds its own tokens in a whole prompt. What means
something to the format is never taken from a text of the user's: a window that holds it cannot be asked about.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from foretype_context.edit_models.format import EditFormat, PromptPart
from foretype_context.edit_models.question import EditQuestion, RecentEdit
from foretype_context.edit_models.regions import boundaries, hunks, lines_of, read_cursor
from foretype_context.errors import EditQuestionError, UnknownControlError
from foretype_context.grammars.grammar import Control
from foretype_context.tokens.tokenizer import Tokenizer

_HOLE: Final = re.compile(r"\{([a-z]+)(\+?)\}")
_LEAST_ANSWER: Final = 96
"""Tokens of an answer beyond those of its window, at least: what is inserted, and markers."""


class EditPrompt(NamedTuple):
    """A prompt as ids, packed as those of other prompts, and as text for engines that refuse ids.

    Attributes:
        question: what of the question is in it.
        answer_tokens: of the longest answer that is waited for.
    """

    ids: array[int]
    text: str
    question: EditQuestion
    answer_tokens: int


class _Run(NamedTuple):
    """A control token, or text; `own` is the format's, in which its words may stand."""

    text: str
    control: bool = False
    own: bool = False


class EditPrompts:
    """The prompts of one model.

    Raises:
        UnknownControlError: the vocabulary lacks a token that the format writes.
    """

    def __init__(self, tokenizer: Tokenizer, format: EditFormat) -> None:
        self.tokenizer = tokenizer
        self.format = format
        known = tokenizer.controls()
        for token in sorted(format.controls()):
            if token not in known:
                raise UnknownControlError(token)
        numbered = re.escape(format.marker).replace(r"\{n\}", r"\d+")
        words = [*map(re.escape, sorted((*format.words, format.cursor), key=len, reverse=True)), numbered]
        self._words = re.compile("|".join(word for word in words if word) or r"(?!)")
        self._one_token = frozenset(token for token in known if self._words.fullmatch(token))

    @property
    def end_token_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        known = self.tokenizer.controls()
        return frozenset(self.tokenizer.control(token) for token in self.format.end_tokens if token in known)

    @property
    def shown(self) -> Mapping[int, bytes]:
        """Tokens that an answer may hold, with what they are read as."""
        return {self.tokenizer.control(token): token.encode() for token in self._one_token}

    def encode(self, question: EditQuestion, *, most_tokens: int) -> EditPrompt:
        """The prompt of as much of a question as fits: related texts go first, then the oldest edits, then what is around the window.

        Args:
            most_tokens: of prompt and answer together.

        Raises:
            EditQuestionError: the window itself does not fit, or holds what means something to the format.
        """
        question = self._usable(question)
        window = self.tokenizer.count(question.window)
        answer = window + max(_LEAST_ANSWER, window // 4)
        while True:
            ids, text = self._encode(question)
            over = len(ids) + answer - most_tokens
            if over <= 0:
                return EditPrompt(ids, text, question, answer)
            smaller = self._smaller(question, over)
            if smaller is None:
                told = f"its prompt and answer are {len(ids) + answer} tokens, at most {most_tokens} are taken; send fewer lines"
                raise EditQuestionError("window", told)
            question = smaller

    def _usable(self, question: EditQuestion) -> EditQuestion:
        owns = self.format.owns
        for field in ("path", "window"):
            if owns(getattr(question, field)):
                raise EditQuestionError(
                    field, "holds a token that means something to the model; it cannot be asked about"
                )
        return msgspec.structs.replace(
            question,
            above="" if owns(question.above) else question.above,
            below="" if owns(question.below) else question.below,
            before=None if question.before is None or owns(question.before) else question.before,
            edits=[one for one in question.edits if not any(map(owns, (one.path, one.old, one.new)))],
            related=[one for one in question.related if not (owns(one.path) or owns(one.text))],
        )

    def _smaller(self, question: EditQuestion, over: int) -> EditQuestion | None:
        """Less by about so many tokens, or None where nothing can be left out."""
        count = self.tokenizer.count
        related, edits = list(question.related), list(question.edits)
        while over > 0 and related:
            over -= count(related.pop().text)
        while over > 0 and edits:
            gone = edits.pop(0)
            over -= count(gone.old) + count(gone.new)
        above, below = question.above, question.below
        if over > 0:
            above = "\n".join(above.split("\n")[(above.count("\n") + 1) // 2 :])
            below = below[: sum(map(len, below.splitlines(keepends=True)[: below.count("\n") // 2]))]
        made = msgspec.structs.replace(question, related=related, edits=edits, above=above, below=below)
        return None if made == question else made

    # From parts to ids

    def _encode(self, question: EditQuestion) -> tuple[array[int], str]:
        ids: array[int] = array("Q")
        shown: list[str] = []
        text: list[str] = []
        control = self.tokenizer.control

        def written() -> None:
            if text:
                ids.extend(self.tokenizer.encode("".join(text)))
                text.clear()

        for run in self._runs(question):
            shown.append(run.text)
            if run.control:
                written()
                ids.append(control(run.text))
            elif not run.own:
                text.append(run.text)
            else:
                at = 0
                for word in self._words.finditer(run.text):
                    if word[0] in self._one_token:
                        text.append(run.text[at : word.start()])
                        written()
                        ids.append(control(word[0]))
                        at = word.end()
                text.append(run.text[at:])
        written()
        # Servers that take text put the start token there themselves.
        began = len(self.format.start)
        return ids, "".join(shown[began:])

    def _runs(self, question: EditQuestion) -> Iterator[_Run]:
        yield from (_Run(one.token, control=True) for one in self.format.start)
        whole = self._values(question)
        for part in self.format.parts:
            if part.needs and not getattr(question, part.needs):
                continue
            if part.each == "edits":
                for one in question.edits:
                    yield from self._part(part, whole | _of_edit(one))
            elif part.each == "related":
                for one in question.related:
                    yield from self._part(part, whole | {"path": one.path, "text": lines_of(one.text)})
            elif part.each == "":
                yield from self._part(part, whole, question)

    def _part(
        self, part: PromptPart, values: Mapping[str, str | list[str]], question: EditQuestion | None = None
    ) -> Iterator[_Run]:
        for piece in part.write:
            if isinstance(piece, Control):
                yield _Run(piece.token, control=True)
                continue
            at = 0
            for hole in _HOLE.finditer(piece):
                yield _Run(piece[at : hole.start()], own=True)
                at = hole.end()
                if hole[1] == "regions":
                    if question is not None:
                        yield from self._regions(question)
                    continue
                value = values[hole[1]]
                if isinstance(value, str):
                    yield _Run(value)
                else:
                    yield _Run("\n".join(value) + "\n" * bool(hole[2] and value))
            yield _Run(piece[at:], own=True)

    def _values(self, question: EditQuestion) -> dict[str, str | list[str]]:
        window = lines_of(question.window)
        before = window if question.before is None else lines_of(question.before)
        change = hunks(before, window, question.first_line)
        names = [f"--- {question.path}", f"+++ {question.path}"] if change else []
        return {
            "path": question.path,
            "window": window,
            "before": before,
            "above": lines_of(question.above),
            "below": lines_of(question.below),
            "change": names + change,
        }

    def _regions(self, question: EditQuestion) -> Iterator[_Run]:
        lines = lines_of(question.window)
        found = boundaries(lines, *self.format.marker_lines)
        cursor, at = read_cursor(question.window, question.cursor), 0
        placed = False
        for number, (start, end) in enumerate(zip(found, [*found[1:], len(lines)], strict=True), 1):
            yield _Run(self.format.marker_at(number) + "\n", own=True)
            block = "".join(line + "\n" for line in lines[start:end])
            if not placed and (cursor < at + len(block) or number == len(found) - 1):
                placed = True
                yield _Run(block[: cursor - at])
                yield _Run(self.format.cursor, own=True)
                yield _Run(block[cursor - at :])
            else:
                yield _Run(block)
            at += len(block)


def _of_edit(one: RecentEdit) -> dict[str, str | list[str]]:
    old, new = lines_of(one.old), lines_of(one.new)
    return {"path": one.path, "old": old, "new": new, "hunks": hunks(old, new, one.line)}
