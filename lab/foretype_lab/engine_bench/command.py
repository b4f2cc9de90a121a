"""The command `foretype bench engine`."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from foretype_context.terminal import console
from foretype_eval.console import fail, print_json
from foretype_models.artifacts import locate
from foretype_models.errors import ArtifactError
from rich.table import Table

from foretype_lab.engine_bench.first_layers import write_first_layers
from foretype_lab.engine_bench.options import BATCH_MAX, METHODS, PARTS, EngineBenchOptions
from foretype_lab.errors import ExportError, VllmError
from foretype_lab.model_files.export import write_safetensors
from foretype_lab.model_files.gguf_file import read_config, read_grammar, read_weights
from foretype_lab.other_engines.vllm_engine import find_vllm
from foretype_lab.processes import environment

__all__ = ["engine_bench", "run_engine_bench"]


def run_engine_bench(options: EngineBenchOptions, model: Path | None, *, draft_layers: int = 0) -> dict[str, Any]:
    """Measure in vLLM's own environment.

    Args:
        model: a GGUF file, by default the shipped one, or a folder as vLLM loads it.
        draft_layers: of a GGUF file, make a draft out of so many of its first layers.

    Raises:
        VllmError: the environment is missing, or the run failed; its own words stand on standard error.
        ArtifactError, ExportError, OSError: the model cannot be prepared.
    """
    python = find_vllm()
    shipped = locate()
    with tempfile.TemporaryDirectory(prefix="foretype-engine-") as scratch:
        folder = model if model is not None and model.is_dir() else Path(scratch) / "model"
        path = shipped.path if model is None else model
        if folder != model:
            config = read_config(path)
            weights, grammar_id = read_weights(path, config), read_grammar(path)
            write_safetensors(weights, config, shipped.tokenizer_path, folder, grammar_id=grammar_id)
        draft = options.draft
        if draft_layers:
            write_first_layers(path, draft_layers, shipped.tokenizer_path, Path(scratch) / "draft")
            draft = str(Path(scratch) / "draft")
        options = msgspec.structs.replace(options, model=str(folder.resolve()), draft=draft)
        child = subprocess.run(
            [str(python), "-P", "-m", "foretype_lab.engine_bench.child"],
            input=msgspec.json.encode(options),
            stdout=subprocess.PIPE,
            check=False,
            env=environment(),
        )
    if child.returncode != 0:
        raise VllmError(f"the measurement ended with status {child.returncode}; see above")
    found: dict[str, Any] = msgspec.json.decode(child.stdout)
    guessed_by = f"its first {draft_layers} layers" if draft_layers else options.draft and Path(options.draft).name
    return {"model": path.name, "draft": guessed_by, "samples": options.samples, **found}


def engine_bench(
    engine: Annotated[str, typer.Option(help="vllm, in the environment of `make vllm-env`.")] = "vllm",
    model: Annotated[Path | None, typer.Option(help="GGUF file, or a folder as vLLM loads it.")] = None,
    draft: Annotated[
        Path | None, typer.Option(help="Folder of a draft model; its speculation is measured too.")
    ] = None,
    draft_layers: Annotated[
        int, typer.Option(min=0, help="Without a draft: take so many of the model's own first layers for one.")
    ] = 0,
    texts: Annotated[list[Path] | None, typer.Option(help="Folders with source files to continue; repeatable.")] = None,
    parts: Annotated[str, typer.Option(help=f"Of {', '.join(PARTS)}.")] = ",".join(PARTS),
    methods: Annotated[str, typer.Option(help=f"Of speculation, of {', '.join(METHODS)}.")] = ",".join(METHODS),
    batch: Annotated[
        str, typer.Option(help="Requests at once under which speculation is measured; several by commas.")
    ] = "1",
    edits: Annotated[
        bool, typer.Option("--edits", help="Speculation on questions about the next edit, whose answers are copies.")
    ] = False,
    guesses: Annotated[int, typer.Option(min=1, max=16, help="Tokens guessed per step.")] = 4,
    samples: Annotated[int, typer.Option(min=8, help="Of each row.")] = 60,
    seconds: Annotated[float, typer.Option(min=1, help="For each row at most; fewer samples then.")] = 40.0,
    seed: Annotated[int, typer.Option()] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """The in-process vLLM engine: what gateway and adapter add, cancels, tenants, speculation."""
    if engine != "vllm":
        fail(f"--engine: {engine!r} is unknown; vllm is the one that is measured here")
    options = EngineBenchOptions(
        model="",
        draft=None if draft is None else str(draft.resolve()),
        texts=tuple(str(one.resolve()) for one in texts or ()),
        parts=_names("--parts", parts, PARTS),
        methods=_names("--methods", methods, METHODS),
        samples=samples,
        seconds=seconds,
        seed=seed,
        batches=_sizes("--batch", batch),
        edits=edits,
        speculation_tokens=guesses,
    )
    try:
        result = run_engine_bench(options, model, draft_layers=draft_layers)
    except (VllmError, ArtifactError, ExportError, OSError) as error:
        fail(str(error))
    if as_json:
        print_json(result)
    else:
        _print(result)


def _names(option: str, given: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if unknown := [name for name in names if name not in known]:
        fail(f"{option}: {', '.join(unknown)} is none of {', '.join(known)}")
    return names


def _sizes(option: str, given: str) -> tuple[int, ...]:
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= BATCH_MAX for part in parts) or len({*parts}) < len(parts):
        fail(f"{option}: {given!r}; give numbers from 1 to {BATCH_MAX}, each once, as 1,4,8")
    return tuple(int(part) for part in parts)


def _print(result: dict[str, Any]) -> None:
    table = Table("ms", "n", "p50", "p95", "p99", title=f"{result.get('engine', 'vllm')}, {result['model']}")
    for label, values in _rows(result):
        table.add_row(
            label, *("–" if values[key] is None else f"{values[key]:.1f}" for key in ("n", "p50", "p95", "p99"))
        )
    screen = console()
    screen.print(table)
    for language, right in result.get("speculation", {}).get("right_answers", {}).items():
        screen.print(f"ngram, if the right answers were given, {language}: {right['tokens_per_step']} tokens a step")
    for method, found in result.get("speculation", {}).get("methods", {}).items():
        if "lacking" in found:
            screen.print(f"{method}: not measured, {found['lacking']}")
            continue
        for batch, run in found["batches"].items():
            share = run["accepted_share"]
            accepted = (
                ""
                if share is None
                else (
                    f", {share:.0%} of {run['guessed_tokens']:,} guesses accepted; it breaks even at {run['break_even_share']:.0%}"
                )
            )
            screen.print(
                f"{method}, {batch} at once: {run['tokens_per_s']} tokens/s, {run['times_off']} times off{accepted}"
            )
            for language, one in run["languages"].items():
                screen.print(
                    f"  {language}: {one['tokens_per_step']} tokens a step of {one['step_ms']} ms, "
                    f"{one['token_ms']} ms a token; equal {one['equal']}, ties {one['tie']}, "
                    f"different {one['different']}"
                )


def _rows(result: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    rows: list[tuple[str, dict[str, Any]]] = []
    for tokens, found in result.get("serving", {}).items():
        rows += [
            (f"{tokens} tokens: {name.removesuffix('_ms')}", one) for name, one in found.items() if name.endswith("_ms")
        ]
    rows += [(name, one) for name, one in result.get("cancel", {}).items() if name.endswith("_ms")]
    rows += [(f"tenants: {name}", one["ttft_ms"]) for name, one in result.get("isolation", {}).items()]
    return rows
