"""Puts an adapter among the shipped files: ``python -m foretype_lab.adapter.ship FILE``. The model made of it is the default from then on.

A gateway finds in the entry what was measured of the weights, as of a model that ships whole.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_context.errors import UnknownGrammarError, UnknownLayoutError
from foretype_context.grammars.grammar import grammar
from foretype_context.terminal import say
from foretype_models.artifacts import FOLDER, digest_file
from foretype_models.errors import ArtifactError, FetchError
from foretype_models.fetch.base import read_base
from foretype_models.fetch.merge import read_adapter

from foretype_lab.errors import LabError

_LICENCE = "Apache-2.0"


def ship(adapter_path: Path, folder: Path, profile: dict[str, Any] | None = None) -> Path:
    """Copies the adapter to `NAME.adapter.gguf` and writes the index, where its model becomes the default; whole or not at all.

    Args:
        profile: what was measured of it (`min_mean_logprob`, `local_min_confidence`); that of the adapter before, where
            None, does not hold for other weights. The layout is the adapter's own.

    Raises:
        LabError: it is no adapter for the base that `index.json` names.
    """
    try:
        adapter, base = read_adapter(adapter_path), read_base(folder)
        layout = grammar(adapter.grammar).known_layout(adapter.layout)
    except (FetchError, ArtifactError, UnknownGrammarError, UnknownLayoutError) as error:
        raise LabError(f"{error}; nothing was changed") from error
    if adapter.base_sha256 != base.sha256:
        raise LabError(f"{adapter_path} was made for another base than {base.name}; nothing was changed")
    target = folder / f"{adapter.name}.adapter.gguf"
    staged = target.with_name(target.name + ".new")
    index = json.loads((folder / "index.json").read_text("utf-8"))
    try:
        shutil.copyfile(adapter_path, staged)
        entry = {
            "name": adapter.name,
            "role": "target",
            "adapter": {"file": target.name, "sha256": digest_file(staged), "bytes": staged.stat().st_size},
            "grammar": adapter.grammar,
            "parameters": base.parameters,
            "trained_tokens": adapter.trained_tokens,
            "version": adapter.version,
            "licence": _LICENCE,
            "profile": {"layout": layout, **(profile or {})},
        }
        models = [entry, *(item for item in index["models"] if item["name"] != adapter.name)]
        part = folder / "index.json.part"
        part.write_text(json.dumps({**index, "default": adapter.name, "models": models}, indent=1) + "\n")
        os.replace(staged, target)
        os.replace(part, folder / "index.json")
    finally:
        staged.unlink(missing_ok=True)
    return target


def main(
    adapter: Annotated[Path, typer.Argument(help="as training wrote it")],
    profile: Annotated[str, typer.Option(help="what was measured of it, as JSON")] = "{}",
) -> None:
    """Puts an adapter among the shipped files."""
    try:
        say(ship(adapter, FOLDER, json.loads(profile)))
    except LabError as error:
        say(str(error), err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
