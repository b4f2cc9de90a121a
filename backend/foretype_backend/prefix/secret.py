"""The secret that cache salts are made of: 32 bytes in a file, the same on every gateway of a deployment.

A file that is named must be there. Made silently, a mistyped path would give every tenant another salt, and two gateways two.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from foretype_backend.config import Config, ConfigError
from foretype_backend.prefix.salt import MIN_SECRET_BYTES

__all__ = ["check_salt_file", "make_secret", "read_secret"]

_FIELD: Final = "identity.salt_file"


def check_salt_file(config: Config) -> None:
    """Refuse a named file that cannot be used. Raises ConfigError."""
    if config.identity.salt_file is not None:
        _read(Path(config.identity.salt_file))


def read_secret(config: Config, state_dir: Path) -> bytes:
    """Of the named file; where none is named, of this machine's own, made on first use. Raises ConfigError."""
    if config.identity.salt_file is not None:
        return _read(Path(config.identity.salt_file))
    path = state_dir / "identity" / "salt"
    try:
        make_secret(path)
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigError(_FIELD, f"{path}: {error.strerror}; name a file that this user can read") from error
    return _read(path)


def make_secret(path: Path) -> None:
    """Write a new secret with mode 0600, whole or not at all. Raises FileExistsError: a secret is never replaced; OSError."""
    if path.exists():
        raise FileExistsError(f"{path} exists")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(MIN_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # never over one that another process has just made
    finally:
        temporary.unlink()


def _read(path: Path) -> bytes:
    remedy = f"make one with `foretype config new-salt {path}` and copy it to every gateway"
    try:
        secret = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(_FIELD, f"there is no file {path}; {remedy}, or correct the path") from None
    except OSError as error:
        raise ConfigError(_FIELD, f"{path}: {error.strerror}; name a file that this user can read") from error
    if len(secret) != MIN_SECRET_BYTES:
        raise ConfigError(_FIELD, f"{path} has {len(secret)} bytes, not {MIN_SECRET_BYTES}; {remedy}")
    return secret
