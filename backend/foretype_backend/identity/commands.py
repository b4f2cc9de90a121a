"""`foretype tenants …`, `foretype keys …`, `foretype usage`: the identity store from the command line."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, TypeVar

import msgspec
import typer
from foretype_context.terminal import console, say, say_json
from foretype_wire.messages import RequestClass
from rich.table import Column, Table

from foretype_backend.admission.limits import Budget
from foretype_backend.config.config import Config
from foretype_backend.config.load import load_config
from foretype_backend.config.names import is_name
from foretype_backend.errors import ConfigError, StoreError, VariantError
from foretype_backend.identity.directory import KeyRecord, Scope, Tenant, Tier, User
from foretype_backend.identity.keys import mint
from foretype_backend.identity.listing import USAGE_COLUMNS, key_row, keys_of, usage_of

if TYPE_CHECKING:
    from foretype_backend.identity.store import IdentityStore
    from foretype_backend.prefix.purge_report import Purged

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


tenants = typer.Typer(add_completion=False, no_args_is_help=True, help="Tenants, their teams, users and limits.")
keys = typer.Typer(add_completion=False, no_args_is_help=True, help="API keys: create, rotate with overlap, revoke.")

_T = TypeVar("_T")
StoreOption = Annotated[
    str | None, typer.Option("--store", help="postgresql://…, or a SQLite file; default in the state directory")
]
ProfileOption = Annotated[
    Path | None,
    typer.Option("--profile", envvar="FORETYPE_PROFILE", help="the gateway's TOML file, for its identity.url"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
LimitOption = Annotated[
    list[str] | None,
    typer.Option("--limit", help="WHAT=TOKENS_PER_S:BURST; WHAT is tenant, user, or a class; WHAT=none removes it"),
]
_DAY_MS = 86_400_000


def with_store(work: Callable[[IdentityStore], Awaitable[_T]], url: str | None, profile: Path | None) -> _T:
    """Run with the open store, as :func:`run_told` does."""
    from foretype_backend.identity.store import audited

    async def run() -> _T:
        async with audited(config_of(profile), url) as store:
            if url is None and profile is None:
                say(f"foretype: in {store.place}; a gateway with another is meant by --profile or --store", err=True)
            return await work(store)

    return run_told(run())


def store_command(
    shown: Callable[[_T], None] | None = None,
) -> Callable[[Callable[Concatenate[IdentityStore, ...], Awaitable[_T]]], Callable[..., None]]:
    """A command that is one act on the open store: `--store`, `--profile` and `--json` follow its own options.

    Args:
        shown: prints what the act returns; without it a line for each field.
    """

    def command(act: Callable[Concatenate[IdentityStore, ...], Awaitable[_T]]) -> Callable[..., None]:
        def run(store: StoreOption = None, profile: ProfileOption = None, json: JsonOption = False, **own: Any) -> None:
            done = with_store(lambda opened: act(opened, **own), store, profile)
            if json or shown is None:
                show(done, json)
            else:
                shown(done)

        # Read here: the store's class is no name at run time.
        _, *its = inspect.signature(act, eval_str=True, locals={"IdentityStore": Any}).parameters.values()
        *every, _ = inspect.signature(run, eval_str=True).parameters.values()
        run.__doc__ = act.__doc__
        vars(run)["__signature__"] = inspect.Signature([*its, *every])
        return run

    return command


@tenants.command("add")
@store_command()
async def add_tenant(
    opened: IdentityStore,
    name: str,
    tier: Annotated[Tier, typer.Option(help="what it is promised")] = Tier.PAID,
    weight: Annotated[float, typer.Option(help="share of the capacity beside the others'")] = 1.0,
    limit: LimitOption = None,
) -> Tenant:
    """Add a tenant."""
    tenant = _tenant(Tenant(name=_name(name, "NAME")), tier, weight, limit)
    await opened.add_tenant(tenant, wall_ms())
    return tenant


@tenants.command("set")
@store_command()
async def set_tenant(
    opened: IdentityStore,
    name: str,
    tier: Annotated[Tier | None, typer.Option(help="what it is promised")] = None,
    weight: Annotated[float | None, typer.Option(help="share of the capacity beside the others'")] = None,
    limit: LimitOption = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="a disabled tenant is let in nowhere")
    ] = None,
) -> Tenant:
    """Change a tenant; what is not named stays."""
    old = await opened.tenant(name)
    tenant = _tenant(old, tier or old.tier, old.weight if weight is None else weight, limit)
    tenant = replace(tenant, enabled=old.enabled if enabled is None else enabled)
    await opened.set_tenant(tenant)
    return tenant


@tenants.command("purge")
def purge_tenant(name: str, store: StoreOption = None, profile: ProfileOption = None, json: JsonOption = False) -> None:
    """Make everything cached for a tenant unreachable, on every gateway. Exit code 1 where one has not followed yet."""
    from foretype_backend.identity.store_purges import Purges

    async def work(opened: IdentityStore) -> tuple[Tenant, Purged]:
        done = await Purges(opened, wall_ms=wall_ms).purge(name)
        return await opened.tenant(name), done

    tenant, done = with_store(work, store, profile)
    show(_plain(tenant) | done.report(), json)
    if not done.complete:
        say(f"foretype: not reached: {', '.join(one.gateway for one in done.not_reached)}", err=True)
        raise typer.Exit(1)


def _show_tenants(found: list[dict[str, Any]]) -> None:
    table = Table("tenant", "tier", "weight", "limits", "teams", "users", "")
    for row in found:
        limits = ", ".join(
            f"{what} {b['tokens_per_s']:g}/s:{b['burst_tokens']:g}" for what, b in row["budgets"].items()
        )
        off = "" if row["enabled"] else "disabled"
        table.add_row(
            row["name"], row["tier"], f"{row['weight']:g}", limits, ", ".join(row["teams"]), str(len(row["users"])), off
        )
    console().print(table)


@tenants.command("list")
@store_command(_show_tenants)
async def list_tenants(opened: IdentityStore) -> list[dict[str, Any]]:
    """Show tenants with their teams and users."""
    directory, teams = await opened.snapshot(), await opened.team_names()
    return [
        _plain(tenant)
        | {
            "teams": [team for of, team in teams if of == tenant.name],
            "users": [_plain(user) for user in directory.users.values() if user.tenant == tenant.name],
        }
        for tenant in directory.tenants.values()
    ]


@tenants.command("add-team")
@store_command()
async def add_team(opened: IdentityStore, tenant: str, team: str) -> dict[str, str]:
    """Add a team to a tenant."""
    await opened.add_team(tenant, _name(team, "TEAM"))
    return {"tenant": tenant, "team": team}


@tenants.command("add-user")
@store_command()
async def add_user(
    opened: IdentityStore,
    tenant: str,
    user: str,
    team: Annotated[str, typer.Option(help="must exist")] = "",
    disable: Annotated[bool, typer.Option("--disable", help="let this user in nowhere")] = False,
) -> User:
    """Add a user to a tenant, or change the team of one."""
    person = User(tenant=tenant, name=_name(user, "USER"), team=team, enabled=not disable)
    await opened.put_user(person)
    return person


@keys.command("create")
@store_command()
async def create_key(
    opened: IdentityStore,
    tenant: Annotated[str, typer.Option(help="whose key it is")],
    user: Annotated[str, typer.Option(help="one user of the tenant")] = "",
    scope: Annotated[list[Scope] | None, typer.Option(help="what it may do; default complete and chat")] = None,
    days: Annotated[float | None, typer.Option(help="until it expires; default never")] = None,
) -> dict[str, Any]:
    """Make a key. It is shown once; the store keeps its hash alone."""
    life_ms = _life_ms(days)
    now_ms, key = wall_ms(), mint(secrets.token_bytes)
    scopes = frozenset(scope) if scope else KeyRecord(id="", hash="", tenant="").scopes
    expires_ms = None if life_ms is None else now_ms + life_ms
    record = KeyRecord(id=key.id, hash=key.hash, tenant=tenant, user=user, scopes=scopes, expires_ms=expires_ms)
    await opened.add_key(key, record, now_ms)
    return {"key": key.text} | key_row(record)


def _show_keys(found: list[dict[str, Any]]) -> None:
    # Keys are named by their ids: these are never broken, and nothing is cut.
    ids = [Column(name, no_wrap=True, min_width=12) for name in ("id", "successor")]
    names = ("tenant", "user", "scopes", "expires (UTC)", "revoked (UTC)")
    table = Table(ids[0], *(Column(name, overflow="fold") for name in names), ids[1])
    for row in found:
        times = (str(row[name] or "").partition("+")[0].replace("T", " ") for name in ("expires", "revoked"))
        cells = (row["id"], row["tenant"], row["user"], " ".join(row["scopes"]), *times, row["successor"])
        table.add_row(*(cell or "" for cell in cells))
    console().print(table)


@keys.command("list")
@store_command(_show_keys)
async def list_keys(
    opened: IdentityStore,
    tenant: Annotated[str | None, typer.Option(help="of this tenant alone")] = None,
) -> list[dict[str, Any]]:
    """Show keys: ids, rights and times, never secrets."""
    return await keys_of(opened, tenant)


@keys.command("rotate")
@store_command()
async def rotate_key(
    opened: IdentityStore,
    id: str,
    overlap_hours: Annotated[float, typer.Option(help="how long the old key still works")] = 24.0,
    days: Annotated[
        float | None, typer.Option(help="until the successor expires; default as long as the old key had")
    ] = None,
) -> dict[str, Any]:
    """Make a successor of the same rights and lifetime; the old key works until the overlap is over."""
    if not 0 <= overlap_hours <= 24 * 365:
        raise StoreError("--overlap-hours: must be 0 to 8760")
    key = mint(secrets.token_bytes)
    record = await opened.rotate_key(_id(id), key, wall_ms(), int(overlap_hours * 3_600_000), life_ms=_life_ms(days))
    return {"key": key.text} | key_row(record)


@keys.command("revoke")
@store_command()
async def revoke_key(opened: IdentityStore, id: str) -> dict[str, Any]:
    """End a key now; every gateway knows within two seconds, and closes its connections."""
    await opened.revoke_key(_id(id), wall_ms())
    return {"id": _id(id), "revoked": True}


def usage(
    month: Annotated[str, typer.Option(help="YYYY-MM; default this month")] = "",
    tenant: Annotated[str | None, typer.Option(help="of this tenant alone")] = None,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Tokens, engine-seconds and cost of a month, per tenant, team and user."""

    async def work(opened: IdentityStore) -> dict[str, Any]:
        return await usage_of(opened, month, tenant, config_of(profile).prices)

    report = with_store(work, store, profile)
    if json:
        say_json(report, indent=2)
        return
    heads = [Column(name.replace("_", " "), justify="right", overflow="fold") for name in USAGE_COLUMNS]
    table = Table("tenant", "team", "user", *heads, title=f"usage {report['month']}", box=None, padding=(0, 1, 0, 0))
    for row in report["users"]:
        table.add_row(row["tenant"], row["team"], row["user"], *(f"{row[name]:,}" for name in USAGE_COLUMNS))
    console().print(table)


