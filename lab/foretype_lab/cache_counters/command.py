"""The command `foretype bench counters`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from foretype_context.errors import ProfileError, TokenizerError, UnknownGrammarError
from foretype_context.prompt.profile import Profile
from foretype_context.terminal import console
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_eval.console import fail, print_json, progress_bars
from foretype_eval.errors import RecordingError, RepositoryError
from foretype_models.artifacts import digest_file, locate
from foretype_models.errors import ArtifactError
from rich.table import Table

from foretype_lab.cache_counters.compare import compare, prompts_of, summary
from foretype_lab.errors import ExportError, VllmError
from foretype_lab.model_files.export import write_safetensors
from foretype_lab.model_files.gguf_file import read_config, read_grammar, read_weights
from foretype_lab.other_engines.vllm_engine import VllmProcess
from foretype_lab.prefill.asking_moments import Moment, moments_of
from foretype_lab.prefill.typed_commits import recording_of

__all__ = ["LAYOUTS", "CountersOptions", "VllmCounts", "counters", "run_counters"]

LAYOUTS: Final = ("psm_growing", "psm_line_last")

Progress = Callable[[str, int, int], None]


class CountersOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to replay.

    Attributes:
        commits: of a repository: the newest N, or a range `A..B`.
        requests: of the session, one after the other.
        skip: requests at the start of the session that are left out.
        full: excerpts of other files as well.
    """

    source: Path
    commits: int | str = 10
    requests: int = 200
    skip: int = 0
    layouts: tuple[str, ...] = LAYOUTS
    grammar: str | None = None
    full: bool = False
    block_tokens: int = 32
    dtype: str = "bfloat16"
    model: Path | None = None


class VllmCounts:
    """vLLM's `num_cached_tokens`."""

    def __init__(self, engine: VllmProcess) -> None:
        self._engine = engine

    def cached_tokens(self, ids: Sequence[int]) -> int:
        return self._engine.complete(ids, max_tokens=1).cached_tokens

    def forget(self) -> None:
        self._engine.forget()


def run_counters(options: CountersOptions, *, progress: Progress = lambda _step, _done, _total: None) -> dict[str, Any]:
    """Replay on the real engine, and report per layout.

    Raises:
        VllmError: the engine is not there, or failed.
        RecordingError, RepositoryError, ExportError, ProfileError, OSError: with what is wrong.
    """
    shipped = locate()
    tokenizer = load_tokenizer(shipped.tokenizer_path)
    grammar = options.grammar or shipped.grammar
    recording = recording_of(options.source, options.commits, progress=progress)
    asked = moments_of(recording, snippets=options.full)
    moments: list[Moment] = list(islice(asked, options.skip, options.skip + options.requests))
    if not moments:
        raise RecordingError(f"{recording.name}: no request after the first {options.skip}; lower --skip")
    path = options.model or shipped.path
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="foretype-counters-") as folder:
        config = read_config(path)
        weights, grammar_id = read_weights(path, config), read_grammar(path)
        write_safetensors(weights, config, shipped.tokenizer_path, Path(folder) / "model", grammar_id=grammar_id)
        with VllmProcess(
            Path(folder) / "model",
            block_tokens=options.block_tokens,
            dtype=options.dtype,
            context_tokens=min(8192, int(config["max_position"])),
        ) as vllm:
            for layout in options.layouts:
                profile = Profile(model=path.stem, grammar=grammar, tokenizer_digest=tokenizer.digest, layout=layout)
                prompts = prompts_of(moments, tokenizer, profile)
                compared = compare(
                    prompts,
                    VllmCounts(vllm),
                    block_tokens=options.block_tokens,
                    progress=lambda done, layout=layout: progress(layout, done, len(moments)),
                )
                rows[layout] = summary(compared)
            version = vllm.version
    return {
        "recording": recording.name,
        "engine": f"vllm {version}",
        "model": path.name,
        "model_sha256": digest_file(path),
        "grammar": grammar,
        "dtype": options.dtype,
        "block_tokens": options.block_tokens,
        "setting": "full" if options.full else "file_only",
        "requests": len(moments),
        "skipped_requests": options.skip,
        "layouts": rows,
    }


def counters(
    source: Annotated[Path, typer.Argument(help="A recording (*.recording.w.json, JSON lines), or a git repository.")],
    engine: Annotated[str, typer.Option(help="vllm: the one of `make vllm-env`.")] = "vllm",
    commits: Annotated[str, typer.Option(help="Of a repository: number of newest commits, or a range A..B.")] = "10",
    requests: Annotated[int, typer.Option(min=1, help="How many requests of the session.")] = 200,
    skip: Annotated[int, typer.Option(min=0, help="Requests at the start that are left out.")] = 0,
    layout: Annotated[
        list[str] | None, typer.Option(help="May be repeated; default psm_growing, psm_line_last.")
    ] = None,
    grammar: Annotated[str | None, typer.Option(help="Of the prompts; default is the shipped model's.")] = None,
    full: Annotated[bool, typer.Option("--full", help="With excerpts of other files.")] = False,
    block: Annotated[int, typer.Option(min=1, help="Tokens in a block; vLLM's build for CPUs wants 32.")] = 32,
    dtype: Annotated[str, typer.Option(help="bfloat16 or float32.")] = "bfloat16",
    model: Annotated[Path | None, typer.Option(help="GGUF file; default is the shipped model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Cached prompt tokens as a real engine counts them, beside what `bench prefill` simulates."""
    if engine != "vllm":
        fail(f"--engine: {engine!r} is unknown; vllm is the one that counts")
    options = CountersOptions(
        source=source,
        commits=int(commits) if commits.isdigit() else commits,
        requests=requests,
        skip=skip,
        layouts=tuple(layout or LAYOUTS),
        grammar=grammar,
        full=full,
        block_tokens=block,
        dtype=dtype,
        model=model,
    )
    try:
        with progress_bars() as progress:
            result = run_counters(options, progress=progress)
    except (
        VllmError,
        RecordingError,
        RepositoryError,
        ArtifactError,
        ExportError,
        TokenizerError,
        ProfileError,
        UnknownGrammarError,
        OSError,
    ) as error:
        fail(str(error))
    if as_json:
        print_json(result)
        return
    title = (
        f"{result['recording']}: {result['engine']}, blocks of {result['block_tokens']}, {result['requests']} requests"
    )
    table = Table("layout", "prompt", "simulated", "counted", "equal", "largest difference", title=title)
    for name, row in result["layouts"].items():
        table.add_row(
            name,
            *(f"{row[key]:,}" for key in ("prompt_tokens", "cached_tokens_simulated", "cached_tokens_counted")),
            f"{row['agreement']:.1%}",
            str(row["largest_difference"]),
        )
    console().print(table)
