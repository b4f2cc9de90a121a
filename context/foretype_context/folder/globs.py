"""The one matcher of globs: `.gitignore` patterns and those of editors, in time linear in the path whatever the patterns are.

All patterns of a file are one automaton, a bit per place in a pattern, and a path is read once, letter by letter: nothing is
ever tried again, and each step is a few operations on one large integer, so that a thread in between never waits. Patterns come
from folders that anybody may have made: their number, their stars and the automaton's size are bounded, which bounds the time
of a step; what exceeds the bounds is left out and counted. Patterns without wildcards are looked up in a table instead.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

PATTERNS_MAX: Final = 1_000
STARS_MAX: Final = 4
"""Of one pattern; `**` is one star. `?` and `[ab]` stand for one character and cost no more than a letter."""

PLACES_MAX: Final = 16_384
"""Letters in all patterns with wildcards together, and three more for each."""

_CHARS_MAX: Final = 1_024
_CHOICES_MAX: Final = 64
_KNOWN_MAX: Final = 1_024
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_CROSSING: Final = re.compile(r"([^*?\[\\]*[^*?\[\\/])\*\*+(/|$)")
"""Stars behind the letters that a pattern begins with. Git (dir.c) compares those letters first and matches what is left by
itself, so that the stars stand at a beginning, and lead over folders."""
_STAR: Final = "*"
_ANY: Final = "?"
_POSIX: Final = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


class _UnreadableError(Exception):
    """No pattern: what it says matches nothing."""


class _Letter(str):
    """A character that stands for itself, a star too."""

    __slots__ = ()


_Atom = str | re.Pattern[str]
"""A letter, `?`, `*`, or a class of characters."""

_Part = list[_Atom] | None
"""What a part of a path must be; None: any number of parts."""


class _Automaton:
    """Patterns over whole paths, as bits: bit n is set where the text so far leads to place n.

    The place behind an atom is the next bit. A pattern's last place is its end.
    """

    def __init__(self) -> None:
        self.ends: list[int] = []
        self._size = 0
        self._start = self._ending = self._ending_folder = 0
        self._stays = 0
        """Places that every character leads back to: inside `**`."""
        self._stars = 0
        """Places that every character of a name leads back to."""
        self._folders = 0
        """Places inside `**/`; at the begin of each part, the next place is reached too."""
        self._letters: dict[str, int] = {}
        self._any = 0
        self._classes: list[tuple[re.Pattern[str], int]] = []
        self._moves: dict[str, int] = {}
        self._inside = ("", 0)

    def add(self, parts: Sequence[_Part], *, folder: bool) -> None:
        """One more pattern. Raises OverflowError where there is no room."""
        if self._size + sum(1 if part is None else len(part) + 1 for part in parts) + 2 > PLACES_MAX:
            raise OverflowError
        at = 1 << self._size
        self._start |= at
        for number, part in enumerate(parts):
            if part is None and number < len(parts) - 1:
                self._folders |= at
                self._stays |= at
                if not number:
                    self._start |= at << 1
                at <<= 1
            elif part is None:
                self._any |= at  # what is in the folder, not the folder itself
                at <<= 1
                self._stays |= at
            else:
                for atom in part:
                    at = self._step(at, atom)
                if number < len(parts) - 1:
                    at = self._step(at, _Letter("/"))
        if folder:
            self._ending_folder |= at
        else:
            self._ending |= at
        self._size = at.bit_length()
        self.ends.append(self._size - 1)
        self._inside = ("", self._start)

    def _step(self, at: int, atom: _Atom) -> int:
        if isinstance(atom, re.Pattern):
            self._classes.append((atom, at))
        elif atom == _STAR and not isinstance(atom, _Letter):
            self._stars |= at
            return at
        elif atom == _ANY and not isinstance(atom, _Letter):
            self._any |= at
        else:
            self._letters[str(atom)] = self._letters.get(str(atom), 0) | at
        return at << 1

    def last(self, path: str, *, folder: bool) -> int:
        """The number of the last pattern that matches; -1: none does."""
        cut = path.rfind("/") + 1
        # Files of one folder come one after the other.
        inside, places = self._inside
        if inside != path[:cut]:
            inside = path[:cut]
            places = self._read(self._start, inside)
            self._inside = (inside, places)
        places = self._read(places, path[cut:])
        found = places & (self._ending | self._ending_folder if folder else self._ending)
        return bisect_left(self.ends, found.bit_length() - 1) if found else -1

    def _read(self, places: int, text: str) -> int:
        stays, moves = self._stays | self._stars, self._moves
        for char in text:
            move = moves.get(char)
            if move is None:
                move = self._move(char)
            if char == "/":
                places = (places & move) << 1 | places & self._stays
                places |= (places & self._folders) << 1
            else:
                places = (places & move) << 1 | places & stays
            if not places:
                break
        return places

    def _move(self, char: str) -> int:
        """The places that a character leads on from."""
        move = self._letters.get(char, 0)
        if char != "/":
            move |= self._any
            for members, at in self._classes:
                if members.fullmatch(char):
                    move |= at
        if len(self._moves) >= _KNOWN_MAX:
            self._moves.clear()
        self._moves[char] = move
        return move


class Globs:
    """The patterns of one ignore file, or of a user, in the form of `.gitignore`: the last one that matches decides.

    Args:
        lines: of the file.
        room: how many patterns are taken.

    Attributes:
        left_out: patterns that exceed a bound.
    """

    def __init__(self, lines: Sequence[str], *, room: int = PATTERNS_MAX) -> None:
        self.left_out = 0
        self._shows: list[bool] = []
        self._table: dict[tuple[str, bool], int] = {}
        self._automaton = _Automaton()
        self._numbers: list[int] = []
        """Of the patterns in the automaton."""
        for line in lines:
            text = _stripped(line)
            if not text or text.startswith("#"):
                continue
            try:
                if len(self._shows) >= room or len(text) > _CHARS_MAX:
                    raise OverflowError
                self._add(text)
            except OverflowError:
                self.left_out += 1
            except _UnreadableError:
                continue

    def __len__(self) -> int:
        return len(self._shows)

    def says(self, path: str) -> bool | None:
        """True: left out; False: not; None: nothing is said. `path` is relative to the file; a folder's ends in a slash."""
        folder = path.endswith("/")
        path = path.removesuffix("/")
        keys = (path[path.rfind("/") + 1 :], "/" + path)
        kinds = (False, True) if folder else (False,)
        last = max(self._table.get((key, kind), -1) for key in keys for kind in kinds)
        if self._numbers:
            found = self._automaton.last(path, folder=folder)
            last = max(last, self._numbers[found] if found >= 0 else -1)
        return None if last < 0 else not self._shows[last]

    def _add(self, text: str) -> None:
        shows = text.startswith("!")
        text = text.removeprefix("!")
        of_root = text.startswith("/")
        text = _ESCAPED.sub(lambda found: "/" if found[1] == "/" else found[0], text)
        folder = text.endswith("/")
        text = text.removesuffix("/")
        if not text:
            raise _UnreadableError
        of_name, number = "/" not in text, len(self._shows)
        root = "" if of_name else "/"
        first, *others = [text] if of_name else _over_folders(text.removeprefix("/") if of_root else text)
        self._take(number, [_atoms(first)] if of_name else _parts(first, escapes=True), root, folder)
        self._shows.append(shows)
        for one in others:
            self._take(number, _parts(one, escapes=True), root, folder, stars_max=STARS_MAX + 2)

    def _take(self, number: int, parts: list[_Part], root: str, folder: bool, *, stars_max: int = STARS_MAX) -> None:
        """Parts that a pattern matches by; `root` is "/" where they begin at the file's own folder."""
        _check(parts, stars_max)
        if all(part is not None and all(isinstance(atom, _Letter) for atom in part) for part in parts):
            name = "/".join("".join(map(str, part)) for part in parts if part is not None)
            self._table[root + name, folder] = number
        else:
            self._automaton.add(parts if root else [None, *parts], folder=folder)
            self._numbers.append(number)


