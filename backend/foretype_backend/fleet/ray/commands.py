"""`foretype fleet up|status|scale|roll|down|config`: replicas that Ray Serve places, heals and scales."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import platformdirs
import typer
from foretype_context.terminal import console, say, say_json
from rich.table import Table

from foretype_backend.errors import ConfigError, FleetError, RolloutError
from foretype_backend.fleet.ray.fleet_file import load_fleet
from foretype_backend.fleet.ray.rolls import Order
from foretype_backend.fleet.ray.running import RunningFleet
from foretype_backend.fleet.ray.serve_config import ordered, resized, serve_config, targets, written

app = typer.Typer(add_completion=False, no_args_is_help=True, help="A fleet of replicas on Ray Serve.")

ConfigOption = Annotated[Path, typer.Option("--config", help="the fleet's file; deploy/fleet.toml is an example")]
StateOption = Annotated[Path | None, typer.Option("--state-dir", help="where a head that `up` starts is known by")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
_CONFIG = Path("fleet.toml")


@app.command()
def up(
    config: ConfigOption = _CONFIG,
    state_dir: StateOption = None,
    wait_s: Annotated[float, typer.Option("--wait-s", help="seconds that the replicas may take", min=1.0)] = 900.0,
) -> None:
    """Start Ray where the file names no cluster, and the fleet on it; returns when every replica is ready."""
    with _told():
        running = _running(config, state_dir)
        running.up(wait_s, lambda text: say(text, err=True))
        directory = running.fleet.directory
        say(
            f"{running.fleet.name} is up; gateways find its replicas at http://{directory.host}:{directory.port}/replicas"
        )


@app.command()
def status(config: ConfigOption = _CONFIG, state_dir: StateOption = None, json: JsonOption = False) -> None:
    """Show each replica. Exit code 1 where fewer are ready than asked for."""
    with _told():
        running = _running(config, state_dir)
        with running.api() as api:
            wanted = targets(api.config())
        replicas = running.replicas()
        ready = Counter(one.application for one in replicas if one.state == "ready")
        pools: list[dict[str, Any]] = [
            {
                "pool": placed.pool,
                "region": placed.region,
                "revision": placed.revision,
                "ready": ready[placed.application],
                "least": target.least,
                "most": target.most,
            }
            for placed, target in wanted.items()
        ]
        if json:
            found: list[Any] = [msgspec.to_builtins(one) for one in replicas]
            say_json(
                {"fleet": running.fleet.name, "pools": pools, "replicas": found, "rolls": running.rolls()}, indent=2
            )
        else:
            _show(running.fleet.name, pools, replicas)
            for name, told in running.rolls().items():
                console().print(f"roll-out of {name}: {told}")
    if any(one["ready"] < one["least"] for one in pools):
        raise typer.Exit(1)


@app.command()
def scale(
    pool: str,
    replicas: Annotated[str, typer.Argument(metavar="N", help="a number, or `auto` for what scales the pool by load")],
    region: Annotated[str | None, typer.Option(help="in this region alone")] = None,
    config: ConfigOption = _CONFIG,
    state_dir: StateOption = None,
) -> None:
    """Give a pool N replicas, within its bounds in the file; who goes is drained first."""
    with _told():
        if not (replicas == "auto" or replicas.isdecimal()):
            raise ConfigError("N", f"{replicas!r} is no number of replicas; give one, or auto")
        count = None if replicas == "auto" else int(replicas)
        running = _running(config, state_dir)
        with running.api() as api:
            api.deploy(resized(api.config(), running.fleet, config.absolute().parent, pool, count, region))
        much = "as many replicas as its load asks for" if count is None else f"{count} replica{'s' * (count != 1)}"
        say(f"{pool} is to have {much}; `foretype fleet status` shows them come and go")


@app.command()
def roll(
    model: Annotated[str, typer.Option("--model", help="the revision to roll out, as it stands in the file")] = "",
    canary: Annotated[str, typer.Option("--canary", help="share of developers to begin with")] = "5%",
    gate: Annotated[Path | None, typer.Option("--gate", help="verdict of `foretype eval gate --json`")] = None,
    without_gate: Annotated[str, typer.Option("--without-gate", help="why it begins without a verdict")] = "",
    back: Annotated[bool, typer.Option("--back", help="everybody to the former revision, now")] = False,
    pool: Annotated[str, typer.Option(help="which one, where the file has several")] = "",
    config: ConfigOption = _CONFIG,
    state_dir: StateOption = None,
    wait_s: Annotated[float, typer.Option("--wait-s", help="seconds until a replica of it is ready", min=1.0)] = 900.0,
) -> None:
    """Roll a revision out beside the one that serves, to more and more developers; or take it back."""
    with _told():
        running = _running(config, state_dir)
        names = dict.fromkeys(one.name for one in running.fleet.pools)
        if not pool and len(names) > 1:
            raise ConfigError("--pool", f"the file has {', '.join(names)}; say which one")
        name = pool or next(iter(names))
        if back == bool(model):
            raise ConfigError("--model", "name a revision to roll out, or say --back, and not both")
        order = _order(running, name, model, canary, gate, without_gate)
        running.roll(name, order, wait_s)
        say(f"{name}: {running.rolls().get(name, 'as it was')}")


def _order(running: RunningFleet, name: str, model: str, canary: str, gate: Path | None, without_gate: str) -> Order:
    """Raises ConfigError, FleetError and RolloutError, before anything is changed."""
    first = running.fleet.of(name)[0]
    with running.api() as api:
        last = ordered(api.config(), name)
    if not model:
        if last is None:
            raise FleetError(f"nothing was rolled out in {name}")
        return msgspec.structs.replace(last, back="by hand")
    if model not in first.revisions:
        raise ConfigError(
            "--model", f"{model!r} is not among the revisions ({', '.join(first.revisions)}); write it into the file"
        )
    now = running.rollouts()[name]
    if now["canary"] is not None:
        raise FleetError(
            f"{now['canary']} is being rolled out in {name}; wait for it, or take it back with `roll --back`"
        )
    share = canary.removesuffix("%")
    if not share.replace(".", "", 1).isdecimal():
        raise ConfigError("--canary", f"{canary!r} is no share; write it as 5%")
    former = max(now["number"], 0 if last is None else last.number)
    made = Order(
        number=Order.number_after(former, time.time()),  # noqa: TID251 - so that it differs from fleet to fleet
        stable=now["stable"],
        canary=model,
        share=float(share) / 100.0,
        verdict=None if gate is None else _verdict(gate),
        without_gate=without_gate,
        options=first.rolled,
    )
    made.begun(name, 0.0)
    return made


def _verdict(gate: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(gate.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            "--gate", f"{gate} cannot be read ({error}); write it with `foretype eval gate … --json > FILE`"
        ) from error


@app.command()
def down(
    config: ConfigOption = _CONFIG,
    state_dir: StateOption = None,
    now: Annotated[bool, typer.Option("--now", help="do not wait for requests under way")] = False,
) -> None:
    """Drain every replica and end the fleet, with Ray where `up` started it."""
    with _told():
        running = _running(config, state_dir)
        killed = running.down(now=now, told=lambda text: say(text, err=True))
        say(f"{running.fleet.name} is down" + (f"; {killed} processes were killed" if killed else ""))


@app.command("config")
def show_config(config: ConfigOption = _CONFIG) -> None:
    """Print the Serve config of the file, as Ray's own `serve deploy` and KubeRay take it."""
    with _told():
        say(written(serve_config(load_fleet(config), config.absolute().parent)))


