"""A tenant's report, or a team's: what is asked of the store, and what of it is not shown."""

from __future__ import annotations

from typing import Any, Final

from foretype_backend.admission.metering import UsageRow
from foretype_backend.config.config import Config
from foretype_backend.config.settings import PricesConfig
from foretype_backend.config.state_files import identity_url, telemetry_url
from foretype_backend.database import is_there
from foretype_backend.errors import StoreError
from foretype_backend.reports.figures import DEFINITIONS, Costs, feelings, figures_of
from foretype_backend.reports.period import Period
from foretype_backend.reports.sums import SPLITS, Sums, answers, sums, users
from foretype_backend.reports.suppression import LEAST_USERS, Place, hidden_in
from foretype_backend.reports.words import SUPPRESSED
from foretype_backend.telemetry.store import Store


async def read_report(
    config: Config, period: Period, *, tenant: str, team: str | None, url: str | None = None
) -> dict[str, Any]:
    """Open, read and close. Raises StoreError.

    Args:
        url: of the events, in place of the configuration's.
    """
    from foretype_backend.telemetry.store import Store

    opened = await Store.open_to_read(_place(config, url))
    try:
        usage = await _usage(config, period, tenant) if config.prices.engine_hour else None
        return await make_report(opened, period, tenant=tenant, team=team, prices=config.prices, usage=usage)
    finally:
        await opened.close()


async def tenants_of(config: Config, url: str | None = None) -> list[str]:
    """Whose events are kept: for who runs the gateway, and never for a tenant. Raises StoreError."""
    from foretype_backend.telemetry.store import Store

    opened = await Store.open_to_read(_place(config, url))
    try:
        return [one.tenant for one in await opened.consents()]
    finally:
        await opened.close()


def _place(config: Config, url: str | None) -> str:
    place = url or telemetry_url(config)
    if not is_there(place, "--store"):
        raise StoreError(
            f"{place} is not there: no gateway has kept anything in it; give --store URL or --profile FILE"
        )
    return place


async def _usage(config: Config, period: Period, tenant: str) -> UsageRow | None:
    """Of a gateway that knows its users; the others count no engine's time."""
    from foretype_backend.identity.store import IdentityStore

    if not is_there(identity_url(config), "identity.url"):
        return None
    opened = await IdentityStore.open(identity_url(config))
    try:
        return await opened.used(tenant, period.first, period.last)
    finally:
        await opened.close()


_FEW: Final = f"fewer than {LEAST_USERS} users, or what would tell of so few by subtraction"
_NOT_ALLOWED: Final = "single users are shown where their tenant allows it: foretype privacy set --user-reports"
_TOLD_APART: Final = tuple(split for split in SPLITS if split != "user")
_CHARACTERS_PER_TOKEN: Final = 4.0
"""Where nothing was generated that says how long tokens are."""


async def make_report(
    store: Store,
    period: Period,
    *,
    tenant: str,
    team: str | None = None,
    prices: PricesConfig | None = None,
    usage: UsageRow | None = None,
) -> dict[str, Any]:
    """The report as JSON has it (docs/reports.md).

    Args:
        prices: of tokens, and of an hour of an engine.
        usage: what the tenant used in the period, for what its engines' time is worth.

    Raises:
        StoreError: it cannot be read.
    """
    costs = await _costs(store, tenant, period, prices or PricesConfig(), usage)
    whole = await sums(store, tenant, period, None, team)
    report: dict[str, Any] = {
        "period": {"name": period.name, "first": period.first.isoformat(), "last": period.last.isoformat()},
        "tenant": tenant,
        "team": team,
        "least_users": LEAST_USERS,
        "definitions": DEFINITIONS,
    }
    gone = await _hidden(store, tenant, period)
    tables: dict[str, Any] = {}
    for split in _TOLD_APART:
        if split != "team" or team is None:
            tables[split] = await _table(store, tenant, period, split, team, gone[split], costs)
    everybody = len({one.user for one in whole})
    if (team, None) in gone["team"] or everybody < LEAST_USERS:
        report |= {"users": None, "total": {SUPPRESSED: _FEW}, "by": {split: [] for split in tables}, "feels": None}
    else:
        said = await answers(store, tenant, period, team)
        feels = feelings(said) if len({one.user for one in said}) >= LEAST_USERS else None
        report |= {"users": everybody, "total": figures_of(whole, costs), "by": tables, "feels": feels}
    allowed = (await store.consent(tenant)).user_reports
    by_user = await _table(store, tenant, period, "user", team, set(), costs) if allowed else {SUPPRESSED: _NOT_ALLOWED}
    report["by"]["user"] = by_user
    return report


async def _table(
    store: Store, tenant: str, period: Period, split: str, team: str | None, gone: set[Place], costs: Costs | None
) -> list[dict[str, Any]]:
    groups: dict[str, list[Sums]] = {}
    for one in await sums(store, tenant, period, split, team):
        groups.setdefault(one.group, []).append(one)
    rows: list[dict[str, Any]] = []
    for name in sorted(groups):
        place = (name, None) if split == "team" else (team, name)
        if place in gone:
            rows.append({"name": name, SUPPRESSED: _FEW})
        else:
            many = len({one.user for one in groups[name]})
            rows.append({"name": name, "users": many, **figures_of(groups[name], costs)})
    return rows


async def _hidden(store: Store, tenant: str, period: Period) -> dict[str, set[Place]]:
    """By what tells apart: teams by themselves, everything else by team too, since a team's report says so.

    All tables have the sums of teams in common: one that is hidden in one of them is hidden in all.
    """
    who: dict[str, list[dict[tuple[str, str], set[str]]]] = {}
    for split in _TOLD_APART:
        weeks = [await users(store, tenant, week, split) for week in period.each()]
        if split == "team":
            weeks = [{(team, ""): known for (team, _), known in week.items()} for week in weeks]
        who[split] = weeks
    common: set[Place] = set()
    while True:
        gone = {split: hidden_in(weeks, common) for split, weeks in who.items()}
        more = {place for found in gone.values() for place in found if place[1] is None}
        if more == common:
            return gone
        common = more


async def _costs(
    store: Store, tenant: str, period: Period, prices: PricesConfig, usage: UsageRow | None
) -> Costs | None:
    if not any(
        (prices.prompt_per_million, prices.cached_per_million, prices.generated_per_million, prices.engine_hour)
    ):
        return None
    everything = await sums(store, tenant, period, None, None)

    def total(name: str) -> int:
        return sum(one.counts[name] for one in everything)

    computed = max(0, total("prompt_tokens") - total("cached_tokens")) + total("generated_tokens")
    engine = 0.0
    if prices.engine_hour and usage is not None and computed:
        engine = usage.engine_us / 3.6e9 * prices.engine_hour / computed
    written, characters = total("generated_tokens"), total("result_characters")
    per_character = written / characters if characters and written else 1 / _CHARACTERS_PER_TOKEN
    return Costs(prices, engine, per_character)
