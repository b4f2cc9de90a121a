"""A fleet of one replica, and what stands before it: all of it a bench's own, and ended with it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import psutil
import yaml
from foretype_models.artifacts import locate

from foretype_lab.errors import FleetBenchError
from foretype_lab.fleet_ways.through_ray import PREFIX
from foretype_lab.model_files.export import write_safetensors
from foretype_lab.model_files.gguf_file import read_config, read_grammar, read_weights
from foretype_lab.processes import environment, free_ports

__all__ = ["RunningFleet", "gateway_profile", "haproxy", "running_fleet", "vllm_command"]

_ROOT: Final = Path(__file__).parents[3]
_NAME: Final = "bench"
_WAIT_S: Final = 300.0
_FLEET: Final = """\
[fleet]
name = "bench"
[cluster]
port = {head}
dashboard_port = {dashboard}
folder = "{sockets}"
cpus = 4
[directory]
port = {directory}
[[pool]]
name = "fast"
revision = "r1"
max_replicas = 2
cpus = 0.5
host = "127.0.0.1"
drain_s = 5
command = {command}
environment = {{ VLLM_CPU_KVCACHE_SPACE = "1", VLLM_NO_USAGE_STATS = "1", HF_HUB_OFFLINE = "1" }}
[pool.revisions.r1]
model = "shipped"
grammar = "{grammar}"
profile = "profile.yaml"
"""
_HAPROXY: Final = """\
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option http-no-delay
frontend in
    bind 127.0.0.1:{port}
    default_backend replica
backend replica
    server one {address}
"""
_PARTS: Final = (
    ("controller", "ServeController"),
    ("proxy", "ProxyActor"),
    ("directory", "ServeReplica:directory"),
    ("replica's actor", "ServeReplica:fast"),
    ("passes on to the replica", "ServeReplica:through"),
    ("head: gcs", "/gcs_server"),
    ("head: raylet", "/raylet"),
    ("head: dashboard and agents", "/dashboard/"),
    ("head: dashboard and agents", "ray-dashboard"),
    ("head: the rest", "site-packages/ray/"),
    ("head: the rest", "-m ray."),
)
"""By what stands in a command line; the first that does."""


class RunningFleet(NamedTuple):
    """One that is up.

    Attributes:
        start_s: of `foretype fleet up`, until its replica is ready.
        phases: of the replica's start, seconds.
        address: of the replica.
    """

    folder: Path
    start_s: float
    phases: dict[str, float]
    address: str
    directory: str
    dashboard: str

    def through_ray(self) -> str:
        """Deploys what passes on to the replica; its URL. Raises FleetBenchError."""
        token = (self.folder / "state" / "fleet" / f"{_NAME}.token").read_text()
        api = f"{self.dashboard}/api/serve/applications/"
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60.0, trust_env=False) as http:
            found = http.get(api).json()
            config = {name: found[name] for name in ("proxy_location", "http_options")}
            apps = [one["deployed_app_config"] for one in found["applications"].values()]
            more = {
                "name": "through-ray",
                "route_prefix": PREFIX,
                "import_path": "foretype_lab.fleet_ways.through_ray:application",
                "args": {"address": self.address},
            }
            answer = http.put(api, json={**config, "applications": [*apps, more]})
            if answer.status_code != 200:
                raise FleetBenchError(f"Ray takes no application beside the fleet's: {answer.text[-300:]}")
        url = f"{self.directory}{PREFIX}"
        _until(lambda: httpx.get(f"{url}/v1/models", timeout=5.0, trust_env=False).status_code == 200, "Ray's proxy")
        return url

    def command(self, *words: str) -> None:
        """`foretype fleet` with these words. Raises FleetBenchError with what it said."""
        _command(self.folder, *words)

    def memory_mib(self) -> dict[str, int]:
        """Proportional resident memory of the fleet's processes, by part; the engine is left out."""
        head = json.loads((self.folder / "state" / "fleet" / f"{_NAME}.json").read_text())["pid"]
        found: dict[str, float] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == head:
                    words = " ".join(process.cmdline())
                    part = next((name for name, said in _PARTS if said in words), None)
                    if part is not None:
                        found[part] = found.get(part, 0.0) + process.memory_full_info().pss / 2**20
        return {name: round(mib) for name, mib in sorted(found.items())}


