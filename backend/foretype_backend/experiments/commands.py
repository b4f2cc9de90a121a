"""`foretype experiment create|aa|start|stop|status|verdict`: live experiments from the command line."""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer
from foretype_context.terminal import console, say, say_json
from rich.table import Table

from foretype_backend.config.names import is_name
from foretype_backend.config.state_files import state_dir
from foretype_backend.errors import StoreError, VariantError
from foretype_backend.experiments.assign import Design
from foretype_backend.identity.commands import JsonOption, config_of, run_told, show, wall_ms

if TYPE_CHECKING:
    from foretype_backend.experiments.experiment import Experiment
    from foretype_backend.experiments.store import ExperimentStore, Seen

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Live experiments: what a team's suggestions are made by, compared.",
)

_T = TypeVar("_T")
StoreOption = Annotated[str | None, typer.Option("--store", help="of identities: postgresql://…, or a SQLite file")]
ProfileOption = Annotated[
    Path | None,
    typer.Option("--profile", envvar="FORETYPE_PROFILE", help="the gateway's TOML file, for both stores' URLs"),
]
TelemetryOption = Annotated[str | None, typer.Option("--telemetry", help="of events: postgresql://…, or a SQLite file")]
VersionOption = Annotated[
    int | None, typer.Option("--version", help="as you saw it; refused where somebody has changed it since")
]
TenantOption = Annotated[str, typer.Option(help="of this tenant alone; default everybody")]
TeamOption = Annotated[str, typer.Option(help="of this team alone")]
DesignOption = Annotated[Design, typer.Option(help="within developers by block of time, or between developers")]
HoursOption = Annotated[int, typer.Option(help="how long a developer sees one variant: 1, 2, 3, 4, 6, 12 or 24")]
MetricOption = Annotated[str, typer.Option(help="headline: rcpo, cpo, acceptance, retention or rocc")]
DaysOption = Annotated[int, typer.Option(help="with work in them, after which it ends")]
AlphaOption = Annotated[float, typer.Option(help="share of experiments without an effect that may be called different")]
GuardrailOption = Annotated[
    list[str] | None, typer.Option("--guardrail", help="NAME=MARGIN, NAME=off, or first_token_ms=LIMIT")
]


