"""From configuration to the parts of a gateway: engine, tokenizer, profile. This is where files are found and read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_context.errors import TokenizerError, UnknownControlError, UnknownGrammarError, UnknownLayoutError
from foretype_context.grammars.families import Evidence, detect
from foretype_context.grammars.grammar import PSM_GROWING, SPM_PLAIN_GROWING, Grammar, described, grammar
from foretype_context.prompt.profile import MinMeanLogprob, Profile
from foretype_context.tokens.tokenizer import Tokenizer, tokenizer_from_bytes
from foretype_models.artifacts import FOLDER, Artifact, ArtifactError, locate

from foretype_backend.config.load import Config, ModelConfig, read_token
from foretype_backend.config.rules import check_context
from foretype_backend.config.secret_files import SALT_FIELD, read_secret
from foretype_backend.config.settings import RUNNING_SERVERS
from foretype_backend.engines.by_name import load_engine
from foretype_backend.engines.embedded.gguf_header import read_header, read_metadata
from foretype_backend.engines.embedded.gguf_tokenizer import tokenizer_of
from foretype_backend.engines.port import Engine
from foretype_backend.engines.text_prompts import TextPrompts
from foretype_backend.errors import ConfigError, EngineUnavailableError, ModelFileError
from foretype_backend.start.running_server import RunningServer, check_tokenizer, find_server

__all__ = ["Parts", "check_profile", "make_profile", "prepare"]

_logger = logging.getLogger("foretype.gateway")
_PRE: Final = "tokenizer.ggml.pre"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a gateway is made of, before anything runs.

    Attributes:
        tokenizer_file: the bytes that clients get.
        context_limit_tokens: of the model, where its own file says it; None where the engine has to be asked.
        measured: what `index.json` says of the shipped weights, or `config.json` of a folder's, by the names of the profile.
    """

    engine: Engine
    tokenizer: Tokenizer
    tokenizer_file: bytes
    grammar: Grammar
    model_name: str | None
    context_limit_tokens: int | None = None
    measured: Mapping[str, Any] = field(default_factory=dict[str, Any])


def prepare(config: Config) -> Parts:
    """Find the model's files and make the engine, not started. Raises ConfigError naming field and remedy."""
    _check_place(config)
    artifact = _artifact(config)
    server = find_server(config) if config.engine.name in RUNNING_SERVERS else None
    name, tokenizer_file = _tokenizer_file(config, artifact, server)
    try:
        tokenizer = tokenizer_from_bytes(tokenizer_file, name=name)
    except TokenizerError as error:
        raise ConfigError("model.tokenizer", f"{error}; name the tokenizer.json of the model") from error
    chosen = _grammar(config, artifact, tokenizer, tokenizer_file, server)
    if server is not None:
        check_tokenizer(config, server, tokenizer, chosen.needed())
        return _of_server(config, server, tokenizer, tokenizer_file, chosen)
    model = config.engine.model or (str(artifact.path) if artifact is not None else None)
    model_name = config.model.name or (artifact.name if artifact is not None and not config.engine.model else None)
    if model_name is None and model is not None and "://" not in model:
        model_name = Path(model).stem
    engine = _engine(config, model, tokenizer, model_name, chosen)
    return Parts(
        engine=engine,
        tokenizer=tokenizer,
        tokenizer_file=tokenizer_file,
        grammar=chosen,
        model_name=model_name,
        context_limit_tokens=_context_of(config, model),
        measured=_folder_says(config.engine.model, "layout") if artifact is None else artifact.profile,
    )


