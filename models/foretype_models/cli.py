"""``foretype models``: the model files that ship or were pulled. In a checkout the laboratory adds how they are made.

Heavy imports (gguf) stand inside the commands, so that ``foretype --help`` stays quick and the commands that need nothing
run where nothing is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from foretype_context.terminal import say, say_json

from foretype_models import artifacts
from foretype_models.errors import ArtifactError
from foretype_models.fetch import commands
from foretype_models.fetch.commands import fail

app = typer.Typer(
    help="Model files and servers: list, verify, pull, identify. `foretype use` chooses one.",
    no_args_is_help=True,
    add_completion=False,
)


def _check_layout(model: artifacts.Artifact) -> None:
    """A gateway must be able to announce the layout of this model."""
    from foretype_context.errors import UnknownGrammarError, UnknownLayoutError
    from foretype_context.grammars.grammar import grammar

    try:
        grammar(model.grammar).layout(own=model.profile.get("layout"))
    except (UnknownLayoutError, UnknownGrammarError) as error:
        raise fail(f"{model.path.with_name('index.json')}: {model.name}: profile.layout: {error}") from error


_Pulled = Annotated[
    Path | None, typer.Option("--out", help="folder of pulled models; the user's data folder if not given")
]


def _folders(pulled: Path | None) -> list[Path]:
    from foretype_models.pull import place

    shipped = {model.name for model in artifacts.available()}
    return [
        artifacts.FOLDER,
        *(one for one in place.installed(pulled or artifacts.models_folder()) if one.name not in shipped),
    ]


@app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per line")] = False, pulled: _Pulled = None
) -> None:
    """Lists the shipped models, the default first, then those that were pulled."""
    try:
        models = [model for folder in _folders(pulled) for model in artifacts.available(folder)]
    except ArtifactError as error:
        raise fail(str(error)) from error
    for model in models:
        if as_json:
            data = {key: str(value) if isinstance(value, Path) else value for key, value in vars(model).items()}
            say_json(data)
        else:
            size = f"{model.size_bytes / 1e6:.1f} MB" if model.made else "not made here yet: foretype models fetch"
            say(
                f"{model.name}  {model.version}  {model.parameters / 1e6:.1f} M parameters  "
                f"{size}  {model.grammar}  {model.licence}\n    {model.path}"
            )


@app.command()
def verify(pulled: _Pulled = None) -> None:
    """Checks every shipped and pulled file by its SHA-256, and its entry's layout; exit status 1 names the first fault."""
    try:
        models = [model for folder in _folders(pulled) for model in artifacts.verify(folder)]
    except ArtifactError as error:
        raise fail(str(error)) from error
    for model in models:
        _check_layout(model)
        if model.made:
            say(f"ok  {model.path.name}  {model.tokenizer_path.name}")
        else:
            say(f"not made here yet  {model.path.name}  (foretype models fetch)")


@app.command()
def pull(
    model: Annotated[str, typer.Argument(metavar="HF_ID", help="Hub id such as Qwen/Qwen2.5-Coder-0.5B, or a folder")],
    name: Annotated[str | None, typer.Option(help="what it is called here")] = None,
    revision: Annotated[str | None, typer.Option(help="branch, tag or commit on the Hub")] = None,
    layout: Annotated[str | None, typer.Option(help="layout to serve it in; default is its template's")] = None,
    grammar: Annotated[str | None, typer.Option(help="its grammar, where the tokenizer leaves a choice")] = None,
    out: _Pulled = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Prepares a Hugging Face code model for the embedded engine: GGUF Q8_0, its tokenizer, a profile."""
    from foretype_models.errors import PullError
    from foretype_models.pull import place

    try:
        found = place.pull(
            model, out or artifacts.models_folder(), name=name, revision=revision, layout=layout, named=grammar
        )
    except PullError as error:
        raise fail(str(error)) from error
    except ImportError as error:
        raise fail(f"{error}; pulling needs the package gguf: pip install gguf") from error
    if as_json:
        say_json({**vars(found), "folder": str(found.folder), "serve": found.serve})
        return
    say(f"{found.name}: {found.parameters / 1e6:.0f} M parameters, template {found.grammar}, in {found.folder}")
    for note in found.notes:
        say(f"note: {note}")
    say(found.serve)


@app.command()
def identify(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="a .gguf file, a tokenizer.json, or a folder")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Says which family a model is of, in which grammar it is asked, and what it lacks. Reads headers and tokenizers alone."""
    from foretype_models.errors import IdentifyError
    from foretype_models.identify import identify as look_at

    try:
        found = look_at(path)
    except IdentifyError as error:
        raise fail(str(error)) from error
    if as_json:
        say_json({**msgspec.structs.asdict(found), "problem": found.problem(), "warning": found.warning()})
        return
    if found.family is None:
        say(f"{found.path}: no family")
    else:
        sure = "for certain" if found.certain else "by its control tokens alone"
        say(
            f"{found.path}: {found.family}, {sure}; grammar {found.grammar}, {'proven' if found.proven else 'unproven'}"
        )
        if found.missing:
            say(f"it lacks {', '.join(found.missing)}, and can do without")
    for remark in (found.problem(), found.warning()):
        if remark:
            say(remark)


@app.command("servers")
def list_servers(as_json: Annotated[bool, typer.Option("--json", help="one JSON array")] = False) -> None:
    """Lists the servers of models that run on this machine, on their usual ports, in a second; asks them for nothing but what they are."""
    from foretype_models.running_servers import PORTS, probe

    found = probe()
    if as_json:
        more = ("engine", "asked", "cached", "good")
        say_json([msgspec.to_builtins(one) | {name: getattr(one, name) for name in more} for one in found])
        return
    for one in found:
        facts = [
            f"asked by `--engine {one.engine}`: {one.asked}",
            f"{one.slots} slots" if one.slots else "",
            f"{one.context_tokens:,} tokens of context" if one.context_tokens else "",
            f"cached tokens: {one.cached}",
            "still loading" if one.loading else "",
        ]
        say(f"{one.kind}  {one.url}  {'; '.join(fact for fact in facts if fact)}")
        for model in one.models:
            kind = ("base, for code" if model.code else "base") if model.base else "trained to chat"
            facts = [
                f"{kind}, by its name",
                "loaded" if model.loaded else "",
                f"{model.context_tokens:,} tokens of context" if model.context_tokens else "",
                ""
                if model.inserts is None
                else "its template fills in"
                if model.inserts
                else "no template that fills in",
            ]
            say(f"  {model.name}  {', '.join(fact for fact in facts if fact)}")
    if not found:
        say(f"no server of models on ports {', '.join(map(str, sorted(PORTS)))}")


@app.command("families")
def list_families(as_json: Annotated[bool, typer.Option("--json", help="one JSON array")] = False) -> None:
    """Lists the families that can be asked to fill in, where their grammars come from, and which of them are proven.

    Proven: source files, cut into prompts, gave the same ids as the encoder of somebody else, with the family's own vocabulary.
    """
    from foretype_models.family_table import lines, rows

    if as_json:
        say_json(rows())
        return
    for line in lines():
        say(line)


app.command()(commands.fetch)
app.command()(commands.export)

if __name__ == "__main__":
    app()
