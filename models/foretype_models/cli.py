"""``foretype models``: the shipped model files, and how they are made.

Heavy imports (torch, gguf, OpenVINO) stand inside the commands, so that ``foretype --help`` stays quick and the commands
that need nothing run where nothing is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_context.terminal import say, say_json

from foretype_models import artifacts

app = typer.Typer(help="Model files: list, verify, pull, export, card.", no_args_is_help=True)

_MODELS = Path(__file__).parent.parent
_Checkpoint = Annotated[Path, typer.Argument(help="checkpoint of a training run (last.pt)")]
_Store = Annotated[Path, typer.Option(help="folder with the text stores train/ and validation/")]


def _fail(message: str) -> typer.Exit:
    say(message, err=True)
    return typer.Exit(1)


_Layout = Annotated[str | None, typer.Option(help="prompt layout; default is the one that the model is served in")]


def _layout(model: artifacts.Artifact, named: str | None = None) -> str:
    """The layout that is named, else the one that a gateway announces for this model."""
    from foretype_context.grammars import UnknownGrammar, UnknownLayout, grammar

    try:
        family = grammar(model.grammar)
        return family.layout(own=model.profile.get("layout")) if named is None else family.known_layout(named)
    except (UnknownLayout, UnknownGrammar) as error:
        where = f"{model.path.with_name('index.json')}: {model.name}: profile.layout" if named is None else "--layout"
        raise _fail(f"{where}: {error}") from error


_Pulled = Annotated[
    Path | None, typer.Option("--out", help="folder of pulled models; the user's data folder if not given")
]


def _folders(pulled: Path | None) -> list[Path]:
    from foretype_models.pull import place

    return [artifacts.FOLDER, *place.installed(pulled or place.default_folder())]


@app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per line")] = False, pulled: _Pulled = None
) -> None:
    """Lists the shipped models, the default first, then those that were pulled."""
    try:
        models = [model for folder in _folders(pulled) for model in artifacts.available(folder)]
    except artifacts.ArtifactError as error:
        raise _fail(str(error)) from error
    for model in models:
        if as_json:
            data = {key: str(value) if isinstance(value, Path) else value for key, value in vars(model).items()}
            say_json(data)
        else:
            say(
                f"{model.name}  {model.version}  {model.parameters / 1e6:.1f} M parameters  "
                f"{model.size_bytes / 1e6:.1f} MB  {model.grammar}  {model.licence}  {model.path}"
            )


@app.command()
def verify(pulled: _Pulled = None) -> None:
    """Checks every shipped and pulled file by its SHA-256, and its entry's layout; exit status 1 names the first fault."""
    try:
        models = [model for folder in _folders(pulled) for model in artifacts.verify(folder)]
    except artifacts.ArtifactError as error:
        raise _fail(str(error)) from error
    for model in models:
        _layout(model)
        say(f"ok  {model.path.name}  {model.tokenizer_path.name}")


