"""`--limit tenant=5000:20000`: limits in tokens as an operator writes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from foretype_wire.messages import RequestClass

from foretype_backend.admission.limits import Budget

BOUNDS: Final = ("tenant", "user", *(class_.value for class_ in RequestClass))
"""What a budget may bound: the tenant as a whole, each of its users, one class of its requests."""


def parse_limits(former: Mapping[str, Budget], options: Sequence[str]) -> dict[str, Budget]:
    """The former budgets with each option applied. Raises ValueError naming what is wrong and the form."""
    budgets = dict(former)
    for option in options:
        what, _, value = option.partition("=")
        if what not in BOUNDS:
            raise ValueError(f"{what!r} is none of {', '.join(BOUNDS)}; write WHAT=TOKENS_PER_S:BURST")
        if value == "none":
            budgets.pop(what, None)
            continue
        rate, _, burst = value.partition(":")
        try:
            numbers = float(rate), float(burst or rate)
        except ValueError:
            raise ValueError(f"{option!r}; write WHAT=TOKENS_PER_S:BURST, e.g. tenant=5000:20000") from None
        budgets[what] = Budget(tokens_per_s=numbers[0], burst_tokens=numbers[1])
    return budgets
