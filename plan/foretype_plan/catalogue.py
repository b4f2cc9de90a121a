"""Hardware, models and everything else that a plan takes as given, each with where it comes from."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from foretype_plan.errors import PlanError

_UNGATED: Final = frozenset({"gpt_bigcode", "starcoder2"})
"""Model types whose MLP has two matrices, not three."""
_CONFIG_MAX: Final = 1 << 20


class Hardware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU (or socket).

    Attributes:
        flops: dense FLOP/s by the width of what is multiplied, in bits.
        bandwidth: bytes/s. memory: bytes. price: US dollars an hour.
    """

    name: str
    flops: dict[str, float]
    bandwidth: float
    memory: float
    price: float
    per_node: float
    source: str


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decoder's shape; `active` parameters take part in each token (0: all of them)."""

    parameters: float
    layers: float
    heads: float
    kv_heads: float
    head_dim: float
    active: float = 0.0


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value with its band; `better` says which end of the band makes a fleet smaller."""

    value: float
    source: str
    low: float | None = None
    high: float | None = None
    better: str = ""


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hardware: dict[str, Hardware]
    model: dict[str, Model]
    input: dict[str, Input]


@cache
def catalogue() -> Catalogue:
    """What ships."""
    text = (files("foretype_plan") / "catalogue.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Catalogue, strict=False)


def hardware(name: str) -> Hardware:
    """By its short name.

    Raises:
        PlanError: unknown; says what is known.
    """
    known = catalogue().hardware
    if name.lower() not in known:
        raise PlanError("gpu", f"{name!r} is not in the catalogue: {', '.join(known)}")
    return known[name.lower()]


def model(name: str) -> Model:
    """By name, or of a `config.json` as models bring it.

    Raises:
        PlanError: neither.
    """
    known = catalogue().model
    if name.lower() in known:
        return known[name.lower()]
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix != ".json":
        raise PlanError("model", f"{name!r} is not in the catalogue ({', '.join(known)}): name one, or its config.json")
    try:
        with path.open("rb") as file:
            read = file.read(_CONFIG_MAX + 1)
        config = cast("dict[str, Any]", json.loads(read[:_CONFIG_MAX]))
        return _shape(config.get("text_config") or config)
    except (OSError, UnicodeError, ValueError) as error:
        raise PlanError("model", f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise PlanError("model", f"{path} is no model's config.json: {error} is missing or no number") from error


def _shape(config: dict[str, Any]) -> Model:
    width, layers, heads = (float(config[key]) for key in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    kv_heads = float(config.get("num_key_value_heads") or heads)
    head_dim = float(config.get("head_dim") or width / heads)
    attention = width * head_dim * (2 * heads + 2 * kv_heads)
    matrices = 2 if config.get("model_type") in _UNGATED else 3
    experts = float(config.get("num_experts") or config.get("num_local_experts") or 0)
    if experts:
        expert = 3 * width * float(config.get("moe_intermediate_size") or config["intermediate_size"])
        mlp, used = experts * expert, float(config["num_experts_per_tok"]) * expert
    else:
        mlp = used = matrices * width * float(config["intermediate_size"])
    words = float(config["vocab_size"]) * width * (1 if config.get("tie_word_embeddings") else 2)
    return Model(
        parameters=layers * (attention + mlp) + words,
        active=layers * (attention + used) + words,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )
