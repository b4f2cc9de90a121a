"""What post-processing does to right texts and to wrong ones, at places cut out of real files.

A right text is what stood at the place. Whoever cuts, hides or doubles any of it is wrong, whatever else the filter is good for. A
wrong text is the right one with a fault that models make; it has to become the right one, or nothing. The end of another line of
the file is wrong, too, but nearly always good syntax: of those it is only counted how many are dropped.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from foretype_client.flow.judgement import SyntaxFilter
from foretype_client.flow.question import Question
from foretype_client.flow.strands import Place as Asked
from foretype_client.policy.trigger import Trigger
from foretype_context.finish.post_processing import finish
from foretype_context.finish.surroundings import in_text
from foretype_context.syntax.blocks import SuggestionKind, indent_columns, lexical_state, suggestion_kind, within
from foretype_context.syntax.document import Document, Snapshot

ANOTHER_END: Final = "another line's end"

_WORD: Final = re.compile(r"""\w+|\s+|["'`]+|[-+*/=<>!&|:.%^~@#?$]+|.""")
_CLOSERS: Final = re.compile(r"""[)\]}"'`>]+[;,:]?$""")
_CLOSING_LINE: Final = re.compile(r"\s*([)\]}]|</|/?>|(end|fi|done|esac)\b)")
_LABEL: Final = re.compile(
    r"\s*(case\b|default\b|(public|private|protected)\b[\w ]*:|\w+:$|#\s*(if|el|endif|define|undef|include|pragma|region|endregion))"
)
_MIDDLE: Final = re.compile(r"\s*(rescue|ensure|else|elsif|when|in)\b")
_BLOCK_LINES: Final = 20
_BY_INDENTATION: Final = frozenset({"python", "yaml"})


@dataclass(frozen=True, slots=True)
class Place:
    """`truth` stood between `left` and `right`, in a file of `language`; `sort` says how it was cut out."""

    language: str
    sort: str
    left: str
    truth: str
    right: str

    def snapshot(self) -> Snapshot:
        return _snapshot(self.left + self.right, self.language)

    @property
    def is_code(self) -> bool:
        """Whether the truth stands outside of strings and comments."""
        snapshot = _snapshot(self.left + self.truth, self.language)
        return within(snapshot, len(self.left)) is within(snapshot, len(snapshot.text)) is None

    @property
    def typed(self) -> str:
        return self.left.rpartition("\n")[2]

    @property
    def tail(self) -> str:
        return self.right.partition("\n")[0]


@lru_cache(maxsize=4)
def _snapshot(text: str, language: str) -> Snapshot:
    return Document("file:///a", text, language=language).snapshot()


