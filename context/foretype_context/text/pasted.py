"""What people paste: words as a shell reads them, and a text as the language of an editor's file reads it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path


def shell_line(*words: str | Path) -> str:
    """One command: each word reaches it as it is here, whatever it holds."""
    given = [str(word) for word in words]
    if sys.platform == "win32":  # whose file names hold no quotation mark
        return " ".join(f'"{word}"' if set(word) & set(" &()^;,'`") or not word else word for word in given)
    return shlex.join(given)


def lua_string(text: str | Path) -> str:
    """A literal of Lua 5.1's."""
    escaped = str(text).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def elisp_string(text: str | Path) -> str:
    """A literal of Emacs Lisp's."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def toml_string(text: str | Path) -> str:
    """A basic string of TOML's: JSON's, whose escapes it has, but DEL may not stand in it."""
    return json.dumps(str(text), ensure_ascii=False).replace("\x7f", "\\u007f")