def _of_server(config: Config, server: RunningServer, tokenizer: Tokenizer, file: bytes, chosen: Grammar) -> Parts:
    """Of a gateway over a server that somebody already runs."""
    options: dict[str, Any] = _given(
        url=server.url, model=server.model, context_limit_tokens=config.model.context_limit_tokens
    )
    if server.takes_text:
        if server.puts_space(chosen.dummy_space):
            told = "puts a space of its own before texts, so that its prompts would not be what the model learned"
            raise ConfigError(
                "engine.name", f"{server.url} {told}; serve the model's file with `llama-server -m`, and take llama-cpp"
            )
        begins = _begins(chosen) if server.puts_begin() else ()
        options["text"] = TextPrompts(tokenizer, begins=begins).text
    if config.engine.api_key_file is not None:
        options["api_key"] = read_token(Path(config.engine.api_key_file), "engine.api_key_file", min_chars=1)
    return Parts(
        engine=_loaded(config.engine.name, options | dict(config.engine.options) | {"shared": config.identity.on}),
        tokenizer=tokenizer,
        tokenizer_file=file,
        grammar=chosen,
        model_name=config.model.name or server.model,
        measured=_given(layout=next((one for one in chosen.layouts if one in _GROWING), None)),
    )


def _begins(chosen: Grammar) -> tuple[str, ...]:
    """What a server that takes text puts there itself."""
    return tuple(control.token for control in chosen.start)


_GROWING: Final = (PSM_GROWING, SPM_PLAIN_GROWING)
"""Of servers whose cache keeps the last prompt and goes on from where the next differs: there Enter appends too."""


def make_profile(config: Config, parts: Parts) -> Profile:
    """The profile that clients get; needs a started engine, which knows its context and block size.

    Raises:
        ConfigError: the configured context is longer than the engine's.
    """
    capabilities = parts.engine.capabilities()
    model = config.model
    limit = _context_limit(model, capabilities.context_limit_tokens)
    return Profile(
        model=parts.model_name or capabilities.model,
        grammar=parts.grammar.id,
        grammar_rules=msgspec.to_builtins(parts.grammar),
        tokenizer_digest=parts.tokenizer.digest,
        layout=_layout(config, parts),
        budgets=model.budgets,
        stop=msgspec.structs.replace(model.stop, strings=[*model.stop.strings, *parts.grammar.stops]),
        context_limit_tokens=limit,
        block_tokens=model.block_tokens or capabilities.block_tokens,
        strategy=model.strategy,
        strategy_rules=model.strategy_rules,
        variant=model.variant,
        **_thresholds(config, parts),
    )


def check_profile(config: Config, parts: Parts) -> None:
    """What can be said of the profile before the engine is started. Raises ConfigError, as :func:`make_profile` would."""
    _layout(config, parts)
    _thresholds(config, parts)
    known = parts.context_limit_tokens
    if known is None:
        try:
            known = parts.engine.capabilities().context_limit_tokens
        except EngineUnavailableError:
            return
    _context_limit(config.model, known)


def _context_limit(model: ModelConfig, engine_tokens: int) -> int:
    limit = model.context_limit_tokens or engine_tokens
    if limit > engine_tokens > 0:
        raise ConfigError(
            "model.context_limit_tokens",
            f"{limit} is more than the {engine_tokens} tokens of the engine's model; lower it",
        )
    check_context(model, limit)
    return limit


def _layout(config: Config, parts: Parts) -> str:
    try:
        return parts.grammar.layout(config.model.layout, parts.measured.get("layout"))
    except UnknownLayoutError as error:
        raise ConfigError("engine.model", f"the model's own layout: {error}; name one as model.layout") from error


def _thresholds(config: Config, parts: Parts) -> dict[str, Any]:
    """What decides what is shown: as configured, else as measured for these weights, else the profile's defaults."""
    chosen: dict[str, Any] = {}
    for name, type_ in {"min_mean_logprob": MinMeanLogprob, "local_min_confidence": float}.items():
        value: object = getattr(config.model, name)
        if value is None and name in parts.measured:
            try:
                value = msgspec.convert(parts.measured[name], type_)
            except msgspec.ValidationError as error:
                raise ConfigError("engine.model", f"the model's index.json: profile.{name}: {error}") from error
        if value is not None:
            chosen[name] = value
    return chosen


