"""The two committed files of `make mutants`: which rooms are broken and who should notice, and what is known to stay unnoticed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

__all__ = ["HERE", "ROOT", "Chart", "Known", "Room", "read_chart", "read_survivors"]

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass(frozen=True)
class Room:
    name: str
    modules: dict[str, list[str]]
    """A module's path → the test modules that should notice when it breaks, run first."""

    wider: list[str]
    """Test modules that run where those noticed nothing."""


@dataclass(frozen=True)
class Chart:
    seed: int
    per_room: int
    rooms: list[Room]

    def missing(self, root: Path = ROOT) -> list[str]:
        """What the map names and the checkout lacks, as sentences that say where."""
        named = [
            (room.name, path)
            for room in self.rooms
            for path in [*room.modules, *chain(*room.modules.values()), *room.wider]
        ]
        return sorted(
            {f"[{room}] names {path}, which does not exist" for room, path in named if not (root / path).is_file()}
        )

    def unmapped(self) -> list[str]:
        """Modules that no test is named for, and rooms without a module."""
        bare = [
            f"[{room.name}] names no test for {path}"
            for room in self.rooms
            for path, tests in room.modules.items()
            if not tests
        ]
        return bare + [f"[{room.name}] has no module" for room in self.rooms if not room.modules]


@dataclass(frozen=True)
class Known:
    """A mutant that no test notices, and why that is right."""

    module: str
    definition: str
    was: str
    now: str
    reason: str

    @property
    def place(self) -> tuple[str, str, str, str]:
        return self.module, self.definition, self.was, self.now


def read_chart(path: Path = HERE / "map.toml") -> Chart:
    found: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    seed, per_room = found.pop("seed"), found.pop("per_room")
    rooms = [Room(name, dict(one["modules"]), list(one["wider"])) for name, one in found.items()]
    return Chart(seed, per_room, rooms)


def read_survivors(path: Path = HERE / "survivors.toml") -> list[Known]:
    return [Known(**one) for one in tomllib.loads(path.read_text("utf-8")).get("survivor", [])]
