"""Locates and verifies the model files that ship with the package; the standard library is all it needs.

The files lie in the folder ``artifacts/`` beside this module, described by its ``index.json``. Every error's message names the file
and the remedy (:mod:`foretype_models.errors`).

A model whose entry has an `adapter` in place of a file is made on the user's machine, of that and a public base
(:mod:`foretype_models.fetch`), in a folder of its own under :func:`models_folder`, with an `index.json` of the same form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from foretype_models.errors import (
    ArtifactError,
    BrokenIndexError,
    MissingArtifactError,
    TamperedArtifactError,
    TruncatedArtifactError,
    UnknownArtifactError,
    UnmadeArtifactError,
)

FOLDER = Path(__file__).with_name("artifacts")

_REMEDY = "restore it with `git checkout -- models` in a clone, or reinstall foretype"


def models_folder() -> Path:
    """Where models lie that were made, downloaded or pulled for this user, one folder each."""
    import platformdirs

    return platformdirs.user_data_path("foretype") / "models"


def made_of(folder: Path) -> str | None:
    """SHA-256 of the adapter that the model in `folder` was made of; None where it was not made, or is none."""
    try:
        origin: object = json.loads((folder / "origin.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    found = cast("Mapping[str, Any]", origin).get("adapter_sha256") if isinstance(origin, dict) else None
    return found if isinstance(found, str) else None


def _remedy(folder: Path) -> str:
    if folder == FOLDER:
        return _REMEDY
    if made_of(folder) is not None:
        return "make it again with `foretype models fetch`"
    return f"restore it with `foretype models pull … --name {folder.name}`"


@dataclass(frozen=True, kw_only=True)
class _Shipped:
    name: str
    path: Path
    tokenizer_path: Path
    sha256: str
    tokenizer_sha256: str
    size_bytes: int
    tokenizer_bytes: int
    version: str
    licence: str


@dataclass(frozen=True, kw_only=True)
class Artifact(_Shipped):
    """A shipped model.

    Attributes:
        name: what ``locate`` takes.
        path: the GGUF file.
        tokenizer_path: its ``tokenizer.json``.
        sha256, tokenizer_sha256: of the two files, hex.
        size_bytes, tokenizer_bytes: of the two files.
        version: version of this model.
        licence: SPDX expression for the weights.
        grammar: id of the prompt grammar it was trained with, such as ``foretype-1``.
        parameters: number of weights, tied ones once.
        trained_tokens: tokens it has seen.
        profile: what was measured for these weights, by the names of the gateway's profile (`layout`, `min_mean_logprob`,
            `local_min_confidence`); empty where nothing was. It is checked where it is used.
        adapter: of a model that is made on the user's machine; `path` and what describes it are empty until then.
    """

    grammar: str
    parameters: int
    trained_tokens: int
    profile: Mapping[str, Any] = field(default_factory=dict[str, Any])
    adapter: Path | None = None

    @property
    def made(self) -> bool:
        """Whether its file is here, as far as can be told without reading it."""
        return bool(self.sha256)

    @property
    def shown(self) -> bool:
        """Whether an editor shows by itself what it says; a model that is right too seldom answers only somebody who asks."""
        least = cast("Mapping[str, float]", self.profile.get("min_mean_logprob") or {})
        return not least or min(least.values()) < 0


@dataclass(frozen=True, kw_only=True)
class EmbedderArtifact(_Shipped):
    """The shipped embedding table of the repository index; it reads the tokenizer of the models.

    Attributes:
        path: an ``.npz``; its format is retrieval's.
        dimensions: of a vector.
    """

    dimensions: int


# (path, size, mtime_ns) -> sha256, for this process. Hashing 11 MB takes some 10 ms once, so there is nothing to gain
# from a cache on disk, which somebody would then have to trust.
_digests: dict[tuple[str, int, int], str] = {}


def available(folder: Path = FOLDER) -> list[Artifact]:
    """Lists the shipped models, the default first, without touching their files.

    Raises:
        BrokenIndexError: the index cannot be read.
    """
    data = _index(folder)
    index = folder / "index.json"
    try:
        models = [_artifact(folder, cast("Mapping[str, Any]", item)) for item in data["models"]]
        default = str(data["default"])
        if not any(model.name == default for model in models):
            raise ValueError(f"no model has the default name {default!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenIndexError(
            f"{index} cannot be read ({type(error).__name__}: {error}); {_remedy(folder)}"
        ) from error
    return sorted(models, key=lambda model: model.name != default)


def _index(folder: Path) -> Mapping[str, Any]:
    index = folder / "index.json"
    try:
        data: object = json.loads(index.read_text("utf-8"))
        if not isinstance(data, dict):
            raise TypeError("no object")
        return cast("Mapping[str, Any]", data)
    except FileNotFoundError as error:
        raise BrokenIndexError(f"{index} is missing; {_remedy(folder)}") from error
    except (OSError, ValueError, TypeError) as error:
        raise BrokenIndexError(
            f"{index} cannot be read ({type(error).__name__}: {error}); {_remedy(folder)}"
        ) from error


def _inside(folder: Path, value: Any) -> Path:
    name = str(value)
    # The index names files beside it, never a way out of the folder.
    if Path(name).name != name or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is no plain file name")
    return folder / name


def _shipped(folder: Path, item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that everything shipped with a tokenizer has."""
    tokenizer = cast("Mapping[str, Any]", item["tokenizer"])
    return {
        "name": str(item["name"]),
        "path": _inside(folder, item["file"]),
        "tokenizer_path": _inside(folder, tokenizer["file"]),
        "sha256": str(item["sha256"]),
        "tokenizer_sha256": str(tokenizer["sha256"]),
        "size_bytes": int(item["bytes"]),
        "tokenizer_bytes": int(tokenizer["bytes"]),
        "version": str(item["version"]),
        "licence": str(item["licence"]),
    }