def matches(glob: str, path: str) -> bool:
    """Whether a glob as editors write it matches a path: `*` and `?` stay inside a part, `**` is parts, `{a,b}` and `[ab]` choose.

    A glob without a slash is about the file's name, one that ends in a slash is all in that folder. One that is beyond the
    bounds is taken by the letter. Parts of the path may be separated as on Windows.
    """
    path = path.replace("\\", "/")
    if glob.endswith("/"):
        glob = f"**/{glob.removeprefix('/')}**"
    path = path if "/" in glob else path.rpartition("/")[2]
    automaton = _editors(glob)
    return path == glob if automaton is None else automaton.last(path, folder=False) >= 0


@lru_cache(maxsize=PATTERNS_MAX)
def _editors(glob: str) -> _Automaton | None:
    automaton = _Automaton()
    try:
        if len(glob) > _CHARS_MAX:
            raise OverflowError
        for choice in _choices(glob):
            parts = _parts(choice, escapes=False)
            _check(parts)
            automaton.add(parts, folder=False)
    except (OverflowError, _UnreadableError):
        return None
    return automaton


def _choices(glob: str) -> list[str]:
    """Every glob that the braces of one choose from."""
    done: list[str] = []
    todo = [glob]
    while todo:
        one = todo.pop()
        inner = re.search(r"\{([^{}]*)\}", one)
        if inner is None:
            done.append(one)
        else:
            todo += [one[: inner.start()] + choice + one[inner.end() :] for choice in inner[1].split(",")]
        if len(done) + len(todo) > _CHOICES_MAX:
            raise OverflowError
    return done


