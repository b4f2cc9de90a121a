"""`foretype bench events`: events per second into a store, and nothing acknowledged lost."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import numpy as np
import typer
from foretype_backend.errors import StoreError
from foretype_context.terminal import say
from foretype_eval.console import fail, print_json

from foretype_lab.errors import GatewayFailedError, PostgresUnavailableError
from foretype_lab.postgres import server
from foretype_lab.telemetry_events.rounds import Round, run_round

__all__ = ["events", "run_events"]

_AIM_EVENTS_PER_S: Final = 10_000
_KILLED_EVENTS: Final = 4_000


def events(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    store: Annotated[
        str, typer.Option(help="sqlite, postgres (Debian's, started for this), or a store's URL (it keeps the events).")
    ] = "sqlite",
    count: Annotated[
        int, typer.Option("--events", min=0, help="Events of the round that is timed; 0 for none.")
    ] = 100_000,
    batch: Annotated[int, typer.Option(min=1, max=1000, help="Events of a batch.")] = 500,
    senders: Annotated[int, typer.Option(min=1, help="Connections.")] = 4,
    kills: Annotated[int, typer.Option(min=0, help="Rounds in which the gateway is killed -9.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
) -> None:
    """Feedback through a real gateway: events committed per second, and what a kill -9 costs."""
    if store not in ("sqlite", "postgres") and "://" not in store:
        fail(f"--store: {store!r} is none of sqlite and postgres, and no URL (postgresql://…, sqlite:///FILE)")
    try:
        result = run_events(store, events=count, batch=batch, senders=senders, kills=kills, seed=seed)
    except (GatewayFailedError, StoreError, PostgresUnavailableError, OSError) as error:
        fail(str(error) or type(error).__name__)
    if as_json:
        print_json(result)
    else:
        say(
            f"{result['store']}: {result['events_per_s']:,.0f} events/s (aim {_AIM_EVENTS_PER_S:,}), acknowledged after "
            f"{result['ack_ms']['p50']:.0f} ms (p99 {result['ack_ms']['p99']:.0f}); "
            f"killed {len(result['kills'])} times, {result['acknowledged']:,} acknowledged, {result['lost']} lost"
        )
    if result["lost"]:
        raise typer.Exit(1)


def run_events(store: str, *, events: int, batch: int, senders: int, kills: int, seed: int) -> dict[str, Any]:
    """Time one round (none without `events`), then kill the gateway in `kills` others.

    Returns:
        `events_per_s` over sending and acknowledgement of the first round; `kills` with what each round sent, had
        acknowledged, stored and lost; `lost` in all.
    """
    rng = Random(seed)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ft-events-")))
        url = stack.enter_context(_store(store, folder))
        timed = Round()
        if events:
            work = run_round(url, folder, events=events, batch=batch, senders=senders, seed=rng.getrandbits(32))
            timed = asyncio.run(work)
        rounds = [
            asyncio.run(
                run_round(
                    url,
                    folder,
                    events=min(events, 40_000) or _KILLED_EVENTS,
                    batch=min(batch, 200),
                    senders=senders,
                    kill_at=rng.uniform(0.02, 0.9),
                    seed=rng.getrandbits(32),
                )
            )
            for _ in range(kills)
        ]
    return {
        "store": store if store in ("sqlite", "postgres") else "url",
        "events": timed.acknowledged,
        "batch_events": batch,
        "senders": senders,
        "seconds": round(timed.seconds, 4),
        "events_per_s": round(timed.acknowledged / timed.seconds, 1) if timed.seconds else 0.0,
        "aim_events_per_s": _AIM_EVENTS_PER_S,
        "ack_ms": _quantiles(timed),
        "kills": [
            {"sent": one.sent, "acknowledged": one.acknowledged, "stored": one.stored, "lost": one.lost}
            for one in rounds
        ],
        "acknowledged": sum(one.acknowledged for one in rounds),
        "lost": timed.lost + sum(one.lost for one in rounds),
        "seed": seed,
    }


@contextlib.contextmanager
def _store(store: str, folder: Path) -> Generator[str]:
    if store == "postgres":
        with server() as url:
            yield url
    else:
        yield str(folder / "events.db") if store == "sqlite" else store


def _quantiles(timed: Round) -> dict[str, float]:
    p50, p99 = np.percentile(timed.ack_ms or [0.0], [50, 99])
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}
