"""Measures one row of :mod:`foretype_lab.quality.progress`, by the code of the commands that measure what ships."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from foretype_eval.fim.run import FimOptions, run_fim
from foretype_eval.gateway import GatewayOptions
from foretype_models import artifacts

from foretype_lab.model_files.export import GRAMMAR, export_shipped, read_checkpoint
from foretype_lab.prefill.command import PrefillOptions, run_prefill
from foretype_lab.quality import evaluate
from foretype_lab.quality.progress import Measured
from foretype_lab.training.data import Store

__all__ = ["Asked", "measure"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, on what; see ``foretype models progress``."""

    store: Path
    layout: str
    per_kind: int = 300
    fim: Path | None = None
    fim_limit: int | None = None
    recording: Path | None = None
    repository: Path | None = None


class _Weights(NamedTuple):
    artifact: artifacts.Artifact
    run_tokens: int | None
    rate_share: float | None


def measure(checkpoint: Path | None, asked: Asked, *, trained_before: int = 0) -> Measured:
    """Measures a checkpoint, or the file that ships.

    Raises:
        ExportError: the checkpoint cannot be read, or the grammar has no such layout.
        ArtifactError, BenchmarkDataError, RecordingError, RepositoryError, OSError: what is measured on cannot be read.
        GatewayGoneError, SandboxError: the benchmark cannot run here.
    """
    with _weights(checkpoint, trained_before, asked.layout) as weights:
        model = weights.artifact
        fim, prefill = _fim(model.path, asked), _prefill(model.grammar, asked)
        fill = evaluate.fill(
            model.path, model.tokenizer_path, Store(asked.store / "validation"), asked.per_kind, asked.layout
        )
        return Measured(
            sha256=model.sha256,
            tokens=model.trained_tokens,
            run_tokens=weights.run_tokens,
            rate_share=weights.rate_share,
            layout=asked.layout,
            fill=fill,
            fim=fim,
            prefill=prefill,
        )


@contextmanager
def _weights(checkpoint: Path | None, trained_before: int, layout: str) -> Iterator[_Weights]:
    if checkpoint is None:
        yield _Weights(artifacts.locate(), None, None)
        return
    state = read_checkpoint(checkpoint)
    with tempfile.TemporaryDirectory(prefix="foretype-progress-") as scratch:
        folder = Path(scratch)
        shutil.copyfile(artifacts.FOLDER / "tokenizer.json", folder / "tokenizer.json")
        export_shipped(checkpoint, folder, "checkpoint", GRAMMAR, trained_before=trained_before, layout=layout)
        yield _Weights(artifacts.locate(folder=folder), int(state.progress["tokens"]), state.rate_share)


def _fim(model: Path, asked: Asked) -> dict[str, object] | None:
    if asked.fim is None:
        return None
    options = FimOptions(
        data=asked.fim, limit=asked.fim_limit, layout=asked.layout, gateway=GatewayOptions(model=model)
    )
    found = asyncio.run(run_fim(options))
    return {"n": found["n"], "pass_at_1": found["pass_at_1"], "ci": found["ci"]["pass_at_1"]}


def _prefill(grammar: str, asked: Asked) -> dict[str, float] | None:
    """As decision 5 counts: no request after a pure deletion on the session, 250 tokens below the cursor, blocks of 16."""
    sources = {"recording": asked.recording, "commits": asked.repository}
    found: dict[str, float] = {}
    for name, source in sources.items():
        if source is None:
            continue
        options = PrefillOptions(
            source=source,
            grammar=grammar,
            layouts=(asked.layout,),
            after_deletions=source.is_dir(),
        )
        found[name] = run_prefill(options)["layouts"][asked.layout]["ratio"]
    return found or None
