"""What a start knows before anything is bound, opened or asked.

`foretype serve` begins with :func:`plan` and goes on with what it returns; `foretype config check` is :func:`plan` and throws it away. So
what one refuses the other refuses, in the same words, and a check that is added here is made by both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from foretype_backend.config.config import Config
from foretype_backend.config.load import read_token
from foretype_backend.config.secret_files import SALT_FIELD, check_secret_files, read_secret
from foretype_backend.config.state_files import epochs_path, identity_url, own_salt_path, telemetry_url, usage_path
from foretype_backend.config.tenants import check_tenants
from foretype_backend.errors import ConfigError
from foretype_backend.start.prepare import Parts, prepare
from foretype_backend.start.profile import check_profile
from foretype_backend.start.running_server import PATIENCE_S
from foretype_backend.transport.certificate import Certificate

if TYPE_CHECKING:  # it brings an HTTP client and the libraries of the chat door
    from foretype_backend.chat.edit_pool import EditParts
    from foretype_backend.chat.pool import QualityParts
    from foretype_backend.start.revisions import RevisionParts

_DATABASE: Final = re.compile(r"/?|/[0-9]{1,9}/?")
_OPTION: Final = re.compile(r"unexpected keyword argument '(\w+)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """What a gateway starts with. Nothing of it is started.

    Attributes:
        revisions: of `[pool.revisions]`, beside that of `parts`.
        quality, next_edit: of `[pool.quality]` and `[pool.next_edit]`; None where there is none.
    """

    certificate: Certificate | None
    parts: Parts
    revisions: Mapping[str, RevisionParts]
    quality: QualityParts | None
    next_edit: EditParts | None


def plan(config: Config, *, patience_s: float = PATIENCE_S) -> StartPlan:
    """Read every file that a configuration names, and make what needs no other process. Nothing is written.

    Of other processes only a server of the engines `ollama`, `llama-cpp` and `lm-studio` is asked: for its model and vocabulary.

    Args:
        patience_s: how long that may take.

    Raises:
        ConfigError: the first thing that keeps a gateway from starting: its field, and the remedy.
    """
    certificate = Certificate.of(config)
    check_tenants(config)
    _check_keys(config)
    check_secret_files(config)
    parts = prepare(config, patience_s=patience_s)
    check_profile(config, parts)
    revisions: Mapping[str, RevisionParts] = {}
    if config.pool.revisions:
        from foretype_backend.start.revisions import keep_revisions_apart, prepare_revisions

        revisions = prepare_revisions(config)
        keep_revisions_apart(parts.engine, revisions)
    quality = None
    if config.pool.quality is not None:
        from foretype_backend.chat.pool import quality_parts

        quality = quality_parts(config)
    next_edit = None
    if config.pool.next_edit is not None:
        from foretype_backend.chat.edit_pool import edit_parts

        next_edit = edit_parts(config.pool.next_edit)
    _check_stores(config)
    _check_redis(config)
    _check_state(config)
    _check_traces(config)
    return StartPlan(certificate=certificate, parts=parts, revisions=revisions, quality=quality, next_edit=next_edit)


def salted(config: Config) -> bool:
    """Whether requests carry salts: where tenants share caches, and where servers may be shared with other gateways."""
    return config.identity.on or config.engine.name == "vllm-server"


def _check_keys(config: Config) -> None:
    """Files with the keys of servers, whichever of them this engine asks."""
    keys = {"engine.api_key_file": config.engine.api_key_file, "pool.fast.api_key_file": config.pool.fast.api_key_file}
    discovery = config.pool.fast.discovery
    keys["pool.fast.discovery.token_file"] = None if discovery is None else discovery.token_file
    for field, name in keys.items():
        if name is not None:
            read_token(Path(name), field, min_chars=1)


def _check_stores(config: Config) -> None:
    """URLs of databases, and files of SQLite. Whether a URL's store can be reached is found out by opening it."""
    stores = {"identity.url": identity_url(config) if config.identity.on else None}
    stores["identity.read_url"] = config.identity.read_url if config.identity.on else None
    stores["telemetry.url"] = config.telemetry.url if config.telemetry.enabled else None
    named = {field: url for field, url in stores.items() if url is not None}
    if not named:
        return
    from foretype_backend.database import file_of, url_of
    from foretype_backend.errors import StoreError

    for field, given in named.items():
        try:
            file = file_of(url_of(given, field))
        except StoreError as error:
            raise ConfigError(field, str(error).removeprefix(f"{field}: ")) from error
        if file is not None:
            _check_file(field, file)