def _artifact(folder: Path, item: Mapping[str, Any]) -> Artifact:
    adapter = item.get("adapter")
    return Artifact(
        **(_shipped(folder, item) if adapter is None else _made(item)),
        grammar=str(item["grammar"]),
        parameters=int(item["parameters"]),
        trained_tokens=int(item["trained_tokens"]),
        profile=cast("Mapping[str, Any]", item.get("profile", {})),
        adapter=None if adapter is None else _inside(folder, cast("Mapping[str, Any]", adapter)["file"]),
    )


def _made(item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a model that is made of this entry's adapter, from where it is made."""
    name = str(item["name"])
    folder = _inside(models_folder(), name)
    if made_of(folder) == str(item["adapter"]["sha256"]):
        try:
            return _shipped(folder, _index(folder)["models"][0]) | {"name": name, "version": str(item["version"])}
        except (ArtifactError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            pass  # damaged: as if it were not there, so that it is made again
    file = folder / f"{name}-q8_0.gguf"
    return {
        "name": name,
        "path": file,
        "tokenizer_path": folder / "tokenizer.json",
        "sha256": "",
        "tokenizer_sha256": "",
        "size_bytes": 0,
        "tokenizer_bytes": 0,
        "version": str(item["version"]),
        "licence": str(item["licence"]),
    }


def locate(name: str | None = None, folder: Path = FOLDER) -> Artifact:
    """Finds a shipped model and verifies its files.

    A file is hashed once per process and again only when its size or modification time changes.

    Args:
        name: the model's name; the default one where None.
        folder: where the index lies.

    Raises:
        ArtifactError: one of its subclasses, see the module.
    """
    models = available(folder)
    if name is None:
        chosen = models[0]
    else:
        found = [model for model in models if model.name == name]
        if not found:
            names = ", ".join(model.name for model in models)
            raise UnknownArtifactError(f"no shipped model is called {name!r}; there are: {names}")
        chosen = found[0]
    if not chosen.made:
        raise UnmadeArtifactError(
            f"{chosen.name} is not made on this machine yet (it ships as an adapter of a public network): `foretype models fetch` "
            "makes it, once"
        )
    _check_files(chosen)
    return chosen


def locate_adapter(folder: Path = FOLDER) -> Path | None:
    """Finds the adapter that the default model is made of, and verifies it; None where that model ships whole.

    Raises:
        ArtifactError: one of its subclasses, see the module.
    """
    default = available(folder)[0]
    if default.adapter is None:
        return None
    entry = next(item for item in _index(folder)["models"] if item["name"] == default.name)
    return _locate_file("models.adapter", folder, entry["adapter"])


def locate_embedder(folder: Path = FOLDER) -> EmbedderArtifact:
    """Finds the shipped embedder and verifies it and its tokenizer; the models may be absent or damaged.

    Raises:
        ArtifactError: one of its subclasses, see the module.
    """
    item = _index(folder).get("embedder")
    if item is None:
        raise UnknownArtifactError("no embedder ships with this release")
    try:
        found = EmbedderArtifact(**_shipped(folder, item), dimensions=int(item["dimensions"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        index = folder / "index.json"
        raise BrokenIndexError(f"{index}: embedder ({type(error).__name__}: {error}); {_remedy(folder)}") from error
    _check_files(found)
    return found


def locate_table(folder: Path = FOLDER) -> Path:
    """Finds the corpus table of the client's adaptive model and verifies it.

    Raises:
        ArtifactError: one of its subclasses, see the module.
    """
    return _locate_file("table", folder, _index(folder).get("table"))


def _locate_file(what: str, folder: Path, item: Any) -> Path:
    if item is None:
        raise UnknownArtifactError(f"{folder / 'index.json'} names no {what}; {_remedy(folder)}")
    try:
        path, size, sha256 = _inside(folder, item["file"]), int(item["bytes"]), str(item["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenIndexError(f"{folder / 'index.json'}: {what}: {error}; {_remedy(folder)}") from error
    _check(path, size, sha256)
    return path


def verify(folder: Path = FOLDER) -> list[Artifact]:
    """Verifies every shipped model, the embedder and the corpus table by their content, whatever was verified before.

    Raises:
        ArtifactError: the first fault found.
    """
    models = available(folder)
    for key in [key for key in _digests if Path(key[0]).parent == folder]:
        del _digests[key]
    for model in models:
        if model.made:
            locate(model.name, folder)
    locate_adapter(folder)
    if _index(folder).get("embedder") is not None:
        locate_embedder(folder)
    if _index(folder).get("table") is not None:
        locate_table(folder)
    return models


def _check_files(shipped: _Shipped) -> None:
    _check(shipped.path, shipped.size_bytes, shipped.sha256)
    _check(shipped.tokenizer_path, shipped.tokenizer_bytes, shipped.tokenizer_sha256)


def _check(path: Path, size: int, sha256: str) -> None:
    try:
        status = path.stat()
        if status.st_size != size:
            raise TruncatedArtifactError(f"{path} has {status.st_size} bytes instead of {size}; {_remedy(path.parent)}")
        key = (str(path), status.st_size, status.st_mtime_ns)
        digest = _digests.get(key) or digest_file(path)
    except FileNotFoundError as error:
        raise MissingArtifactError(f"{path} is missing; {_remedy(path.parent)}") from error
    except OSError as error:
        raise ArtifactError(
            f"{path} cannot be read ({error}); check its permissions, or {_remedy(path.parent)}"
        ) from error
    if digest != sha256:
        raise TamperedArtifactError(f"{path} does not match its SHA-256 {sha256[:12]}…; {_remedy(path.parent)}")
    _digests[key] = digest


def digest_file(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
