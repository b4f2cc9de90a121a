"""What the model's files say, or the server's: tokenizer, grammar, context. This is where files are found and read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_context.errors import UnknownControlError, UnknownGrammarError
from foretype_context.grammars.families import ModelEvidence, detect
from foretype_context.grammars.grammar import Grammar, described, grammar
from foretype_context.tokens.tokenizer import Tokenizer
from foretype_models.artifacts import FOLDER, Artifact, locate
from foretype_models.errors import ArtifactError, GgufError
from foretype_models.gguf_tokenizer import tokenizer_of

from foretype_backend.config.config import Config
from foretype_backend.config.settings import RUNNING_SERVERS
from foretype_backend.engines.embedded.gguf_header import read_header, read_metadata
from foretype_backend.errors import ConfigError, ModelFileError
from foretype_backend.start.running_server import RunningServer

_logger = logging.getLogger("foretype.gateway")
_PRE: Final = "tokenizer.ggml.pre"
_GRAMMAR: Final = "foretype.grammar"


def shipped_artifact(config: Config) -> Artifact | None:
    """The shipped model, where it is what will run."""
    if config.engine.name != "embedded" or config.engine.model is not None:
        return None
    try:
        return locate()
    except ArtifactError as error:
        raise ConfigError("engine.model", f"{error}; or give --model FILE") from error


def tokenizer_file_of(config: Config, artifact: Artifact | None, server: RunningServer | None) -> tuple[str, bytes]:
    """Name and bytes of the tokenizer: what is named, what lies beside the model, else what the GGUF file carries."""
    path = _tokenizer_path(config, artifact)
    if path is not None:
        try:
            if path.suffix == ".gguf":  # of a server that runs this file itself
                return str(path), tokenizer_of(path)
            return str(path), path.read_bytes()
        except GgufError as error:
            raise ConfigError("model.tokenizer", str(error)) from error
        except OSError as error:
            remedy = "name the tokenizer.json of the model"
            raise ConfigError("model.tokenizer", f"cannot read {path}: {error.strerror}; {remedy}") from error
    if server is not None:
        return server.tokenizer()
    model = config.engine.model
    if config.engine.name == "vllm-server" or model is None or "://" in model:
        raise ConfigError(
            "model.tokenizer", "no tokenizer is named; name one in --profile FILE as `[model] tokenizer = …`"
        )
    try:
        return model, tokenizer_of(Path(model))
    except GgufError as error:
        raise ConfigError("engine.model", str(error)) from error


def _tokenizer_path(config: Config, artifact: Artifact | None) -> Path | None:
    if config.model.tokenizer is not None:
        return Path(config.model.tokenizer)
    if artifact is not None:
        return artifact.tokenizer_path
    if config.engine.name == "scripted":
        return FOLDER / "tokenizer.json"
    model = config.engine.model
    if model is None or "://" in model or config.engine.name in RUNNING_SERVERS:
        return None
    path = Path(model)
    beside = (path if path.is_dir() else path.parent) / "tokenizer.json"
    return beside if beside.is_file() else None


def grammar_of(
    config: Config, artifact: Artifact | None, tokenizer: Tokenizer, file: bytes, server: RunningServer | None
) -> Grammar:
    model = config.engine.model
    named = config.model.grammar or (
        artifact.grammar
        if artifact is not None
        else folder_says(model, "grammar").get("grammar") or _file_says_grammar(model)
    )
    rules = config.model.grammar_rules
    if rules is None and named is None:
        found = detect(_evidence(model, tokenizer, file, server))
        if found.grammar is None:
            raise ConfigError("model.grammar", found.problem())
        if found.warning():
            _logger.warning("model.grammar: %s", found.warning())
        named = found.grammar
    try:
        chosen = (grammar(named or "") if rules is None else described(rules)).for_vocabulary(tokenizer.controls())
        for token in sorted(chosen.needed()):  # clients need them all; say so now and not to each of them
            tokenizer.control(token)
    except (UnknownGrammarError, UnknownControlError) as error:
        raise ConfigError("model.grammar", str(error)) from error
    return chosen


def _evidence(model: str | None, tokenizer: Tokenizer, file: bytes, server: RunningServer | None) -> ModelEvidence:
    """What a model's file, where there is one, its server and its tokenizer say."""
    if server is not None:
        model = None if server.file is None else str(server.file)
        if _PRE in server.metadata:
            pre = str(server.metadata[_PRE])
            return ModelEvidence.of_tokenizer(tokenizer, file, pre=pre, name=server.model or "")
    pre, name = "", "" if model is None or "://" in model else Path(model).stem
    if name and model is not None and Path(model).is_file():
        try:
            said = read_metadata(Path(model), {_PRE, "general.name"})
        except ModelFileError:
            said = {}  # the engine says what is wrong with it
        pre, name = str(said.get(_PRE, "")), f"{name} {said.get('general.name', '')}"
    return ModelEvidence.of_tokenizer(tokenizer, file, pre=pre, name=name)


def _file_says_grammar(model: str | None) -> str | None:
    """What `foretype models export` wrote of it into a GGUF file."""
    if model is None or "://" in model or not Path(model).is_file():
        return None
    try:
        said = read_metadata(Path(model), {_GRAMMAR}).get(_GRAMMAR)
    except ModelFileError:
        return None  # the engine says what is wrong with it
    return said if isinstance(said, str) else None


def folder_says(model: str | None, *names: str) -> dict[str, str]:
    """What `foretype models export --to safetensors` wrote of these into the model's `config.json`."""
    if model is None or "://" in model or not (path := Path(model) / "config.json").is_file():
        return {}
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}  # the engine says what is wrong with the file
    return {name: value for name in names if isinstance(value := found.get(f"foretype_{name}"), str)}


def context_of(config: Config, model: str | None) -> int | None:
    if config.engine.name != "embedded" or model is None:
        return None
    try:
        return read_header(Path(model)).context_limit_tokens
    except ModelFileError as error:
        raise ConfigError("engine.model", str(error)) from error
