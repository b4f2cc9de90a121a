"""The socket that a gateway listens on. Apart from the server, which takes long to import, so that an engine need not wait for it."""

from __future__ import annotations

import socket

from foretype_backend.config import Config, ConfigError

__all__ = ["Address", "address_of", "bind", "inherited"]

Address = tuple[str, int]


def bind(config: Config) -> socket.socket:
    """Bind the configured address. Raises ConfigError with the remedy."""
    host, port = config.gateway.host.strip("[]"), config.gateway.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio switches Nagle's algorithm off only for sockets that say IPPROTO_TCP, and an
    # accepted socket inherits it: without it every second small frame waits 40 ms for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        remedy = "choose another with --port, or 0 for a free one"
        raise ConfigError("gateway.port", f"cannot bind {host}:{port} ({error}); {remedy}") from error
    return listener


def inherited(descriptor: int) -> socket.socket:
    """The socket that a worker got from its parent."""
    return socket.socket(fileno=descriptor)


def address_of(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return str(host), int(port)