def _check_redis(config: Config) -> None:
    named = {"pool.fast.retire_url": config.pool.fast.retire_url}
    if config.identity.on:
        named["leases.redis_url"] = config.leases.redis_url
    for field, url in named.items():
        if url is None:
            continue
        try:
            check_redis_url(url)
        except ImportError as error:
            raise ConfigError(field, "needs `pip install 'foretype[tiers]'`") from error
        except ValueError as error:
            raise ConfigError(field, f"{error}; it looks like redis://host:6379/0") from error


def check_redis_url(url: str) -> None:
    """Nothing is connected. `redis` leaves out what it cannot read of one: a database that is no number becomes 0.

    Raises:
        ValueError: it is no URL of a Redis, its database is no number, or it has an option that does not exist. No password is told.
    """
    from redis.asyncio import ConnectionPool
    from redis.exceptions import RedisError

    parts = urlsplit(url)
    if parts.scheme != "unix" and _DATABASE.fullmatch(parts.path) is None:
        raise ValueError("a database of Redis is a number, and what stands behind the port is none")
    pool = ConnectionPool.from_url(url)  # pyright: ignore[reportUnknownMemberType]
    try:
        pool.make_connection()  # pyright: ignore[reportUnknownMemberType]
    except TypeError as error:  # else told by the first request
        name = _OPTION.search(str(error))
        raise ValueError(f"a Redis has no option {name[1] if name else 'of that name'!r}") from error
    except RedisError as error:
        raise ValueError(f"one of its options cannot be read: {error}") from error


def _check_state(config: Config) -> None:
    """What lies in the state directory, or is made there."""
    if config.telemetry.enabled and config.telemetry.url is None:
        events = Path(telemetry_url(config))
        remedy = "name a directory that it can with --state-dir, or start with --no-telemetry"
        if not os.path.exists(events):
            _check_makeable("state_dir", events, remedy)
        elif not os.access(events, os.R_OK | os.W_OK) or not os.access(events.parent, os.W_OK | os.X_OK):
            raise ConfigError("state_dir", f"{events} cannot be written by this user; {remedy}")
    if not salted(config):
        return
    from foretype_backend.errors import EpochFileError
    from foretype_backend.prefix.epochs import read_epochs

    try:
        read_epochs(epochs_path(config))
    except EpochFileError as error:
        raise ConfigError("state_dir", str(error)) from error
    own = own_salt_path(config)
    if config.identity.salt_file is None:
        if os.path.exists(own):
            read_secret(SALT_FIELD, own, own)
        else:
            _check_makeable(SALT_FIELD, own, "name a file that holds the secret")
    if config.identity.on:
        _check_makeable("state_dir", usage_path(config) / "rows", "name a directory where usage can wait for its store")


def _check_traces(config: Config) -> None:
    if config.tracing.endpoint is None:
        return
    from foretype_wire.errors import TracingError
    from foretype_wire.tracing.opening import check_tracing

    try:
        check_tracing(os.environ, config.tracing.endpoint)
    except TracingError as error:
        raise ConfigError(error.field, error.message) from error


def _check_file(field: str, file: Path) -> None:
    """A SQLite file that is there, or will be made."""
    if os.path.isdir(file):
        raise ConfigError(field, f"{file} is a folder; name a file in it")
    if not os.path.exists(file):
        _check_makeable(field, file, "name a place that this user can write to")
    elif not os.access(file, os.R_OK | os.W_OK):
        raise ConfigError(field, f"{file} cannot be read and written by this user; correct its owner or mode")


def _check_makeable(field: str, file: Path, remedy: str) -> None:
    """A file that will be made, with its folders."""
    folder = next(parent for parent in file.absolute().parents if os.path.exists(parent))
    if not os.path.isdir(folder):
        raise ConfigError(field, f"{file} cannot be made: {folder} is no folder; {remedy}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(field, f"{file} cannot be made: this user cannot write to {folder}; {remedy}")