def _stripped(line: str) -> str:
    """Without its line end, and without blanks at its end that no backslash keeps."""
    line = line.rstrip("\r\n")
    text = line.rstrip(" ")
    slashes = len(text) - len(text.rstrip("\\"))
    return text + " " if slashes % 2 and len(text) < len(line) else text


def _check(parts: Sequence[_Part], stars_max: int = STARS_MAX) -> None:
    """Raises OverflowError where there are too many stars."""
    stars = sum(
        1 if part is None else sum(atom == _STAR and not isinstance(atom, _Letter) for atom in part) for part in parts
    )
    if stars > stars_max:
        raise OverflowError


def _over_folders(text: str) -> list[str]:
    """The patterns that one with stars behind its first letters stands for; the first has no more stars than it has."""
    found = _CROSSING.match(text)
    if found is None:
        return [text]
    letters, more = found[1], text[found.end() :]
    return [letters + more, f"{letters}*/**/{more}"] if found[2] else [letters + "*", letters + "*/**"]


def _parts(text: str, *, escapes: bool) -> list[_Part]:
    parts: list[_Part] = []
    for name in text.split("/"):
        if name != "**":
            parts.append(_atoms(name, escapes=escapes))
        elif not parts or parts[-1] is not None:
            parts.append(None)
    return parts


def _atoms(text: str, *, escapes: bool = True) -> list[_Atom]:
    return list(_read(text, escapes))


def _read(text: str, escapes: bool) -> Iterator[_Atom]:
    """One atom per character that is matched, and one for a run of stars."""
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            while text[at : at + 1] == "*":
                at += 1
            yield _STAR
        elif char == "?":
            yield _ANY
        elif char == "[" and (found := _class(text, at, escapes)) is not None:
            atom, at = found
            yield atom
        elif char == "[" and escapes:
            raise _UnreadableError  # git: a class without an end matches nothing
        elif char == "\\" and escapes:
            if at == len(text):
                raise _UnreadableError
            yield _Letter(text[at])
            at += 1
        else:
            yield _Letter(char)


def _class(text: str, at: int, escapes: bool) -> tuple[re.Pattern[str], int] | None:
    """A class of characters behind its bracket, and where it ends; None where it has no end."""
    negated = text[at : at + 1] in ("!", "^")
    at += negated
    members: list[str] = []
    start = at
    while at < len(text) and (text[at] != "]" or at == start):
        if named := re.compile(r"\[:(\w+):\]").match(text, at):
            if named[1] not in _POSIX:
                raise _UnreadableError
            members.append(_POSIX[named[1]])
            at = named.end()
            continue
        low, at = _member(text, at, escapes)
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(text, at + 1, escapes)
            if low <= high:
                members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(low))
    if at >= len(text):
        return None
    body = "".join(members)
    return re.compile((f"[^/{body}]" if negated else f"[{body}]" if body else "(?!)"), re.DOTALL), at + 1


def _member(text: str, at: int, escapes: bool) -> tuple[str, int]:
    if escapes and text[at] == "\\" and at + 1 < len(text):
        return text[at + 1], at + 2
    return text[at], at + 1
