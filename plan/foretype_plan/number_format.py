"""Numbers as a table shows them."""

from __future__ import annotations


def number(value: float, digits: int = 4) -> str:
    """So many digits that count, and all of those before the point: no reader of 80 columns wants 2.8e+04."""
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
