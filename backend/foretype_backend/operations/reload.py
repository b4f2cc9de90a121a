"""Reload: another configuration for a gateway that runs, without dropping a connection.

What may change: `limits`, `admission`, `model` (budgets, stop rules, strategy, thresholds), `gateway.hosts`, `gateway.origins`,
`gateway.drain_s`, `gateway.max_connections`, and the content of the token, certificate and key files. Everything else is opened at the start; a change of it
is named and waits for a restart. A file that cannot be used changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from foretype_backend.config.config import Config
from foretype_backend.errors import ConfigError

_log = logging.getLogger("foretype.gateway")

_FIXED_SECTIONS = ("engine", "metrics", "telemetry", "identity", "leases", "pool", "residency", "tracing")
_FIXED_GATEWAY = ("host", "port", "workers", "tls_cert_file", "tls_key_file", "region")


def fixed_changes(old: Config, new: Config) -> list[str]:
    """Fields that differ and need a restart."""
    changed = [name for name in _FIXED_SECTIONS if getattr(old, name) != getattr(new, name)]
    changed += [f"gateway.{n}" for n in _FIXED_GATEWAY if getattr(old.gateway, n) != getattr(new.gateway, n)]
    return changed


class Reloader:
    """Args: `read` gives the configuration as it is now; `use` puts one in place (raises ConfigError, changing nothing)."""

    def __init__(self, config: Config, read: Callable[[], Config], use: Callable[[Config], None]) -> None:
        self.config = config
        self._read = read
        self._use = use

    def reload(self) -> list[str]:
        """Put the file as it is now in place; returns what needs a restart. Raises ConfigError, with nothing changed."""
        new = self._read()
        waiting = fixed_changes(self.config, new)
        kept = {name: getattr(self.config, name) for name in _FIXED_SECTIONS}
        gateway = msgspec.structs.replace(
            new.gateway, **{name: getattr(self.config.gateway, name) for name in _FIXED_GATEWAY}
        )
        new = msgspec.structs.replace(new, gateway=gateway, **kept)
        self._use(new)
        self.config = new
        return waiting

    def on_signal(self) -> None:
        """SIGHUP: reload, and say in the log what became of it."""
        try:
            waiting = self.reload()
        except ConfigError as error:
            _log.error("not reloaded, the former configuration stays: %s", error)
            return
        _log.warning("reloaded%s", f"; waits for a restart: {', '.join(waiting)}" if waiting else "")