def vllm_command() -> list[str]:
    """The real vLLM of `make vllm-env`. Raises FleetBenchError."""
    python = Path(os.environ.get("FORETYPE_VLLM_VENV", _ROOT / ".venv-vllm")).absolute() / "bin" / "python"
    if not python.exists():
        raise FleetBenchError(f"{python} is not there: make vllm-env, or name another engine with --engine")
    # What `vllm serve` runs; the command itself looks for a distribution `vllm`, which the CPU build is not.
    return [str(python), "-P", "-m", "vllm.entrypoints.openai.api_server"]


@contextlib.contextmanager
def running_fleet(command: Sequence[str]) -> Generator[RunningFleet]:
    """One replica of the shipped model under a Ray of its own. Raises FleetBenchError with what the command said."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretype-fleet-")))
        # Ray's sockets lie below it, and a path of theirs has 107 characters at most.
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="ft", dir="/tmp", ignore_cleanup_errors=True))
        shipped, (head, dashboard, directory) = locate(), free_ports(3)
        config = read_config(shipped.path)
        weights, grammar_id = read_weights(shipped.path, config), read_grammar(shipped.path)
        write_safetensors(weights, config, shipped.tokenizer_path, folder / "model", grammar_id=grammar_id)
        flags = yaml.safe_load((_ROOT / "deploy" / "profiles" / "cpu.yaml").read_text("utf-8"))
        (folder / "profile.yaml").write_text(yaml.safe_dump({**flags, "model": str(folder / "model")}))
        written = _FLEET.format(
            head=head,
            dashboard=dashboard,
            directory=directory,
            sockets=sockets,
            command=json.dumps(list(command)),
            grammar=shipped.grammar,
        )
        (folder / "fleet.toml").write_text(written)
        began_s = time.monotonic()
        stack.callback(_command, folder, "down", "--now")
        _command(folder, "up")
        start_s = time.monotonic() - began_s
        url = f"http://127.0.0.1:{directory}"
        [replica] = httpx.get(f"{url}/fleet", timeout=10.0, trust_env=False).json()["replicas"]
        yield RunningFleet(folder, start_s, replica["phases"], replica["address"], url, f"http://127.0.0.1:{dashboard}")


def _command(folder: Path, *words: str) -> None:
    own = ("--config", str(folder / "fleet.toml"), "--state-dir", str(folder / "state"))
    command = [sys.executable, "-c", "from foretype_client.commands.cli import main; main()", "fleet", *words, *own]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    if done.returncode != 0:
        raise FleetBenchError(f"foretype fleet {words[0]}: {done.stderr.strip()[-1500:]}")


@contextlib.contextmanager
def haproxy(address: str, folder: Path) -> Generator[str | None]:
    """HAProxy before a replica; its URL, None where it is not installed. Raises FleetBenchError."""
    program = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        yield None
        return
    [port] = free_ports(1)
    (folder / "haproxy.cfg").write_text(_HAPROXY.format(port=port, address=address))
    with subprocess.Popen([program, "-db", "-f", str(folder / "haproxy.cfg")], stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            _until(lambda: httpx.get(f"{url}/v1/models", timeout=5.0, trust_env=False).status_code == 200, "HAProxy")
            yield url
        finally:
            process.terminate()


def gateway_profile(fleet: RunningFleet) -> Path:
    """A gateway's that has the fleet's replicas from its directory."""
    shipped, path = locate(), fleet.folder / "gateway.toml"
    path.write_text(
        f'[model]\ntokenizer = "{shipped.tokenizer_path.as_posix()}"\ngrammar = "{shipped.grammar}"\n'
        f'[pool.fast.discovery]\nsource = "http"\nurl = "{fleet.directory}/replicas"\n'
    )
    return path


def _until(done: Any, what: str) -> None:
    ends_s = time.monotonic() + _WAIT_S
    while time.monotonic() < ends_s:
        with contextlib.suppress(httpx.HTTPError):
            if done():
                return
        time.sleep(0.1)
    raise FleetBenchError(f"{what} does not answer after {_WAIT_S:g} s")
