"""A session of a hasty user: keys at random, and what the buffer must hold whatever the keys were.

The log of `tap.py` says which items the server ever gave. What Tab may leave behind is a tab, or one of these items, whole and
alone, made for the line as it was; so the model needs to ask the editor for nothing but its text.
"""

import json
import random
import sys
import time
from collections import Counter
from itertools import takewhile
from pathlib import Path

INLINE = "textDocument/inlineCompletion"
DID_CHANGE = "textDocument/didChange"
RESTED = "foretype/cursorRested"
CANCELLED = (-32800, -32801)
TYPED = [
    "for value in values:\n    ",
    "result += value\n",
    "return result",
    "print(",
    "total = sum(x for x in items)\n",
    "if not items:\n    return None\n",
    "é = '😀'\n",
    "os.path.join(",
]
LAST = "x"
PATIENCE_S = 180.0


def whole(file: Path, said):
    """Written whole or not at all: another process reads it at any time."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(said))
    new.rename(file)


def tapping(file: Path, command):
    """`command`, with every message that it hears and says written to `file` (:class:`Tapped` reads it)."""
    return (sys.executable, Path(__file__).parent / "tap.py", file, *command)


class Tapped:
    """What `tap.py` wrote down."""

    def __init__(self, file: Path):
        self._file = file

    def entries(self):
        """Speaker, time and message of each."""
        for line in self._file.read_text().splitlines():
            entry = json.loads(line)
            yield entry["from"], entry["at_ms"], entry["message"]

    def messages(self, speaker=""):
        """Of one of the two, or of both in their order."""
        yield from (message for who, _, message in self.entries() if speaker in ("", who))

    @property
    def encoding(self):
        """The unit of columns that editor and server agreed on."""
        for message in self.messages("server"):
            if capabilities := (message.get("result") or {}).get("capabilities"):
                return capabilities.get("positionEncoding", "utf-16")
        raise AssertionError("no answer to initialize")

    def items(self):
        for message in self.messages("server"):
            result = message.get("result")
            if isinstance(result, dict):
                yield from result.get("items") or []

    def suggested(self):
        """Ids of the questions that were answered with a suggestion."""
        answers = [one for one in self.messages("server") if isinstance(one.get("result"), dict)]
        return [one["id"] for one in answers if one["result"].get("items")]

    def rested(self):
        """Places where the server was told that the cursor rests."""
        return [message["params"]["position"] for message in self.messages("editor") if message.get("method") == RESTED]

    def asked(self):
        """Ids of the questions for suggestions."""
        return [message["id"] for message in self.messages("editor") if message.get("method") == INLINE]

    def answers(self):
        """How often each question was answered."""
        return Counter(message["id"] for message in self.messages("server") if "method" not in message)

    def unanswered(self):
        asked = self.asked()  # before the answers: a question may come between the two
        answers = self.answers()
        return [id for id in asked if answers[id] != 1]

    def asked_since_last_change(self):
        """Whether the editor has asked about the text as it is now."""
        methods = [message.get("method") for message in self.messages("editor")]
        return INLINE in takewhile(lambda method: method != DID_CHANGE, reversed(methods))

    def settled(self, deadline_s):
        """Wait until the editor has asked about its last text and every question is answered; what is not, at the deadline.

        One look at the log decides, and is what is returned: a second look could meet a question that has just been asked.
        """
        end_s = time.monotonic() + deadline_s
        while True:
            asked, unanswered = self.asked_since_last_change(), self.unanswered()
            if (asked and not unanswered) or time.monotonic() > end_s:
                return unanswered if asked else ["nothing was asked about the last change"]
            time.sleep(0.05)

    def errors(self):
        return [
            message["error"]
            for message in self.messages("server")
            if "error" in message and message["error"]["code"] not in CANCELLED
        ]


def _characters(line, units, encoding):
    """Characters of a line that a column in the agreed unit stands for."""
    if encoding == "utf-32":
        return units
    name, width = ("utf-8", 1) if encoding == "utf-8" else ("utf-16-le", 2)
    return len(line.encode(name)[: units * width].decode(name, "replace"))


class Session:
    """Presses keys and keeps what the buffer must be.

    Args:
        editor: has `type`, `press` with tmux's names of keys, `buffer`, and `caught_up`, which returns when every key so far
            has done what it does; with `own_indentation` it takes the blanks of a suggestion for those that were typed at
            the start of its line, and Tab on a line of blanks indents it anew.
        left, right: the text around the cursor at the start.
        cursor_keys: whether the cursor is moved as well.
    """

    def __init__(self, editor, tapped: Tapped, rng: random.Random, *, left="", right=""):
        self._editor, self._tapped, self._rng = editor, tapped, rng
        self.left, self.right = left, right
        self._waiting: list[str] = []

    @property
    def text(self):
        return self.left + self.right

    def play(self, keys):
        for _ in range(keys):
            self._key()
            time.sleep(self._rng.choice([0.0, 0.0, 0.03, 0.08, 0.3]))
        self._editor.type(LAST)  # one more that every editor asks about: the end is when that is answered
        self.left += LAST
        self._editor.caught_up()
        self._until(lambda text: text == self.text, "at the end")

    def _until(self, satisfied, what):
        end_s = time.monotonic() + PATIENCE_S
        while not satisfied(text := self._editor.buffer()):
            assert time.monotonic() < end_s, f"{what}: the buffer is\n{text!r}\nand was to be made of\n{self.text!r}"
            time.sleep(0.02)

    def _key(self):
        if not self._waiting:
            self._waiting = list(self._rng.choice(TYPED))
        kind = self._rng.random()
        if kind < 0.1:
            time.sleep(self._rng.choice([0.0, 0.02, 0.25, 0.5]))
            self._tab()
        elif kind < 0.17 and self.left and not self.left.endswith("\n"):
            self._editor.press("BSpace")
            self.left = self.left[:-1]
        elif kind < 0.2 and self.right and not self.right.startswith("\n"):
            self._editor.press("Right")
            self.left, self.right = self.left + self.right[0], self.right[1:]
        else:
            char = self._waiting.pop(0)
            if char == "\n":
                self._editor.press("Enter")
            else:
                self._editor.type(char)
            self.left += char

    def _tab(self):
        """Tab, which comes while the editor may still be at the keys before. It always changes the text.

        The text is looked at once the editor is through with the key: before, a text of some keys ago could pass for it.
        """
        self._editor.press("Tab")
        self._editor.caught_up()
        fitting = []

        def fits(text):
            left_behind = [(self.left + "\t", self.right), *self._indented(text), *self._allowed()]
            fitting[:] = [pair for pair in left_behind if "".join(pair) == text != self.text]
            return fitting

        self._until(fits, f"Tab after {self.left!r} before {self.right!r}")
        self.left, self.right = fitting[0]

    def _indented(self, text):
        """The text if it differs in the blanks of a line alone that has nothing else, where the editor takes Tab for its own."""
        above, newline, line = self.left.rpartition("\n")
        kept = above + newline
        blanks = text[len(kept) : len(text) - len(self.right)]
        only_blanks = not line.strip() and kept + blanks + self.right == text and not blanks.strip(" \t")
        if self._editor.own_indentation and only_blanks and text != self.text:
            yield kept + blanks, self.right

    def _allowed(self):
        """Every text around the cursor that accepting an item may leave behind."""
        above, newline, line = self.left.rpartition("\n")
        tail = self.right.partition("\n")[0]
        encoding = self._tapped.encoding
        for item in self._tapped.items():
            start = item["range"]["start"]
            cut = _characters(line, start["character"], encoding)
            kept, typed, text = line[:cut], line[cut:], item["insertText"]
            fits = text.startswith(typed)
            if self._editor.own_indentation and not kept.strip():
                fits = fits or text.lstrip().startswith(typed.lstrip())
            if start["line"] == self.left.count("\n") and fits:
                for replaced in range(len(tail) + 1):
                    yield above + newline + kept + item["insertText"], self.right[replaced:]
