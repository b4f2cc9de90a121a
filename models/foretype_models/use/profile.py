"""The profile of the private gateway: the file that makes a choice last."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from foretype_client.private_gateway.finding import PROFILE_NAME, chosen_profile

from foretype_models.errors import UseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the private gateway is to serve.

    Attributes:
        asked: what the user said: `foretype use ASKED` chooses it again.
        engine, model, options: of `[engine]`; all empty for the shipped model.
        rules: of `[model]`.
        licence: SPDX expression, or a word about it.
    """

    asked: str
    name: str
    engine: str = "embedded"
    model: str = ""
    options: Mapping[str, Any] | None = None
    rules: Mapping[str, Any] | None = None
    licence: str = "not known"

    @property
    def shipped(self) -> bool:
        return not self.model


def render(choice: Choice) -> str:
    """The profile as TOML."""
    parts = [
        "# Written by `foretype use`; it overwrites this file. Undo: foretype use shipped",
        f"# asked: {json.dumps(choice.asked)}",
        f"# licence: {json.dumps(choice.licence)}",
        "",
    ]
    for table, values in {
        "engine": {"name": choice.engine, "model": choice.model},
        "engine.options": choice.options or {},
        "model": {"name": choice.name, **(choice.rules or {})},
    }.items():
        if values:
            parts += [f"[{table}]", *(f"{key} = {_value(value)}" for key, value in values.items()), ""]
    return "\n".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return "{ " + ", ".join(f"{key} = {_value(one)}" for key, one in table.items()) + " }"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


def keep(choice: Choice, state_dir: Path) -> None:
    """Make the choice the private gateway's: whole or not at all. Raises UseError."""
    path = state_dir / PROFILE_NAME
    try:
        if choice.shipped:
            path.unlink(missing_ok=True)
            return
        write(path, render(choice))
    except OSError as error:
        raise UseError(
            f"{path} cannot be written ({error.strerror or error}); the former model stays: give --state-dir, or correct the "
            "folder's owner or mode"
        ) from error


def write(path: Path, text: str) -> None:
    """Write beside and rename, so that a reader sees a whole file. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def chosen(state_dir: Path) -> str:
    """What was asked for when the present choice was made; `shipped` where there is none."""
    path = chosen_profile(state_dir)
    if path is None:
        return "shipped"
    try:
        text = path.read_text("utf-8")
        line = next((line for line in text.splitlines() if line.startswith("# asked: ")), "")
        return str(json.loads(line.removeprefix("# asked: "))) if line else str(tomllib.loads(text)["model"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"what {path} says"
