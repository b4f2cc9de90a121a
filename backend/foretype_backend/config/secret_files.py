"""Secrets in files: 32 random bytes, made whole or not at all, for their user alone, and never replaced.

`identity.salt_file` holds what cache salts are made of, `telemetry.key_file` what opted-in texts are encrypted with; both are the
same on every gateway of a deployment. A file that is named must be there. Made silently, a mistyped path would give every tenant
another salt and texts that no other gateway can read, and two gateways two secrets.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO, Final

from foretype_context.text.pasted import shell_line

from foretype_backend.config.config import Config
from foretype_backend.errors import ConfigError

SECRET_BYTES: Final = 32
SALT_FIELD: Final = "identity.salt_file"
KEY_FIELD: Final = "telemetry.key_file"


def open_private(path: Path) -> BinaryIO:
    """A file to be written anew that its user alone may read, also where it was there for others. Raises OSError."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a pipe is whose it is
            path.chmod(0o600)
    except OSError:
        file.close()
        raise
    return file


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


def read_secret(field: str, named: str | Path | None, own: Path) -> bytes:
    """The secret that a field of the configuration names; where it names none, `own` of this machine, made on first use.

    Raises:
        ConfigError: a named file is missing, or either cannot be read or holds something else.
    """
    if named is not None:
        return _read(field, Path(named))
    try:
        make_secret(own)
    except FileExistsError:
        pass
    except OSError as error:
        raise _unreadable(field, own, error) from error
    return _read(field, own)


def check_secret_files(config: Config) -> None:
    """Refuse files that the configuration names and nothing could use. Raises ConfigError."""
    if config.identity.salt_file is not None:
        _read(SALT_FIELD, Path(config.identity.salt_file))
    if config.telemetry.enabled and config.telemetry.key_file is not None:
        _read(KEY_FIELD, Path(config.telemetry.key_file))


def _read(field: str, path: Path) -> bytes:
    remedy = f"make one with `{shell_line('foretype', 'config', 'new-secret', path)}` and copy it to every gateway"
    try:
        secret = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(field, f"there is no file {path}; {remedy}, or correct the path") from None
    except OSError as error:
        raise _unreadable(field, path, error) from error
    if len(secret) != SECRET_BYTES:
        raise ConfigError(field, f"{path} has {len(secret)} bytes, not {SECRET_BYTES}; {remedy}")
    return secret


def _unreadable(field: str, path: Path, error: OSError) -> ConfigError:
    return ConfigError(field, f"{path}: {error.strerror}; name a file that this user can read")
