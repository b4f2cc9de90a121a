"""Every command of docs/deploy.md, in the page's order: as it stands there where `docker` can be podman, and else named with the reason."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rehearsal.engine import Engine
from rehearsal.http import answers, completion
from rehearsal.images import ROOT, stand_in
from rehearsal.steps import LIMIT_S, Failed, check, step, told, until
from rehearsal.stories import started
from rehearsal.team import Team, team

__all__ = ["commands", "elsewhere", "page", "runs"]

_ELSEWHERE: Final = {
    "docker push ": "needs a registry of images",
    "docker build ": "was built so at the rehearsal's start, without the registry's name",
    "docker compose build": "was built so at the rehearsal's start",
    "kubectl ": "needs a cluster; tests/deploy checks the manifests",
    "{ printf ": "writes for the Prometheus operator of a cluster",
    "foretype config new-secret ": "makes a cluster's secret; compose makes its own the same way",
    "foretype fleet ": "needs Ray; tests/fleet runs it",
}
_NO_IMAGE: Final = {"grafana"}  # no registry, and no package of Debian's
_PODMAN: Final = {"exec": "exec -i", "stop": "stop -t 30"}
_COMPOSE: Final = re.compile(r"(\(umask 077; )?docker compose (?P<verb>\w+)(?: -T| -d| --wait)* (?P<rest>.+?)(?(1)\))")


def commands() -> Iterator[str]:
    """Lines of the page's shell blocks, in its order."""
    for block in re.findall(
        r"^```bash\n(.*?)^```", (ROOT / "docs/deploy.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    ):
        yield from block.splitlines()


def elsewhere(command: str) -> str | None:
    """Why a command cannot be run here, or None."""
    return next((why for beginning, why in _ELSEWHERE.items() if command.startswith(beginning)), None)


def runs(command: str) -> bool:
    """Whether `run` knows what to do with it."""
    parts = _COMPOSE.fullmatch(command)
    return parts["verb"] in ("up", *_PODMAN) if parts else command == "cd deploy" or command.endswith("> .env)")


def page(engine: Engine) -> None:
    key = ""
    stand_in(engine, "prometheus")
    with team(engine) as one, tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "deploy").mkdir()
        for command in commands():
            if why := elsewhere(command):
                told(f"     not run, {why}: {command}")
                continue
            with step(command):
                said = run(one, command, Path(scratch) / "deploy")
            if found := re.search(r"\bft_\w+", said):
                key = found[0]
                until("the key is known", lambda key=key: answers(f"{one.url}/v1/models", key))
        check(key != "", "no command of the page makes a key")
        with step(
            "behind the last command, the restore, the gateway serves the key that the page's first commands made"
        ):
            one.start("gateway")
            one.ready()
            check(completion(one.url, key)[0] == 200, "the key is not served")


def run(one: Team, command: str, folder: Path) -> str:
    """One command, in a folder that stands for deploy/. Raises Failed where it fails, or nobody decided about it."""
    check(runs(command), f"a command of the page that is neither run nor left out: {command}")
    if command == "cd deploy":
        return ""
    if not (parts := _COMPOSE.fullmatch(command)):
        said = _shell(command, folder)
        one.environment |= dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())
        return said
    verb, rest = parts["verb"], parts["rest"]
    if verb == "up":
        for service in rest.split():
            if service == "gateway":
                started(one)
            elif service in _NO_IMAGE:
                told(f"     not started, there is no image: {service}")
            else:
                one.up(service)
        return ""
    service, _, words = rest.partition(" ")
    return _shell(f"'{one.engine.program}' {_PODMAN[verb]} {one.container(service)} {words}", folder)


def _shell(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-ec", f"umask 077; {command}"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise Failed(f"{command}: {done.returncode}: {done.stdout[-800:]}{done.stderr[-800:]}")
    return done.stdout
