"""Where a gateway keeps what its configuration does not place: files under one state directory."""

from __future__ import annotations

from pathlib import Path

from foretype_backend.config.config import Config


def state_dir(config: Config) -> Path:
    """The directory of all that follows; the user's own where none is configured."""
    import platformdirs

    return config.state_dir or platformdirs.user_state_path("foretype")


def identity_url(config: Config) -> str:
    """Where tenants, keys and usage are: a URL, or the path of a SQLite file."""
    return config.identity.url or str(state_dir(config) / "identity" / "identity.db")


def telemetry_url(config: Config) -> str:
    """Where events are: a URL, or the path of a SQLite file."""
    return config.telemetry.url or str(state_dir(config) / "telemetry" / "events.db")


def usage_path(config: Config) -> Path:
    """What was used and is not in the identity store yet."""
    return state_dir(config) / "usage"


def own_salt_path(config: Config) -> Path:
    """The secret of cache salts that is made here where `identity.salt_file` names none."""
    return state_dir(config) / "identity" / "salt"


def audit_key_path(config: Config, url: str) -> Path:
    """The secret that the audit log of a store is sealed with, made here where `identity.salt_file` names none.

    Beside a SQLite file, so that a gateway and commands find the same one however they are told of the store.
    """
    from foretype_backend.database import file_of, url_of

    file = file_of(url_of(url, "identity.url"))
    return (state_dir(config) / "identity" if file is None else file.parent) / "audit-key"


def epochs_path(config: Config) -> Path:
    """The epochs of purged caches, on a gateway without an identity store."""
    return state_dir(config) / "prefix" / "epochs.json"
