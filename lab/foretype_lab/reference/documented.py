"""Fields of a struct or dataclass with their defaults and what their class says of them, as rows of a table."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple, cast

import msgspec

from foretype_lab.errors import LabError

_ENTRY: Final = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*)$")
_UNSET: Final = re.compile(r"\s*Unset: (?P<what>.+)\.$")
_PAGE: Final = re.compile(r"(?<![\w/`])docs/([a-z-]+)\.md")


class Documented(NamedTuple):
    """`default` as it is written in a file of settings, or what counts where nothing is; Markdown both."""

    name: str
    default: str
    text: str
    value: Any = None


def documented(cls: type) -> list[Documented]:
    """Every field of a class. Raises LabError."""
    said = described(cls)
    rows = [_row(name, default, said.pop(name, "")) for name, default in _fields(cls)]
    if silent := [row.name for row in rows if not row.text]:
        raise LabError(f"{cls.__name__} does not say what {', '.join(silent)} is: add it to `Attributes:`")
    if said:
        raise LabError(f"{cls.__name__} describes {', '.join(said)}, which it does not have")
    return rows


def summary(cls: type) -> str:
    """The first paragraph of a class' docstring."""
    return linked(inspect.getdoc(cls) or "").partition("\n\n")[0].replace("\n", " ")


def linked(text: str) -> str:
    """Names of pages as links to them, for a page in a folder beside them."""
    return _PAGE.sub(r"[\1](../\1.md)", text)


def table(rows: list[Documented], *, head: str = "setting", prefix: str = "") -> str:
    """As Markdown."""
    lines = [f"| {head} | default | |", "|---|---|---|"]
    lines += [f"| `{prefix}{row.name}` | {row.default} | {row.text} |" for row in rows]
    return "\n".join(lines) + "\n"


def _row(name: str, default: Any, text: str) -> Documented:
    shown = _shown(default)
    if found := _UNSET.search(text):
        shown, text = found["what"], text[: found.start()]
    return Documented(name, linked(shown), linked(text[:1].upper() + text[1:]), default)


def _shown(default: Any) -> str:
    if default is msgspec.NODEFAULT:
        return "needed"
    if default is None or (isinstance(default, Collection) and not default):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    if isinstance(default, tuple | list):
        return ", ".join(f"`{one}`" for one in cast("Collection[Any]", default))
    return str(default) if isinstance(default, int | float) else f"`{default}`"


def _fields(cls: type) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cast(Any, cls)):
            made = field.default_factory
            missing = field.default is dataclasses.MISSING
            default = field.default if not missing else msgspec.NODEFAULT if made is dataclasses.MISSING else made()
            yield field.name, default
        return
    for field in msgspec.structs.fields(cast(Any, cls)):
        made = field.default_factory
        yield field.encode_name, made() if callable(made) else field.default


def described(cls: type) -> dict[str, str]:
    """What stands below `Attributes:`; several names of one entry are said the same of."""
    _, _, section = (inspect.getdoc(cls) or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        if entry := _ENTRY.match(line):
            names = [_spelled(cls, name) for name in entry[1].split(", ")]
            found |= dict.fromkeys(names, entry[2])
        else:
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    return found


def _spelled(cls: type, name: str) -> str:
    """As it is written in a file: an editor's options are in camelCase."""
    if not issubclass(cls, msgspec.Struct):
        return name
    return next((one.encode_name for one in msgspec.structs.fields(cls) if one.name == name), name)
