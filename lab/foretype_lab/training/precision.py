"""In which numbers a device multiplies: bfloat16 where it can, fp32 where bfloat16 would be emulated."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch


@cache
def multiplies_bfloat16(device: str) -> bool:
    """Whether "cuda" or "cpu" has instructions for it; without them it takes two and a half times as long as fp32, or more."""
    capabilities = torch.cpu.get_capabilities()
    return device == "cuda" or any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


def autocast(device: str) -> AbstractContextManager[Any]:
    """The forward pass in bfloat16, where the device multiplies in it."""
    return torch.autocast(device, torch.bfloat16, enabled=multiplies_bfloat16(device))