def places(text: str, language: str, rng: random.Random, count: int) -> Iterator[Place]:
    """Up to `count` places of a file, drawn by `rng`."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    filled = [number for number, line in enumerate(lines) if line.strip()]
    for _ in range(count):
        number = rng.choice(filled)
        sort = rng.choice(("line", "tail", "mid", "body", "rest"))
        start = starts[number]
        span = _block(lines, number, language, sort) if sort in ("body", "rest") else _within(lines[number], sort, rng)
        if span is None:
            continue
        at, end = start + span[0], start + span[1]
        if text[at:end].strip() and not (sort in ("body", "rest") and _ends_inside(text, language, end)):
            yield Place(language, sort, text[:at], text[at:end], text[end:])


def _ends_inside(text: str, language: str, at: int) -> bool:
    """Whether a string or comment goes on from `at` into the next line: no block ends there."""
    snapshot = _snapshot(text, language)
    state = lexical_state(snapshot, snapshot.line_end(snapshot.line_of(at)))
    return in_text(state) or bool(state.waiting)


def _within(line: str, sort: str, rng: random.Random) -> tuple[int, int] | None:
    margin = len(line) - len(line.lstrip())
    borders = [found.start() for found in _WORD.finditer(line) if found.start() >= margin]
    end = len(line.rstrip())
    if sort == "line":
        return rng.choice(borders), end
    if sort == "tail":
        closers = _CLOSERS.search(line.rstrip())
        if closers is None:
            return None
        end = rng.randint(closers.start(), closers.end() - 1)
        inner = [at for at in borders if at < end]
        return (rng.choice(inner), end) if inner else None
    if len(borders) < 3:
        return None
    first, last = sorted(rng.sample(borders, 2))
    return first, len(line[:last].rstrip())


def _block(lines: Sequence[str], number: int, language: str, sort: str) -> tuple[int, int] | None:
    """The body below a line with its closing line, or the rest of the body that a line stands in; relative to the line's start."""
    own = indent_columns(lines[number])
    if sort == "rest":
        if _CLOSING_LINE.match(lines[number]):
            return None  # a block ends here
        last, labels = number, _LABEL.match(lines[number]) or _MIDDLE.match(lines[number])
        for below in range(number + 1, min(number + _BLOCK_LINES, len(lines))):
            if lines[below].strip():
                columns = indent_columns(lines[below])
                # `case` and `default` stand where the line stands that ends them all.
                if columns < own or (columns == own and labels and _CLOSING_LINE.match(lines[below])):
                    break
                last = below
        else:
            return None
        margin = len(lines[number]) - len(lines[number].lstrip())
        within = [line for line in lines[number : last + 1] if line.strip()]
        if not own or not all(line.startswith(lines[number][:margin]) for line in within):
            return None  # tabs beside blanks: nobody can tell where such a block ends
        return margin, len("\n".join(lines[number : last + 1]).rstrip())
    last = number
    for below in range(number + 1, min(number + 1 + _BLOCK_LINES, len(lines))):
        line = lines[below]
        if not line.strip():
            continue
        if indent_columns(line) > own:
            last = below
        elif language in _BY_INDENTATION:
            break
        elif indent_columns(line) == own and _CLOSING_LINE.match(line):
            last = below
            break
        elif not _LABEL.match(line):
            return None
    else:
        return None
    if last == number:
        return None
    return len(lines[number].rstrip()), len("\n".join(lines[number : last + 1]).rstrip())


def shown_text(place: Place, text: str) -> tuple[str, int]:
    """What the user sees of a text that the model ended, and how many characters right of the cursor it replaces."""
    snapshot, offset = place.snapshot(), len(place.left)
    kind = suggestion_kind(snapshot, offset)
    finished = finish(text, snapshot, offset, kind=kind, final=True)
    question = Question(snapshot, offset, Asked.of(snapshot, offset, None), Trigger.AUTOMATIC, None, None, 0.0)
    shown = SyntaxFilter()(question, finished.text, finished.replaces)[0].rstrip() if finished.text else ""
    return (shown, finished.replaces) if shown else ("", 0)


def verdict(place: Place, text: str) -> str:
    """`right`, `hidden`, `cut` (some of the right text is missing) or `other`, of what is shown of a text."""
    shown, replaces = shown_text(place, text)
    if not shown:
        return "hidden"
    truth = _expected(place).rstrip()
    if shown + place.right[replaces:] == truth + place.right:
        return "right"
    return "cut" if truth.startswith(shown) and not replaces else "other"


def _expected(place: Place) -> str:
    """Of a place where one line is planned, the first line of the truth."""
    return place.truth if place.sort in ("body", "rest") else place.truth.partition("\n")[0]


def right_text(place: Place) -> str | None:
    """What stood there; None where a block did and one line is planned."""
    kind = suggestion_kind(place.snapshot(), len(place.left))
    return None if "\n" in place.truth and kind is not SuggestionKind.BLOCK else place.truth


