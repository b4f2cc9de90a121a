"""What is asked: developers, their day, and the tiers that answer them; from a TOML file or flags."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from foretype_plan.catalogue import Hardware, Model, catalogue, hardware, model
from foretype_plan.day import COMMITS, OFFICE
from foretype_plan.errors import PlanError
from foretype_plan.formulas import tokens_per_step

_BITS: Final = frozenset({4, 8, 16})
NARROW_SHARE: Final = 0.73
"""Of `decode_efficiency`, where weights have fewer than 16 bits: activations are quantised, or weights widened, in each step. 0.72 to 0.79
in 8 bits of a 7B shape on an H200 (docs/measurements/vllm.md)."""
_SHARES: Final = frozenset(
    {
        "warm_share",
        "shared_share",
        "shown_share",
        "acceptance",
        "objective_share",
        "draft_acceptance",
        "most_utilisation",
    }
    | {"prefill_efficiency", "decode_efficiency", "memory_share", "headroom", "draft_step_share"}
)
_CURVES: Final = {"office": OFFICE, "commits": COMMITS}
_FILE_MAX: Final = 1 << 20


class Language(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One language of a tier."""

    share: float
    draft_acceptance: float


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pool: a model on a kind of GPU, and what is asked of it.

    Attributes:
        model: of the catalogue, or a config.json.
        weight_bits, kv_bits: 4, 8 or 16. Weights of 4 bits are multiplied in 16, of 8 in 8.
        share: of all requests.
        price: of one GPU an hour; None: the catalogue's.
        inputs: of the catalogue's `[input]`, other values.
        languages: what is written in, each with its share of the tokens and the chance that one guessed token is taken; they stand for
            `draft_acceptance` where something is guessed.
    """

    model: str = "qwen2.5-coder-7b"
    gpu: str = "h100"
    gpus_per_replica: int = 1
    weight_bits: int = 8
    kv_bits: int = 16
    share: float = 1.0
    price: float | None = None
    inputs: dict[str, float] = {}
    languages: dict[str, Language] = {}


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who asks.

    Attributes:
        zones: hours east of UTC to the share of developers there.
        curve: `office`, `commits`, or 24 shares.
        regions: data centres that each hold a share of the fleet.
        budget_month: US dollars; None: none.
    """

    developers: float = 1000.0
    zones: dict[float, float] = msgspec.field(default_factory=lambda: {0.0: 1.0})
    curve: str | list[float] = "office"
    regions: int = 1
    budget_month: float | None = None
    tier: dict[str, Tier] = msgspec.field(default_factory=lambda: {"fast": Tier()})

    def hours(self) -> list[float]:
        """The curve's 24 shares."""
        if isinstance(self.curve, list):
            return self.curve
        if self.curve not in _CURVES:
            raise PlanError("curve", f"{self.curve!r}: give {' or '.join(_CURVES)}, or 24 shares")
        return list(_CURVES[self.curve])


