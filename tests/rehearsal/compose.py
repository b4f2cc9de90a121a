"""deploy/compose.yaml and one file beside it, which changes bounds, names of images, the published port, and, where no vLLM is wanted,
puts the tests' replica in its place; and podman-compose, which is told both.
"""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from rehearsal.engine import Engine
from rehearsal.images import ROOT
from rehearsal.steps import LIMIT_S

__all__ = ["Compose", "free_port"]

_VERSION: Final = "podman-compose==1.6.0"
_BOUNDS: Final = {"core": 0, "nofile": 4096, "nproc": 1000}
_STAND_IN: Final = {
    "image": "foretype",
    "entrypoint": ["python", "/stand-in/containers/engine.py"],
    "command": [],
    "environment": {"PYTHONPATH": "/stand-in"},
    "volumes": [f"{ROOT}/tests:/stand-in:ro", "./team.toml:/etc/foretype/team.toml:ro"],
}


class Compose:
    """Attributes:
    project: what every container, network and volume is called by, before its own name; two rehearsals on one machine have two.
    ports: where each gateway is published on this machine.
    environment: the passwords, as `deploy/.env` has them.
    """

    def __init__(self, engine: Engine, vllm: bool = False, gateways: Sequence[str] = ("gateway",)) -> None:
        self.engine, self.vllm, self.gateways = engine, vllm, tuple(gateways)
        self.project = f"ft{zlib.crc32(bytes(engine.folder)):08x}"
        self.environment = {name: secrets.token_hex(16) for name in ("POSTGRES_PASSWORD", "GRAFANA_PASSWORD")}
        self.ports = {name: free_port() for name in gateways}
        self.files(ROOT / "deploy")

    def files(self, deploy: Path, image: str = "foretype") -> None:
        """The files of another version, and its image."""
        self.deploy, self.image = deploy, image
        self.services: dict[str, Any] = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
        for name in self.gateways[1:]:  # one more of the same, with a folder of its own
            more = {**self.services["gateway"], "hostname": name}
            more["volumes"] = [one.replace("state:", f"{name}:", 1) for one in more["volumes"]]
            self.services[name] = more

    def overrides(self) -> str:
        changed: dict[str, dict[str, Any]] = {}
        for name, service in self.services.items():
            changed[name] = {"ulimits": _BOUNDS}
            if "depends_on" in service:
                changed[name]["depends_on"] = ("!reset", {})
            if service.get("image") == "foretype":
                changed[name]["image"] = self.image
        if not self.vllm:
            changed["vllm"] |= {**_STAND_IN, "depends_on": ("!reset", {})}
        for name, port in self.ports.items():
            published = [f"127.0.0.1:{port}:7878"]
            if name == "gateway":
                changed[name]["ports"] = ("!override", published)
            else:  # what is in one file alone is merged with nothing
                changed[name] = {**self.services[name], **changed[name], "ports": published}
                del changed[name]["depends_on"]
        lines = ["services:"]
        for name, keys in changed.items():
            lines.append(f"  {name}:")
            for key, value in keys.items():
                tag, plain = value if isinstance(value, tuple) else ("", value)
                lines.append(f"    {key}: {tag} {json.dumps(plain)}")
        lines += ["volumes:", *(f"  {name}: {{}}" for name in self.gateways[1:])] if self.gateways[1:] else []
        return "\n".join(lines) + "\n"

    def compose(self, *words: str, timeout_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        folder = self.engine.folder
        tool = folder / "compose" / "bin" / "podman-compose"
        if not tool.exists():
            subprocess.run([sys.executable, "-m", "venv", folder / "compose"], check=True)
            subprocess.run([folder / "compose" / "bin" / "pip", "install", "-q", _VERSION], check=True)
        (folder / "override.yaml").write_text(self.overrides())
        (folder / "env").write_text("".join(f"{name}={value}\n" for name, value in self.environment.items()))
        words = ("-f", f"{self.deploy}/compose.yaml", "-f", f"{folder}/override.yaml", "-p", self.project, *words)
        fixed = [tool, "--podman-path", self.engine.program, "--in-pod", "false", "--env-file", folder / "env"]
        done = subprocess.run(
            [*fixed, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=timeout_s
        )
        with (folder / "compose.log").open("a") as log:
            log.write(f"$ compose {' '.join(words)}\n{done.stdout}{done.stderr}")
        return done


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port