def wrong_texts(place: Place, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Faults of models, by name. A fault that would leave a right text is left out."""
    truth = right_text(place)
    if truth is None:
        return
    typed, tail = place.typed, place.tail.rstrip()
    if tail.strip() and place.sort in ("tail", "mid"):
        yield "the line's tail again", truth + tail
    if place.sort == "line" and sum(map(str.isalnum, typed)) > 2:
        yield "the line's beginning again", typed.lstrip() + truth
    if place.sort in ("line", "tail") and truth.strip():
        opener, closer = rng.choice(("()", "[]", "{}"))
        if truth.count(opener) <= truth.count(closer) and place.is_code:
            yield "a closer too many", truth.rstrip() + closer
    if "\n" in truth:
        below = [line for line in place.right.split("\n") if line.strip()][: rng.randint(1, 3)]
        if below:
            yield "the lines below again", truth.rstrip() + "\n" + "\n".join(below)
        outer = _outer_line(place)
        if outer is not None:
            yield "text past the block's end", f"{truth.rstrip()}\n{outer}"
        otherwise = _indented_otherwise(truth, place.language in _BY_INDENTATION, rng)
        if otherwise is not None:
            yield "another indentation", otherwise
    word = re.search(r"\w+$", typed)
    if place.sort == "line" and word and len(word.group()) > 2:
        yield "the word again", word.group() + truth


def _outer_line(place: Place) -> str | None:
    """The nearest line of code above that stands outside of the block, and not below it as well."""
    own = indent_columns(place.typed)
    for line in reversed(place.left.split("\n")[:-1]):
        columns = indent_columns(line)
        if line.strip()[:1].isalpha() and (columns <= own if place.sort == "body" else columns < own):
            return line if line not in place.right.split("\n")[1:4] and place.is_code else None
    return None


def _another_end(place: Place, rng: random.Random) -> str | None:
    """How another line of the file ends; None of a place where no line's end was cut off."""
    lines = [line.strip() for line in place.left.split("\n")[:-1] if len(line.strip()) > 2]
    if place.sort != "line" or not lines:
        return None
    line = rng.choice(lines)
    text = line[rng.choice([found.start() for found in _WORD.finditer(line)]) :]
    return text if text != place.truth else None


def _indented_otherwise(truth: str, is_syntax: bool, rng: random.Random) -> str | None:
    """Tabs for blanks or the other way, or where it is syntax a blank too many; None where that says nothing."""
    head, *lines = truth.split("\n")
    margins = [line[: len(line) - len(line.lstrip())] for line in lines if line.strip()]
    if not all(margins):
        return None
    if all(set(margin) == {"\t"} for margin in margins):
        made = [re.sub(r"^\t+", lambda found: "    " * len(found[0]), line) for line in lines]
    elif all(set(margin) == {" "} and len(margin) % 4 == 0 for margin in margins) and rng.random() < 0.5:
        made = [re.sub(r"^ +", lambda found: "\t" * (len(found[0]) // 4), line) for line in lines]
    elif is_syntax:
        made = [f" {line}" if line.strip() else line for line in lines]
    else:
        return None
    return "\n".join([head, *made])


def count(
    files: Sequence[str], language: str, wanted: int, seed: int
) -> tuple[Counter[str], Counter[tuple[str, str]], list[tuple[Place, str, str]]]:
    """Verdicts of right texts, those of wrong ones by their fault, and the places that went wrong with the text and the verdict."""
    rng = random.Random(f"{seed} {language}")
    right, wrong, bad = Counter[str](), Counter[tuple[str, str]](), list[tuple[Place, str, str]]()
    while right.total() < wanted:
        for place in places(rng.choice(files), language, rng, 4):
            text = right_text(place)
            if text is None:
                continue
            found = verdict(place, text)
            right[found] += 1
            if found != "right":
                bad.append((place, text, found))
            for fault, said in wrong_texts(place, rng):
                is_well = verdict(place, said) in ("right", "hidden")
                wrong[fault, "well" if is_well else "shown"] += 1
                if not is_well:
                    bad.append((place, said, fault))
            if (other := _another_end(place, rng)) is not None:
                wrong[ANOTHER_END, "well" if verdict(place, other) in ("right", "hidden") else "shown"] += 1
    return right, wrong, bad