def _tenant(tenant: Tenant, tier: Tier, weight: float, limits: list[str] | None) -> Tenant:
    if not 0 < weight <= 1000:
        raise StoreError("--weight: must be above 0 and at most 1000")
    try:
        budgets = parse_limits(tenant.budgets, limits or [])
    except ValueError as error:
        raise StoreError(f"--limit: {error}") from error
    return replace(tenant, tier=tier, weight=weight, budgets=budgets)


def _name(text: str, field: str) -> str:
    if not is_name(text):
        raise StoreError(f"{field}: {text!r} is no name; 1 to 64 letters, digits, and . _ @ - after the first")
    return text


def _id(text: str) -> str:
    """The id in what was given: an id, or a whole key."""
    return text.removeprefix("ft_").partition("_")[0]


def _life_ms(days: float | None) -> int | None:
    if days is not None and not 0 < days <= 36_500:
        raise StoreError("--days: must be above zero and at most 36500; leave it out for what the help says")
    return None if days is None else int(days * _DAY_MS)


def wall_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def _plain(value: Any) -> dict[str, Any]:
    return msgspec.to_builtins(value)


def config_of(profile: Path | None) -> Config:
    """The configuration that commands go by. Raises ConfigError."""
    return load_config(profile=profile) if profile is not None else Config()


def run_told(work: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end; what is wrong is said in one line, exit code 1 (2 for a configuration or a variant)."""
    try:
        return asyncio.run(work)
    except (ConfigError, VariantError) as error:
        say(f"foretype: {error}", err=True)
        raise typer.Exit(2) from error
    except StoreError as error:
        say(f"foretype: {error}", err=True)
        raise typer.Exit(1) from error


def show(value: Any, json: bool) -> None:
    """As JSON, or a line for each field."""
    plain = _plain(value)
    if json:
        say_json(plain, indent=2)
        return
    for name, shown in plain.items():
        say(f"{name}: {shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()}")
