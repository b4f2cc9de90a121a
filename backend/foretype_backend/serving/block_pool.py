"""Where requests for whole blocks of code go, where a larger model answers them."""

from __future__ import annotations

from dataclasses import dataclass

from foretype_backend.serving.render import Renderer
from foretype_backend.serving.service import CompletionService


@dataclass(frozen=True, slots=True)
class BlockPool:
    """A service whose model has its own tokens and grammar; `fails_over` says whether the fast pool answers where it is away."""

    service: CompletionService
    renderer: Renderer
    fails_over: bool
