"""Reads text by the lexical data of its language: what is code, string or comment, and which brackets stand open.

A state is all that the text before a place says about the text behind it, and nothing of where things stand: states of two
versions of a text can be compared. Any half of a text is read; what cannot be so is counted as a fault, and reading goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from foretype_context.syntax.languages import language_spec
from foretype_context.syntax.lexis import LEXES, Lexis, Quoted, Within


class Sort(Enum):
    """What a frame is."""

    BRACKET = auto()
    TEXT = auto()  # no code
    HOLE = auto()  # code inside text
    ARMS = auto()  # a list of arms, each with a closing bracket that nothing opened
    DIRECTIVE = auto()  # a line of the preprocessor
    TAG = auto()
    CHILDREN = auto()  # between a tag and its end tag


class Frame(NamedTuple):
    """Something that stands open.

    Attributes:
        opener: as it was written; of a tag its name.
        closer: what would end it, literally; empty where its line does, or nothing.
        rule: index of its entry in `Lexis.quoted`; negative: none.
        pattern: regular expression of what ends a text; empty for none.
        lined: the line's end ends it at the latest.
    """

    sort: Sort
    opener: str = ""
    closer: str = ""
    rule: int = -1
    pattern: str = ""
    lined: bool = False


class LexicalState(NamedTuple):
    """What stands open at a place.

    Attributes:
        stack: outermost first.
        last: the code before the place ends with this word or sign.
        waiting: heredocs that begin on the next line.
        branches: what stood open at each `#if` that is open.
    """

    stack: tuple[Frame, ...] = ()
    last: str = ""
    waiting: tuple[Frame, ...] = ()
    branches: tuple[tuple[Frame, ...], ...] = ()


_NONE: Final = Lexis(brackets="")
_VALUE: Final = '"'
"""Stands for a value as the last thing read."""
_LAST: Final = re.compile(r"[\w$]+\Z|\S\Z")
_CODE: Final = (Sort.BRACKET, Sort.HOLE, Sort.ARMS, Sort.DIRECTIVE)
_NO_PATTERN: Final = re.compile(r"(?:;;&?|;&|\bcase\s.*\sin)[ \t]*\Z")
_LEFT_CHARS: Final = 200
_NAME: Final = re.compile(r"[\w:.-]*")
_DIRECTIVE: Final = r"#[ \t]*(?P<word>[a-z]+)"
_GROUP: Final = re.compile(r"\(\?P<(\w+)>")


def lexis_of(language: str) -> Lexis:
    """The table's entry of a language; of one that is not in it an entry without strings, comments and brackets."""
    return LEXES.get(language, LEXES.get(language_spec(language).id, _NONE))


