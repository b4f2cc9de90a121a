"""The profile that clients get, from the configuration, the grammar and what was measured of the weights."""

from __future__ import annotations

from typing import Any

import msgspec
from foretype_context.edit_models.format import edit_format
from foretype_context.edit_models.prompt import EditPrompts
from foretype_context.edit_models.question import EditWindow
from foretype_context.errors import UnknownControlError, UnknownLayoutError
from foretype_context.prompt.profile import BLOCK_ANSWER_TOKENS, Budgets, LineChance, MinMeanLogprob, Profile

from foretype_backend.config.config import Config
from foretype_backend.config.rules import check_context
from foretype_backend.config.settings import ModelConfig
from foretype_backend.errors import ConfigError, EngineUnavailableError
from foretype_backend.start.prepare import Parts


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
        layout=layout_of(config, parts),
        budgets=model.budgets,
        stop=msgspec.structs.replace(model.stop, strings=[*model.stop.strings, *parts.grammar.stops]),
        context_limit_tokens=limit,
        block_tokens=model.block_tokens or capabilities.block_tokens,
        strategy=model.strategy,
        strategy_rules=model.strategy_rules,
        variant=model.variant,
        next_edit=_next_edit(config, parts, capabilities.model),
        block_budgets=_block_budgets(config, limit),
        **_thresholds(config, parts),
    )


def check_profile(config: Config, parts: Parts) -> None:
    """What can be said of the profile before the engine is started. Raises ConfigError, as :func:`make_profile` would."""
    layout_of(config, parts)
    _thresholds(config, parts)
    _next_edit(config, parts, "")
    known = parts.context_limit_tokens
    if known is None:
        try:
            known = parts.engine.capabilities().context_limit_tokens
        except EngineUnavailableError:
            return
    _context_limit(config.model, known)


def _next_edit(config: Config, parts: Parts, served: str) -> EditWindow | None:
    """What clients are told of the model for next edits. Raises ConfigError where the gateway's own cannot be asked in that format."""
    pool, own = config.pool.next_edit, config.model.next_edit
    if pool is not None:
        return msgspec.structs.replace(edit_format(pool.format).window, model=pool.model or "", format=pool.format)
    if own is None:
        return None
    try:
        EditPrompts(parts.tokenizer, edit_format(own))
    except UnknownControlError as error:
        raise ConfigError(
            "model.next_edit", f"{error.token!r} is no token of the model; {own} is not its format"
        ) from error
    return msgspec.structs.replace(edit_format(own).window, model=parts.model_name or served, format=own)


def _block_budgets(config: Config, fast_limit_tokens: int) -> Budgets | None:
    """Budgets of whole blocks, where the quality pool answers them: larger prompts, if every pool that may answer takes them."""
    quality, own = config.pool.quality, config.model.budgets
    if quality is None or quality.tokenizer is None:
        return None
    takes = min(quality.context_limit_tokens, fast_limit_tokens if quality.block_fails_over else 1 << 30)
    prompt = min(quality.block_prompt_tokens, takes - BLOCK_ANSWER_TOKENS)
    if prompt <= own.prompt_tokens:
        return None
    larger = prompt / own.prompt_tokens
    return msgspec.structs.replace(
        own,
        prompt_tokens=prompt,
        suffix_tokens=int(own.suffix_tokens * larger),
        context_tokens=int(own.context_tokens * larger),
    )


def _context_limit(model: ModelConfig, engine_tokens: int) -> int:
    limit = model.context_limit_tokens or engine_tokens
    if limit > engine_tokens > 0:
        raise ConfigError(
            "model.context_limit_tokens",
            f"{limit} is more than the {engine_tokens} tokens of the engine's model; lower it",
        )
    check_context(model, limit)
    return limit


def layout_of(config: Config, parts: Parts) -> str:
    """Of the prompts. Raises ConfigError."""
    try:
        return parts.grammar.layout(config.model.layout, parts.measured.get("layout"))
    except UnknownLayoutError as error:
        raise ConfigError("engine.model", f"the model's own layout: {error}; name one as model.layout") from error


def _thresholds(config: Config, parts: Parts) -> dict[str, Any]:
    """What decides what is shown: as configured, else as measured for these weights, else the profile's defaults."""
    chosen: dict[str, Any] = {}
    for name, type_ in {
        "min_mean_logprob": MinMeanLogprob,
        "line_chance": LineChance,
        "local_min_confidence": float,
    }.items():
        value: object = getattr(config.model, name, None)
        if value is None and name in parts.measured:
            try:
                value = msgspec.convert(parts.measured[name], type_)
            except msgspec.ValidationError as error:
                raise ConfigError("engine.model", f"the model's index.json: profile.{name}: {error}") from error
        if value is not None:
            chosen[name] = value
    own = config.model.drop_broken
    chosen["drop_broken"] = config.engine.name != "scripted" if own is None else own  # what a script says is no code
    return chosen
