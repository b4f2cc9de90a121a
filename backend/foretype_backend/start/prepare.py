"""What a gateway is made of, before anything runs: engine, tokenizer, grammar."""

from __future__ import annotations

import functools
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_context.errors import TokenizerError
from foretype_context.grammars.grammar import PSM_GROWING, SPM_PLAIN_GROWING, Grammar
from foretype_context.tokens.tokenizer import Tokenizer, tokenizer_from_bytes
from foretype_models.exact_weights import default_prepared_dir

from foretype_backend.config.config import Config
from foretype_backend.config.load import read_token
from foretype_backend.config.residency import listed_regions
from foretype_backend.config.secret_files import SALT_FIELD, read_secret
from foretype_backend.config.settings import RUNNING_SERVERS
from foretype_backend.engines.by_name import load_engine
from foretype_backend.engines.port import Engine
from foretype_backend.engines.text_prompts import TextPrompts
from foretype_backend.errors import ConfigError, EngineUnavailableError
from foretype_backend.start.model_files import context_of, folder_says, grammar_of, shipped_artifact, tokenizer_file_of
from foretype_backend.start.running_server import PATIENCE_S, RunningServer, check_tokenizer, find_server


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


def prepare(config: Config, *, patience_s: float = PATIENCE_S) -> Parts:
    """Find the model's files and make the engine, not started.

    Args:
        patience_s: with a server that somebody runs already, which is asked for its model.

    Raises:
        ConfigError: names field and remedy.
    """
    _check_place(config)
    artifact = shipped_artifact(config)
    server = find_server(config, patience_s=patience_s) if config.engine.name in RUNNING_SERVERS else None
    name, tokenizer_file = tokenizer_file_of(config, artifact, server)
    try:
        tokenizer = tokenizer_from_bytes(tokenizer_file, name=name)
    except TokenizerError as error:
        raise ConfigError("model.tokenizer", f"{error}; name the tokenizer.json of the model") from error
    chosen = grammar_of(config, artifact, tokenizer, tokenizer_file, server)
    if server is not None:
        check_tokenizer(config, server, tokenizer, chosen.needed())
        return _of_server(config, server, tokenizer, tokenizer_file, chosen)
    model = config.engine.model or (str(artifact.path) if artifact is not None else None)
    model_name = config.model.name or (artifact.name if artifact is not None and not config.engine.model else None)
    if model_name is None and model is not None and "://" not in model:
        model_name = Path(model).stem
    engine = make_engine(config, model, tokenizer, model_name, chosen)
    return Parts(
        engine=engine,
        tokenizer=tokenizer,
        tokenizer_file=tokenizer_file,
        grammar=chosen,
        model_name=model_name,
        context_limit_tokens=context_of(config, model),
        measured=folder_says(config.engine.model, "layout") if artifact is None else artifact.profile,
    )


def _of_server(config: Config, server: RunningServer, tokenizer: Tokenizer, file: bytes, chosen: Grammar) -> Parts:
    """Of a gateway over a server that somebody already runs."""
    options: dict[str, Any] = given(
        url=server.url, model=server.model, context_limit_tokens=config.model.context_limit_tokens
    )
    if server.takes_text:
        if server.puts_space(chosen.dummy_space):
            told = "puts a space of its own before texts, so that its prompts would not be what the model learned"
            raise ConfigError(
                "engine.name", f"{server.url} {told}; serve the model's file with `llama-server -m`, and take llama-cpp"
            )
        begins = start_tokens(chosen) if server.puts_begin() else ()
        options["text"] = TextPrompts(tokenizer, begins=begins).text
    if config.engine.api_key_file is not None:
        options["api_key"] = read_token(Path(config.engine.api_key_file), "engine.api_key_file", min_chars=1)
    return Parts(
        engine=loaded(config.engine.name, options | dict(config.engine.options) | {"shared": config.identity.on}),
        tokenizer=tokenizer,
        tokenizer_file=file,
        grammar=chosen,
        model_name=config.model.name or server.model,
        measured=given(layout=next((one for one in chosen.layouts if one in _GROWING), None)),
    )


_GROWING: Final = (PSM_GROWING, SPM_PLAIN_GROWING)
"""Of servers whose cache keeps the last prompt and goes on from where the next differs: there Enter appends too."""


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


