"""Secrets in files: 32 random bytes, made whole or not at all, for their user alone, and never replaced."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

__all__ = ["SECRET_BYTES", "make_secret"]

SECRET_BYTES: Final = 32


def make_secret(path: Path) -> None:
    """Write a new secret with mode 0600. Raises FileExistsError where there is a file, by whomever it was just made; OSError."""
    if path.exists():
        raise FileExistsError(f"{path} exists")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink()
