"""The files that a configuration names for others to read later: told of before a gateway starts, not while it does."""

from __future__ import annotations

from pathlib import Path

from foretype_context.tokens import TokenizerUnusable, tokenizer_from_bytes

from foretype_backend.config import Config, ConfigError, read_token

__all__ = ["check_named_files"]


def check_named_files(config: Config) -> None:
    """Refuse tokenizers, keys of servers and model files that are not there or cannot be read.

    What is inside of a model file its engine says; certificate and secrets are checked by who reads them.

    Raises:
        ConfigError: the first of them, its field and the remedy.
    """
    quality = config.pool.quality
    tokenizers = {"model.tokenizer": config.model.tokenizer}
    keys = {
        "engine.api_key_file": config.engine.api_key_file,
        "pool.fast.api_key_file": config.pool.fast.api_key_file,
    }
    if quality is not None:
        tokenizers["pool.quality.tokenizer"] = quality.tokenizer
        keys["pool.quality.api_key_file"] = quality.api_key_file
    for field, name in tokenizers.items():
        if name is not None:
            _check_tokenizer(field, Path(name))
    for field, name in keys.items():
        if name is not None:
            read_token(Path(name), field, min_chars=1)
    model = config.engine.model
    if config.engine.name == "embedded" and model is not None and not Path(model).is_file():
        raise ConfigError(
            "engine.model", f"there is no file {model}; correct the path, or leave it out for the shipped model"
        )


def _check_tokenizer(field: str, path: Path) -> None:
    remedy = "name the tokenizer.json of the model"
    try:
        tokenizer_from_bytes(path.read_bytes(), name=str(path), convert=False)
    except OSError as error:
        raise ConfigError(field, f"{path}: {error.strerror}; {remedy}") from error
    except TokenizerUnusable as error:
        raise ConfigError(field, f"{error}; {remedy}") from error
