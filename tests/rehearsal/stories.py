"""What is done with the files: each story starts them, lets people in, and looks whether that is so which is promised."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from foretype_client.session.session import Session
from foretype_wire.errors import GatewayGoneError, RequestRefusedError

from rehearsal.compose import Compose
from rehearsal.containers import LIMIT_S, Container, Failed, Host, host, until
from rehearsal.images import foreign
from rehearsal.kubernetes import Cluster, Pod, names_of_this_machine
from rehearsal.rendering import render, the
from rehearsal.traffic import Way, asking, complete

__all__ = ["STORIES"]

_DNS: Final = "foretype.example.com"
_PROFILE: Final = ["--profile", "/etc/foretype/team.toml"]


@contextmanager
def step(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"ok {time.monotonic() - began:6.1f} s  {what}", flush=True)


def check(true: bool, otherwise: str) -> None:
    if not true:
        raise Failed(otherwise)


# What both do


def new_key(there: Host, gateways: Sequence[Container], tenant: str) -> str:
    """A tenant and a key of one user, by our own commands beside the first of the gateways; all of them know it then."""
    gateway = gateways[0]

    def foretype(*words: str) -> Any:
        done = there.execute(gateway, ["foretype", *words, *_PROFILE, "--json"])
        check(done.returncode == 0, f"foretype {' '.join(words)}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    foretype("tenants", "add", tenant)
    foretype("tenants", "add-user", tenant, "ann")
    key = foretype("keys", "create", "--tenant", tenant, "--user", "ann")["key"]
    for one in gateways:
        headers = {"Authorization": f"Bearer {key}", "Host": _DNS}
        models = urllib.request.Request(f"http://{one.address}:7878/v1/models", headers=headers)
        until(f"{one.name} knows the key", lambda one=one, models=models: answers(there, one, models))
    return key


async def kept_apart(url: str, keys: tuple[str, str], folder: Path) -> None:
    """A completion, out of the cache the second time, and for another tenant nothing of the first one's."""
    async with asking(url, keys[0], folder) as one, asking(url, keys[1], folder) as other:
        first, again = [await complete(one, f"a{at}", "value") for at in range(2)]
        check(
            first.text != "" and first.cached == 0,
            f"the first completion: {first.text!r}, {first.cached} cached tokens",
        )
        check(again.cached > first.prompt // 2, f"asked again: {again.cached} of {again.prompt} tokens cached")
        strange = await complete(other, "b0", "value")
        check(strange.cached == 0, f"another tenant found {strange.cached} tokens of the first one's")
        own = await complete(other, "b1", "value")
        check(own.cached > 0, "another tenant has no cache of its own")


async def still_cached(url: str, key: str, folder: Path) -> None:
    async with asking(url, key, folder) as one:
        answer = await complete(one, "c0", "value")
    check(answer.cached > answer.prompt // 2, f"{answer.cached} of {answer.prompt} tokens are cached: another salt?")


def has_no_rights(there: Host, container: Container) -> None:
    """The process itself, and what somebody in its place could write to."""
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{there.inner_pid(container)}/status").read_text().splitlines()
        if ":\t" in line
    )
    check(status["Uid"].split() == ["10001"] * 4, f"{container.name} runs as {status['Uid']}")
    check(int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, f"{container.name} has capabilities")
    check(status["NoNewPrivs"] == "1", f"{container.name} may get rights")
    tried = "for f in / /usr /etc /opt /models /run; do ( : > $f/x ) 2> /dev/null && echo $f; done; true"
    written = there.execute(container, ["sh", "-c", tried]).stdout.split()
    check(written == [], f"{container.name} can write to {written}")


class Typist:
    """Somebody who asks without a pause and counts what became of it."""

    def __init__(self, number: int, session: Session, told: asyncio.Condition) -> None:
        self.number, self.session, self._told = number, session, told
        self.answered = self.broken = self.silent = 0
        self.faults: list[str] = []

    async def work(self, ended: asyncio.Event) -> None:
        at = 0
        while not ended.is_set():
            if not self.session.connected:
                await asyncio.sleep(0.02)
                continue
            at += 1
            try:
                answer = await complete(
                    self.session, f"{self.number}-{at}", f"value + {at % 7}", f"file:///w/{self.number}.py"
                )
            except GatewayGoneError:
                self.broken += 1
            except RequestRefusedError as error:
                self.faults.append(str(error))
            else:
                if answer.finish.value in ("cancelled", "refused", "expired"):
                    self.faults.append(answer.finish.value)
                self.answered += 1
                async with self._told:
                    self._told.notify_all()
            await asyncio.sleep(0.05)


async def while_people_type(
    url: str, key: str, folder: Path, people: int, work: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
) -> None:
    """Does `work` beside them, which may wait until all have been answered again. What was asked must be answered."""
    ended, told = asyncio.Event(), asyncio.Condition()
    async with asyncio.TaskGroup() as group:
        typists: list[Typist] = []

        async def one(number: int) -> None:
            async with asking(url, key, folder) as session:
                typist = Typist(number, session, told)
                typists.append(typist)
                await typist.work(ended)

        for number in range(people):
            group.create_task(one(number))

        async def all_served() -> None:
            """Everybody gets answers now, from whichever is there."""
            async with asyncio.timeout(LIMIT_S), told:
                await told.wait_for(lambda: len(typists) == people)
                before = [typist.answered for typist in typists]
                await told.wait_for(
                    lambda: all(now.answered >= was + 3 for now, was in zip(typists, before, strict=True))
                )

        try:
            await all_served()
            await work(all_served)
            await all_served()
        finally:
            ended.set()
    lost = sum(typist.broken for typist in typists)
    faults = [fault for typist in typists for fault in typist.faults]
    check(lost == 0 and faults == [], f"lost {lost}; refused {faults[:3]}")
    moved = sum(typist.session.statistics().connections - 1 for typist in typists)
    check(moved > 0, "nobody had to move")
    print(f"            {sum(typist.answered for typist in typists)} answers, {moved} moves, none lost", flush=True)


# Compose


def compose(deploy: Path, folder: Path) -> None:
    environment = dict(os.environ) | {name: secrets.token_hex(16) for name in ("POSTGRES_PASSWORD", "GRAFANA_PASSWORD")}
    with host(folder) as there:
        team = Compose(deploy / "compose.yaml", there, environment)
        check(set(team.left_out) <= {"grafana"}, f"nothing here is like the images of {team.left_out}")
        with step("compose: everything is up, in the order that the file says"):
            gateway = team.up("gateway")
            address = gateway.address
            until("the gateway is ready", lambda: answers(there, gateway, f"http://{address}:7878/readyz"))
            team.up("prometheus")
        Way("127.0.0.1", 7878, lambda: [(address, 7878)])
        url = "http://127.0.0.1:7878"
        with step("compose: no process has a right, and no root can be written"):
            for name in ("gateway", "vllm"):
                has_no_rights(there, team.containers[name])
        with step("compose: two tenants and their keys"):
            keys = new_key(there, [gateway], "acme"), new_key(there, [gateway], "rival")
        with step("compose: a completion; another tenant is kept apart"):
            asyncio.run(kept_apart(url, keys, folder))
        with step("compose: Prometheus scrapes the gateway, every rule and every panel can be asked"):
            scraped(team.containers["prometheus"], deploy)
        with step(
            "compose: stores are prepared a second time, the gateway is another one: keys and caches are the same"
        ):
            there.run(again(team.containers["prepare"]))
            team.again("gateway")
            until("the gateway is ready", lambda: answers(there, gateway, f"http://{address}:7878/readyz"))
            asyncio.run(still_cached(url, keys[0], folder))
        with step("compose: the gateway ends as it is told"):
            code = there.stop(gateway)
            check(code == 0, f"it ended with {code}:\n{there.said(gateway)}")


def again(container: Container) -> Container:
    container.process = None
    return container


def answers(there: Host, container: Container, url: str | urllib.request.Request) -> bool:
    there.alive(container)
    try:
        with _HTTP.open(url, timeout=30) as answer:
            return answer.status == 200
    except OSError:
        return False


def scraped(prometheus: Container, deploy: Path) -> None:
    base = f"http://{prometheus.address}:9090/api/v1"

    def asked(path: str, **query: str) -> Any:
        with _HTTP.open(f"{base}/{path}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
            told = json.load(answer)
        check(told["status"] == "success", f"{query}: {told}")
        return told["data"]

    def counted() -> bool:
        try:
            return asked("query", query='sum(foretype_requests_total{job="foretype"})')["result"] != []
        except OSError:
            return False

    until("Prometheus has scraped the requests that the gateway counted", counted, every_s=1.0)
    for group in asked("rules")["groups"]:
        for rule in group["rules"]:
            check(rule["health"] in ("ok", "unknown"), f"{rule['name']}: {rule}")
    for panel in json.loads((deploy / "grafana/foretype.json").read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            asked("query", query=target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*"))


# Kubernetes


def kubernetes(deploy: Path, folder: Path) -> None:
    objects = render("small", deploy / "kubernetes")
    with host(folder) as there:
        with step("kubernetes: the images' programs are installed, PostgreSQL and Redis are the operator's"):
            password = secrets.token_hex(16)
            made = {
                "foretype-salt": {"salt": secrets.token_bytes(32)},
                "foretype-postgres": {"password": password.encode()},
            }
            cluster = Cluster(objects, made, deploy, there)
            operators(there, cluster, password)
        with step("kubernetes: the migration job, and again"):
            for _ in range(2):
                until("PostgreSQL takes the migration", lambda: migrated(cluster), every_s=1.0)
        scaler = the(objects, "HorizontalPodAutoscaler", "foretype-gateway")["spec"]
        replicas: int = the(objects, "StatefulSet", "foretype-vllm")["spec"]["replicas"]
        vllm = [cluster.pod("StatefulSet", "foretype-vllm", f"foretype-vllm-{number}") for number in range(replicas)]
        for pod in vllm:
            cluster.hosts[f"{pod.name}.foretype-vllm"] = pod.address
        with step("kubernetes: the weights are written, vLLM is ready"):
            for pod in vllm:
                pod.start()
            for pod in vllm:
                pod.wait_ready()
        gateways: list[Pod] = []

        def one_more() -> Pod:
            pod = cluster.pod("Deployment", "foretype-gateway")
            pod.start()
            pod.wait_ready()
            gateways.append(pod)
            return pod

        with step(f"kubernetes: {scaler['minReplicas']} gateways are ready"):
            for _ in range(scaler["minReplicas"]):
                one_more()
        service = there.service_address(1)
        way = Way(service, 80, lambda: [(pod.address, 7878) for pod in gateways if pod.ready])
        with names_of_this_machine(folder, {_DNS: service, "foretype-gateway": service}):
            url = f"http://{_DNS}:80"
            with step("kubernetes: no process has a right, and no root can be written"):
                for pod in (gateways[0], vllm[0]):
                    has_no_rights(there, pod.main)
            with step("kubernetes: two tenants and their keys"):
                running = [pod.main for pod in gateways]
                keys = new_key(there, running, "acme"), new_key(there, running, "rival")
            with step("kubernetes: a completion under the service's names; another tenant is kept apart"):
                asyncio.run(kept_apart(url, keys, folder))
                asyncio.run(still_cached("http://foretype-gateway", keys[0], folder))

            async def restart(all_served: Callable[[], Awaitable[None]]) -> None:
                for old in list(gateways):
                    await asyncio.to_thread(one_more)
                    code = await asyncio.to_thread(old.stop)
                    check(code == 0, f"{old.name} ended with {code}:\n{there.said(old.main)}")
                    gateways.remove(old)
                    await all_served()

            with step("kubernetes: every gateway is replaced while people type, and nothing is lost"):
                asyncio.run(while_people_type(url, keys[0], folder, 3, restart))
                asyncio.run(still_cached(url, keys[0], folder))
                check(way.faults == [], f"connections that reached no gateway: {way.faults}")
            with step("kubernetes: metrics are told on their port, and there alone without a token"):
                address = gateways[0].address
                with _HTTP.open(f"http://{address}:9464/metrics", timeout=60) as answer:
                    check(b"foretype_requests_total" in answer.read(), "no metrics on their port")
                check(
                    not answers(there, gateways[0].main, f"http://{address}:7878/metrics"),
                    "metrics are open to everybody",
                )
            with step("kubernetes: without a replica no gateway is ready, and none is killed for it"):
                for pod in vllm:
                    there.kill(pod.main)
                for pod in gateways:
                    until(f"{pod.name} is unready", lambda pod=pod: not pod.probe("readiness"))
                    until(f"{pod.name} lives, and would not be killed", lambda pod=pod: pod.probe("liveness"))


def migrated(cluster: Cluster) -> bool:
    try:
        cluster.run_job("foretype-migrate")
    except Failed as failure:
        if "onnect" not in str(failure):  # a job is tried again, as its file says
            raise
        return False
    return True


def operators(there: Host, cluster: Cluster, password: str) -> None:
    """What the files leave to whoever installs them."""
    for name, environment in {
        "postgres": {"POSTGRES_USER": "foretype", "POSTGRES_PASSWORD": password},
        "redis": {},
    }.items():
        image = foreign(f"{name}:")
        assert image is not None
        volume = there.folder / "volumes" / name
        volume.mkdir()
        binds = []
        for target, (uid, mode) in image.folders.items():
            from os import chown

            from rehearsal.containers import Bind

            chown(volume, uid, uid)
            volume.chmod(mode)
            binds.append(Bind(target, volume, writable=True))
        container = Container(
            name=name,
            image=image,
            command=[*image.entrypoint, *image.command],
            environment=environment,
            user=image.user,
            binds=binds,
            read_only=False,
            address=there.new_address(),
        )
        there.start(container)
        cluster.hosts[name] = container.address


_HTTP: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
STORIES: Final[dict[str, Callable[[Path, Path], None]]] = {"compose": compose, "kubernetes": kubernetes}
