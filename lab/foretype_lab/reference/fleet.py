"""The file that `foretype fleet` reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from foretype_backend.fleet.ray.fleet_file import Cluster, DirectoryOptions, Fleet, Pool, Revision
from foretype_backend.fleet.rollout.machine import RolloutOptions

from foretype_lab.reference.settings import tables_page

TABLES: Final[Iterable[tuple[str, str, type]]] = (
    ("`[fleet]`", "fleet.", Fleet),
    ("`[cluster]`", "cluster.", Cluster),
    ("`[directory]`", "directory.", DirectoryOptions),
    ("`[[pool]]`", "pool.", Pool),
    ("`[pool.revisions.NAME]`", "", Revision),
    ("`[pool.rollout]`", "", RolloutOptions),
)
"""Title of each table, what stands before its names, its class."""


def fleet_page() -> str:
    """As Markdown, table by table."""
    return tables_page(
        "# The fleet's file\n",
        (
            "What `foretype fleet --config FILE` reads, as TOML; [deploying](../deploy.md#a-fleet-on-ray) says what to do with it. Paths"
            " in it are relative to it. An unknown key is refused by name.\n"
        ),
        TABLES,
        head="key",
    )
