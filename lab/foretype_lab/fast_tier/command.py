"""`foretype bench engine`: the parts of :mod:`foretype_lab.fast_tier`, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from foretype_backend.errors import EngineUnavailableError
from foretype_context.errors import ForetypeError
from foretype_eval.console import fail, print_json
from foretype_models.artifacts import locate

from foretype_lab.fast_tier.asking import ClaimOptions

PARTS: Final = ("exact", "isolation", "cancel", "priority", "tiers", "authors")
_PYTHON: Final = Path(__file__).resolve().parents[3] / ".venv" / "bin" / "python"


def engine(
    model: Annotated[Path, typer.Argument(help="folder with config.json, safetensors and tokenizer.json", exists=True)],
    store: Annotated[
        Path, typer.Option(help="folder with a text store that the model was not trained on", exists=True)
    ],
    parts: Annotated[str, typer.Option(help=f"by comma, of {', '.join(PARTS)}")] = ",".join(PARTS[:-1]),
    gguf: Annotated[
        Path | None, typer.Option(help="what FOLDER was exported from; default is the shipped file")
    ] = None,
    samples: Annotated[int, typer.Option(help="of each figure; a part may take more", min=1)] = 40,
    batched_tokens: Annotated[str, typer.Option(help="of cancel: tokens in a step, by comma")] = "256,128,64",
    blocks: Annotated[str, typer.Option(help="of tiers and authors: tokens in a block, by comma")] = "32,128",
    repository: Annotated[
        list[Path] | None,
        typer.Option(help="of authors: whose commits eight authors type, or *.recording.w.json; repeat it"),
    ] = None,
    redis_url: Annotated[
        str, typer.Option(help="of tiers: a Redis that nobody else uses; without one it is left out")
    ] = "",
    python: Annotated[Path, typer.Option(help="of exact: interpreter with the embedded engine's libraries")] = _PYTHON,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
) -> None:
    """What the fast tier claims of vLLM, measured on this machine: equal texts, tenants apart, cancels, priorities, tiers of the cache."""
    wanted = parts.split(",")
    if unknown := set(wanted) - set(PARTS):
        fail(f"--parts: there is no part {min(unknown)}; there are {', '.join(PARTS)}")
    if "authors" in wanted and not any(map(Path.is_dir, repository or ())):
        fail("--repository: the part authors types a repository's commits; name one or more")
    options = ClaimOptions(
        model=model,
        gguf=gguf or locate().path,
        store=store,
        samples=samples,
        batched_tokens=tuple(map(int, batched_tokens.split(","))),
        blocks=tuple(map(int, blocks.split(","))),
        repositories=tuple(repository or ()),
        redis_url=redis_url,
        python=python,
    )
    found: dict[str, Any] = {}
    try:
        for part in wanted:
            measure: Callable[[ClaimOptions], Coroutine[Any, Any, dict[str, Any]]] = import_module(
                f"foretype_lab.fast_tier.{part}"
            ).measure
            found[part] = asyncio.run(measure(options))
            if not as_json:
                print_json({part: found[part]})
    except (EngineUnavailableError, ForetypeError, ValueError, OSError) as error:
        fail(str(error))
    if as_json:
        print_json(found)
