"""What breaks beside a gateway at work: nothing that was acknowledged is lost, and it serves as soon as it can."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rehearsal.engine import Engine
from rehearsal.load import Load, under_load
from rehearsal.steps import check, step, until
from rehearsal.stories import metric, started
from rehearsal.team import Team, team

__all__ = ["faults", "full"]

_HANGS_S: Final = 20.0
"""Four times what passes between two checks of a replica that is in service."""


def faults(engine: Engine) -> None:
    with team(engine) as one:
        with step("a gateway with its stores, and a tenant with a budget"):
            started(one)
            key = one.key("acme", "--limit", "tenant=1000000:4000000")
        with step("PostgreSQL is restarted under load"):
            refused_at_most(under_load(one, key, lambda _: restart_postgres(one)))
        with step("Redis is cut off under load, and comes back"):
            refused_at_most(under_load(one, key, lambda _: cut_redis(one)))
        with step("the name server hangs under load: the last addresses go on serving"):
            said = dict(under_load(one, key, lambda _: names_hang(one)).said)
            check(set(said) == {200}, f"not every completion was answered: {said}")
        with step("the engine is killed under load, and started"):
            refused_at_most(under_load(one, key, lambda load: kill_replica(one, load)))
        with step("everything is killed under load, and up again"):
            under_load(one, key, lambda _: kill_everything(one))


def refused_at_most(load: Load) -> None:
    """Nobody is left without an answer."""
    check(set(load.said) <= {200, 503}, f"others than 200 and 503: {dict(load.said)}")


def restart_postgres(one: Team) -> None:
    one.engine("restart", "-t", "10", one.container("postgres"))
    one.wait_healthy("postgres")


def cut_redis(one: Team) -> None:
    network, redis = one.volume("stores"), one.container("redis")
    one.engine("network", "disconnect", "-f", network, redis)
    until("the gateway says that Redis is away", lambda: metric(one, "foretype_leases_away_seconds") > 0)
    one.engine("network", "connect", "--alias", "redis", network, redis)
    one.name_all()
    until("the gateway has Redis again", lambda: metric(one, "foretype_leases_away_seconds") == 0)


def names_hang(one: Team) -> None:
    """For longer than a replica is left unchecked, no name is answered, and the gateway has none written down."""
    found = json.loads(one.engine("container", "inspect", one.container("gateway")))
    hosts = Path(found[0]["HostsPath"])
    written = hosts.read_text()
    servers = [int(file.parent.name) for file in Path("/proc").glob("[0-9]*/comm") if _comm(file) == "aardvark-dns"]
    check(servers != [], "no name server runs")
    for server in servers:
        os.kill(server, signal.SIGSTOP)
    try:
        hosts.write_text("".join(line for line in written.splitlines(keepends=True) if "localhost" in line))
        time.sleep(_HANGS_S)
    finally:
        hosts.write_text(written)
        for server in servers:
            os.kill(server, signal.SIGCONT)


def _comm(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # it has ended
        return ""


def kill_replica(one: Team, load: Load) -> None:
    born = one.engine("container", "inspect", "-f", "{{.State.StartedAt}}", one.container("gateway"))
    one.engine("kill", one.container("vllm"))
    until("requests are refused", lambda: load.said[503] > 10, every_s=0.1)
    one.engine("start", one.container("vllm"))
    one.wait_healthy("vllm")
    one.ready()
    same = one.engine("container", "inspect", "-f", "{{.State.StartedAt}}", one.container("gateway"))
    check(same == born, "the gateway ended with its engine")


def kill_everything(one: Team) -> None:
    one.engine("kill", *(one.container(name) for name in ("gateway", "vllm", "postgres", "redis")))
    one.up("gateway")
    one.ready()


@contextmanager
def small_volume(one: Team, name: str, megabytes: int) -> Iterator[Path]:
    """A volume in memory that can be filled."""
    place = one.engine.folder / "full"
    subprocess.run(["umount", place], capture_output=True, check=False)  # of a run that was killed
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", place], check=True)
    try:
        options = ["--opt", "type=none", "--opt", "o=bind", "--opt", f"device={place}"]
        one.engine("volume", "create", *options, one.volume(name))
        yield place
    finally:
        one.down()
        subprocess.run(["umount", place], check=True)


def full(engine: Engine) -> None:
    with team(engine) as one, small_volume(one, "postgres", 200) as place:
        with step("a gateway whose PostgreSQL has a small volume"):
            started(one)
            key = one.key("acme")

        def fill(load: Load) -> None:
            filler = place / "filler"
            with filler.open("wb") as file:
                file.write(bytes(1))
                try:
                    while True:
                        file.write(bytes(1 << 20))
                        file.flush()
                except OSError:
                    pass
            check(shutil.disk_usage(place).free < 1 << 20, "the volume is not full")
            until("nothing is acknowledged any more", lambda: stands(load))
            filler.unlink()
            if not engine.running(one.container("postgres")):
                engine("start", one.container("postgres"))
            one.wait_healthy("postgres")

        with step("the volume of PostgreSQL is full under load, and emptied"):
            check(set(under_load(one, key, fill).said) == {200}, "completions were lost")


def stands(load: Load, seconds: float = 6.0) -> bool:
    before = load.acked
    time.sleep(seconds)
    return load.acked == before
