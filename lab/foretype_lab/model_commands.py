"""What the laboratory adds to ``foretype models``: export, parity, calibration, evaluation, the card.

Heavy imports (torch, gguf, OpenVINO) stand inside the commands, so that ``foretype models --help`` stays quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_context.terminal import say, say_json
from foretype_models import artifacts
from foretype_models.cli import fail, served_layout
from foretype_models.errors import ArtifactError

app = typer.Typer(help="Model files: export, parity, calibrate, evaluate, card.", no_args_is_help=True)

_LAB = Path(__file__).parents[1]
_MODELS = _LAB.parent / "models"
_Checkpoint = Annotated[Path, typer.Argument(help="checkpoint of a training run (last.pt)")]
_Store = Annotated[Path, typer.Option(help="folder with the text stores train/ and validation/")]
_Layout = Annotated[str | None, typer.Option(help="prompt layout; default is the one that the model is served in")]


@app.command()
def export(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="checkpoint (last.pt); for safetensors a GGUF file does as well, by default the shipped one"
        ),
    ] = None,
    to: Annotated[str, typer.Option(help="gguf: into the shipped files; safetensors: a Hugging Face folder")] = "gguf",
    out: Annotated[
        Path | None, typer.Option(help="target folder; gguf: the package's artifacts folder, a draft: lab/artifacts")
    ] = None,
    name: Annotated[str, typer.Option(help="model name")] = "foretype-py-10m",
    version: Annotated[str, typer.Option(help="model version")] = "0.1.0",
    role: Annotated[str, typer.Option(help="target, or draft: what speculates for it")] = "target",
    trained_before: Annotated[int, typer.Option(min=0, help="tokens of the runs that this one continued")] = 0,
    layout: Annotated[
        str | None, typer.Option(help="layout to serve it in; default is the shipped file's own, else its grammar's")
    ] = None,
) -> None:
    """Exports a checkpoint to GGUF Q8_0 (what ships), or a checkpoint or our GGUF file to safetensors (what vLLM loads)."""
    from foretype_lab.model_files import export as exporting
    from foretype_lab.model_files import gguf_file

    if role not in ("target", "draft"):
        raise fail(f"--role {role} is unknown; there are target and draft")
    if source is None and to == "gguf":
        raise fail("--to gguf needs a checkpoint; name its file")
    try:
        source = source or artifacts.locate().path
        if to == "gguf":
            folder = out or (artifacts.FOLDER if role == "target" else _LAB / "artifacts")
            say(exporting.export_shipped(source, folder, name, version, role, trained_before, layout))
        elif to == "safetensors":
            if out is None:
                raise fail("--to safetensors needs --out FOLDER")
            if source.suffix == ".gguf":
                config, trained_in = gguf_file.read_config(source), gguf_file.read_grammar(source)
                weights = gguf_file.read_weights(source, config)
            else:
                state = exporting.read_checkpoint(source)
                config, weights, trained_in = state.config, state.weights, exporting.GRAMMAR
            shipped = {model.path.resolve(): model for model in artifacts.available()}
            if layout is None and (own := shipped.get(source.resolve())) is not None:
                layout = own.profile.get("layout")
            exporting.write_safetensors(
                weights, config, artifacts.FOLDER / "tokenizer.json", out, layout, grammar_id=trained_in
            )
            say(out)
        else:
            raise fail(f"--to {to} is unknown; there are gguf and safetensors")
    except (exporting.ExportError, ArtifactError, OSError) as error:
        raise fail(f"{error}; the files that were there are unchanged") from error


@app.command()
def calibrate(
    store: _Store,
    per_kind: int = 200,
    local_min_confidence: Annotated[float, typer.Option(help="from when on the client does not ask this model")] = 0.15,
    layout: _Layout = None,
    apply: Annotated[bool, typer.Option(help="write the index entry; else say what would be chosen")] = True,
    results: Path = _MODELS / "results",
) -> None:
    """Chooses from which confidence on suggestions are shown; writes ``thresholds.json`` and the model's index entry.

    The entry gets the layout, too: a threshold holds in one.
    """
    from foretype_lab.quality import evaluate, thresholds
    from foretype_lab.training import data

    model = artifacts.locate()
    layout = served_layout(model, layout)
    held_out = data.Store(store / "validation")
    scored = thresholds.measure(model.path, model.tokenizer_path, held_out, per_kind, layout)
    if not apply:
        say_json(thresholds.found(scored, layout))
        return
    chosen = thresholds.write(artifacts.FOLDER, scored, local_min_confidence, layout)
    evaluate.write(results / "thresholds.json", {"sha256": model.sha256, **chosen})
    say_json(chosen)


@app.command()
def parity(
    store: _Store,
    checkpoint: Annotated[
        Path | None, typer.Argument(help="what the shipped file was made of: tells what Q8_0 changed, for the card")
    ] = None,
    engine: Annotated[str, typer.Option(help="which engine reads the file: openvino, llamacpp, vllm")] = "openvino",
    model: Annotated[Path | None, typer.Option(help="GGUF file; default is the shipped model")] = None,
    prompts: Annotated[int, typer.Option(min=1)] = 50,
    results: Path = _MODELS / "results",
) -> None:
    """Compares a model file in an engine with transformers in fp32; writes ``parity_ENGINE.json``.

    Exit status 1 where first choices agree at less than 98 % of positions, or log-probabilities differ by more than 0.05
    on average. With a checkpoint, which OpenVINO alone takes, it writes the card's ``parity.json``.
    """
    from foretype_lab.errors import LlamaServerError, VllmError
    from foretype_lab.model_files import export
    from foretype_lab.quality import engine_parity, evaluate
    from foretype_lab.quality import parity as comparing
    from foretype_lab.training import data, tokenizer

    if engine not in [one.value for one in engine_parity.Engine]:
        raise fail(f"--engine {engine} is unknown; there are {', '.join(engine_parity.Engine)}")
    shipped = artifacts.locate()
    path = model or shipped.path
    encoding = tokenizer.to_tiktoken(shipped.tokenizer_path)
    sampler = data.Sampler(data.Store(store / "validation"), encoding, data.Shape(512), 5)
    rows = [[int(token) for token in sampler.row(number)[: 100 + 8 * (number % 50)]] for number in range(prompts)]
    if checkpoint is not None:
        if engine != "openvino" or model is not None:
            raise fail("a CHECKPOINT goes with --engine openvino and the shipped model")
        state = export.read_checkpoint(checkpoint)
        result = comparing.compare(shipped.path, state.config, state.weights, rows)
        evaluate.write(results / "parity.json", {"sha256": shipped.sha256, **result})
        say_json(result)
        return
    try:
        with engine_parity.opened(engine_parity.Engine(engine), path, shipped.tokenizer_path) as (score, version):
            result = engine_parity.compare(score, path, rows)
    except (export.ExportError, LlamaServerError, VllmError) as error:
        raise fail(str(error)) from error
    passed = engine_parity.verdict(result)
    written = {"engine": version, "model": path.name, "sha256": artifacts.digest_file(path), "passed": passed, **result}
    evaluate.write(results / f"parity_{engine}.json", written)
    say_json(written)
    if not passed:
        raise typer.Exit(1)


@app.command()
def positions(checkpoint: _Checkpoint, store: _Store, results: Path = _MODELS / "results") -> None:
    """Measures the loss by position before the long rows of training; writes ``positions_before.json``."""
    from foretype_lab.model_files.export import read_checkpoint
    from foretype_lab.quality import evaluate
    from foretype_lab.training import data

    held_out = data.Store(store / "validation")
    result = evaluate.plain_loss(read_checkpoint(checkpoint), artifacts.FOLDER / "tokenizer.json", held_out)
    evaluate.write(results / "positions_before.json", result)
    say_json(result)


def _layout_of(previous: Path, named: str | None) -> str:
    from foretype_context.errors import UnknownLayoutError
    from foretype_context.grammars.grammar import grammar

    from foretype_lab.model_files import gguf_file

    family = grammar(gguf_file.read_grammar(previous))
    try:
        return family.layout() if named is None else family.known_layout(named)
    except UnknownLayoutError as error:
        raise fail(f"--previous-layout: {error}") from error


@app.command()
def evaluate(
    store: _Store,
    checkpoint: Annotated[
        Path | None, typer.Argument(help="what the shipped file was made of (last.pt): its loss, for the card")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="log.jsonl of the run; goes with CHECKPOINT")] = None,
    machine: Annotated[str | None, typer.Option(help="what it was trained on; goes with CHECKPOINT")] = None,
    per_kind: int = 300,
    layout: _Layout = None,
    beside: Annotated[
        list[str] | None, typer.Option(help="another layout on the same cases, a row of its own; may be repeated")
    ] = None,
    previous: Annotated[Path | None, typer.Option(help="GGUF of the model before, for a row of its own")] = None,
    previous_layout: Annotated[
        str | None, typer.Option(help="the layout that it was served in; default is its grammar's first")
    ] = None,
    results: Path = _MODELS / "results",
) -> None:
    """Measures the shipped file on held-out projects; writes ``evaluation.json``.

    With a checkpoint it writes ``training.json`` and the curve, too.
    """
    from foretype_lab.model_files.export import read_checkpoint
    from foretype_lab.quality import evaluate as evaluating
    from foretype_lab.training import curve, data

    model = artifacts.locate()
    layout, others = served_layout(model, layout), [served_layout(model, other) for other in beside or []]
    before = None if previous is None else _layout_of(previous, previous_layout)
    if (checkpoint is None) != (log is None) or (checkpoint is None) != (machine is None):
        raise fail("CHECKPOINT, --log and --machine go together: they are one training run")
    held_out = data.Store(store / "validation")

    def fill(path: Path, served: str) -> dict[str, Any]:
        return evaluating.fill(path, model.tokenizer_path, held_out, per_kind, served)

    measured: dict[str, Any] = {"sha256": model.sha256, "fill": fill(model.path, layout)}
    measured["beside"] = [fill(model.path, other) for other in others]
    if previous is not None and before is not None:
        measured["previous"] = {
            "file": previous.name,
            "sha256": artifacts.digest_file(previous),
            "fill": fill(previous, before),
        }
    evaluating.write(results / "evaluation.json", measured)
    say_json(measured["fill"]["rows"])
    if checkpoint is None or log is None:
        return
    state = read_checkpoint(checkpoint)
    loss = evaluating.held_out_loss(state, model.tokenizer_path, held_out)
    training = {"machine": machine, "config": state.config, "train": state.train, "held_out": loss}
    evaluating.write(results / "training.json", training)
    curve.write_curve(log, results)
    say_json(loss)


@app.command()
def progress(
    store: _Store,
    checkpoint: Annotated[
        Path | None, typer.Argument(help="of the training that goes on; the shipped file if not given")
    ] = None,
    trained_before: Annotated[int, typer.Option(min=0, help="tokens of the runs that this one continued")] = 0,
    layout: Annotated[str, typer.Option(help="prompt layout")] = "psm_growing",
    per_kind: int = 300,
    fim: Annotated[Path | None, typer.Option(help="HumanEval-SingleLineInfilling.jsonl.gz; else without that")] = None,
    fim_limit: Annotated[int | None, typer.Option(min=1, help="so many of its items, spread evenly")] = None,
    recording: Annotated[Path | None, typer.Option(help="session for `bench prefill`; else without that")] = None,
    repository: Annotated[
        Path | None, typer.Option(help="its ten newest commits are typed for `bench prefill`")
    ] = None,
    results: Path = _MODELS / "results",
) -> None:
    """Measures a checkpoint as the shipped file is measured: a row of ``progress.json``, quality over tokens on the card.

    Nothing that ships is touched: a checkpoint is exported into a folder that goes.
    """
    from foretype_context.errors import ForetypeError

    from foretype_lab.quality import measure_progress
    from foretype_lab.quality import progress as keeping

    asked = measure_progress.Asked(
        store=store,
        layout=layout,
        per_kind=per_kind,
        fim=fim,
        fim_limit=fim_limit,
        recording=recording,
        repository=repository,
    )
    try:
        keeping.read(results / "progress.json")  # before the hour that the rest takes
        row = measure_progress.measure(checkpoint, asked, trained_before=trained_before)
        keeping.add(results / "progress.json", row)
    except (ForetypeError, OSError) as error:
        raise fail(str(error)) from error
    say_json(row)


@app.command()
def layouts(
    store: _Store,
    cuts: Annotated[int, typer.Option(help="next-line cuts, spread over the held-out projects")] = 5000,
    checkpoint: Annotated[Path | None, typer.Option(help="the same model in fp32, beside Q8_0")] = None,
    progress: Annotated[Path, typer.Option(help="JSONL that a second call goes on with")] = Path("layouts.jsonl"),
    minutes: Annotated[float, typer.Option(help="end this call after so long; call again to go on")] = 1e9,
    layout: _Layout = None,
    results: Path = _MODELS / "results",
) -> None:
    """Measures layouts, other-file context and Q8_0 on the same held-out cuts; writes ``layouts.json`` at the end."""
    import time

    model = artifacts.locate()
    layout = served_layout(model, layout)
    from foretype_lab.quality import evaluate
    from foretype_lab.quality import layouts as measuring
    from foretype_lab.training import data, distill, tokenizer

    device = distill.best_device()
    models = {"q8_0": distill.open_model(model.path, device)}
    if checkpoint is not None:
        models["fp32"] = distill.open_model(checkpoint, device)
    encode = tokenizer.to_tiktoken(model.tokenizer_path).encode_ordinary
    ends = time.monotonic() + 60 * minutes
    held_out = data.Store(store / "validation")
    for done in measuring.run(models, held_out, encode, cuts, progress, measuring.variants(layout)):
        if time.monotonic() > ends and done < cuts:
            say(f"{done} of {cuts} cuts; call again to go on")
            return
    try:
        found = measuring.summarise(measuring.read(progress), list(models), layout)
    except ValueError as error:
        raise fail(str(error)) from error
    evaluate.write(results / "layouts.json", {"sha256": model.sha256, **found})
    say_json(found)


@app.command()
def accept(
    draft: Annotated[Path, typer.Argument(help="GGUF of the draft")],
    store: _Store,
    target: Annotated[Path | None, typer.Option(help="GGUF of the target; the shipped model if not given")] = None,
    prompts: int = 40,
    k: Annotated[int, typer.Option(help="guesses per step")] = 4,
    results: Path = _MODELS / "results",
) -> None:
    """Measures what a draft is worth: tokens per target step and decode speed on the embedded engine; ``draft.json``."""
    from foretype_lab.quality import draft_worth, evaluate
    from foretype_lab.quality import held_out_cuts as drawing
    from foretype_lab.training import data, tokenizer

    model = artifacts.locate()
    encode = tokenizer.to_tiktoken(model.tokenizer_path).encode_ordinary
    layout = served_layout(model)
    cases = drawing.draw_cases(data.Store(store / "validation"), prompts // 2 + prompts % 2, seed=53)
    ids = [drawing.prompt(case, layout, encode, draft_worth.PROMPT_TOKENS) for case in cases[:prompts]]
    found = draft_worth.measure(target or model.path, draft, ids, k)
    names = {"target": (target or model.path).name, "draft": draft.name}
    hashes = {"sha256": artifacts.digest_file(target or model.path), "draft_sha256": artifacts.digest_file(draft)}
    evaluate.write(results / "draft.json", {**names, **hashes, "layout": layout, **found})
    say_json(found)


@app.command()
def card() -> None:
    """Writes ``models/MODEL_CARD.md`` from the result files."""
    from foretype_lab.quality import card as making

    try:
        say(making.write_card(_MODELS, _LAB / "corpus" / "manifest.json"))
    except (making.CardError, ArtifactError) as error:
        raise fail(str(error)) from error
