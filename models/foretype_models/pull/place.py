"""From a Hub id or a folder to an installed model: checks first, then one folder that appears whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretype_context.errors import UnknownLayoutError
from foretype_context.text.pasted import shell_line, toml_string

from foretype_models import artifacts
from foretype_models.errors import PullError
from foretype_models.pull import checkpoint, shapes, tokens, write

FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "README.md",
)


@dataclass(frozen=True)
class Pulled:
    """An installed model: its folder, how to serve it, and what was given up."""

    name: str
    folder: Path
    grammar: str
    parameters: int
    notes: tuple[str, ...]

    @property
    def serve(self) -> str:
        """The command that serves it."""
        return _serve(self.folder)


def installed(root: Path) -> list[Path]:
    """Folders of the pulled models, in name order."""
    return sorted(path.parent for path in root.glob("*/index.json")) if root.is_dir() else []


def fetch(model: str, revision: str | None) -> tuple[Path, str]:
    """A folder with the checkpoint's files, and its revision; a local folder is taken as it is.

    Raises:
        PullError: no such folder and no such model, or no network.
    """
    local = Path(model).expanduser()
    if local.is_dir():
        return local, revision or "local"
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        raise PullError(f"{model} is neither a folder nor a Hub id such as Qwen/Qwen2.5-Coder-0.5B")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise PullError("fetching from the Hub needs huggingface_hub; pip install huggingface_hub") from error
    try:
        found = Path(snapshot_download(model, revision=revision, allow_patterns=list(FILES)))
    except Exception as error:  # the library raises errors of three HTTP clients and its own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PullError(f"{model} could not be fetched ({reason}); name a folder that has it instead") from error
    return found, revision or found.name


def pull(
    model: str,
    root: Path,
    *,
    name: str | None = None,
    revision: str | None = None,
    layout: str | None = None,
    named: str | None = None,
) -> Pulled:
    """Prepares a model and installs it under ``root/NAME``; one of that name is replaced at the very end.

    Args:
        layout: that it is to be served in; its grammar's first where None.
        named: id of the grammar that it was trained with; told from the tokenizer where None.

    Raises:
        PullError: whatever is wrong, naming the file and the remedy; what was installed stays as it was.
    """
    root = root.absolute()  # a gateway takes what its profile names from where that lies, not from where it was written
    source, version = fetch(model, revision)
    name = name or re.sub(r"[^\w.-]+", "-", Path(model).name if source == Path(model).expanduser() else model).lower()
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise PullError(f"{name!r} is no name for a folder; give one with --name")
    if _is_somebodys(root / name):
        raise PullError(f"{root / name} is there, and is no model that was pulled; give another --name or --out")
    shape = shapes.read_shape(checkpoint.read_json(source / "config.json"), str(source / "config.json"))
    tokenizer, vocabulary = tokens.load(source, shape.vocabulary)
    grammar = tokens.find_grammar(tokenizer, model, named)
    try:
        layout = None if layout is None else grammar.known_layout(layout)
    except UnknownLayoutError as error:
        raise PullError(f"--layout: {error}") from error
    files = checkpoint.weight_files(source)
    tensors = {key: tensor for path in files for key, tensor in checkpoint.read_header(path).items()}
    write.check_tensors(tensors, shape, source)
    need = sum(write.q8_bytes(size) for size in map(shape.expected, shape.names()) if len(size) == 2)
    need += 2 * (source / "tokenizer.json").stat().st_size + 1_000_000
    part = root / f".{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(root).free) < need:
            raise PullError(
                f"{root} has {free / 1e6:.0f} MB free, {name} needs {need / 1e6:.0f} MB; make room or give --out"
            )
        part.mkdir()
        file = f"{name}-q8_0.gguf"
        parameters = write.write_gguf(part / file, name, shape, vocabulary, tensors)
        shutil.copyfile(source / "tokenizer.json", part / "tokenizer.json")
        entry = entry_of(
            part, name, file, grammar.id, parameters, version=version, licence=_licence(source), layout=layout
        )
        write_json(part / "index.json", {"default": name, "models": [entry]})
        origin = {
            "model": model,
            "revision": version,
            "sha256": {path.name: artifacts.digest_file(path) for path in files},
        }
        write_json(part / "origin.json", origin)
        (part / "profile.toml").write_text(_profile(root / name, file, name, grammar.id, shape.context, layout))
        swap(part, root / name)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "make room or give --out another disk" if full else "check the folder's permissions, or give --out"
        raise PullError(f"{root / name} could not be written ({error}); {remedy}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    notes = shape.notes
    if vocabulary.pieces:
        notes += ("its SentencePiece tokenizer is in tokenizer.json alone: the GGUF file is for the embedded engine",)
    return Pulled(name, root / name, grammar.id, parameters, notes)


def _is_somebodys(folder: Path) -> bool:
    """Whether there is something that was not made here, such as the checkpoint itself: that is never replaced."""
    if not folder.is_dir():
        return folder.exists()
    return any(folder.iterdir()) and not (folder / "origin.json").is_file()


def swap(part: Path, target: Path) -> None:
    """Gives a whole folder its name; what had it leaves at the very end, and comes back where that fails."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        os.replace(target, old)
    try:
        os.replace(part, target)
    except OSError:
        if old.exists():
            os.replace(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def entry_of(
    folder: Path,
    name: str,
    file: str,
    grammar: str,
    parameters: int,
    *,
    version: str,
    licence: str,
    trained_tokens: int = 0,
    layout: str | None = None,
) -> dict[str, Any]:
    """What the index of a folder says of its model."""
    tokenizer = folder / "tokenizer.json"
    return {
        "name": name,
        "file": file,
        "sha256": artifacts.digest_file(folder / file),
        "bytes": (folder / file).stat().st_size,
        "grammar": grammar,
        "tokenizer": {
            "file": tokenizer.name,
            "sha256": artifacts.digest_file(tokenizer),
            "bytes": tokenizer.stat().st_size,
        },
        "parameters": parameters,
        "trained_tokens": trained_tokens,
        "version": version,
        "licence": licence,
        **({} if layout is None else {"profile": {"layout": layout}}),
    }


def _licence(source: Path) -> str:
    """What the model's own card says; ``unknown`` where it says nothing."""
    card = source / "README.md"
    text = card.read_text("utf-8", "replace") if card.is_file() else ""
    found = re.search(r"\A---\n.*?^license:\s*([^\n]+)$.*?^---$", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else "unknown"


def _serve(folder: Path) -> str:
    return shell_line("foretype", "serve", "--profile", folder / "profile.toml")


def _profile(folder: Path, file: str, name: str, grammar: str, context: int, layout: str | None) -> str:
    quoted = {key: toml_string(folder / value) for key, value in (("model", file), ("tokenizer", "tokenizer.json"))}
    return (
        f"# Written by `foretype models pull`. Serve with: {_serve(folder)}\n"
        f'[engine]\nname = "embedded"\nmodel = {quoted["model"]}\n\n'
        f"[model]\nname = {toml_string(name)}\ntokenizer = {quoted['tokenizer']}\ngrammar = {toml_string(grammar)}\n"
        f"context_limit_tokens = {context}\n" + ("" if layout is None else f"layout = {toml_string(layout)}\n")
    )


def write_json(path: Path, data: dict[str, Any]) -> None:
    """A JSON file as people read it."""
    path.write_text(json.dumps(data, indent=1) + "\n")
