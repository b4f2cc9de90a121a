"""A variant is data: what of the profile it changes, within bounds, and what a client must know to follow it. Pure.

| knob | what |
|---|---|
| `budgets.*` | tokens of prompt, suffix, other files, line and block; milliseconds of assembly |
| `strategy`, `strategy_rules.*` | order and shares of the sources of context (:mod:`foretype_context.prompt.strategy`) |
| `layout` | of the prompt |
| `min_mean_logprob.*`, `local_min_confidence` | thresholds of showing |
| `debounce_ms` | before a request |
| `speculative` | whether what comes after a suggestion is asked for |
| `pool` | `fast` or `quality`: which model answers; the client has no part in it |
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import msgspec
from foretype_context.prompt.layouts import LAYOUTS
from foretype_context.prompt.profile import MinMeanLogprob, Profile
from foretype_context.prompt.strategy import STRATEGIES, Strategy
from msgspec import Meta

from foretype_backend.errors import VariantError

_WHERE: Final = re.compile(r" - at `\$\.?(.*?)`$")
_UNKNOWN: Final = re.compile(r"unknown field `(.*?)`")
_T = TypeVar("_T")

_Prompt = Annotated[int, Meta(ge=64, le=131_072)]
_Part = Annotated[int, Meta(ge=0, le=131_072)]
_Output = Annotated[int, Meta(ge=1, le=1024)]
_Logprob = Annotated[float, Meta(ge=-100.0, le=0.0)]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,23}$")]


class _Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of what stands in the store: nothing in it is ignored."""


class BudgetKnobs(_Data, frozen=True, kw_only=True):
    """Of :class:`foretype_context.prompt.profile.Budgets`, what is not None."""

    prompt_tokens: _Prompt | None = None
    suffix_tokens: _Part | None = None
    context_tokens: _Part | None = None
    line_tokens: _Output | None = None
    block_tokens: _Output | None = None
    assembly_ms: Annotated[float, Meta(gt=0.0, le=100.0)] | None = None


class ThresholdKnobs(_Data, frozen=True, kw_only=True):
    """Of :class:`foretype_context.prompt.profile.MinMeanLogprob`, what is not None."""

    mid_line: _Logprob | None = None
    line: _Logprob | None = None
    block: _Logprob | None = None


class Knobs(_Data, frozen=True, kw_only=True):
    """What a variant changes; see the module."""

    budgets: BudgetKnobs | None = None
    strategy: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    strategy_rules: Strategy | None = None
    layout: str | None = None
    min_mean_logprob: ThresholdKnobs | None = None
    local_min_confidence: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    debounce_ms: Annotated[float, Meta(ge=0.0, le=1000.0)] | None = None
    speculative: bool | None = None
    pool: Literal["fast", "quality"] | None = None

    def needs(self) -> frozenset[str]:
        """What a client must know (:data:`foretype_context.prompt.profile.KNOBS`) to follow this and to tell of it."""
        found = {"arms"}
        for knob, fields in _NEEDED.items():
            if any(getattr(self, field) is not None for field in fields):
                found.add(knob)
        if self.layout is not None:
            found.add(f"layout.{self.layout}")
        return frozenset(found)


_NEEDED: Final = {
    "budgets": ("budgets",),
    "strategy": ("strategy", "strategy_rules"),
    "thresholds": ("min_mean_logprob", "local_min_confidence"),
    "debounce": ("debounce_ms",),
    "speculation": ("speculative",),
}


class Variant(_Data, frozen=True, kw_only=True):
    name: Name
    knobs: Knobs = Knobs()


def convert(raw: object, type_: type[_T], prefix: str = "") -> _T:
    """Raises VariantError, which names the field."""
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError as error:
        message = str(error)
        where, unknown = _WHERE.search(message), _UNKNOWN.search(message)
        parts = (prefix, where[1] if where else "", unknown[1] if unknown else "")
        field = ".".join(part for part in parts if part) or "variant"
        raise VariantError(field, _WHERE.sub("", message)) from error


