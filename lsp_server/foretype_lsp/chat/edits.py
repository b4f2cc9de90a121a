"""What a model answered, as text for a document: a docstring or comment in the language's own form, a body in its place. Pure.

Whatever the model writes, what is inserted as documentation is a comment or a string of the language and nothing else.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from foretype_context.syntax.languages import language_spec
from foretype_context.syntax.outline import defines

from foretype_lsp.chat.targets import Definition
from foretype_lsp.errors import ImpossibleError

_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*\n(.*?)^[ \t]*(?:```|~~~)[ \t]*$", re.DOTALL | re.MULTILINE)
_QUOTED: Final = re.compile(r'[rRuU]?("""|\'\'\')(.*?)\1', re.DOTALL)
_MARK: Final = re.compile(r"^\s*(?:/\*\*?|\*/|\*(?!\*)|///?!?|#+|--+)\s?")
_BLOCK_STYLE: Final = frozenset({"javascript", "typescript", "typescriptreact", "java", "php", "c", "cpp"})
_LINE_MARKS: Final = {"rust": "///", "csharp": "///"}
_UNPRINTED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")
"""Some of them end a line in one language or another, and with it a comment."""
_MAX_LINES: Final = 60
_LINE_CHARS: Final = 88
_PLACEHOLDER: Final = re.compile(r"(?:pass|\.\.\.|raise NotImplementedError(?:\([^\n]*\))?)[ \t]*;?")


class Insertion(NamedTuple):
    """`text` takes the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


class Gap(NamedTuple):
    """Where the rest of a function goes: between `lead` and `tail` in the place of the characters from `start` to `end`."""

    start: int
    end: int
    lead: str
    tail: str

    def filled(self, written: str) -> Insertion:
        return Insertion(self.start, self.end, self.lead + written + self.tail)


def plain(answer: str) -> list[str]:
    """The lines of documentation in an answer, without fences, quotes, comment marks and code around them."""
    text = _UNPRINTED.sub(" ", answer.replace("\r\n", "\n").replace("\r", "\n"))
    fenced = _FENCE.search(text)
    text = fenced[1] if fenced is not None else text
    quoted = _QUOTED.search(text)
    if quoted is not None:
        text = quoted[2]
    lines = [line.rstrip() for line in text.strip().split("\n")]
    if any(defines(line) for line in lines[:3]) and quoted is None:
        # it wrote the code again: only what stands above it as a comment is of use
        head = next(i for i, line in enumerate(lines) if defines(line))
        lines = [line for line in lines[:head] if _MARK.match(line)]
    if all(not line or _MARK.match(line) for line in lines):
        lines = [_MARK.sub("", line).removesuffix("*/").rstrip() for line in lines]
    least = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    lines = [lines[0].strip(), *(line[least:] for line in lines[1:])] if lines else []
    while lines and not lines[-1].strip():
        lines.pop()
    while lines and not lines[0].strip():
        lines.pop(0)
    return lines[:_MAX_LINES]


def documentation(text: str, language: str, found: Definition, answer: str) -> Insertion:
    """The documentation that an answer is, for a definition that has none. Raises ImpossibleError."""
    lines = plain(answer)
    if not lines:
        raise ImpossibleError("the model wrote no documentation")
    spec = language_spec(language)
    if spec.id != "python":
        made = "\n".join(found.indent + line for line in _comment(lines, spec.id, spec.line_comment))
        return Insertion(found.start, found.start, made + "\n")
    if found.body is not None and "\n" not in text[found.header_end : found.body[0]]:
        raise ImpossibleError("the body is on the line of the header, so there is no room for a docstring")
    indent = _body_indent(text, found)
    lines = [line.replace("\\", "\\\\").replace('"""', "'''") for line in lines]
    if lines[-1].endswith('"'):
        lines[-1] += " "
    if len(lines) == 1 and len(indent) + len(lines[0]) + 6 <= _LINE_CHARS:
        made = f'{indent}"""{lines[0]}"""'
    else:
        made = "\n".join(
            [f'{indent}"""{lines[0]}', *(indent + line if line else "" for line in lines[1:]), f'{indent}"""']
        )
    end = _line_end(text, found.header_end)
    return Insertion(end, end, "\n" + made)


def gap_of(text: str, language: str, found: Definition) -> Gap:
    """Where a function goes on: behind what it has, in the place of a body that is only a placeholder. Raises ImpossibleError."""
    if not found.function:
        raise ImpossibleError(f"{found.name or 'this'} is no function; put the cursor into one")
    if found.body is not None and "\n" not in text[found.header_end : found.body[0]]:
        raise ImpossibleError("the function is on one line; there is nothing to complete")
    indent = _body_indent(text, found)
    start = end = found.header_end
    if found.body is not None:
        kept = found.documentation[1] if found.documentation is not None else None
        rest = text[kept or found.body[0] : found.body[1]]
        if _PLACEHOLDER.fullmatch(rest.strip()) or not rest.strip():
            start, end = (kept or found.header_end), found.body[1]
        else:
            start = end = found.body[1]
    if start == end == found.header_end and not text[start : _line_end(text, start)].strip().startswith("}"):
        start = end = _line_end(text, start)  # a comment behind the header stays where it is
    below = text[end : _line_end(text, end)]
    return Gap(start, end, "\n" + indent, "\n" + found.indent if below.lstrip().startswith("}") else "")


def _comment(lines: list[str], language: str, mark: str) -> list[str]:
    if language in _BLOCK_STYLE:
        safe = [line.replace("*/", "* /") for line in lines]
        return ["/**", *(f" * {line}".rstrip() for line in safe), " */"]
    mark = _LINE_MARKS.get(language, mark)
    return [f"{mark} {line}".rstrip() for line in lines]


def _body_indent(text: str, found: Definition) -> str:
    """What the lines of a body begin with: as the body has it, else one step more than the header."""
    if found.body is not None:
        start = text.rfind("\n", 0, found.body[0]) + 1
        own = text[start : found.body[0]]
        if not own.strip() and len(own) > len(found.indent):
            return own
    if found.indent.startswith("\t"):
        return found.indent + "\t"
    steps = re.findall(r"^(\t| +)(?=\S)", text, re.MULTILINE)
    if steps and steps[0] == "\t":
        return found.indent + "\t"
    step = min((len(one) for one in steps if one[0] == " " and len(one) > 1), default=4)
    return found.indent + " " * min(step, 8)


def _line_end(text: str, offset: int) -> int:
    """Behind the last character of the line that `offset` is in, its ending not included."""
    end = text.find("\n", offset)
    return len(text) if end < 0 else end
