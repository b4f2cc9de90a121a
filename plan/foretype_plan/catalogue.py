"""Hardware, models and everything else that a plan takes as given, each with where it comes from."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from foretype_plan.errors import PlanError

_UNGATED: Final = frozenset({"gpt_bigcode", "starcoder2"})
"""Model types whose MLP has two matrices, not three."""
_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts")
"""What families call the number of experts that a router chooses from."""
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
    matrices = 2 if config.get("model_type") in _UNGATED else 3
    experts = next((float(config[key]) for key in _EXPERTS if config.get(key)), 0.0)
    dense = (
        min(layers, float(config.get("first_k_dense_replace") or 0)) if experts else layers
    )  # layers without experts
    mlp = used = dense * matrices * width * float(config["intermediate_size"]) if dense else 0.0
    if experts:
        expert = (
            (layers - dense) * 3 * width * float(config.get("moe_intermediate_size") or config["intermediate_size"])
        )
        shared = float(config.get("n_shared_experts") or 0)
        mlp += (experts + shared) * expert
        used += (float(config["num_experts_per_tok"]) + shared) * expert
    attention = _latent(config, width, heads) if config.get("kv_lora_rank") else _attention(config, width, heads)
    words = float(config["vocab_size"]) * width * (1 if config.get("tie_word_embeddings") else 2)
    return Model(
        parameters=layers * attention.parameters + mlp + words,
        active=layers * attention.parameters + used + words,
        layers=layers,
        heads=heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
    )


class _Attention(NamedTuple):
    """Of one layer."""

    parameters: float
    kv_heads: float
    head_dim: float


def _attention(config: dict[str, Any], width: float, heads: float) -> _Attention:
    kv_heads = float(config.get("num_key_value_heads") or heads)
    head_dim = float(config.get("head_dim") or width / heads)
    return _Attention(width * head_dim * (2 * heads + 2 * kv_heads), kv_heads, head_dim)


def _latent(config: dict[str, Any], width: float, heads: float) -> _Attention:
    """Keys and values of all heads in one compressed vector (DeepSeek-AI, 2024, arXiv 2405.04434, section 2.1).

    `kv_heads` is what a token's vector would be in heads of `head_dim`, which is the mean of the widths of keys and values.
    """
    kept, plain, turned, values = (
        float(config[key]) for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )
    asked = float(config.get("q_lora_rank") or 0)
    question = asked * (width + heads * (plain + turned)) if asked else width * heads * (plain + turned)
    keys = width * (kept + turned) + kept * heads * (plain + values)
    head_dim = (plain + turned + values) / 2
    return _Attention(question + keys + heads * values * width, (kept + turned) / (2 * head_dim), head_dim)