def parse_knobs(raw: object, prefix: str = "") -> Knobs:
    """Knobs from a file or from options, with what no type says. Raises VariantError."""
    knobs = convert(raw, Knobs, prefix)

    def field(name: str) -> str:
        return f"{prefix}.{name}" if prefix else name

    if knobs.layout is not None and knobs.layout not in LAYOUTS:
        raise VariantError(field("layout"), f"{knobs.layout!r} is none of {', '.join(LAYOUTS)}")
    rules = knobs.strategy_rules
    if rules is not None:
        for name in cast("dict[str, dict[str, object]]", raw)["strategy_rules"]:
            if name not in Strategy.__struct_fields__:
                known = ", ".join(Strategy.__struct_fields__)
                raise VariantError(field(f"strategy_rules.{name}"), f"no field of a strategy; they are {known}")
        if knobs.strategy not in (None, rules.id):
            raise VariantError(field("strategy"), f"is {knobs.strategy!r}, and strategy_rules.id is {rules.id!r}")
        if rules.id in STRATEGIES and rules != STRATEGIES[rules.id]:
            told = "is a strategy that clients know, with other rules; give yours an id of its own"
            raise VariantError(field("strategy_rules.id"), f"{rules.id!r} {told}")
        knobs = msgspec.structs.replace(knobs, strategy=rules.id)
    elif knobs.strategy is not None and knobs.strategy not in STRATEGIES:
        told = f"no client knows it without strategy_rules; known are {', '.join(STRATEGIES)}"
        raise VariantError(field("strategy"), f"{knobs.strategy!r}: {told}")
    return knobs


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`budgets.prompt_tokens=1500` and the like as nested data. Raises VariantError."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise VariantError("--set", f"{pair!r} is no NAME=VALUE; it looks like budgets.prompt_tokens=1500")
        try:
            value: object = msgspec.json.decode(text)
        except msgspec.DecodeError:
            value = text
        *tables, last = name.split(".")
        here = found
        for table in tables:
            inner = here.setdefault(table, {})
            if not isinstance(inner, dict):
                raise VariantError("--set", f"{name}: {table} has a value already")
            here = cast("dict[str, Any]", inner)
        here[last] = value
    return found


def applied(profile: Profile, knobs: Knobs, *, layouts: Collection[str], pools: Collection[str]) -> Profile:
    """The profile with what a variant changes.

    Args:
        layouts: of the grammar that the gateway's model has.
        pools: that this gateway has.

    Raises:
        VariantError: this gateway cannot do that.
    """
    changes: dict[str, Any] = {}
    if knobs.budgets is not None:
        budgets = msgspec.structs.replace(profile.budgets, **_given(knobs.budgets))
        longest = max(budgets.line_tokens, budgets.block_tokens)
        wanted = knobs.budgets.prompt_tokens
        if wanted is not None and wanted + longest > profile.context_limit_tokens:
            told = (
                f"{wanted} of prompt and {longest} of answer are more than the model's {profile.context_limit_tokens}"
            )
            raise VariantError("budgets.prompt_tokens", f"{told}; lower it")
        changes["budgets"] = budgets
    if knobs.layout is not None and knobs.layout not in layouts:
        raise VariantError("layout", f"{knobs.layout!r} is none of {', '.join(layouts)} of {profile.grammar}")
    if knobs.pool not in (None, *pools):
        raise VariantError("pool", f"this gateway has no pool {knobs.pool!r}; it has {', '.join(pools)}")
    if knobs.strategy is not None:
        changes |= {"strategy": knobs.strategy, "strategy_rules": knobs.strategy_rules}
    if knobs.min_mean_logprob is not None:
        least: MinMeanLogprob = msgspec.structs.replace(profile.min_mean_logprob, **_given(knobs.min_mean_logprob))
        changes["min_mean_logprob"] = least
    for name in ("layout", "local_min_confidence", "debounce_ms", "speculative"):
        if (value := getattr(knobs, name)) is not None:
            changes[name] = value
    return msgspec.structs.replace(profile, **changes)


def _given(of: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(of).items() if value is not None}
