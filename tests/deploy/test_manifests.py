"""Dockerfile, compose file and chart have the shape they should. Nothing here runs them: no container engine does in CI."""

import inspect
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import yaml
from foretype_backend.cli import serve
from foretype_backend.config import Config, load_config
from foretype_backend.operations.config_check import check_file
from foretype_models.artifacts import locate

DEPLOY = Path(__file__).parents[2] / "deploy"
HELM = DEPLOY / "helm"
VALUES: dict[str, Any] = yaml.safe_load((HELM / "values.yaml").read_text())


def rendered(name: str) -> Any:
    """A template with the values put in, by the few forms that our templates use."""
    text = (HELM / "templates" / name).read_text()

    def value(found: re.Match[str]) -> str:
        expression = found[1].strip("- ")
        path, _, rest = expression.removeprefix("toYaml ").partition(" | ")
        if path == ".Release.Name":
            return "release"
        result: Any = VALUES
        for part in path.removeprefix(".Values.").split("."):
            result = result[part]
        if rest.startswith("nindent"):
            indent = "\n" + " " * int(rest.split()[1])
            lines = (yaml.safe_dump(result) if expression.startswith("toYaml") else str(result)).splitlines()
            return indent + indent.join(lines)
        return "0" * 64 if rest == "sha256sum" else str(result)

    return yaml.safe_load(re.sub(r"\s*\{\{- (.+?)\}\}|\{\{ (.+?) \}\}", lambda m: value(_one(m)), text))


def _one(match: re.Match[str]) -> re.Match[str]:
    found = re.fullmatch(r"\s*\{\{-? (.+?)\s*\}\}", match[0])
    assert found is not None
    return found


def test_the_file_that_both_start_from_can_be_used(tmp_path: Path) -> None:
    path = Path(shutil.copy(DEPLOY / "team.toml", tmp_path))
    lacking = check_file(path)
    assert lacking is not None and lacking.field == "model.tokenizer", "the user puts the model's own beside it"
    shutil.copy(locate().tokenizer_path, tmp_path)
    assert check_file(path) is None
    config = load_config(profile=path, host="0.0.0.0")
    assert config.identity.on
    assert config.leases.redis_url is not None


def test_the_image_has_no_rights_and_no_shell_form() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
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
    assert instructions.index("USER") < instructions.index("ENTRYPOINT")
    assert "USER 10001:10001" in lines
    assert all("[" in line for line in lines if line.startswith(("ENTRYPOINT", "CMD")))
    assert not any(":latest" in line for line in lines if line.startswith("FROM"))


def test_what_nobody_ran_says_so() -> None:
    for name in ("Dockerfile", "compose.yaml", "helm/values.yaml"):
        assert "Unrun here" in (DEPLOY / name).read_text().partition("FROM")[0].partition("services:")[0], name


def test_the_image_installs_what_exists_and_starts_what_can_be_parsed() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'\.\[([^\]]+)\]'", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert "ADD " not in text and "sudo" not in text and "curl" not in text
    assert text.count("pip install") == text.count("--no-cache-dir") == text.count("-c requirements/lock.txt")
    (arguments,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    options = {f"--{name.replace('_', '-')}" for name in inspect.signature(serve).parameters}
    assert {one for one in msgspec.json.decode(arguments, type=list[str]) if one.startswith("--")} <= options


def test_compose_keeps_the_gateway_read_only_and_redis_off_the_disk() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    gateway, redis = compose["services"]["gateway"], compose["services"]["redis"]
    assert gateway["read_only"] and gateway["cap_drop"] == ["ALL"] and gateway["user"] == "10001:10001"
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])
    command = redis["command"]
    assert (command[command.index("--save") + 1], command[command.index("--appendonly") + 1]) == ("", "no")
    named = {volume.split(":")[0] for s in compose["services"].values() for volume in s.get("volumes", ())}
    assert {name for name in named if name.isalpha()} <= set(compose["volumes"])
    for service in compose["services"].values():
        assert set(service.get("secrets", ())) <= set(compose["secrets"])


def test_the_charts_values_fit_its_schema() -> None:
    schema = msgspec.json.decode((HELM / "values.schema.json").read_bytes())
    assert set(schema["required"]) <= set(VALUES) <= set(schema["properties"])
    kinds = {"string": str, "integer": int, "object": dict}
    for name, value in VALUES.items():
        assert isinstance(value, kinds[schema["properties"][name]["type"]]), name
    config = tomllib.loads(VALUES["config"])
    assert msgspec.convert(config, dict)
    assert set(config) <= set(Config.__struct_fields__)
    assert config["gateway"]["drain_s"] < VALUES["terminationGracePeriodSeconds"]


def test_the_chart_renders_to_objects_that_refer_to_each_other() -> None:
    deployment, service, config = (rendered(f"{name}.yaml") for name in ("deployment", "service", "configmap"))
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {v["name"] for v in pod["spec"]["volumes"]}
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
    assert tomllib.loads(config["data"]["team.toml"]) == tomllib.loads(VALUES["config"])
    assert pod["spec"]["securityContext"]["runAsUser"] == 10001
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["resources"] == VALUES["resources"]
