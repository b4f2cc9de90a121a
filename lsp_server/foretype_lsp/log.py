"""The log: a file or standard error, and never a word of the user's source.

pygls logs whole messages, and tracebacks of its parser hold what was parsed. Both are silenced; what the server logs itself
names methods, fields, types and places.
"""

from __future__ import annotations

import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from foretype_context.text.plain import PlainFormatter

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MAX_BYTES: Final = 2 << 20


def configure(file: Path | None, level: str) -> None:
    """Send the product's log to `file`, readable by its user alone, or to standard error. An unknown level is `warning`."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler()
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_APPEND, 0o600))
        handler = RotatingFileHandler(file, maxBytes=_MAX_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(PlainFormatter(_FORMAT))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    silent = logging.getLogger("pygls")
    silent.setLevel(logging.CRITICAL + 1)
    silent.propagate = False
    set_level(level)


def set_level(level: str) -> None:
    """Level of the product's own loggers; what others say is heard from `warning` on."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.WARNING)
    for name in ("foretype_lsp", "foretype_client", "foretype_context", "foretype_retrieval"):
        logging.getLogger(name).setLevel(number)