def _check_place(config: Config) -> None:
    """Refuse a file where the engine takes a server, and the other way round."""
    name, model = config.engine.name, config.engine.model
    if model is None or name == "scripted":
        return
    if name in ("openai", "vllm-server") and not model.startswith(("http://", "https://")):
        raise ConfigError("engine.model", f"engine `{name}` takes the base URL of a server, http://host:port/v1")
    if name in ("embedded", "vllm") and "://" in model:
        remedy = "name its file, or choose the engine `openai` for a server"
        raise ConfigError("engine.model", f"engine `{name}` runs the model itself; {remedy}")


def _context_of(config: Config, model: str | None) -> int | None:
    if config.engine.name != "embedded" or model is None:
        return None
    try:
        return read_header(Path(model)).context_limit_tokens
    except ModelFileError as error:
        raise ConfigError("engine.model", str(error)) from error


def _artifact(config: Config) -> Artifact | None:
    """The shipped model, where it is what will run."""
    if config.engine.name != "embedded" or config.engine.model is not None:
        return None
    try:
        return locate()
    except ArtifactError as error:
        raise ConfigError("engine.model", f"{error}; or give --model FILE") from error


def _tokenizer_file(config: Config, artifact: Artifact | None, server: RunningServer | None) -> tuple[str, bytes]:
    """Name and bytes of the tokenizer: what is named, what lies beside the model, else what the GGUF file carries."""
    path = _tokenizer_path(config, artifact)
    if path is not None:
        try:
            if path.suffix == ".gguf":  # of a server that runs this file itself
                return str(path), tokenizer_of(path)
            return str(path), path.read_bytes()
        except ModelFileError as error:
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
    except ModelFileError as error:
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


def _grammar(
    config: Config, artifact: Artifact | None, tokenizer: Tokenizer, file: bytes, server: RunningServer | None
) -> Grammar:
    named = config.model.grammar or (
        artifact.grammar if artifact is not None else _folder_says(config.engine.model, "grammar").get("grammar")
    )
    rules = config.model.grammar_rules
    if rules is None and named is None:
        found = detect(_evidence(config.engine.model, tokenizer, file, server))
        if found.grammar is None:
            raise ConfigError("model.grammar", found.problem())
        if found.warning():
            _logger.warning("model.grammar: %s", found.warning())
        named = found.grammar
    try:
        chosen = grammar(named or "") if rules is None else described(rules)
        for token in sorted(chosen.needed()):  # clients need them all; say so now and not to each of them
            tokenizer.control(token)
    except (UnknownGrammarError, UnknownControlError) as error:
        raise ConfigError("model.grammar", str(error)) from error
    return chosen


def _evidence(model: str | None, tokenizer: Tokenizer, file: bytes, server: RunningServer | None) -> Evidence:
    """What a model's file, where there is one, its server and its tokenizer say."""
    if server is not None:
        model = None if server.file is None else str(server.file)
        if _PRE in server.metadata:
            pre = str(server.metadata[_PRE])
            return Evidence.of_tokenizer(tokenizer, file, pre=pre, name=server.model or "")
    pre, name = "", "" if model is None or "://" in model else Path(model).stem
    if name and model is not None and Path(model).is_file():
        try:
            said = read_metadata(Path(model), {_PRE, "general.name"})
        except ModelFileError:
            said = {}  # the engine says what is wrong with it
        pre, name = str(said.get(_PRE, "")), f"{name} {said.get('general.name', '')}"
    return Evidence.of_tokenizer(tokenizer, file, pre=pre, name=name)


def _given(**values: object) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _folder_says(model: str | None, *names: str) -> dict[str, str]:
    """What `foretype models export --to safetensors` wrote of these into the model's `config.json`."""
    if model is None or "://" in model or not (path := Path(model) / "config.json").is_file():
        return {}
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}  # the engine says what is wrong with the file
    return {name: value for name in names if isinstance(value := found.get(f"foretype_{name}"), str)}


