"""Settings of a gateway, of its engines and of a pool's scaling; options of the language server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, get_type_hints

import msgspec
from foretype_backend.config.config import ConfigFile
from foretype_backend.engines.embedded.config import EmbeddedConfig
from foretype_backend.engines.openai.events import OpenAIConfig
from foretype_backend.engines.vllm.options import Speculation, VllmOptions
from foretype_backend.fleet.ray.fleet_file import Cluster, DirectoryOptions, Fleet, Pool, Revision
from foretype_backend.fleet.rollout.machine import RolloutOptions
from foretype_backend.fleet.scaling.options import Hours, ScalingOptions
from foretype_client.policy.switches import Switches
from foretype_context.prompt.profile import Budgets
from foretype_lsp.options import IndexOptions, NextEditOptions, Options

from foretype_lab.reference.documented import Documented, documented, summary, table

_OWN: Final = ("foretype_backend.config", Budgets.__module__)
"""A struct of these modules is a table of its own."""

_ENGINES: Final = (
    ("`engine.options` of `embedded`", "", EmbeddedConfig),
    ("`engine.options` of `openai` and other servers", "", OpenAIConfig),
    ("`engine.options` of `vllm`", "", VllmOptions),
    ("`engine.options.speculation` of `vllm`", "", Speculation),
)
_NAMED_BY_ENGINE: Final = ("model", "url", "api_key", "user")
"""What `[engine]` itself says; the last two come from the address and from a file."""
OPTIONS: Final[Iterable[tuple[str, str, type]]] = (
    ("Options", "", Options),
    ("`index`", "index.", IndexOptions),
    ("`nextEdit`", "nextEdit.", NextEditOptions),
    ("`policies`", "policies.", Switches),
)
"""Of the language server: title of each table, what stands before its names, its class."""
FLEET: Final[Iterable[tuple[str, str, type]]] = (
    ("`[fleet]`", "fleet.", Fleet),
    ("`[cluster]`", "cluster.", Cluster),
    ("`[directory]`", "directory.", DirectoryOptions),
    ("`[[pool]]`", "pool.", Pool),
    ("`[pool.revisions.NAME]`", "", Revision),
    ("`[pool.rollout]`", "", RolloutOptions),
)
"""Of a fleet's file: title of each table, what stands before its names, its class."""
_SCALING: Final = (("Scaling of a pool", "", ScalingOptions), ("An entry of `schedule`", "", Hours))


def settings_page() -> str:
    """The configuration file, table by table."""
    parts = [
        "# Settings\n",
        (
            "Of the TOML file that `foretype serve --profile FILE` reads, table by table; [operations](../operations.md) says what to"
            " do with them. Flags win over the file, the file over the defaults. An unknown name is refused.\n"
        ),
    ]
    return "\n".join([*parts, *(section(title, prefix, cls) for title, prefix, cls in settings_tables())])


def settings_tables() -> Iterator[tuple[str, str, type]]:
    """Of each table of the file its title, what stands before its names, and its class."""
    shown: set[type] = set()
    for at, cls in _walk("", ConfigFile):
        if at and cls not in shown:  # a pool's discovery is the same for each
            shown.add(cls)
            yield f"`[{at}]`", f"{at}.", cls
    yield from (*_ENGINES, *_SCALING)


def options_page() -> str:
    """What an editor may set."""
    return tables_page(
        "# Options of the language server\n",
        (
            "Editors send them as `initializationOptions`, and again in `workspace/didChangeConfiguration`. One that is not understood"
            " is logged, named in `foretype/status`, and falls back to its default. [Editors](../editors.md) says where each editor"
            " has them.\n"
        ),
        OPTIONS,
        head="option",
    )


def fleet_page() -> str:
    """As Markdown, table by table."""
    return tables_page(
        "# The fleet's file\n",
        (
            "What `foretype fleet --config FILE` reads, as TOML; [deploying](../deploy.md#a-fleet-on-ray) says what to do with it. Paths"
            " in it are relative to it. An unknown key is refused by name.\n"
        ),
        FLEET,
        head="key",
    )


def tables_page(heading: str, introduction: str, tables: Iterable[tuple[str, str, type]], *, head: str) -> str:
    """A page of one table a class: its title, what stands before each name, the class."""
    return "\n".join(
        (heading, introduction, *(section(title, prefix, cls, head=head) for title, prefix, cls in tables))
    )


def _walk(at: str, cls: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """A table, and those in it."""
    yield at, cls
    hints = get_type_hints(cls)
    for field in msgspec.structs.fields(cls):
        for kind in (hints[field.name], *getattr(hints[field.name], "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__.startswith(_OWN):
                yield from _walk(f"{at}.{field.name}".lstrip("."), kind)


def section(title: str, prefix: str, cls: type, *, head: str = "setting") -> str:
    """A heading, what the class says of itself, and its fields as a table."""
    rows = rows_of(cls)
    return f"## {title}\n\n{summary(cls)}\n\n{table(rows, head=head, prefix=prefix)}" if rows else ""


def rows_of(cls: type) -> list[Documented]:
    """The fields that are written in a table of that class; other tables in it are not among them. Raises LabError."""
    skip = _NAMED_BY_ENGINE if cls in {engine for _, _, engine in _ENGINES} else ()
    return [row for row in documented(cls) if row.name not in skip and not _is_table(row)]


def _is_table(row: Documented) -> bool:
    return isinstance(row.value, msgspec.Struct) or row.text == "See below."
