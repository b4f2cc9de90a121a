"""A revision of the model as requests meet it: who renders, admits and answers. Each has a vocabulary of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from foretype_context.prompt.profile import Budgets, Profile

from foretype_backend.serving.render import Renderer
from foretype_backend.serving.service import CompletionService


@dataclass(slots=True)
class ServedRevision:
    """One of them.

    Attributes:
        name: as its replicas announce it; "" is what `[model]` describes.
        free_budgets: of tenants of the free tier; None for those of everybody.
        profile: what its clients are told; None where the door knows, or before a replica of it has come.
    """

    name: str
    service: CompletionService
    renderer: Renderer
    free_budgets: Budgets | None = None
    profile: Profile | None = None


class ChoosesRevision(Protocol):
    """Which revision answers a developer, where `[pool.revisions]` has some beside that of `[model]`."""

    def of(self, developer: str, *, free: bool) -> ServedRevision | None:
        """With a profile; None for that of `[model]`. `free` is of the tier."""
        ...

    def all(self) -> Iterable[ServedRevision]:
        """All but that of `[model]`, whether or not they can be asked."""
        ...


@dataclass(frozen=True, slots=True)
class BlockPool:
    """A service whose model has its own tokens and grammar; `fails_over` says whether the fast pool answers where it is away."""

    service: CompletionService
    renderer: Renderer
    fails_over: bool