@app.command()
def create(
    name: str,
    treatment: Annotated[Path | None, typer.Option(help="TOML file of what the treatment changes")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of the treatment, as in its file")] = None,
    control: Annotated[Path | None, typer.Option(help="TOML file of what the control changes; default nothing")] = None,
    tenant: TenantOption = "",
    team: TeamOption = "",
    design: DesignOption = Design.SWITCHBACK,
    block_hours: HoursOption = 1,
    metric: MetricOption = "rcpo",
    planned_days: DaysOption = 10,
    alpha: AlphaOption = 0.05,
    guardrail: GuardrailOption = None,
    aa: Annotated[bool, typer.Option("--aa", help="compare the control with itself: nothing may be found")] = False,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Make a draft: what is compared, on whom, how long. Nobody sees anything of it before `start`."""
    from foretype_backend.experiments.variants import settings

    def spec() -> dict[str, Any]:
        changed = _merged(_toml(treatment, "--treatment"), settings(set_ or []))
        if aa and changed:
            raise VariantError("--aa", "compares the control with itself; leave --treatment and --set out")
        base = _toml(control, "--control")
        treated = base if aa else changed
        return {
            "variants": [{"name": "control", "knobs": base}, {"name": "treatment", "knobs": treated}],
            "design": design.value,
            "block_hours": block_hours,
            "metric": metric,
            "planned_days": planned_days,
            "alpha": alpha,
            "guardrails": _guardrails(guardrail or []),
            "aa": aa,
            "salt": secrets.token_hex(16),
        }

    _create(name, tenant, team, spec, store, profile, json)


@app.command()
def aa(
    name: str,
    tenant: TenantOption = "",
    team: TeamOption = "",
    design: DesignOption = Design.SWITCHBACK,
    block_hours: HoursOption = 1,
    metric: MetricOption = "rcpo",
    planned_days: DaysOption = 10,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Make a draft that compares the control with itself: `create --aa`."""
    create(
        name,
        tenant=tenant,
        team=team,
        design=design,
        block_hours=block_hours,
        metric=metric,
        planned_days=planned_days,
        aa=True,
        store=store,
        profile=profile,
        json=json,
    )


@app.command()
def start(
    name: str,
    version: VersionOption = None,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Begin: connected clients follow within two seconds."""

    async def work(opened: ExperimentStore) -> dict[str, Any]:
        return _plain(await opened.start(name, wall_ms(), version=version))

    show(_with_store(work, store, profile), json)


@app.command()
def stop(
    name: str,
    reason: Annotated[str, typer.Option(help="for those who read the verdict")] = "asked for",
    version: VersionOption = None,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """End for good: everybody sees what is configured again within two seconds."""
    from foretype_backend.identity.audit import local_actor

    async def work(opened: ExperimentStore) -> dict[str, Any]:
        by = local_actor()
        return _plain(await opened.stop(name, wall_ms(), reason=reason, by=by, version=version))

    show(_with_store(work, store, profile), json)


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="of this one alone")] = None,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Show experiments: who takes part, who is left out and why, which gateway decides, what guardrails said last."""

    async def work(opened: ExperimentStore) -> dict[str, Any]:
        now_ms = wall_ms()
        chosen = await opened.experiments() if name is None else [await opened.experiment(name)]
        return {
            "leader": await opened.leader(now_ms),
            "experiments": [await _status(opened, one, now_ms) for one in chosen],
        }

    found = _with_store(work, store, profile)
    if json:
        say_json(found, indent=2)
        return
    table = Table("experiment", "state", "on", "since", "follow / connected", "guardrails", "")
    for one in found["experiments"]:
        clients = one["clients"]
        told = one["problem"] or one["reason"]
        findings = one["guardrails"]
        breached = ", ".join(key for key, found in findings.items() if found["breached"])
        guards = breached or (f"{len(findings)} held, {one['looked'] or 'never'}" if findings else "–")
        on = one["tenant"] or "everybody"
        row = (one["name"], one["state"], f"{on} {one['team']}".strip(), one["started"] or "–")
        table.add_row(*row, f"{clients['followed']} / {clients['connected']}", guards, told)
    console().print(table)
    say(f"decides: {found['leader'] or 'no gateway'}")


@app.command()
def verdict(
    name: str,
    telemetry: TelemetryOption = None,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Say what came out, or why nothing did; may be asked at any time without spoiling the answer."""
    from foretype_backend.experiments import judge, results
    from foretype_backend.telemetry.store import Store

    async def work(opened: ExperimentStore) -> dict[str, Any]:
        now_ms = wall_ms()
        one = await opened.experiment(name)
        stopped = one.state != "running"
        wrong = None if stopped else judge.problem(one, await opened.tenants(), await opened.seen(name), now_ms)
        events = await Store.open(_telemetry_url(telemetry, profile), upgrade=False)
        try:
            rows = await results.rows_of(events, one, now_ms)
            tokens = await results.first_tokens(events, one, now_ms)
        finally:
            await events.close()
        return judge.report(one, rows, tokens, now_ms, why_none="" if wrong is None else wrong.reason)

    found = _with_store(work, store, profile)
    if json:
        say_json(found, indent=2)
        return
    table = Table(title=f"{found['metric']} = {found['definition']}, {found['design']}", title_justify="left")
    for column in (*found["variants"], "difference", "low", "high"):
        table.add_column(column, justify="right")
    values = [
        f"{_number(one['value'])} of {one['denominator']:,} ({one['users']} users)"
        for one in found["variants"].values()
    ]
    table.add_row(*values, *(_number(found[part]) for part in ("effect", "low", "high")))
    console().print(table)
    n = found["n"]
    say(f"{n['users']} users, {n['units']} {n.get('unit', 'units')}, {n['days']} of {n['planned_days']} days")
    for guard, one in found["guardrails"].items():
        said = one["breached"] or "holds"
        say(f"guardrail {guard}: {said} ({_number(one['control'])} and {_number(one['treatment'])} of {one['n']})")
    say(f"verdict: {found['verdict']}: {found['reason']}")


def _create(
    name: str,
    tenant: str,
    team: str,
    spec: Callable[[], dict[str, Any]],
    store: str | None,
    profile: Path | None,
    json: bool,
) -> None:
    from foretype_backend.experiments.experiment import NAME, Experiment, Spec, check_spec
    from foretype_backend.experiments.variants import convert, parse_knobs

    async def work(opened: ExperimentStore) -> dict[str, Any]:
        if re.fullmatch(NAME, name) is None:
            raise StoreError(f"NAME: {name!r} is no name; 1 to 32 small letters, digits, _ and - after the first")
        if team and not tenant:
            raise StoreError("--team: name its --tenant too")
        for field, text in (("--tenant", tenant), ("--team", team)):
            if text and not is_name(text):
                raise StoreError(f"{field}: {text!r} is no name")
        raw = spec()
        for variant in raw["variants"]:
            variant["knobs"] = msgspec.to_builtins(parse_knobs(variant["knobs"], variant["name"]))
        checked = check_spec(convert(raw, Spec))
        return _plain(await opened.create(Experiment(name, tenant, team, checked), wall_ms()))

    show(_with_store(work, store, profile), json)


async def _status(opened: ExperimentStore, one: Experiment, now_ms: int) -> dict[str, Any]:
    from foretype_backend.experiments import judge

    seen: list[Seen] = await opened.seen(one.name) if one.state == "running" else []
    findings, looked_ms = await opened.findings(one.name)
    wrong = judge.problem(one, await opened.tenants(), seen, now_ms) if one.state == "running" else None
    clients = judge.followed_by(seen, now_ms)
    problem = "" if wrong is None else wrong.reason
    if not problem and clients["left_out"] and not clients["followed"]:
        knobs = ", ".join(sorted(clients["missing"]))
        problem = f"none of {clients['connected']} connected clients can apply it; missing: {knobs}"
    return _plain(one) | {"clients": clients, "problem": problem, "guardrails": findings, "looked": _iso(looked_ms)}


def _plain(one: Experiment) -> dict[str, Any]:
    spec = msgspec.to_builtins(one.spec)
    times = {name: _iso(getattr(one, f"{name}_ms")) for name in ("created", "started", "stopped")}
    head = {"name": one.name, "state": one.state.value, "version": one.version, "tenant": one.tenant, "team": one.team}
    return head | times | {"reason": one.reason, "by": one.by, "spec": spec, "needs": sorted(one.spec.needs())}


def _guardrails(pairs: list[str]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            found[name] = None if text == "off" else float(text)
        except ValueError as error:
            raise VariantError(
                "--guardrail", f"{pair!r} is no NAME=MARGIN; it looks like cost=0.5, or cost=off"
            ) from error
    return found


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Options beside a file: tables are merged, and their fields replaced."""
    tables = {name: {**base[name], **value} for name, value in over.items() if isinstance(base.get(name), dict)}
    return {**base, **over, **tables}


def _toml(path: Path | None, option: str) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise VariantError(option, f"{path} cannot be read as TOML: {error}") from error


def _telemetry_url(url: str | None, profile: Path | None) -> str:
    from foretype_backend.database import is_there

    config = config_of(profile)
    named = url or config.telemetry.url or str(state_dir(config) / "telemetry" / "events.db")
    if not is_there(named, "--telemetry"):
        raise StoreError(f"--telemetry: {named} is not there; give the gateway's telemetry.url")
    return named


def _with_store(work: Callable[[ExperimentStore], Awaitable[_T]], url: str | None, profile: Path | None) -> _T:
    from foretype_backend.experiments.store import ExperimentStore
    from foretype_backend.identity.store import audited

    async def run() -> _T:
        async with audited(config_of(profile), url) as opened:
            return await work(ExperimentStore(opened))

    return run_told(run())


def _iso(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="seconds") if unix_ms else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