class _Modes:
    """The compiled expressions of one language."""

    def __init__(self, lexis: Lexis) -> None:
        self.lexis = lexis
        self.closers = dict(zip(lexis.brackets[::2], lexis.brackets[1::2], strict=True))
        self.tracks_last = lexis.markup is not None or any(rule.operand for rule in lexis.quoted)
        self.brackets = {
            (opener, lined): Frame(Sort.BRACKET, opener, closer, lined=lined)
            for opener, closer in self.closers.items()
            for lined in (False, True)
        }
        self.code = tuple(self._code(lined=bool(n & 2), hole=bool(n & 1)) for n in range(4))
        signs = lexis.signs + lexis.brackets
        self.signs = tuple(
            re.compile(
                f"[{re.escape(signs + ':' * (n & 1) + chr(10) * (n > 1) + chr(13) * (n > 1))}]" if signs else "(?!)"
            )
            for n in range(4)
        )
        self.groups = tuple(_GROUP.findall(rule.opens) for rule in lexis.quoted)
        self.named = {rule.name: n for n, rule in enumerate(lexis.quoted) if rule.name}
        self._texts: dict[tuple[int, str, bool], re.Pattern[str]] = {}
        hole = lexis.markup.hole if lexis.markup else ""
        hole = f"(?P<hole>{hole})" if hole else "(?P<hole>(?!))"
        # Code in a tag and between tags is in braces: one more that closes has no opener.
        in_tag, between = (
            (r"[})\]]", r"}|</[\w:.-]*[ \t]*(?=[^\s\w:.>-])")
            if lexis.markup and lexis.markup.hole
            else ("(?!)", "(?!)")
        )
        self.tag = re.compile(rf"(?P<end>/?>)|(?P<quote>[\"'])|{hole}|(?P<stray>{in_tag})")
        self.children = re.compile(
            rf"(?P<comment><!--)|(?P<cdata><!\[CDATA\[)|(?P<out></(?P<name>[\w:.-]*)\s*>)|(?P<tag><(?=[A-Za-z_>]))|{hole}|(?P<stray>{between})"
        )

    def _code(self, *, lined: bool, hole: bool) -> re.Pattern[str]:
        lexis, parts = self.lexis, list[str]()
        if lined:
            parts.append(r"(?P<nl>[\r\n])")
        if lexis.directives:
            parts.append(rf"(?P<directive>{_DIRECTIVE})")
        parts += [f"(?P<skip{n}>{skip})" for n, skip in enumerate(lexis.skips)]
        if lexis.arms:
            parts += [f"(?P<arms>{lexis.arms[0]})", f"(?P<out>{lexis.arms[1]})", f"(?P<next>{lexis.arms[2]})"]
        for n, rule in enumerate(lexis.quoted):
            if not rule.in_text and (hole or not rule.in_hole):
                own = _GROUP.sub(lambda found, n=n: f"(?P<r{n}_{found[1]}>", rule.opens)
                parts.append(f"(?P<q{n}>{own})")
        if lexis.markup and not lexis.markup.page:
            parts.append(f"(?P<tag>{lexis.markup.opens})")
        if any(closer == "`" for rule in lexis.quoted for _, closer in rule.holes):
            parts.append("(?P<tick>`)")
        if self.closers:
            parts += [f"(?P<open>[{re.escape(''.join(self.closers))}])"]
            parts += [f"(?P<close>[{re.escape(''.join(self.closers.values()))}])"]
        return re.compile("|".join(parts) or "(?!)", re.DOTALL | re.MULTILINE)

    def text(self, frame: Frame) -> re.Pattern[str]:
        key = frame.rule, frame.pattern, frame.lined
        pattern = self._texts.get(key)
        if pattern is None:
            if len(self._texts) > 200:  # a text may invent any number of delimiters
                self._texts.clear()
            pattern = self._texts[key] = self._text(frame)
        return pattern

    def _text(self, frame: Frame) -> re.Pattern[str]:
        rule = self.lexis.quoted[frame.rule] if frame.rule >= 0 else Quoted(opens="", escapes="")
        parts = [f"(?P<escape>{rule.escapes})"] if rule.escapes else []
        if frame.pattern:
            parts.append(f"(?P<end>{frame.pattern})")
        parts += [f"(?P<hole{n}>{opener})" for n, (opener, _) in enumerate(rule.holes)]
        parts += [
            f"(?P<in{self.named[name]}>{_GROUP.sub('(', self.lexis.quoted[self.named[name]].opens)})"
            for name in rule.inner
        ]
        if rule.nests:
            parts.append(f"(?P<nest>{re.escape(frame.opener[-1:] if rule.within is Within.STRING else frame.opener)})")
        if frame.lined:
            parts.append(r"(?P<nl>[\r\n])")
        return re.compile("|".join(parts) or "(?!)", re.DOTALL | re.MULTILINE)


@lru_cache(maxsize=32)
def _modes(language: str) -> _Modes:
    return _Modes(lexis_of(language))


@lru_cache(maxsize=64)
def start_state(language: str, *, inside: bool = True) -> LexicalState:
    """The state at the beginning of a file. `inside`: the file has none of the text around its code."""
    lexis, modes = lexis_of(language), _modes(language)
    if lexis.markup and lexis.markup.page:
        return LexicalState((Frame(Sort.CHILDREN),))
    if lexis.outside and not inside:
        number = modes.named[lexis.outside]
        rule = lexis.quoted[number]
        return LexicalState((Frame(Sort.TEXT, "", rule.closes, number, rule.pattern),))
    return LexicalState()


