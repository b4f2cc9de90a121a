"""Who is told which replicas run, as Ray Serve pushes it to request routers.

A module of its own, and named by routers as one: Serve copies a router's class by value, with what it names but modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foretype_wire.subscriptions import Subscribers

LISTENERS: Final = Subscribers[str, Mapping[str, Mapping[str, str]]]()
"""Told an application's name, and what its running replicas said of themselves, by their ids; on a thread of Serve's."""
