"""docs/deploy.md: its commands are run, in order; Docker and a cluster have stand-ins that know what the real ones would need to find.

`kubectl kustomize` and `kubectl create --dry-run` are the real ones, and so are `foretype` and `openssl`. What is only recorded:
`docker`, and those commands of `kubectl` that need a cluster.
"""

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from backend.postgres_server import BIN, available, server
from e2e.processes import PYTHON_SCRIPT
from foretype_backend.identity.directory import Tenant
from foretype_backend.identity.store import IdentityStore
from manifests import VERSIONS, check_object, kubectl, render
from our_command import FORETYPE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "deploy.md").read_text("utf-8")
SECTIONS = {
    part.partition("\n")[0]: re.findall(r"^```bash\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)
    for part in TEXT.split("\n## ")[1:]
}
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())

STAND_IN = """import json, os, subprocess, sys
words, folder, real = sys.argv[1:], os.environ["STAND_IN"], os.environ["REAL_KUBECTL"]
name = os.path.basename(sys.argv[0])

def record(**more):
    with open(folder + "/record", "a") as file:
        file.write(json.dumps({"name": name, "words": words, **more}) + "\\n")

def inside(command):
    record()
    if command[0] != "foretype":
        return 0
    named = [folder + "/team.toml" if one == "/etc/foretype/team.toml" else one for one in command[1:]]
    return subprocess.run([os.environ["FORETYPE"], *named]).returncode

def made(*command):
    done = subprocess.run([real, *command], capture_output=True, text=True)
    sys.stderr.write(done.stderr)
    record(objects=done.stdout)
    return done.returncode

if "exec" in words:
    at = words.index("--") + 1 if "--" in words else words.index("exec") + (3 if words[words.index("exec") + 1] == "-T" else 2)
    sys.exit(inside(words[at:]))
if name == "kubectl" and words[0] == "kustomize":
    sys.exit(made(*words))
if name == "kubectl" and "create" in words:
    sys.exit(made(*words, "--dry-run=client", "-o", "yaml"))
if name == "kubectl" and words[:2] == ["apply", "-k"]:
    sys.exit(made("kustomize", words[2]))
if name == "kubectl" and words[:2] == ["apply", "-f"]:
    record(objects=open(words[2]).read())
    sys.exit(0)
record()
"""


