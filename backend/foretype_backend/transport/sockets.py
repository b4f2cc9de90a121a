"""The sockets that a gateway listens on. Apart from the server, which takes long to import, so that an engine need not wait for it."""

from __future__ import annotations

import socket
from typing import NamedTuple

from foretype_backend.config.config import Config
from foretype_backend.errors import ConfigError

Address = tuple[str, int]


class Inherited(NamedTuple):
    """What a worker got from its parent: its sockets, by descriptor, and its place among the workers. Nobody else has any."""

    listen_fd: int | None = None
    metrics_fd: int | None = None
    place: str | None = None


def bind(config: Config) -> socket.socket:
    """Bind the configured address. Raises ConfigError with the remedy."""
    remedy = "choose another with --port, or 0 for a free one"
    return _bound(config.gateway.host, config.gateway.port, "gateway.port", remedy)


def bind_metrics(config: Config) -> socket.socket | None:
    """Bind the port that metrics have of their own; None where they have none. Raises ConfigError with the remedy."""
    port = config.metrics.port
    remedy = "choose another, or leave it out: /metrics is served with the other doors too"
    return None if port is None else _bound(config.metrics.host, port, "metrics.port", remedy)


def _bound(host: str, port: int, field: str, remedy: str) -> socket.socket:
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio switches Nagle's algorithm off only for sockets that say IPPROTO_TCP, and an
    # accepted socket inherits it: without it every second small frame waits 40 ms for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(field, f"cannot bind {host}:{port} ({error}); {remedy}") from error
    return listener


def inherited_socket(descriptor: int) -> socket.socket:
    """The sockets that a worker got from its parent."""
    return socket.socket(fileno=descriptor)


def address_of(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return str(host), int(port)
