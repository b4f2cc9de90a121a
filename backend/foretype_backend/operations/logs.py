"""The gateway's log: standard error, and never source text, at any level (:mod:`foretype_wire.redaction` says how)."""

from __future__ import annotations

import logging
import sys

from foretype_context.text.plain import PlainFormatter


def configure(level: str = "info") -> None:
    """Log to stderr. Libraries that print frames or requests at `DEBUG` are held at `INFO`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("foretype", "foretype_backend"):
        logging.getLogger(name).setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi", "websockets", "asyncio", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
