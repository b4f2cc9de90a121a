"""A team's gateway: started as its files say, without rights, serving two tenants apart, started anew and moved without a loss."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from rehearsal.compose import free_port
from rehearsal.engine import Engine
from rehearsal.http import answers, completion
from rehearsal.people import kept_apart, still_cached, while_people_type
from rehearsal.steps import Failed, check, step, told, until
from rehearsal.team import Team, team
from rehearsal.traffic import Way, asking, complete

__all__ = ["gateway", "has_no_rights", "memory", "rolling", "started"]


def started(one: Team) -> None:
    """Everything that the gateway waits for, then the gateway."""
    if not one.vllm:
        one.tokenizer()
    for name in one.gateways:
        if name != "gateway":
            one.copy_salt(name)
        one.up(name)
    for name in one.gateways:
        one.wait_healthy(name)


def memory(one: Team, service: str) -> float:
    """Of all its processes, in MB, without what they share."""
    pids = one.engine("top", one.container(service), "hpid").split()[1:]
    kb = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kb / 1000


def has_no_rights(one: Team, service: str) -> None:
    """The process itself, and what somebody in its place could write to."""
    container = one.container(service)
    pid = one.engine("container", "inspect", "-f", "{{.State.Pid}}", container)
    lines = [line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line]
    status = dict(lines)
    check(status["Uid"].split() == ["10001"] * 4, f"{service} runs as {status['Uid']}")
    check(int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, f"{service} has capabilities")
    check(status["NoNewPrivs"] == "1", f"{service} may get rights")
    tried = "for f in / /usr /etc /opt /models /run; do ( : > $f/x ) 2> /dev/null && echo $f; done; true"
    written = one.inside("sh", "-c", tried, service=service).split()
    check(written == [], f"{service} can write to {written}")


def gateway(engine: Engine) -> None:
    with team(engine) as one, tempfile.TemporaryDirectory() as folder:
        with step("no secret and no source in the image"):
            names = ("-name .env", "-name .git", "-name salt", "-name pyproject.toml")
            named = f"find / -xdev ( {' -o '.join(names)} ) -print".split()
            found = engine("run", "--rm", "--user", "0", "--entrypoint", named[0], "foretype", *named[1:])
            check(found == "", f"in the image: {found}")
        with step("PostgreSQL, Redis, the stores' tables and the gateway are up, in the order that the file says"):
            started(one)
        with step("no process has a right, and no root can be written"):
            has_no_rights(one, "gateway")
        with step("two tenants and their keys, and no key but theirs"):
            keys = one.key("acme"), one.key("rival")
            status, said = completion(one.url, keys[0])
            check(status == 200 and said["choices"][0]["text"] != "", f"{status}: {said}")
            for wrong in ("ft_0_0", None):
                check(completion(one.url, wrong)[0] == 401, f"served with the key {wrong}")
        with step("a completion for an editor; another tenant is kept apart"):
            asyncio.run(kept_apart(one.url, keys, Path(folder)))
        with step("metrics are told on their port, and there alone without a token"):
            counted = metric(one, "foretype_requests_total")
            check(counted > 0, f"{counted} requests are counted")
            check(not answers(f"{one.url}/metrics"), "metrics are open to everybody")
        with step("the stores are prepared a second time, the gateway is another one: keys and caches are the same"):
            first, second = one.engine("logs", one.container("prepare")), ""
            one.start("prepare")
            one.ended("prepare")
            second = one.engine("logs", one.container("prepare"))
            revisions = [line for line in first.splitlines() if "revision" in line]
            check(revisions != [] and all(line in second for line in revisions), f"{first} and then {second}")
            one.start("gateway")
            took = one.ready()
            asyncio.run(still_cached(one.url, keys[0], Path(folder)))
        told(f"     start to ready {took:.1f} s; memory at rest {memory(one, 'gateway'):.0f} MB")
        with step("killed and started: it serves; usage and a report come out of PostgreSQL"):
            engine("kill", one.container("gateway"))
            engine("start", one.container("gateway"))
            one.ready()
            check(completion(one.url, keys[0])[0] == 200, "no completion after a kill")
            until("usage is stored", lambda: '"requests"' in one.foretype("usage", "--json"))
            one.foretype("report")
        with step("the gateway ends as it is told"):
            engine("stop", "-t", "30", one.container("gateway"))
            code = engine.exit_code(one.container("gateway"))
            check(code == 0, f"it ended with {code}: {one.said('gateway')}")


def metric(one: Team, name: str) -> float:
    """The sum of a metric's series, from the port that is no tenant's."""
    asked = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9464/metrics', timeout=20).read().decode())"
    lines = one.inside("python", "-c", asked).splitlines()
    found = [float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", name + "{"))]
    if not found:
        raise Failed(f"there is no metric {name}")
    return sum(found)


def rolling(engine: Engine) -> None:
    """Two gateways behind one address, each stopped and started in its turn."""
    with team(engine, gateways=("gateway", "gateway2")) as one, tempfile.TemporaryDirectory() as folder:
        with step("two gateways are ready, with the same stores and the same salt"):
            started(one)
            key = one.key("acme")
            asyncio.run(warmed(one, key, Path(folder)))
        own = "127.0.0.1", free_port()
        Way(*own, lambda: [("127.0.0.1", one.ports[name]) for name in one.gateways if one.serving(name)])
        url = f"http://{own[0]}:{own[1]}"

        async def restart(all_served: Callable[[], Awaitable[None]]) -> None:
            for name in one.gateways:
                await asyncio.to_thread(engine, "stop", "-t", "30", one.container(name))
                code = engine.exit_code(one.container(name))
                check(code == 0, f"{name} ended with {code}: {one.said(name)}")
                await all_served()
                await asyncio.to_thread(engine, "start", one.container(name))
                await asyncio.to_thread(one.ready, name)
                await all_served()

        with step("every gateway is stopped and started while people type, and nothing is lost"):
            asyncio.run(while_people_type(url, key, Path(folder), 4, 500, restart))


async def warmed(one: Team, key: str, folder: Path) -> None:
    """What was asked of the first gateway is cached for the second: their salts are the same."""
    async with asking(one.url, key, folder) as session:
        await complete(session, "warm", "value")
    await still_cached(f"http://127.0.0.1:{one.ports['gateway2']}", key, folder)
