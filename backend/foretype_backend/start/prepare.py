"""What a gateway is made of, before anything runs: engine, tokenizer, grammar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from foretype_context.errors import TokenizerError
from foretype_context.grammars.grammar import PSM_GROWING, SPM_PLAIN_GROWING, Grammar
from foretype_context.tokens.tokenizer import Tokenizer, tokenizer_from_bytes

from foretype_backend.config.config import Config
from foretype_backend.config.load import read_token
from foretype_backend.config.settings import RUNNING_SERVERS
from foretype_backend.engines.port import Engine
from foretype_backend.engines.text_prompts import TextPrompts
from foretype_backend.errors import ConfigError
from foretype_backend.start.engine import given, loaded, make_engine, start_tokens
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
