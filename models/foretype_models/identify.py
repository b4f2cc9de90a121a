"""What a model file is: which family, in which grammar it is asked, what it lacks, whether it is trained to talk.

From a GGUF file its header alone is read, from a checkpoint its tokenizer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from foretype_context.errors import TokenizerError
from foretype_context.grammars.families import Detection, Family, ModelEvidence, detect, families, known_controls
from foretype_context.tokens.tokenizer import tokenizer_from_bytes
from foretype_context.tokens.tokenizer_file import is_control

from foretype_models.errors import GgufError, IdentifyError
from foretype_models.gguf_metadata import read_metadata

_TOKENIZER: Final = "tokenizer.ggml"
_KEYS: Final = frozenset(
    {f"{_TOKENIZER}.{name}" for name in ("model", "pre", "tokens", "token_type")}
    | {f"general.{name}" for name in ("architecture", "name", "basename", "finetune")}
    | {"foretype.grammar"}
)
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5
_AGAIN: Final = "give a .gguf file, a tokenizer.json, or a folder that has one of them"


class Identity(Detection, frozen=True, kw_only=True):
    """What was found, and where.

    Attributes:
        path: of the file that was read.
        name: what the file says that it is called.
        pre: `tokenizer.ggml.pre` of a GGUF file.
        architecture: as the file calls it.
        proven: the file itself names its grammar, or the family's prompts were compared with another's encoder, all ids equal.
    """

    path: str
    name: str = ""
    pre: str = ""
    architecture: str = ""
    proven: bool = False


def identify(path: Path) -> Identity:
    """Looks at a GGUF file, a `tokenizer.json`, or a folder with one of them.

    Raises:
        IdentifyError: it is none of these, or cannot be read.
    """
    file = _file_of(path.expanduser())
    evidence, architecture = evidence_of(file)
    found = detect(evidence)
    known = family_named(found.family)
    return Identity(
        **msgspec.structs.asdict(found),
        path=str(file),
        name=evidence.name,
        pre=evidence.pre,
        architecture=architecture,
        proven=known is not None and (known.proven or evidence.grammar == found.grammar),
    )


def family_named(id: str | None) -> Family | None:
    """The family with this id."""
    return next((one for one in families() if one.id == id), None)


def evidence_of(file: Path) -> tuple[ModelEvidence, str]:
    """What a file says of its model, and its architecture. Raises IdentifyError."""
    if file.suffix == ".json":
        return _of_tokenizer(file)
    try:
        said = read_metadata(file, _KEYS)
    except GgufError as error:
        raise IdentifyError(str(error).replace("give --model the path of a .gguf file", _AGAIN)) from error
    tokens = cast("list[str]", said.get(f"{_TOKENIZER}.tokens") or [])
    types = cast("list[int]", said.get(f"{_TOKENIZER}.token_type") or [])
    if not tokens or len(types) != len(tokens):
        raise IdentifyError(f"{file}: carries no whole tokenizer; name the tokenizer.json that belongs to it")
    known = known_controls()
    controls = {
        token: id
        for id, (token, type_) in enumerate(zip(tokens, types, strict=True))
        if type_ in (_CONTROL, _UNKNOWN)
        or (type_ == _USER_DEFINED and is_control({"content": token}))
        or (type_ != _UNUSED and token in known)
    }
    pre = str(said.get(f"{_TOKENIZER}.pre", ""))
    kind = said.get(f"{_TOKENIZER}.model")
    # A byte-level header may stand for pieces: that is how `models pull` writes them. Tekken's name does not.
    pieces = True if kind == "llama" else False if pre == "tekken" else None
    names = (file.stem, *(str(said.get(f"general.{name}", "")) for name in ("name", "basename", "finetune")))
    name = " ".join(dict.fromkeys(filter(None, names)))
    named = str(said.get("foretype.grammar", ""))
    evidence = ModelEvidence(controls=controls, pre=pre, name=name, pieces=pieces, grammar=named)
    return evidence, str(said.get("general.architecture", ""))


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise IdentifyError(f"{path}: no such file; {_AGAIN}")
        return path
    if (path / "tokenizer.json").is_file():
        return path / "tokenizer.json"
    found = sorted(path.glob("*.gguf"))
    if len(found) != 1:
        has = f"{len(found)} GGUF files; name one of them" if found else f"no tokenizer.json and no GGUF file; {_AGAIN}"
        raise IdentifyError(f"{path}: has {has}")
    return found[0]


def _of_tokenizer(file: Path) -> tuple[ModelEvidence, str]:
    try:
        raw = file.read_bytes()
        tokenizer = tokenizer_from_bytes(raw, name=str(file), convert=False)
    except OSError as error:
        raise IdentifyError(f"{file}: cannot be read ({error.strerror}); check its permissions") from error
    except TokenizerError as error:
        raise IdentifyError(str(error)) from error
    config = _json_beside(file, "config.json")
    named = str(config.get("_name_or_path") or "")
    architecture = str(next(iter(config.get("architectures") or ()), config.get("model_type", "")))
    folder = file.resolve().parent.name if config else ""
    evidence = ModelEvidence.of_tokenizer(tokenizer, raw, name=" ".join(dict.fromkeys(filter(None, (folder, named)))))
    return evidence, architecture


def _json_beside(file: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads((file.parent / name).read_bytes())
    except (OSError, ValueError):
        return {}  # what else lies beside a tokenizer is nobody's promise
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
