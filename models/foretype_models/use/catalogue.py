"""The catalogue of public models: data with sources, licences, sizes and digests, checked when it is read."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from foretype_context.folder.small_files import read_small
from msgspec import Meta

from foretype_models.errors import UseError

CATALOGUE: Final = Path(__file__).with_name("catalogue.toml")

_HUB: Final = "https://huggingface.co"
_LIMIT_BYTES: Final = 1 << 20
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
_File = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.gguf$")]
_Repository = Annotated[str, Meta(pattern=r"^[\w.-]+/[\w.-]+$")]
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
_Text = Annotated[str, Meta(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of weights.

    Attributes:
        name: what `foretype use` takes.
        licence: SPDX expression.
        commercial: whether the licence allows commercial use.
        base: it completes text; one that was trained to chat is not.
        serve: who opens the file.
        repository, revision, file: where it is on the Hub.
        url: where else it is, in place of those.
        bytes: its size; None where nobody has said it.
        sha256: of the file; None where it is not known, and then it is not downloaded by itself.
        sha256_from: who stated it.
        grammar: id of its prompt grammar.
        quality: a published figure and its source; empty where there is none.
    """

    name: _Name
    title: _Text
    parameters: Annotated[int, Meta(gt=0)]
    licence: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.+-]{2,60}$")]
    licence_url: Annotated[str, Meta(pattern=r"^https://\S+$")]
    commercial: bool
    base: bool
    serve: Literal["embedded", "llama-server"]
    repository: _Repository
    revision: Annotated[str, Meta(pattern=r"^[\w.-]{1,64}$")]
    file: _File
    sha256_from: _Text
    grammar: _Name
    quality: _Text
    bytes: Annotated[int, Meta(gt=0)] | None = None
    sha256: _Sha256 | None = None
    url: Annotated[str, Meta(pattern=r"^https?://\S+$")] | None = None

    @property
    def proposable(self) -> bool:
        """It may be proposed to somebody who named no model."""
        return self.commercial and self.base and self.serve == "embedded" and None not in (self.sha256, self.bytes)

    def source(self, environ: Mapping[str, str] = os.environ) -> str:
        """Address of the file; `HF_ENDPOINT` names a mirror of the Hub, as its own tools read it."""
        if self.url is not None:
            return self.url
        hub = environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB
        return f"{hub}/{self.repository}/resolve/{self.revision}/{self.file}"

    @property
    def page(self) -> str:
        """Where a person reads the file's digest as its publisher states it."""
        return f"{_HUB}/{self.repository}/blob/{self.revision}/{self.file}"


class Speed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"source": "from"}):
    """Speeds that were measured on one machine and published.

    Attributes:
        cores: that computed; 0 where cores say nothing.
        model_bytes: size of the file that was measured.
    """

    machine: Literal["cpu", "intel-gpu"]
    cores: Annotated[int, Meta(ge=0)]
    model_bytes: Annotated[int, Meta(gt=0)]
    parameters: Annotated[int, Meta(gt=0)]
    prefill_tokens_s: Annotated[float, Meta(gt=0)]
    decode_tokens_s: Annotated[float, Meta(gt=0)]
    source: _Text


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"models": "model"}):
    models: tuple[Entry, ...]
    speed: tuple[Speed, ...] = ()

    def get(self, name: str) -> Entry | None:
        """The entry of that name."""
        return next((entry for entry in self.models if entry.name == name), None)


def read_catalogue(path: Path = CATALOGUE) -> Catalogue:
    """Read and check a catalogue.

    Raises:
        UseError: it cannot be read, an entry is wrong, or two have one name or one file.
    """
    try:
        found = msgspec.convert(tomllib.loads(read_small(path, _LIMIT_BYTES, links=True).decode()), Catalogue)
    except OSError as error:
        raise UseError(f"{path}: the catalogue cannot be read ({error}); name another with --catalogue") from error
    except (msgspec.ValidationError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        where = re.sub(r"`?\$\.?", "", str(error)).rstrip("`")
        raise UseError(f"{path}: the catalogue is wrong: {where}; correct it there") from error
    for field in ("name", "file"):
        seen: set[str] = set()
        for entry in found.models:
            if (value := str(getattr(entry, field))) in seen:
                raise UseError(f"{path}: two models have the {field} {value}; correct it there")
            seen.add(value)
    return found