def _engine(config: Config, model: str | None, tokenizer: Tokenizer, model_name: str | None, chosen: Grammar) -> Engine:
    name = config.engine.name
    options: dict[str, Any] = dict(config.engine.options)
    if name == "vllm-server":
        return _pool(config, tokenizer, options)
    if model is None and name != "scripted":
        raise ConfigError("engine.model", f"engine `{name}` needs --model FILE or URL")
    if name == "scripted":
        from foretype_backend.engines.scripted import text_script

        script = text_script(
            tokenizer.encode,
            lambda ids: tokenizer.decode(ids[-_LAST_LINE_TOKENS:]).decode("utf-8", "replace"),
            _scripted_answer,
        )
        # No vocabulary to check against: the ids are of the tokenizer that the script is written with.
        options = {"script": script, "model": model_name or name} | options
    elif name == "openai":
        options = (
            _given(url=model, model=config.model.name, context_limit_tokens=config.model.context_limit_tokens)
            | options
            | {"shared": config.identity.on, "text": TextPrompts(tokenizer, begins=_begins(chosen)).text}
        )
        if config.engine.api_key_file is not None:
            options["api_key"] = read_token(Path(config.engine.api_key_file), "engine.api_key_file", min_chars=1)
    elif name == "vllm":
        if options.get("shared") and not config.identity.on:
            raise ConfigError(
                "engine.options.shared",
                "tenants that share an engine need identities, whose salts keep their caches apart; set [identity] enabled = true",
            )
        options = (
            {"model": model, "shared": config.identity.on}
            | _given(context_tokens=config.model.context_limit_tokens)
            | ({"redis_secret_file": config.identity.salt_file} if options.get("redis_url") else {})
            | options
        )
    else:
        import platformdirs

        options = {"model": model, "prepared_dir": platformdirs.user_cache_path("foretype") / "engine"} | options
    return _loaded(name, options)


def _loaded(name: str, options: dict[str, Any]) -> Engine:
    try:
        return load_engine(name, **options)
    except EngineUnavailableError as error:
        raise ConfigError("engine.name", str(error)) from error
    except (TypeError, ValueError) as error:
        raise ConfigError("engine.options", f"{error}; see docs/operations.md for the options of `{name}`") from error


def _pool(config: Config, tokenizer: Tokenizer, options: dict[str, Any]) -> Engine:
    from foretype_backend.fleet.build import make_pool

    fast = config.pool.fast
    if config.engine.model is not None:
        fast = msgspec.structs.replace(fast, replicas=(config.engine.model,))
    key_file, field = fast.api_key_file or config.engine.api_key_file, "pool.fast.api_key_file"
    key = None if key_file is None else read_token(Path(key_file), field, min_chars=1)
    limit = _given(context_limit_tokens=config.model.context_limit_tokens)
    try:
        own: dict[str, Any] = limit | options | {"shared": config.identity.on}
        if fast.retire_url is not None:
            named = config.identity.salt_file
            if named is None:
                raise ConfigError(
                    SALT_FIELD,
                    "what goes over pool.fast.retire_url is authenticated by it, and the servers have a copy; make a file with "
                    "`foretype config new-secret FILE`, and name it here",
                )
            own["secret"] = read_secret(SALT_FIELD, named, Path(named))
        return make_pool(fast, vocabulary_tokens=tokenizer.vocabulary_tokens, api_key=key, **own)
    except (TypeError, ValueError, ModuleNotFoundError) as error:
        raise ConfigError("pool.fast", str(error)) from error


_LAST_LINE_TOKENS: Final = 64
"""Of a prompt, that the scripted engine looks at: an engine that simulates must cost next to nothing under load."""


def _scripted_answer(prompt: str) -> str:
    """What the scripted engine says: the line that the prompt ends with, once more, and the end of a function."""
    last = prompt.rpartition("\n")[2].strip()
    return f"{last}  # scripted\n    return None\n"
