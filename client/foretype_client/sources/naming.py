"""What the import lines of a file name: modules, and names of them. Python, JavaScript and TypeScript, by their lines alone.

Languages whose imports name no file (Go, Java, C# …) are left to the index, which knows definitions by their names.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_HEAD_CHARS: Final = 20_000
_IMPORTS_MAX: Final = 60
_NAMES_MAX: Final = 40
_PYTHON: Final = frozenset({"python"})
_SCRIPT: Final = frozenset({"javascript", "javascriptreact", "typescript", "typescriptreact"})

_FROM: Final = re.compile(
    r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(?:\(([^)]{0,4000})\)|([^\n(]{1,1000}))", re.MULTILINE
)
_IMPORT: Final = re.compile(r"^[ \t]*import[ \t]+([\w., \t]{1,500})$", re.MULTILINE)
_ES: Final = re.compile(
    r"^[ \t]*(?:import|export)\s+(?:type\s+)?([\w$*{},\s]{1,2000}?)\s+from\s+['\"]([^'\"\n]{1,300})['\"]", re.MULTILINE
)
_REQUIRE: Final = re.compile(
    r"^[ \t]*(?:const|let|var)\s+([\w$]+|\{[^}]{1,1000}\})\s*=\s*require\(['\"]([^'\"\n]{1,300})['\"]\)", re.MULTILINE
)
_WORD: Final = re.compile(r"\w+")
_COMMENT: Final = re.compile(r"#[^\n]*")


class Import(NamedTuple):
    """One import.

    Attributes:
        module: `a.b` in Python, the path or package in scripts.
        names: imported, or reached through the module's own name; empty where everything may be meant.
        level: of a relative import in Python: the number of dots.
    """

    module: str
    names: tuple[str, ...]
    level: int = 0


def is_followed(language: str) -> bool:
    return language in _PYTHON or language in _SCRIPT


def imports_of(text: str, language: str) -> list[Import]:
    """The imports of a file, in the order of the text, from its head. Never raises."""
    head = text[:_HEAD_CHARS]
    if language in _PYTHON:
        found = _python(head, text)
    elif language in _SCRIPT:
        found = _script(head)
    else:
        found = []
    return [one for _, one in sorted(found, key=lambda one: one[0])][:_IMPORTS_MAX]


def _python(head: str, text: str) -> list[tuple[int, Import]]:
    found: list[tuple[int, Import]] = []
    for match in _FROM.finditer(head):
        dots, module, many, few = match.groups()
        listed = _COMMENT.sub("", many or few or "").split(",")
        names = tuple(words[0] for one in listed if (words := one.split()) and words[0] != "*")
        found.append((match.start(), Import(module, names[:_NAMES_MAX], len(dots))))
    for match in _IMPORT.finditer(head):
        for one in match[1].split(","):
            words = one.split()
            if words and (len(words) == 1 or words[1:2] == ["as"]):
                called = words[-1]
                found.append((match.start(), Import(words[0], _reached(text, called))))
    return found


def _reached(text: str, module: str) -> tuple[str, ...]:
    """The names behind `module.` in a text, each once. Searching for the characters alone is fifty times a pattern's speed."""
    names: dict[str, None] = {}
    dotted = module + "."
    at = text.find(dotted)
    while at >= 0 and len(names) < _NAMES_MAX:
        behind = at + len(dotted)
        if (at == 0 or not _WORD.match(text, at - 1)) and (name := _WORD.match(text, behind)):
            names[name[0]] = None
        at = text.find(dotted, behind)
    return tuple(names)


def _script(head: str) -> list[tuple[int, Import]]:
    found: list[tuple[int, Import]] = []
    for match in (*_ES.finditer(head), *_REQUIRE.finditer(head)):
        clause, module = match.groups()
        inside = re.search(r"\{([^}]*)\}", clause)
        listed = inside[1].split(",") if inside else [clause]
        names = [
            words[1] if words[0] == "type" and len(words) > 1 else words[0] for one in listed if (words := one.split())
        ]
        kept = tuple(name for name in names if name.isidentifier() and name != "default")
        found.append((match.start(), Import(module, kept[:_NAMES_MAX])))
    return found