@app.command()
def pull(
    model: Annotated[str, typer.Argument(metavar="HF_ID", help="Hub id such as Qwen/Qwen2.5-Coder-0.5B, or a folder")],
    name: Annotated[str | None, typer.Option(help="what it is called here")] = None,
    revision: Annotated[str | None, typer.Option(help="branch, tag or commit on the Hub")] = None,
    layout: Annotated[str | None, typer.Option(help="layout to serve it in; default is its template's")] = None,
    out: _Pulled = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Prepares a Hugging Face code model for the embedded engine: GGUF Q8_0, its tokenizer, a profile."""
    from foretype_models.pull import place
    from foretype_models.pull.errors import PullError

    try:
        found = place.pull(model, out or place.default_folder(), name=name, revision=revision, layout=layout)
    except PullError as error:
        raise _fail(str(error)) from error
    except ImportError as error:
        raise _fail(f"{error}; pulling needs the package gguf: pip install gguf") from error
    if as_json:
        say_json({**vars(found), "folder": str(found.folder), "serve": found.serve})
        return
    say(f"{found.name}: {found.parameters / 1e6:.0f} M parameters, template {found.grammar}, in {found.folder}")
    for note in found.notes:
        say(f"note: {note}")
    say(found.serve)


@app.command()
def export(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="checkpoint (last.pt); for safetensors a GGUF file does as well, by default the shipped one"
        ),
    ] = None,
    to: Annotated[str, typer.Option(help="gguf: into the shipped files; safetensors: a Hugging Face folder")] = "gguf",
    out: Annotated[Path | None, typer.Option(help="target folder; gguf: the package's artifacts folder")] = None,
    name: Annotated[str, typer.Option(help="model name")] = "foretype-py-10m",
    version: Annotated[str, typer.Option(help="model version")] = "0.1.0",
    role: Annotated[str, typer.Option(help="target, or draft: what speculates for it and ships beside it")] = "target",
    trained_before: Annotated[int, typer.Option(min=0, help="tokens of the runs that this one continued")] = 0,
    layout: Annotated[
        str | None, typer.Option(help="layout to serve it in; default is the shipped file's own, else its grammar's")
    ] = None,
) -> None:
    """Exports a checkpoint to GGUF Q8_0 (what ships), or a checkpoint or our GGUF file to safetensors (what vLLM loads)."""
    from foretype_models import export as exporting
    from foretype_models import gguf_file

    if role not in ("target", "draft"):
        raise _fail(f"--role {role} is unknown; there are target and draft")
    if source is None and to == "gguf":
        raise _fail("--to gguf needs a checkpoint; name its file")
    try:
        source = source or artifacts.locate().path
        if to == "gguf":
            folder = out or artifacts.FOLDER
            say(exporting.export_shipped(source, folder, name, version, role, trained_before, layout))
        elif to == "safetensors":
            if out is None:
                raise _fail("--to safetensors needs --out FOLDER")
            if source.suffix == ".gguf":
                config = gguf_file.read_config(source)
                weights = gguf_file.read_weights(source, config)
            else:
                state = exporting.read_checkpoint(source)
                config, weights = state.config, state.weights
            shipped = {model.path.resolve(): model for model in artifacts.available()}
            if layout is None and (own := shipped.get(source.resolve())) is not None:
                layout = own.profile.get("layout")
            exporting.write_safetensors(weights, config, artifacts.FOLDER / "tokenizer.json", out, layout)
            say(out)
        else:
            raise _fail(f"--to {to} is unknown; there are gguf and safetensors")
    except (exporting.ExportError, artifacts.ArtifactError, OSError) as error:
        raise _fail(f"{error}; the files that were there are unchanged") from error


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
    from foretype_models import data, evaluate, thresholds

    model = artifacts.locate()
    layout = _layout(model, layout)
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
    from foretype_models import data, engine_parity, evaluate, export, tokenizer
    from foretype_models import parity as comparing
    from foretype_models.outside.llama_server import LlamaServerError
    from foretype_models.outside.vllm_engine import VllmError

    if engine not in [one.value for one in engine_parity.Engine]:
        raise _fail(f"--engine {engine} is unknown; there are {', '.join(engine_parity.Engine)}")
    shipped = artifacts.locate()
    path = model or shipped.path
    encoding = tokenizer.to_tiktoken(shipped.tokenizer_path)
    sampler = data.Sampler(data.Store(store / "validation"), encoding, data.Shape(512), 5)
    rows = [[int(token) for token in sampler.row(number)[: 100 + 8 * (number % 50)]] for number in range(prompts)]
    if checkpoint is not None:
        if engine != "openvino" or model is not None:
            raise _fail("a CHECKPOINT goes with --engine openvino and the shipped model")
        state = export.read_checkpoint(checkpoint)
        result = comparing.compare(shipped.path, state.config, state.weights, rows)
        evaluate.write(results / "parity.json", {"sha256": shipped.sha256, **result})
        say_json(result)
        return
    try:
        with engine_parity.opened(engine_parity.Engine(engine), path, shipped.tokenizer_path) as (score, version):
            result = engine_parity.compare(score, path, rows)
    except (export.ExportError, LlamaServerError, VllmError) as error:
        raise _fail(str(error)) from error
    passed = engine_parity.verdict(result)
    written = {"engine": version, "model": path.name, "sha256": artifacts.digest_file(path), "passed": passed, **result}
    evaluate.write(results / f"parity_{engine}.json", written)
    say_json(written)
    if not passed:
        raise typer.Exit(1)


@app.command()
def positions(checkpoint: _Checkpoint, store: _Store, results: Path = _MODELS / "results") -> None:
    """Measures the loss by position before the long rows of training; writes ``positions_before.json``."""
    from foretype_models import data, evaluate
    from foretype_models.export import read_checkpoint

    held_out = data.Store(store / "validation")
    result = evaluate.plain_loss(read_checkpoint(checkpoint), artifacts.FOLDER / "tokenizer.json", held_out)
    evaluate.write(results / "positions_before.json", result)
    say_json(result)


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
    results: Path = _MODELS / "results",
) -> None:
    """Measures the shipped file on held-out projects; writes ``evaluation.json``.

    With a checkpoint it writes ``training.json`` and the curve, too.
    """
    from foretype_context.grammars import grammar

    from foretype_models import curve, data, gguf_file
    from foretype_models import evaluate as evaluating
    from foretype_models.export import read_checkpoint

    model = artifacts.locate()
    layout, others = _layout(model, layout), [_layout(model, other) for other in beside or []]
    if (checkpoint is None) != (log is None) or (checkpoint is None) != (machine is None):
        raise _fail("CHECKPOINT, --log and --machine go together: they are one training run")
    held_out = data.Store(store / "validation")

    def fill(path: Path, served: str) -> dict[str, Any]:
        return evaluating.fill(path, model.tokenizer_path, held_out, per_kind, served)

    measured: dict[str, Any] = {"sha256": model.sha256, "fill": fill(model.path, layout)}
    measured["beside"] = [fill(model.path, other) for other in others]
    if previous is not None:
        served = grammar(gguf_file.read_grammar(previous)).layout()
        measured["previous"] = {
            "file": previous.name,
            "sha256": artifacts.digest_file(previous),
            "fill": fill(previous, served),
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
    layout = _layout(model, layout)
    from foretype_models import data, distill, evaluate, tokenizer
    from foretype_models import layouts as measuring

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
        raise _fail(str(error)) from error
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
    from foretype_models import cases as drawing
    from foretype_models import data, evaluate, speculation, tokenizer

    model = artifacts.locate()
    encode = tokenizer.to_tiktoken(model.tokenizer_path).encode_ordinary
    layout = _layout(model)
    cases = drawing.draw_cases(data.Store(store / "validation"), prompts // 2 + prompts % 2, seed=53)
    ids = [drawing.prompt(case, layout, encode, speculation.PROMPT_TOKENS) for case in cases[:prompts]]
    found = speculation.measure(target or model.path, draft, ids, k)
    names = {"target": (target or model.path).name, "draft": draft.name}
    hashes = {"sha256": artifacts.digest_file(target or model.path), "draft_sha256": artifacts.digest_file(draft)}
    evaluate.write(results / "draft.json", {**names, **hashes, "layout": layout, **found})
    say_json(found)


@app.command()
def card() -> None:
    """Writes ``models/MODEL_CARD.md`` from the result files."""
    from foretype_models import card as making

    try:
        say(making.write_card(_MODELS))
    except (making.CardError, artifacts.ArtifactError) as error:
        raise _fail(str(error)) from error


if __name__ == "__main__":
    app()
