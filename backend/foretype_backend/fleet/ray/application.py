"""What the generated Serve config names: builders of the two kinds of applications. Ray imports them on a node of its own."""

from __future__ import annotations

from typing import Any, Final

from ray import serve as ray_serve

from foretype_backend.fleet.ray.directory import Directory
from foretype_backend.fleet.ray.replica import FleetReplica
from foretype_backend.fleet.ray.serve_config import DIRECTORY

serve: Final[Any] = ray_serve  # it tells half of its types


def directory(args: dict[str, Any]) -> Any:
    """The directory; `args` as :mod:`.serve_config` writes them."""
    return serve.deployment(Directory, name=DIRECTORY).bind(**args)


def pool(args: dict[str, Any]) -> Any:
    """A pool's replicas; `args` as :mod:`.serve_config` writes them."""
    name = args.pop("deployment")
    return serve.deployment(FleetReplica, name=name).bind(**args)
