"""The secret that cache salts are made of: 32 bytes in a file, the same on every gateway of a deployment.

A file that is named must be there. Made silently, a mistyped path would give every tenant another salt, and two gateways two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from foretype_backend.config import Config, ConfigError
from foretype_backend.secret_file import SECRET_BYTES, make_secret

__all__ = ["check_salt_file", "read_secret"]

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


def _read(path: Path) -> bytes:
    remedy = f"make one with `foretype config new-salt {path}` and copy it to every gateway"
    try:
        secret = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(_FIELD, f"there is no file {path}; {remedy}, or correct the path") from None
    except OSError as error:
        raise ConfigError(_FIELD, f"{path}: {error.strerror}; name a file that this user can read") from error
    if len(secret) != SECRET_BYTES:
        raise ConfigError(_FIELD, f"{path} has {len(secret)} bytes, not {SECRET_BYTES}; {remedy}")
    return secret
