"""Context strategies: how a prompt is filled, as named and versioned data.

A profile names a strategy, and may carry one that this client has never heard of: an experiment with context is a change of the
gateway's configuration, not of clients. Where a strategy stands nowhere it only chooses; order in a prompt is stability's alone.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Final

import msgspec

_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


_PRIORITIES: Final = MappingProxyType(
    {"repository": 5.0, "imports": 4.0, "dependencies": 3.0, "recent": 2.0, "open": 1.0}
)
"""What the imports at the cursor name, then what was edited recently, then what was found."""

_SHARES: Final = MappingProxyType({"repository": 0.6, "dependencies": 0.5})


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """One way to fill a prompt.

    Attributes:
        id: name and version, e.g. `default-1`; what a name means never changes.
        context_share: of the whole prompt, at most for other files.
        priorities: which sources' snippets are kept first under budget; a source that is not named has 0. Within a source its own
            scores decide.
        shares: of the context budget, at most per source; a source that is not named may have all.
        pinned: sources whose snippets are equal for everybody: they are taken first and never compared with the text at the cursor.
        snippet_tokens: a longer snippet is cut to whole lines within this.
        echo: share of a snippet's lines that may stand around the cursor already.
        double: likeness of two snippets above which the one with less priority is left out.
        expired_max: snippets that are no candidates any more, but stay so that nothing behind them is computed again.
        growing_lines: the hole of `psm_growing` is closed when it has so many lines.
        growing_share: … or takes this part of the file's room.
        places: earlier places per file that are remembered.
    """

    id: str
    context_share: _Share = 0.5
    priorities: dict[str, float] = msgspec.field(default_factory=lambda: dict(_PRIORITIES))
    shares: dict[str, _Share] = msgspec.field(default_factory=lambda: dict(_SHARES))
    pinned: tuple[str, ...] = ("repository",)
    snippet_tokens: Annotated[int, msgspec.Meta(ge=16)] = 300
    echo: _Share = 0.5
    double: _Share = 0.9
    expired_max: Annotated[int, msgspec.Meta(ge=0)] = 2
    growing_lines: Annotated[int, msgspec.Meta(ge=1)] = 20
    growing_share: Annotated[float, msgspec.Meta(gt=0.0, le=0.5)] = 1 / 6
    places: Annotated[int, msgspec.Meta(ge=0, le=16)] = 4


DEFAULT_STRATEGY: Final = Strategy(id="default-1")

_ALL: Final = (
    DEFAULT_STRATEGY,
    Strategy(id="file-only-1", context_share=0.0),
    Strategy(id="short-snippets-1", snippet_tokens=150),
    Strategy(id="edits-first-1", priorities={**_PRIORITIES, "recent": 4.5}),
    Strategy(id="retrieved-first-1", priorities={**_PRIORITIES, "retrieval": 4.5}),
)

STRATEGIES: Final = MappingProxyType({one.id: one for one in _ALL})


def strategy_named(name: str, rules: Strategy | None = None) -> tuple[Strategy, str]:
    """The strategy of a profile, and why it is not the one that the profile names (empty where it is).

    Args:
        name: as the profile has it.
        rules: the strategy that came with the profile; it counts where its id is `name`.
    """
    if rules is not None and rules.id == name:
        return rules, ""
    found = STRATEGIES.get(name)
    if found is not None:
        return found, ""
    known = ", ".join(STRATEGIES)
    return DEFAULT_STRATEGY, f"unknown strategy {name!r}: {DEFAULT_STRATEGY.id} is used (this client knows {known})"
