"""The services of deploy/compose.yaml as podman-compose starts them, one by one in the order that the file says.

podman-compose waits for conditions by itself, and with this podman for ever: nobody runs health checks here. So each service is
started alone, after what its file says that it waits for.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rehearsal.compose import Compose
from rehearsal.engine import Engine
from rehearsal.http import answers
from rehearsal.steps import Failed, check, until

__all__ = ["Team", "team"]

_NAMED: Final = "# of the rehearsal"


class Team(Compose):
    """A team's services, and what somebody does beside them."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['gateway']}"

    def container(self, service: str) -> str:
        return f"{self.project}_{service}_1"

    def volume(self, name: str) -> str:
        return f"{self.project}_{name}"

    def start(self, name: str) -> None:
        """This service alone, as its file has it now; a container that is there is another one then, volumes stay."""
        self.engine.run("rm", "-f", "-t", "30", self.container(name))
        done = self.compose("up", "-d", "--no-deps", "--no-build", name)
        if done.returncode:
            raise Failed(f"compose up {name}: {done.stderr[-1500:]}")
        self.name_all()

    def name_all(self) -> None:
        """Tells every container the others on its networks by name, in /etc/hosts: told of a container that came or went, this
        aardvark-dns sometimes answers nobody for seconds, and whoever asks in them connects to nothing."""
        found = json.loads(self.engine("container", "inspect", *self._all()) or "[]")
        running = [one for one in found if one["State"]["Running"] and one["HostsPath"]]
        for one in running:
            shared = one["NetworkSettings"].get("Networks") or {}
            lines = [
                f"{there['IPAddress']} {other['Config']['Labels']['com.docker.compose.service']} {_NAMED}\n"
                for other in running
                for network, there in (other["NetworkSettings"].get("Networks") or {}).items()
                if network in shared and other is not one and there["IPAddress"]
            ]
            file = Path(one["HostsPath"])
            own = [line for line in file.read_text().splitlines(keepends=True) if _NAMED not in line]
            file.write_text("".join(own + lines))  # the same file, which the container has mounted

    def _all(self) -> list[str]:
        return self.engine("ps", "-aq", "--filter", f"label=io.podman.compose.project={self.project}").split()

    def up(self, name: str) -> None:
        """This service after what its file says that it waits for, each in the state that the file says."""
        if self.engine.running(self.container(name)):
            return
        waits = {} if name == "vllm" and not self.vllm else self.services[name].get("depends_on", {})
        for other, wanted in waits.items():
            self.up(other)
            if wanted["condition"] == "service_completed_successfully":
                self.ended(other)
            elif wanted["condition"] == "service_healthy":
                self.wait_healthy(other)
        self.start(name)

    def ended(self, name: str) -> None:
        """Waits for its end. Raises Failed where that was not a good one."""
        code = int(self.engine("wait", self.container(name)))
        check(code == 0, f"{name} ended with {code}: {self.said(name)}")

    def wait_healthy(self, name: str) -> None:
        self.name_all()
        until(f"{name} is healthy", lambda: self._healthy(name, self.container(name)))

    def _healthy(self, name: str, container: str) -> bool:
        if not self.engine.running(container):
            check(self.services[name].get("restart") == "unless-stopped", f"{name} ended: {self.said(name)}")
            return False
        return self.engine.healthy(container)

    def serving(self, name: str = "gateway") -> bool:
        return answers(f"http://127.0.0.1:{self.ports[name]}/readyz")

    def ready(self, *names: str) -> float:
        """Waits until these gateways are ready. Returns seconds."""
        began = time.monotonic()
        self.name_all()
        for name in names or self.gateways:
            until(f"{name} is ready", lambda name=name: self.serving(name), every_s=0.1)
        return time.monotonic() - began

    def said(self, name: str) -> str:
        return self.engine.said(self.container(name))

    def inside(self, *command: str, service: str = "gateway", stdin: bytes | None = None) -> str:
        """Beside a service's process, as `docker compose exec` does it."""
        interactive = [] if stdin is None else ["-i"]
        return self.engine("exec", *interactive, self.container(service), *command, stdin=stdin)

    def foretype(self, *words: str) -> str:
        return self.inside("foretype", *words)

    def key(self, tenant: str, *options: str) -> str:
        """Of a new tenant, with these options, and its one user; every gateway knows it when this returns."""
        profile = ("--profile", "/etc/foretype/team.toml")
        self.foretype("tenants", "add", tenant, *options, *profile)
        self.foretype("tenants", "add-user", tenant, "ann", *profile)
        shown = self.foretype("keys", "create", "--tenant", tenant, "--user", "ann", "--days", "90", "--json", *profile)
        key: str = json.loads(shown)["key"]
        for port in self.ports.values():
            until("the key is known", lambda port=port: answers(f"http://127.0.0.1:{port}/v1/models", key))
        return key

    def sql(self, statement: str) -> list[str]:
        words = ["psql", "-tA", "-h", "127.0.0.1", "-U", "foretype", "-c", statement, "foretype"]
        return self.inside(*words, service="postgres").splitlines()

    def tokenizer(self) -> None:
        """The model's tokenizer on the volume, where no vLLM and so nobody writes the model."""
        path = tomllib.loads((self.deploy / "team.toml").read_text())["model"]["tokenizer"]
        made = (
            "import os, shutil, sys; from foretype_models.artifacts import FOLDER;"
            "os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True); shutil.copy(FOLDER / 'tokenizer.json', sys.argv[1])"
        )
        mounted = f"{self.volume('models')}:/models"
        self.engine("run", "--rm", "--user", "0", "--entrypoint", "python", "-v", mounted, self.image, "-c", made, path)

    def copy_salt(self, gateway: str) -> None:
        """From the first gateway's folder to this one's."""
        mounted = ["-v", f"{self.volume('state')}:/from:ro", "-v", f"{self.volume(gateway)}:/var/lib/foretype"]
        copied = ["cp", "-p", "/from/salt", "/var/lib/foretype/salt"]
        self.engine("run", "--rm", *mounted, "--entrypoint", copied[0], self.image, *copied[1:])

    def down(self) -> None:
        """All containers, networks and volumes. What is not there is no fault."""
        if listed := self._all():
            self.engine("rm", "-f", "-t", "5", *listed)
        for kind in ("volume", "network"):
            names = self.engine(kind, "ls", "-q" if kind == "volume" else "--format={{.Name}}").split()
            for name in names:
                if name.startswith(f"{self.project}_"):
                    self.engine(kind, "rm", "-f", name)


@contextmanager
def team(engine: Engine, vllm: bool = False, gateways: Sequence[str] = ("gateway",)) -> Iterator[Team]:
    """The services from nothing, without one that runs; nothing of them is left. Raises Failed with what the gateway said."""
    made = Team(engine, vllm, gateways)
    made.down()
    try:
        yield made
    except BaseException:
        for name in ("gateway", "vllm", "postgres", "prepare"):
            print(f"--- {name}\n{engine.said(made.container(name))}", flush=True)
        raise
    finally:
        made.down()