def read(path: Path) -> Scenario:
    """A file's.

    Raises:
        PlanError: it cannot be read, or says what no plan can be.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_MAX)
        raw: dict[str, Any] = tomllib.loads(text.decode("utf-8"))
        return msgspec.convert(raw, Scenario, strict=False)
    except (OSError, UnicodeError) as error:
        raise PlanError("file", f"{path} cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise PlanError("file", f"{path}: {error}") from error


def inputs_of(given: list[str]) -> dict[str, float]:
    """What `--set NAME=NUMBER` gives. Raises PlanError: one is none."""
    made: dict[str, float] = {}
    for one in given:
        name, _, value = one.partition("=")
        try:
            made[name.strip()] = float(value)
        except ValueError as error:
            raise PlanError("--set", f"{one!r} is no NAME=NUMBER") from error
    return made


def values(scenario: Scenario, tier: Tier, name: str = "fast") -> dict[str, float]:
    """Every input of the sheet but those that the day gives.

    Raises:
        PlanError: one is no possible value, or the model does not fit.
    """
    known = catalogue().input
    unknown = sorted(set(tier.inputs) - set(known))
    if unknown:
        raise PlanError(f"tier.{name}.inputs.{unknown[0]}", f"unknown; known are {', '.join(known)}")
    shape, card = model(tier.model), hardware(tier.gpu)
    made = {key: one.value for key, one in known.items()} | tier.inputs
    if tier.weight_bits < 16 and "decode_efficiency" not in tier.inputs:
        made["decode_efficiency"] *= NARROW_SHARE
    _check(scenario, tier, made)
    made |= _of_model(shape, tier) | _of_hardware(card, tier)
    if tier.languages:
        made |= _guessed(tier.languages, made["draft_tokens"], name)
    made |= {"developers": scenario.developers * tier.share, "regions": float(scenario.regions)}
    room = tier.gpus_per_replica * (card.memory * made["memory_share"] - made["reserved_bytes"])
    weights = shape.parameters * tier.weight_bits / 8
    if room <= weights:
        each = card.memory * made["memory_share"] - made["reserved_bytes"]
        wants = f"{int(weights // each) + 1} GPUs a replica" if each > 0 else "a larger GPU"
        raise PlanError(
            f"tier.{name}.gpus_per_replica",
            f"{tier.model} in {tier.weight_bits} bits has {weights / 1e9:.1f} GB of weights, and {tier.gpus_per_replica} "
            f"{card.name} leave {max(room, 0) / 1e9:.1f} GB: {wants}, or fewer bits",
        )
    if made["objective_s"] <= made["network_s"] + made["overhead_s"]:
        raise PlanError(
            f"tier.{name}.inputs.objective_s",
            f"{1000 * made['objective_s']:.0f} ms, and network and gateway alone take "
            f"{1000 * (made['network_s'] + made['overhead_s']):.0f} ms: a longer objective, or a nearer region (network_s)",
        )
    return made


def _guessed(languages: dict[str, Language], draft_tokens: float, name: str) -> dict[str, float]:
    """Tokens of a step over languages: each takes its share of the tokens, so their steps add up."""
    for language, one in languages.items():
        if not 0 < one.share < float("inf") or not 0 <= one.draft_acceptance <= 1:
            raise PlanError(f"tier.{name}.languages.{language}", "a share above 0, and a draft_acceptance of 0 to 1")
    shares = sum(one.share for one in languages.values())
    steps = sum(one.share / shares / tokens_per_step(draft_tokens, one.draft_acceptance) for one in languages.values())
    return {"tokens_per_step": 1 / steps}


def _of_model(shape: Model, tier: Tier) -> dict[str, float]:
    return {
        "parameters": shape.parameters,
        "active_parameters": shape.active or shape.parameters,
        "layers": shape.layers,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "weight_bits": float(tier.weight_bits),
        "kv_bits": float(tier.kv_bits),
    }


def _of_hardware(card: Hardware, tier: Tier) -> dict[str, float]:
    return {
        "gpus_per_replica": float(tier.gpus_per_replica),
        "gpu_flops": card.flops["8" if tier.weight_bits == 8 else "16"],
        "gpu_bandwidth": card.bandwidth,
        "gpu_memory_bytes": card.memory,
        "gpus_per_node": card.per_node,
        "gpu_price_per_hour": card.price if tier.price is None else tier.price,
    }


def _check(scenario: Scenario, tier: Tier, made: dict[str, float]) -> None:
    for field, value in (("developers", scenario.developers), ("regions", scenario.regions), ("share", tier.share)):
        if not 0 < value < float("inf"):
            raise PlanError(field, f"{value:g}: more than none is planned for")
    if tier.gpus_per_replica not in range(1, 65):
        raise PlanError("gpus_per_replica", f"{tier.gpus_per_replica}: 1 to 64")
    for field, bits in (("weight_bits", tier.weight_bits), ("kv_bits", tier.kv_bits)):
        if bits not in _BITS or (field == "kv_bits" and bits == 4):
            raise PlanError(
                field, f"{bits}: 16 or 8{'' if field == 'kv_bits' else ', or 4 (weights that are widened to 16)'}"
            )
    if tier.price is not None and not 0 < tier.price < float("inf"):
        raise PlanError("price", f"{tier.price:g}: of one GPU an hour, above 0")
    if scenario.budget_month is not None and not 0 < scenario.budget_month < float("inf"):
        raise PlanError("budget_month", f"{scenario.budget_month:g}: dollars, above 0")
    for field, value in made.items():
        if not 0 <= value < float("inf"):
            raise PlanError(field, f"{value:g}: a number that is not below 0")
        if field in _SHARES and value > 1:
            raise PlanError(field, f"{value:g}: a share, 0 to 1")
    for field in (
        "prompt_tokens",
        "output_tokens",
        "batch",
        "keys_per_hour",
        "requests_per_key",
        "acceptance",
        "shown_share",
        "hand_over_bytes_per_s",
    ):
        if made[field] <= 0:
            raise PlanError(field, "more than 0")
    if made["batch"] < 1:
        raise PlanError("batch", f"{made['batch']:g}: at least one request")
    for field in ("prefill_efficiency", "decode_efficiency", "memory_share", "most_utilisation", "new_tokens"):
        if made[field] <= 0:
            raise PlanError(field, "more than 0")
    for field in ("objective_share", "most_utilisation"):
        if made[field] >= 1:
            raise PlanError(field, f"{made[field]:g}: below 1, since no queue keeps a promise without exception")
