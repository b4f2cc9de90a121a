"""What a configuration says of tenants who do not trust each other: every engine that more than one of them reaches takes salts.

Pure: what only the servers know is found out by :mod:`foretype_backend.engines.salting` when they are started.
"""

from __future__ import annotations

from typing import Final

from foretype_backend.config.config import Config
from foretype_backend.errors import ConfigError

_ONE_TENANT: Final = frozenset({"embedded"})


def check_tenants(config: Config) -> None:
    """Raises ConfigError where an engine cannot keep tenants apart, whatever is behind it."""
    if not config.identity.on:
        return
    if config.engine.name in _ONE_TENANT:
        raise cannot_keep_apart(config)
    if config.engine.options.get("shared") is False:
        raise ConfigError(
            "engine.options.shared", "identities are on, so that tenants do share the engine; leave it out"
        )


def cannot_keep_apart(config: Config) -> ConfigError:
    """To raise for an engine that has more than one tenant and takes no salts."""
    return ConfigError(
        "identity.enabled",
        f"engine `{config.engine.name}` cannot keep the caches of tenants apart; use one with cache salts (vLLM)",
    )


def server_field(config: Config) -> str:
    """The field that names the server of completions."""
    if config.engine.model is not None:
        return "engine.model"
    return "pool.fast.replicas" if config.pool.fast.discovery is None else "pool.fast.discovery"
