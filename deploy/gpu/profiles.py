"""The profiles of `vllm serve` as arguments of an engine, on random weights of the model's shape: how each does on the cards that are here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from shapes import write_shape

FOLDER = Path(__file__).parents[1] / "profiles"
SHAPE_OF = {
    "eight-gpus-70b-fp8": ("70b", ""),
    "h100-30b-a3b-fp8": ("30b-a3b", ""),
    "h100-32b-fp8": ("32b", ""),
    "h100-7b-fp8": ("7b", ""),
    "h100-7b-int4": ("7b", "awq"),
    "h100-7b-int8": ("7b", "int8"),
    "l4-1.5b": ("1.5b", ""),
    "small-gpu-1.5b": ("1.5b", ""),
    "two-h100-30b-a3b": ("30b-a3b", ""),
    "two-h100-32b": ("32b", ""),
}
"""By profile: the model's shape, and how its folder says that its weights are quantised."""

_MEMORY_GB = {"70b": 20, "32b": 46, "30b-a3b": 44, "7b": 20, "1.5b": 8}
"""Least memory of a card for a shape's profiles, with some room for the cache."""
_SERVER = ("host", "port", "served-model-name", "enable-prompt-tokens-details", "enable-scale-out", "kv-events-config")
"""What only a server has; nobody listens to events here."""


def names() -> list[str]:
    """The smallest first: what does not fit the time is left out."""
    order = ("1.5b", "7b", "30b-a3b", "32b", "70b")
    return sorted(SHAPE_OF, key=lambda name: (gpus_of(name), order.index(SHAPE_OF[name][0]), name))


def gpus_of(name: str) -> int:
    return int(_read(name).get("tensor-parallel-size", 1))


def lacking_for(name: str, *, gpus: int, memory_gb: float) -> str:
    """What this machine lacks for a profile; empty where it has it."""
    wanted = gpus_of(name)
    if gpus < wanted:
        return f"{wanted} GPUs"
    least = _MEMORY_GB[SHAPE_OF[name][0]] * (1.7 if name.startswith("two-") else 1)
    return f"a GPU with {least:.0f} GB" if memory_gb < least else ""


def arguments_of(name: str, folder: Path) -> dict[str, Any]:
    """Of vLLM's engine; model and draft are shapes in `folder`, with random weights."""
    given = {key: value for key, value in _read(name).items() if key not in _SERVER}
    shape, quantization = SHAPE_OF[name]
    given["model"] = str(write_shape(shape, folder / f"{shape}-{quantization or 'plain'}", quantization=quantization))
    speculation = given.get("speculative-config")
    if speculation is not None and "model" in speculation:
        given["speculative-config"] = {**speculation, "model": str(write_shape("0.5b", folder / "0.5b"))}
    transfer = given.get("kv-transfer-config")
    if (
        transfer is not None
    ):  # our policy needs our package, which a GPU's Python may lack; memory is asked for as for the other rows
        extra = {"cpu_bytes_to_use": 8 << 30}
        given["kv-transfer-config"] = {**transfer, "kv_connector_extra_config": extra}
    made = {key.replace("-", "_"): value for key, value in given.items()}
    return made | {"load_format": "dummy", "skip_tokenizer_init": True, "seed": 0}


def _read(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