def _show(name: str, pools: list[dict[str, Any]], replicas: list[Any]) -> None:
    """A table for each revision of a pool and region: all of one line would be cut in 80 columns."""
    screen = console()
    screen.print(name)
    of = ("pool", "region", "revision")
    found: dict[tuple[str, ...], list[Any]] = {tuple(one[key] for key in of): [] for one in pools}
    for one in replicas:
        found.setdefault(tuple(one.labels[key] for key in of), []).append(one)
    wanted = {tuple(one[key] for key in of): one for one in pools}
    for (pool, region, revision), there in found.items():
        title = f"{pool} in {region}, {revision}: "
        one = wanted.get((pool, region, revision))
        if one is None:
            title += "no longer asked for"
        else:
            bounds = f"{one['least']}" if one["least"] == one["most"] else f"{one['least']} to {one['most']}"
            title += f"{one['ready']} ready of {bounds}"
        screen.print(title, soft_wrap=True)
        if not there:
            continue
        table = Table()
        for column in ("replica", "state", "address", "start"):
            table.add_column(column, justify="right" if column == "start" else "left", overflow="fold")
        for one in there:
            start = f"{sum(one.phases.values()):.1f} s" if one.phases else ""
            table.add_row(one.replica, one.state, one.address, start)
        screen.print(table)


def _running(config: Path, state_dir: Path | None) -> RunningFleet:
    folder = (state_dir or platformdirs.user_state_path("foretype")) / "fleet"
    return RunningFleet(load_fleet(config), config.absolute().parent, folder)


@contextlib.contextmanager
def _told() -> Generator[None]:
    """A reason instead of a traceback: exit code 2 for the file and the arguments, 1 for the fleet."""
    try:
        yield
    except (ConfigError, FleetError, RolloutError) as error:
        say(f"foretype fleet: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, ConfigError) else 1) from error
    except ModuleNotFoundError as error:
        say(f"foretype fleet: {error.name} is not installed here: pip install 'foretype[fleet]'", err=True)
        raise typer.Exit(1) from error
