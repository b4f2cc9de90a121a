"""A month's usage with its cost, by tenant, team and user. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretype_backend.admission.metering import UsageRow
from foretype_backend.config.settings import PricesConfig


def cost_of(row: UsageRow, prices: PricesConfig) -> float:
    """Cached prompt tokens have a price of their own; what was generated and wasted is paid for."""
    computed = row.prompt_tokens - row.cached_tokens
    tokens = (
        computed * prices.prompt_per_million
        + row.cached_tokens * prices.cached_per_million
        + row.generated_tokens * prices.generated_per_million
    )
    return tokens / 1e6 + row.engine_us / 3.6e9 * prices.engine_hour


def usage_report(
    month: str, rows: Sequence[tuple[tuple[str, str, str, str], UsageRow]], prices: PricesConfig
) -> dict[str, Any]:
    """`rows` by (tenant, team, user, class). Keys: `tenants`, `teams`, `users`, `classes`, `total`; tokens are exact."""
    levels = {"tenants": ("tenant",), "teams": ("tenant", "team"), "users": ("tenant", "team", "user")}
    names = ("tenant", "team", "user", "class")
    report: dict[str, Any] = {"month": month}
    for level, shown in {**levels, "classes": ("tenant", "class")}.items():
        sums: dict[tuple[str, ...], UsageRow] = {}
        for key, row in rows:
            of = tuple(key[names.index(name)] for name in shown)
            sums[of] = sums[of].plus(row) if of in sums else row
        report[level] = [dict(zip(shown, of, strict=True)) | _figures(row, prices) for of, row in sums.items()]
    total: dict[str, Any] = {}
    for row in report["tenants"]:
        total = {name: total.get(name, 0) + row[name] for name in row if name != "tenant"}
    return report | {"total": total}


def _figures(row: UsageRow, prices: PricesConfig) -> dict[str, Any]:
    return {
        "requests": row.requests,
        "prompt_tokens": row.prompt_tokens,
        "cached_tokens": row.cached_tokens,
        "generated_tokens": row.generated_tokens,
        "wasted_tokens": row.wasted_tokens,
        "engine_seconds": round(row.engine_us / 1e6, 3),
        "cost": round(cost_of(row, prices), 6),
    }