@pytest.fixture
def shell(tmp_path: Path) -> Any:
    """Runs blocks of the page in one folder as one script; returns what the stand-ins were asked."""
    real = kubectl()
    if real is None:
        pytest.skip("no kubectl: requirements/kubectl.sh")
    folder, checkout = tmp_path / "bin", tmp_path / "checkout"
    folder.mkdir()
    shutil.copytree(ROOT / "deploy", checkout / "deploy")
    for name in ("docker", "kubectl"):
        (folder / name).write_text(PYTHON_SCRIPT + STAND_IN)
        (folder / name).chmod(0o755)
    (folder / "foretype").symlink_to(FORETYPE)
    (folder / "team.toml").write_text('[identity]\nurl = "identity.db"\n[engine]\nname = "scripted"\n')
    (folder / "record").touch()
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "STAND_IN": str(folder),
        "FORETYPE": str(FORETYPE),
        "REAL_KUBECTL": real,
        "POSTGRES_PASSWORD": "s3cret",
    }

    def run(*blocks: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        run.checkout = checkout  # type: ignore[attr-defined]
        run.told = done.stdout  # type: ignore[attr-defined]
        return [json.loads(line) for line in (folder / "record").read_text().splitlines()]

    return run


def named_services(asked: list[dict[str, Any]]) -> set[str]:
    found: set[str] = set()
    for one in asked:
        words = one["words"]
        if one["name"] == "docker" and words[0] == "compose":
            if words[1] == "exec":
                found.add(words[3] if words[2] == "-T" else words[2])
            elif words[1] in ("up", "stop"):
                found |= {word for word in words[2:] if not word.startswith("-")}
    return found


def objects(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for each in asked for one in yaml.safe_load_all(each.get("objects", "")) if one]


def test_every_block_of_the_page_is_run_here() -> None:
    assert {name: len(blocks) for name, blocks in SECTIONS.items() if blocks} == {
        "One machine: Docker Compose": 2,
        "A cluster: Kubernetes": 3,
        "A fleet on Ray": 1,  # tests/fleet/test_example.py
        "Upgrade and roll-back": 4,
    }
    settings = TEXT.count("```json ")  # of vLLM: tests/vllm/test_prefill_apart.py
    assert (TEXT.count("```bash"), settings) == (10, 2) and TEXT.count("```") / 2 == 10 + settings


@pytest.mark.slow
def test_the_commands_for_one_machine(shell: Any) -> None:
    asked = shell(*SECTIONS["One machine: Docker Compose"])
    assert named_services(asked) <= set(COMPOSE["services"])
    secret = shell.checkout / "deploy" / ".env"
    assert secret.stat().st_mode & 0o077 == 0
    wanted = set(re.findall(r"\$\{(\w+)", (ROOT / "deploy" / "compose.yaml").read_text()))
    assert {
        line.partition("=")[0] for line in secret.read_text().splitlines() if len(line.partition("=")[2]) > 20
    } == wanted
    assert re.search(r"^key: ft_[0-9a-f]+_[0-9a-f]+$", shell.told, re.MULTILINE)


@pytest.mark.slow
def test_the_commands_for_a_cluster(shell: Any) -> None:
    asked = shell(*SECTIONS["A cluster: Kubernetes"])
    assert re.search(r"^key: ft_[0-9a-f]+_[0-9a-f]+$", shell.told, re.MULTILINE)
    found = objects(asked)
    for one in found:
        check_object(one, VERSIONS[-1])
    secrets = {one["metadata"]["name"]: one["data"] for one in found if one["kind"] == "Secret"}
    assert {name: set(data) for name, data in secrets.items()} == {
        "foretype-salt": {"salt"},
        "foretype-postgres": {"password"},
    }
    assert len(base64.b64decode(secrets["foretype-salt"]["salt"])) == 32
    (rules,) = [one for one in found if one["kind"] == "PrometheusRule"]
    assert rules["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    known = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in render("small")}
    waited = [word for one in asked for word in one["words"] if word.startswith(("deployment/", "job/"))]
    assert waited and set(waited) <= known
    pushed = {one["words"][1] for one in asked if one["words"][0] == "push"}
    pods = [one["spec"]["template"]["spec"] for one in render("small") if "template" in one.get("spec", {})]
    assert pushed == {container["image"] for pod in pods for container in pod["containers"]}


def test_the_commands_of_an_upgrade(shell: Any) -> None:
    asked = shell(SECTIONS["Upgrade and roll-back"][0])
    assert named_services(asked) <= set(COMPOSE["services"])
    asked = shell(*SECTIONS["Upgrade and roll-back"][1:3])
    known = {one["metadata"]["name"] for one in render("small")}
    deleted = [one["words"][4] for one in asked if "delete" in one["words"]]
    assert deleted and set(deleted) <= known


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="no PostgreSQL here: apt-get install postgresql")
def test_a_backup_is_restored_as_the_page_says(tmp_path: Path) -> None:
    """Its dump fed to the database that was there restored nothing, and ended with 0."""
    inside = re.compile(r"^(?:\(umask 077; )?docker compose exec -T postgres (.*?)\)?$", re.MULTILINE)
    dump, *restore = inside.findall("\n".join(SECTIONS["Upgrade and roll-back"]))
    assert dump.startswith("pg_dump") and [one.split()[0] for one in restore] == ["dropdb", "createdb", "psql"]
    with server() as url:
        environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "PGHOST": url.rpartition("=")[2]}

        def run(command: str) -> None:
            there = command.replace(" -h 127.0.0.1", "")
            done = subprocess.run(
                there, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), command

        async def tenants(*, add: str = "") -> set[str]:
            store = await IdentityStore.open(url)
            if add:
                await store.add_tenant(Tenant(name=add), 1)
            found = {*(await store.snapshot()).tenants}
            await store.close()
            return found

        assert asyncio.run(tenants(add="acme")) == {"acme"}
        run(dump)
        assert asyncio.run(tenants(add="later")) == {"acme", "later"}
        for command in restore:
            run(command)
        assert asyncio.run(tenants()) == {"acme"}


def test_every_alert_stands_on_the_page_and_no_other() -> None:
    groups = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
    assert set(re.findall(r"^\| `(Foretype\w+)` \|", TEXT, re.MULTILINE)) == {
        rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule
    }


def test_links_and_options_of_the_page_are_there() -> None:
    for target in re.findall(r"\]\((?!https://)([^)#]+)", TEXT):
        assert (ROOT / "docs" / target).exists(), target
    options = (ROOT / "docs" / "reference" / "options.md").read_text("utf-8")
    for name in ("gatewayUrl", "tokenFile"):
        assert name in TEXT and name in options
    settings = json.loads((ROOT / "editors/vscode/package.json").read_text())["contributes"]["configuration"]
    assert "foretype.gatewayUrl" in json.dumps(settings)
