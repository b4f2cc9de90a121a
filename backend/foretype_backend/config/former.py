"""What a configuration says of a model that shipped once and ships no more: it gets the one that ships, and one sentence."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from foretype_backend.config.settings import EngineConfig, ModelConfig

_logger = logging.getLogger("foretype.gateway")

_FORMER: Final = ("foretype-py-10m",)
"""Beginnings of the names of files of versions 0.1 and 0.2."""


def without_former(engine: EngineConfig, model: ModelConfig) -> tuple[EngineConfig, ModelConfig]:
    """The same, unless the model's file is a former one that is gone: then without it, and without what was said of it.

    Of `model` the budgets, the stop rules and what is no trait of the weights stay.
    """
    named = engine.model
    if engine.name != "embedded" or named is None or not Path(named).name.startswith(_FORMER) or Path(named).exists():
        return engine, model
    _logger.warning(
        "engine.model: %s ships no more; the model that ships now serves in its place: leave the line out, or `foretype use shipped`",
        Path(named).stem,
    )
    own = {
        "name": None,
        "tokenizer": None,
        "grammar": None,
        "grammar_rules": None,
        "layout": None,
        "context_limit_tokens": None,
        "block_tokens": None,
        "min_mean_logprob": None,
        "line_chance": None,
        "local_min_confidence": None,
        "next_edit": None,
    }
    return msgspec.structs.replace(engine, model=None, options={}), msgspec.structs.replace(model, **own)
