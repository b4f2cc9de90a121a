"""fleet.toml: what may stand in it, a sentence for whatever may not, and the Serve config that it makes."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from foretype_backend.errors import ConfigError, FleetError
from foretype_backend.fleet.ray.commands import app
from foretype_backend.fleet.ray.engine_process import engine_flags
from foretype_backend.fleet.ray.fleet_file import load_fleet
from foretype_backend.fleet.ray.head import check_ray
from foretype_backend.fleet.ray.running import check_room
from foretype_backend.fleet.ray.serve_config import Placed, Target, resized, serve_config, targets, written
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
GOOD = """
[fleet]
name = "team"
gateways = ["https://gateway:7878"]

[[pool]]
name = "fast"
region = "eu"
revision = "r1"
min_replicas = 1
max_replicas = 4
gpus = 1

[pool.revisions.r1]
model = "coder"
grammar = "foretype-1"
profile = "r1.yaml"

[pool.revisions.r2]
model = "coder-2"
grammar = "foretype-1"
"""


def write(folder: Path, text: str = GOOD) -> Path:
    (folder / "r1.yaml").write_text(
        "model: models/coder\nblock-size: 32\nport: 8000\nkv-events-config: {publisher: zmq}\n"
    )
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


def config_of(folder: Path, text: str = GOOD) -> dict[str, Any]:
    return serve_config(load_fleet(write(folder, text)), folder)


@pytest.mark.parametrize(
    ("was", "becomes", "field", "told"),
    [
        ('name = "team"', 'name = "Team one"', "fleet.name", "small letters"),
        ('name = "team"', 'name = "team"\nnodes = 3', "fleet.nodes", "docs/reference/fleet.md"),
        ("gateways = [", 'gateways = ["gateway:7878", ', "fleet.gateways[0]", "is no URL"),
        ("[[pool]]", "[cluster]\nport = 8100\n[[pool]]", "directory.port", "that of cluster.port too"),
        ("[[pool]]", "[directory]\nlease_s = 1\n[[pool]]", "directory.lease_s", "5 or more"),
        ("[[pool]]", '[directory]\nhost = "0.0.0.0"\n[[pool]]', "directory.token_file", "tell the network"),
        ("[[pool]]", '[cluster]\nurl = "ray:8265"\n[[pool]]', "cluster.url", "is no URL"),
        ("[[pool]]", f'[cluster]\nfolder = "/{"x" * 80}"\n[[pool]]', "cluster.folder", "sockets"),
        ('region = "eu"', 'region = "eu.west"', "pool[0].region", "small letters"),
        ('revision = "r1"', 'revision = "r9"', "pool[0].revision", "not among the revisions (r1, r2)"),
        ("max_replicas = 4", "max_replicas = 0", "pool[0].max_replicas", "no bounds"),
        ("gpus = 1", "gpus = -1", "pool[0].gpus", "negative"),
        ("gpus = 1", "drain_s = 0", "pool[0].drain_s", "above zero"),
        ("gpus = 1", "command = []", "pool[0].command", "spawned"),
        ("gpus = 1", 'scaling = { min_replicas = "two" }\ntokens = 1', "pool", "tokens"),
        ("gpus = 1", "scaling = { kv_target = 2.0 }", "pool[0].scaling", "kv_target"),
        ("[pool.revisions.r2]", "[pool.revisions.'r 2']", "pool[0].revisions.r 2", "at most 40"),
        ('profile = "r1.yaml"', 'profile = "none.yaml"', "pool.revisions.r1.profile", "deploy/profiles"),
        ('model = "coder-2"', 'model = ""', "pool[0].revisions.r2", "no model"),
    ],
)  # fmt: skip
def test_what_cannot_be_names_its_field_and_the_remedy(
    tmp_path: Path, was: str, becomes: str, field: str, told: str
) -> None:
    assert was in GOOD
    with pytest.raises(ConfigError) as refused:
        load_fleet(write(tmp_path, GOOD.replace(was, becomes, 1)))
    assert refused.value.field.startswith(field) and told in str(refused.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    for path, told in ((tmp_path / "none.toml", "cannot read"), (write(tmp_path, "[fleet"), "is no TOML")):
        with pytest.raises(ConfigError, match=told):
            load_fleet(path)
    with pytest.raises(ConfigError, match="a fleet without a pool"):
        load_fleet(write(tmp_path, '[fleet]\nname = "team"\n'))


def test_scaling_needs_somebody_who_says_the_load(tmp_path: Path) -> None:
    text = GOOD.replace("gpus = 1", "scaling = {}").replace('gateways = ["https://gateway:7878"]', "")
    with pytest.raises(ConfigError, match=r"fleet\.gateways"):
        load_fleet(write(tmp_path, text))


def test_where_and_how_replicas_run_scale_and_are_rolled_out_is_read(tmp_path: Path) -> None:
    said = 'gpus = 1\nhost = "10.0.0.9"\nscaling = { down_share = 0.3, p99_objective_ms = 80.0 }\nrollout = { step_s = 7.0, failed = 0.2 }'
    [pool] = load_fleet(write(tmp_path, GOOD.replace("gpus = 1", said))).pools
    assert pool.host == "10.0.0.9"
    assert (pool.scaled.down_share, pool.rolled.step_s, pool.rolled.failed) == (0.3, 7.0, 0.2)


def test_regions_of_a_pool_are_one_model(tmp_path: Path) -> None:
    again = GOOD[GOOD.index("[[pool]]") :]
    with pytest.raises(ConfigError, match="is in eu already"):
        load_fleet(write(tmp_path, GOOD + again))
    with pytest.raises(ConfigError, match="one pool is one model everywhere"):
        load_fleet(write(tmp_path, GOOD + again.replace('"eu"', '"us"').replace('"coder"', '"other"')))
    two = config_of(tmp_path, GOOD + again.replace('"eu"', '"us"'))
    assert list(targets(two)) == [Placed("fast", "eu", "r1"), Placed("fast", "us", "r1")]


def test_another_tokenizer_under_the_same_name_is_refused(tmp_path: Path) -> None:
    for name, content in (("one", "{}"), ("two", '{"version": "2"}')):
        (tmp_path / name).write_text(content)
    same = GOOD.replace('"coder-2"', '"coder"') + 'tokenizer = "two"\n'
    same = same.replace('profile = "r1.yaml"', 'profile = "r1.yaml"\ntokenizer = "one"')
    with pytest.raises(ConfigError, match="r2 and r1 are both called 'coder' and have different tokenizers"):
        load_fleet(write(tmp_path, same))
    load_fleet(write(tmp_path, same.replace('tokenizer = "two"', 'tokenizer = "one"')))
    (tmp_path / "models/coder").mkdir(parents=True)
    (tmp_path / "models/coder/tokenizer.json").write_text('{"version": "3"}')  # found by the profile's model
    with pytest.raises(ConfigError, match="have different tokenizers"):
        load_fleet(write(tmp_path, same.replace('tokenizer = "one"', "")))


def test_the_serve_config_has_an_application_for_each_revision_beside_the_directory(tmp_path: Path) -> None:
    config = yaml.safe_load(written(config_of(tmp_path)))
    directory, pool = config["applications"]
    assert (directory["name"], directory["route_prefix"]) == ("directory", "/")
    assert (pool["name"], pool["route_prefix"]) == ("fast.eu.r1", None)
    assert pool["args"]["labels"]["block_size"] == "32"
    [deployment] = pool["deployments"]
    assert deployment["ray_actor_options"]["num_gpus"] == 1
    assert deployment["graceful_shutdown_timeout_s"] > pool["args"]["drain_s"]
    assert targets(config) == {Placed("fast", "eu", "r1"): Target(1, 1)}


def test_ray_takes_the_config(tmp_path: Path) -> None:
    schema = pytest.importorskip("ray.serve.schema")
    text = GOOD.replace("gpus = 1", 'labels = { zone = "eu-1" }\nscaling = { kv_target = 0.5 }')
    found = schema.ServeDeploySchema.model_validate(yaml.safe_load(written(config_of(tmp_path, text))))
    assert [one.name for one in found.applications] == ["directory", "fast.eu.r1"]


def test_a_scaled_pool_is_given_to_the_policy_and_back(tmp_path: Path) -> None:
    schema = pytest.importorskip("ray.serve.schema")
    utils = pytest.importorskip("ray.serve._private.deploy_utils")

    def version(config: dict[str, Any]) -> str:
        return utils.get_app_code_version(schema.ServeDeploySchema.model_validate(config).applications[1])

    path = write(tmp_path, GOOD.replace("gpus = 1", "scaling = { kv_target = 0.5 }"))
    fleet = load_fleet(path)
    config = serve_config(fleet, tmp_path)
    assert targets(config) == {Placed("fast", "eu", "r1"): Target(1, 4)}
    [deployment] = config["applications"][1]["deployments"]
    assert deployment["autoscaling_config"]["policy"]["policy_kwargs"]["gateways"] == ["https://gateway:7878"]
    fixed = resized(config, fleet, tmp_path, "fast", 3, None)
    assert targets(fixed) == {Placed("fast", "eu", "r1"): Target(3, 3)}
    assert [version(one) for one in (config, fixed)] == [version(config)] * 2, "or Ray starts every replica anew"
    assert resized(fixed, fleet, tmp_path, "fast", None, "eu") == config


@pytest.mark.parametrize(
    ("name", "count", "region", "told"),
    [
        ("slow", 1, None, "no pool is called 'slow'; the file has fast"),
        ("fast", 5, None, "outside of 1 to 4"),
        ("fast", 0, None, "outside of 1 to 4"),
        ("fast", 1, "us", "is not in us; it is in eu"),
    ],
)
def test_a_number_that_cannot_be(tmp_path: Path, name: str, count: int, region: str | None, told: str) -> None:
    fleet = load_fleet(write(tmp_path))
    with pytest.raises(ConfigError, match=told):
        resized(serve_config(fleet, tmp_path), fleet, tmp_path, name, count, region)


def test_a_profile_without_what_is_one_replicas_alone(tmp_path: Path) -> None:
    flags = load_fleet(write(tmp_path)).profiles["r1.yaml"]
    assert engine_flags(flags) == {"model": "models/coder", "block-size": 32}


def test_the_example_is_a_fleet_of_a_shipped_profile() -> None:
    fleet = load_fleet(ROOT / "deploy" / "fleet.toml")
    [pool] = fleet.pools
    assert fleet.flags(pool.revisions["r1"])["served-model-name"] == pool.revisions["r1"].model


def test_every_shipped_profile_can_be_a_revision(tmp_path: Path) -> None:
    for profile in sorted((ROOT / "deploy" / "profiles").glob("*.yaml")):
        fleet = load_fleet(write(tmp_path, GOOD.replace('"r1.yaml"', f'"{profile}"')))
        assert fleet.block_size(fleet.pools[0].revisions["r1"]) == fleet.profiles[str(profile)]["block-size"]


def node(cpus: float, gpus: float = 0.0, **labels: str) -> dict[str, Any]:
    return {"node_ip": "10.0.0.1", "resources_total": {"CPU": cpus, "GPU": gpus}, "labels": labels}


def test_no_room_says_what_is_needed_and_what_there_is(tmp_path: Path) -> None:
    [pool] = load_fleet(write(tmp_path)).pools
    with pytest.raises(
        FleetError,
        match=r"a replica of 1 CPU, 1 GPU has no room \(10.0.0.1 has 8 CPU, 0 GPU\); lower pool.cpus or pool.gpus, or",
    ):
        check_room({"fast.eu": pool}, [node(8)])
    check_room({"fast.eu": pool}, [node(8), node(8, 1)])
    [two] = load_fleet(write(tmp_path, GOOD.replace("min_replicas = 1", "min_replicas = 2"))).pools
    with pytest.raises(FleetError, match=r"2 replicas of .* each have no room .* or pool.min_replicas"):
        check_room({"fast.eu": two}, [node(8, 1)])
    [labelled] = load_fleet(write(tmp_path, GOOD.replace("gpus = 1", 'labels = { zone = "eu-1" }'))).pools
    with pytest.raises(FleetError, match="no node has the labels zone=eu-1"):
        check_room({"fast.eu": labelled}, [node(8, zone="eu-2")])
    check_room({"fast.eu": labelled}, [node(8, zone="eu-1")])


def test_ray_of_another_version_is_refused() -> None:
    check_ray()
    check_ray("2.60.3")
    for other in ("2.61.0", "2.6.0", "3.0.0"):
        with pytest.raises(FleetError, match=f"made for Ray 2.60, and found {other}"):
            check_ray(other)


def test_without_its_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    example = Path(__file__).parents[2] / "deploy" / "fleet.toml"
    result = CliRunner().invoke(app, ["config", "--config", str(example)])
    assert (result.exit_code, "pip install 'foretype[fleet]'" in result.output) == (1, True), result.output