def make_engine(
    config: Config, model: str | None, tokenizer: Tokenizer, model_name: str | None, chosen: Grammar
) -> Engine:
    name = config.engine.name
    options: dict[str, Any] = dict(config.engine.options)
    if name == "vllm-server":
        return _pool(config, tokenizer, options, chosen)
    if model is None and name in ("openai", "vllm"):
        raise ConfigError("engine.model", f"engine `{name}` needs --model FILE or URL")
    if name == "scripted":
        from foretype_backend.engines.scripted import text_script

        script = text_script(
            tokenizer.encode,
            lambda ids: _last_line(tokenizer, ids),
            _scripted_answer,
        )
        # No vocabulary to check against: the ids are of the tokenizer that the script is written with.
        options = {"script": script, "model": model_name or name} | options
    elif name == "openai":
        options = (
            given(url=model, model=config.model.name, context_limit_tokens=config.model.context_limit_tokens)
            | options
            | {"shared": config.identity.on, "text": TextPrompts(tokenizer, begins=start_tokens(chosen)).text}
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
            | given(context_tokens=config.model.context_limit_tokens)
            | ({"redis_secret_file": config.identity.salt_file} if options.get("redis_url") else {})
            | options
        )
    elif name == "embedded":
        options = {"model": model, "prepared_dir": default_prepared_dir()} | options
    else:  # an engine that needs nothing of the gateway
        options = given(model=model) | options
    return loaded(name, options)


def loaded(name: str, options: dict[str, Any]) -> Engine:
    try:
        return load_engine(name, **options)
    except EngineUnavailableError as error:
        raise ConfigError("engine.name", str(error)) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(
            "engine.options", f"{error}; docs/reference/settings.md has the options of `{name}`"
        ) from error


def _pool(config: Config, tokenizer: Tokenizer, options: dict[str, Any], chosen: Grammar) -> Engine:
    from foretype_backend.fleet.build import make_pool

    fast = config.pool.fast
    if config.engine.model is not None:
        fast = msgspec.structs.replace(fast, replicas=(config.engine.model,))
    key_file, field = fast.api_key_file or config.engine.api_key_file, "pool.fast.api_key_file"
    key = None if key_file is None else read_token(Path(key_file), field, min_chars=1)
    limit = given(context_limit_tokens=config.model.context_limit_tokens)
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
        own["regions"] = {tenant: frozenset(allowed) for tenant, allowed in config.residency.tenants.items()}
        own["text"] = TextPrompts(tokenizer, begins=start_tokens(chosen)).text
        own |= {"located": listed_regions(config), "grammar": chosen.id, "is_own": functools.partial(_is_own, config)}
        return make_pool(fast, vocabulary_tokens=tokenizer.vocabulary_tokens, api_key=key, **own)
    except (TypeError, ValueError, ModuleNotFoundError) as error:
        raise ConfigError("pool.fast", str(error)) from error


def _is_own(config: Config, address: str) -> bool:
    """Whether `host:port` is where this gateway listens. A gateway on a free port is told apart by the canary."""
    host, _, port = address.rpartition(":")
    if int(port) not in {config.gateway.port, config.metrics.port}:
        return False
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host.strip("[]"), 0))  # only an address of this machine can be bound
        except OSError:
            return False
    return True


_LAST_LINE_TOKENS: Final = (16, 64)
"""Of a prompt, that the scripted engine looks at: an engine that simulates must cost next to nothing under load."""


def _last_line(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The end of a prompt, with the whole of its last line where that is no longer than the engine looks at."""
    end = ""
    for most in _LAST_LINE_TOKENS:
        end = tokenizer.decode(ids[-most:]).decode("utf-8", "replace")
        if "\n" in end:
            break
    return end


def _scripted_answer(prompt: str) -> str:
    """What the scripted engine says: the line that the prompt ends with, once more, and the end of a function."""
    last = prompt.rpartition("\n")[2].strip()
    return f"{last}  # scripted\n    return None\n"


def start_tokens(chosen: Grammar) -> tuple[str, ...]:
    """What a server that takes text puts there itself."""
    return tuple(control.token for control in chosen.start)


def given(**values: object) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