class Reading:
    """Reads on from a state.

    Attributes:
        faults: offsets of what cannot be: a closer without its opener, an opener that the wrong closer ended, a string that its line ended.
        lows: offsets of closers that ended what stood open when `floor` was set.
        floor: how many frames stand open that later text did not open.
    """

    __slots__ = ("_branches", "_last", "_modes", "_stack", "_waiting", "faults", "floor", "lows")

    def __init__(self, language: str, state: LexicalState) -> None:
        self._modes = _modes(language)
        self._stack = list(state.stack)
        self._last = state.last
        self._waiting = list(state.waiting)
        self._branches = list(state.branches)
        self.faults: list[int] = []
        self.lows: list[int] = []
        self.floor = 0

    @property
    def state(self) -> LexicalState:
        return LexicalState(tuple(self._stack), self._last, tuple(self._waiting), tuple(self._branches))

    @property
    def depth(self) -> int:
        return len(self._stack)

    @property
    def in_braces(self) -> bool:
        """Whether the innermost that stands open is a brace."""
        return bool(self._stack) and self._stack[-1].sort is Sort.BRACKET and self._stack[-1].opener == "{"

    def read(self, text: str, at: int, end: int) -> None:
        """Reads `text[at:end]`; what stands left of it tells a comment from a name, so that it must be the text's own line."""
        while at < end:
            at = self._on(text, at, end)

    def code(self, text: str, at: int, end: int) -> str:
        """Reads as :meth:`read` does; `text[at:end]` without its comments."""
        parts = list[str]()
        while at < end:
            begun, was_comment = at, self._in_comment()
            at = self._on(text, at, end)
            if not was_comment:
                parts.append(text[begun : at - len(self._stack[-1].opener) if self._in_comment() else at])
        return "".join(parts)

    def _in_comment(self) -> bool:
        return bool(self._stack) and _within(self._modes.lexis, self._stack[-1]) is Within.COMMENT

    def _on(self, text: str, at: int, end: int) -> int:
        """Reads on at least to where something else begins; where that is."""
        sort = self._stack[-1].sort if self._stack else Sort.BRACKET
        if sort is Sort.TEXT:
            return self._text(text, at, end)
        if sort is Sort.TAG:
            return self._tag(text, at, end)
        if sort is Sort.CHILDREN:
            return self._children(text, at, end)
        return self._code(text, at, end)

    def _code(self, text: str, at: int, end: int) -> int:
        modes, stack, tracks = self._modes, self._stack, self._modes.tracks_last
        mark = at
        while True:
            top = stack[-1] if stack else None
            lined = top is not None and top.lined
            variant = (2 if lined or self._waiting else 0) | (top is not None and top.sort is Sort.HOLE)
            code, found = modes.code[variant], None
            for sign in modes.signs[variant].finditer(text, at, end):
                found = code.match(text, sign.start(), end)
                if found is not None:
                    break
            if found is None:
                if tracks:
                    self._note(text, mark, end)
                return end
            start, at = found.span()
            kind = found.lastgroup or ""
            if kind == "open":
                stack.append(modes.brackets[found[0], lined])
                self._last = found[0]
            elif kind == "close":
                at = self._close(text, found[0], start)
                self._last = found[0]
                if stack and stack[-1].sort not in _CODE:
                    return at
            elif kind[0] == "q" or kind == "tag":
                if tracks:
                    self._note(text, mark, start)
                mark = start
                opened = self._tag_opened(text, start) if kind == "tag" else self._opened(text, int(kind[1:]), found)
                if opened is None:
                    at = start + 1
                    continue
                at = opened
                if stack and stack[-1].sort not in _CODE:
                    return at
            elif kind == "nl":
                if tracks:
                    self._note(text, mark, start)
                self._line_ended(text, start)
                if stack and stack[-1].sort not in _CODE:
                    return at
            else:
                self._other(kind, found, lined)
                if stack and stack[-1].sort not in _CODE:
                    return at
            mark = at

    def _other(self, kind: str, found: re.Match[str], lined: bool) -> None:
        stack = self._stack
        if kind.startswith("skip"):
            self._last = _VALUE
        elif kind == "arms":
            stack.append(Frame(Sort.ARMS, "case", "\nesac", lined=lined))
        elif kind == "next":
            if stack and stack[-1].sort is Sort.ARMS:
                stack[-1] = stack[-1]._replace(opener="case")
        elif kind == "out":
            if any(frame.sort is Sort.ARMS for frame in stack):
                self._end_frame(found.start() - 1, lambda frame: frame.sort is Sort.ARMS)
        elif kind == "tick":
            if any(frame.closer == "`" for frame in stack):
                self._end_frame(found.start(), lambda frame: frame.closer == "`")
            else:
                stack.append(Frame(Sort.HOLE, "`", "`", lined=lined))
        else:
            self._directive(found["word"])

    def _directive(self, word: str) -> None:
        stack, branches = self._stack, self._branches
        if word.startswith("if"):
            branches.append(tuple(stack))
        elif word.startswith("el") and branches:
            stack[:] = branches[-1]
        elif word == "endif" and branches:
            branches.pop()
        if word in ("error", "warning", "region", "endregion", "pragma"):
            stack.append(Frame(Sort.TEXT, pattern=r"(?=[\r\n])"))
        elif word == "define":
            stack.append(Frame(Sort.DIRECTIVE, lined=True))

    def _note(self, text: str, start: int, end: int) -> None:
        """Remembers with what the code in `[start, end)` ends."""
        found = _LAST.search(text[max(start, end - 40) : end].rstrip())
        if found is not None:
            self._last = found[0]

    def _may_be_value(self, text: str, at: int, operand: str) -> bool:
        last = self._last
        if not last or not (last[-1].isalnum() or last[-1] in "_$)]}\"'`"):
            return True
        if last in self._modes.lexis.value_words:
            return True
        if operand != "argument" or not (last[-1].isalnum() or last[-1] == "_"):
            return False
        return text[at - 1 : at].isspace() and not text[at + 1 : at + 2].isspace() and text[at + 1 : at + 2] != "="

    def _opened(self, text: str, number: int, found: re.Match[str]) -> int | None:
        """Text begins; where reading goes on, or None where it does not begin."""
        rule, stack, start = self._modes.lexis.quoted[number], self._stack, found.start()
        if rule.operand and not self._may_be_value(text, start, rule.operand):
            return None
        if rule.not_behind and re.search(rule.not_behind, _left_of(text, start)):
            return None
        closer, pattern = rule.closes, rule.pattern
        for name in self._modes.groups[number]:
            value = found[f"r{number}_{name}"] or ""
            closer, pattern = closer.replace(f"{{{name}}}", value), pattern.replace(f"{{{name}}}", re.escape(value))
        frame = Frame(Sort.TEXT, found[0], closer, number, pattern or re.escape(closer), rule.lined)
        top = stack[-1] if stack else None
        if rule.heredoc:
            if not (len(stack) > 1 and stack[-1].opener == stack[-2].opener == "("):  # a shift in a shell's sum
                self._waiting.append(frame)
            self._last = _VALUE
        elif (
            rule.lined
            and top is not None
            and top.sort is Sort.HOLE
            and top.lined
            and self._ends_string(text, start, closer)
        ):
            # `f"{a"`: half of what the hole will hold, and the string's own end.
            self.faults.append(start)
            del stack[-2:]
            self._lowered(start)
        else:
            stack.append(frame)
        return found.end()

    def _ends_string(self, text: str, start: int, closer: str) -> bool:
        around, before = self._stack[-2], text[:start].rstrip()
        return around.sort is Sort.TEXT and around.closer == closer and before[-1:] not in ("{", "")

    def _close(self, text: str, closer: str, at: int) -> int:
        stack = self._stack
        if stack:
            top = stack[-1]
            if top.closer == closer:
                stack.pop()
                self._lowered(at)
                return at + 1
            if top.sort is Sort.ARMS and closer == ")":
                # Behind a pattern; the commands of an arm have their brackets in pairs.
                if top.opener != "case" or _NO_PATTERN.search(text, text.rfind("\n", 0, at) + 1, at):
                    self.faults.append(at)
                stack[-1] = top._replace(opener=")")
                return at + 1
            if top.sort is Sort.HOLE and len(top.closer) > 1 and text.startswith(top.closer, at):
                stack.pop()
                self._lowered(at)
                return at + len(top.closer)
        self._end_frame(at, lambda frame: frame.closer == closer, is_brace=closer == "}")
        return at + 1

    def _end_frame(self, at: int, ends: Callable[[Frame], bool], *, is_brace: bool = False) -> None:
        """Ends the innermost frame that this may end, with all that stands open in it; a fault where that is not the last one."""
        stack = self._stack
        for depth in range(len(stack) - 1, -1, -1):
            frame = stack[depth]
            if ends(frame):
                if depth < len(stack) - 1:
                    self.faults.append(at)
                del stack[depth:]
                self._lowered(at)
                return
            if frame.sort is Sort.DIRECTIVE and is_brace:
                return  # a definition may close what another one opens
            if frame.sort not in (Sort.BRACKET, Sort.ARMS):
                break
        self.faults.append(at)

    def _lowered(self, at: int) -> None:
        if len(self._stack) < self.floor:
            self.lows.append(at)

    def _line_ended(self, text: str, at: int) -> None:
        stack = self._stack
        if text[at - 1 : at] == "\\" or text[at - 2 : at] == "\\\r":
            return
        depth = len(stack)
        while depth and stack[depth - 1].lined:
            depth -= 1
        if depth < len(stack):
            if stack[depth].sort is not Sort.DIRECTIVE:
                self.faults.append(at)
            del stack[depth:]
            self._lowered(at)
        if self._waiting and text[at] == "\n":
            stack.extend(reversed(self._waiting))
            self._waiting.clear()

    def _text(self, text: str, at: int, end: int) -> int:
        modes, stack = self._modes, self._stack
        frame = stack[-1]
        pattern = modes.text(frame)
        while True:
            found = pattern.search(text, at, end)
            if found is None:
                return end
            at, kind = found.end(), found.lastgroup or ""
            if kind == "end":
                stack.pop()
                self._lowered(found.start())
                if frame.rule < 0 or modes.lexis.quoted[frame.rule].within is Within.STRING:
                    self._last = _VALUE
                return at
            if kind == "nl":
                self._line_ended(text, found.start())
                if not stack or stack[-1] is not frame:
                    return at
            elif kind == "nest":
                stack.append(frame)
            elif kind.startswith("hole"):
                closer = modes.lexis.quoted[frame.rule].holes[int(kind[4:])][1]
                stack.append(Frame(Sort.HOLE, found[0], closer, lined=frame.lined))
                self._last = ""
                return at
            elif kind.startswith("in"):
                number = int(kind[2:])
                rule = modes.lexis.quoted[number]
                stack.append(Frame(Sort.TEXT, found[0], rule.closes, number, re.escape(rule.closes), rule.lined))
                return at

    def _tag_opened(self, text: str, at: int) -> int | None:
        if not self._may_be_value(text, at, "value"):
            return None
        return self._element(text, at)

    def _element(self, text: str, at: int) -> int:
        name = _NAME.match(text, at + 1)
        self._stack.append(Frame(Sort.TAG, name[0] if name else "", ">"))
        return name.end() if name else at + 1

    def _tag(self, text: str, at: int, end: int) -> int:
        stack, markup = self._stack, self._modes.lexis.markup
        found = self._modes.tag.search(text, at, end)
        if found is None or markup is None:
            return end
        name = stack[-1].opener
        if found.lastgroup == "quote":
            stack.append(Frame(Sort.TEXT, found[0], found[0], -2, found[0]))
        elif found.lastgroup == "hole":
            stack.append(Frame(Sort.HOLE, "{", "}"))
            self._last = ""
        elif found.lastgroup == "stray":
            self.faults.append(found.start())
        else:
            stack.pop()
            self._last = _VALUE
            if found[0] == ">" and name.lower() not in markup.void:
                stack.append(Frame(Sort.CHILDREN, name, f"</{name}>"))
                if name.lower() in markup.raw:
                    stack.append(Frame(Sort.TEXT, name, "", -3, rf"(?=</{name}\b)"))
            else:
                self._lowered(found.start())
        return found.end()

    def _children(self, text: str, at: int, end: int) -> int:
        stack = self._stack
        found = self._modes.children.search(text, at, end)
        if found is None:
            return end
        match found.lastgroup:
            case "comment":
                stack.append(Frame(Sort.TEXT, found[0], "-->", -4, "-->"))
            case "cdata":
                stack.append(Frame(Sort.TEXT, found[0], "]]>", -3, r"\]\]>"))
            case "tag":
                return self._element(text, found.start())
            case "hole":
                stack.append(Frame(Sort.HOLE, "{", "}"))
                self._last = ""
            case "stray":
                self.faults.append(found.start())
            case _:
                self._element_ended(found["name"], found.start())
                self._last = _VALUE
        return found.end()

    def _element_ended(self, name: str, at: int) -> None:
        stack = self._stack
        for depth in range(len(stack) - 1, -1, -1):
            frame = stack[depth]
            if frame.sort is not Sort.CHILDREN or not frame.closer:
                break
            if frame.opener == name:
                # The end of a list's item, or of a paragraph, may be left out in a page.
                del stack[depth:]
                self._lowered(at)
                return
        self.faults.append(at)


def _left_of(text: str, at: int) -> str:
    """What stands left of a place on its line, as far as anything is told by it."""
    return text[max(text.rfind("\n", 0, at) + 1, at - _LEFT_CHARS) : at]


def within_of(language: str, state: LexicalState) -> Within | None:
    """What text at a place with this state is part of that is no code."""
    return _within(lexis_of(language), state.stack[-1]) if state.stack else None


def _within(lexis: Lexis, frame: Frame) -> Within | None:
    if frame.sort is not Sort.TEXT:
        return None
    if frame.rule >= 0:
        return lexis.quoted[frame.rule].within
    return {-2: Within.STRING, -3: None}.get(frame.rule, Within.COMMENT)


def missing_closers(stack: Sequence[Frame], waiting: Sequence[Frame] = ()) -> str:
    """What ends frames that stand open, outermost first in `stack`; and heredocs that have not begun."""
    ends = [frame.closer or ("\n" if frame.sort is Sort.TEXT else "") for frame in reversed(stack)]
    return "".join(ends) + "".join(f"{frame.closer}\n" for frame in waiting)
