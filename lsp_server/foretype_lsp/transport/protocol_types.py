"""Imports lsprotocol's types without writing the code of their 569 classes: attrs does that for each when it is first used.

An editor starts a language server with every window, and a session uses some forty of them: what this saves stands in
docs/decisions/0014-start.md. Where nobody calls :func:`import_types`, everything works as well and starts later.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any, Final

import attrs

_FIELDS: Final = "__attrs_attrs__"
_making: Final = threading.RLock()


def import_types() -> None:
    """Import `lsprotocol.types` in that way, unless it is imported already."""
    if "lsprotocol.types" in sys.modules:
        return
    define: Any = attrs.define
    attrs.define = _later  # every class of the module is decorated with it, and with nothing else
    try:
        import_module("lsprotocol.types")
    finally:
        attrs.define = define
    from lsprotocol import _hooks

    # Its converter would ask every class for its fields, to resolve names in them that `_make` resolves.
    _hooks._resolved_forward_references = True  # pyright: ignore[reportPrivateUsage]


class _Fields:
    """Stands where a class has its fields until somebody asks for them: that is how attrs, cattrs and pygls know a class."""

    def __get__(self, instance: object, owner: type) -> Any:
        _make(owner)
        return getattr(owner, _FIELDS)


def _later(cls: type) -> type:
    """In place of `attrs.define`, which would make another class of the name: here it is the same one from the beginning."""

    def first(self: Any, *arguments: Any, **named: Any) -> None:
        _make(cls)
        cls.__init__(self, *arguments, **named)

    cls.__init__ = first
    setattr(cls, _FIELDS, _Fields())
    return cls


def _make(cls: type) -> None:
    from lsprotocol import types

    with _making:
        if not isinstance(vars(cls)[_FIELDS], _Fields):
            return  # another thread was first
        delattr(cls, _FIELDS)
        delattr(cls, "__init__")  # what a class has itself attrs leaves alone
        attrs.define(cls, slots=False)
        attrs.resolve_types(cls, types.ALL_TYPES_MAP, {})
