"""The manifests for Kubernetes: rendered, valid, and what one object says of another is so. No cluster runs them here."""

import copy
from pathlib import Path
from typing import Any

import pytest
from foretype_backend.config.load import load_config
from foretype_backend.config.secret_files import make_secret
from foretype_models.artifacts import locate
from manifests import OVERLAYS, VERSIONS, Invalid, check_object, kubectl, render, the
from our_command import foretype

needs_kubectl = pytest.mark.skipif(kubectl() is None, reason="no kubectl: requirements/kubectl.sh")
pytestmark = [needs_kubectl, pytest.mark.parametrize("overlay", OVERLAYS)]

OPERATORS = {"foretype-salt", "foretype-postgres", "foretype-tls"}
"""Secrets that docs/deploy.md tells the operator to make."""


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in objects
        if one["kind"] in ("Deployment", "StatefulSet", "Job", "DaemonSet", "CronJob")
    }


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def team_toml(objects: list[dict[str, Any]], folder: Path) -> Path:
    path = folder / "team.toml"
    path.write_text(the(objects, "ConfigMap", "foretype-config")["data"]["team.toml"])
    return path


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_takes_every_object(overlay: str, version: str) -> None:
    objects = render(overlay)
    assert {"Deployment", "StatefulSet", "Job", "PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler"} <= {
        one["kind"] for one in objects
    }
    for one in objects:
        check_object(one, version)
        assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "foretype"


def test_an_object_of_a_kind_or_with_a_field_that_nobody_knows_is_refused(overlay: str) -> None:
    objects = render(overlay)
    for one in objects:
        for field in ("apiVersion", "kind"):
            with pytest.raises(Invalid):
                check_object({**one, field: one[field] + "x"}, VERSIONS[-1])
        if "spec" in one:
            wrong = copy.deepcopy(one)
            wrong["spec"]["noSuchField"] = 1
            with pytest.raises(Invalid):
                check_object(wrong, VERSIONS[-1])
    unknown = {"apiVersion": "example.com/v1", "kind": "ScaledObject", "metadata": {"name": "x"}, "spec": {}}
    with pytest.raises(Invalid, match="no schema"):
        check_object(unknown, VERSIONS[-1])


def test_no_pod_has_a_right_that_it_does_not_need(overlay: str) -> None:
    objects = render(overlay)
    assert the(objects, "Namespace", "foretype")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == (
        "restricted"
    )
    assert set(pods(objects)) == {"foretype-gateway", "foretype-vllm", "foretype-migrate"}
    for pod in pods(objects).values():
        spec, security = pod["spec"], pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] == security["runAsGroup"] == 10001
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in containers(pod):
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] and own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]} and "runAsUser" not in own
            assert container["resources"]["limits"]["memory"]


def test_what_pods_mount_and_read_is_there(overlay: str) -> None:
    objects = render(overlay)
    names = {(one["kind"], one["metadata"]["name"]) for one in objects}
    secrets: set[str] = set()
    for pod in pods(objects).values():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounted = {mount["name"] for container in containers(pod) for mount in container["volumeMounts"]}
        assert mounted == set(volumes)
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in names
            elif "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names
            elif "secret" in volume:
                secrets.add(volume["secret"]["secretName"])
            else:
                assert "emptyDir" in volume
        for container in containers(pod):
            secrets |= {
                one["valueFrom"]["secretKeyRef"]["name"] for one in container.get("env", ()) if "valueFrom" in one
            }
    secrets |= {tls["secretName"] for one in objects if one["kind"] == "Ingress" for tls in one["spec"]["tls"]}
    assert secrets <= OPERATORS
    assert secrets >= {"foretype-salt", "foretype-postgres"}


def test_no_password_is_a_file_that_libpq_would_ignore(overlay: str) -> None:
    """An fsGroup makes every file of a secret readable by the group, and libpq takes no such password file."""
    for pod in pods(render(overlay)).values():
        for container in containers(pod):
            names = [one["name"] for one in container.get("env", ())]
            assert "PGPASSFILE" not in names
            assert ("PGPASSWORD" in names) == (container["image"].rpartition("/")[2].startswith("foretype:"))


def test_services_budgets_scaling_and_monitor_mean_pods_that_are_there(overlay: str) -> None:
    objects = render(overlay)
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(objects).items()}

    def chosen(selector: dict[str, str]) -> list[str]:
        return [name for name, own in labels.items() if selector.items() <= own.items()]

    services = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Service"}
    for service in services.values():
        (name,) = chosen(service["spec"]["selector"])
        ports = {port["name"] for port in pods(objects)[name]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for one in objects:
        if one["kind"] in ("PodDisruptionBudget", "Deployment", "StatefulSet"):
            (name,) = chosen(one["spec"]["selector"]["matchLabels"])
            assert name == one["metadata"]["name"]
        if one["kind"] == "NetworkPolicy" and one["spec"]["podSelector"]:
            (name,) = chosen(one["spec"]["podSelector"]["matchLabels"])
            assert name == one["metadata"]["name"]
        if one["kind"] == "Ingress":
            for rule in one["spec"]["rules"]:
                for path in rule["http"]["paths"]:
                    backend = path["backend"]["service"]
                    assert backend["port"]["name"] in {p["name"] for p in services[backend["name"]]["spec"]["ports"]}
        if one["kind"] == "ServiceMonitor":
            (monitored,) = [
                service
                for service in services.values()
                if one["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
            ]
            (endpoint,) = one["spec"]["endpoints"]
            assert endpoint["port"] == "metrics" == monitored["spec"]["ports"][0]["name"]
    scaler = the(objects, "HorizontalPodAutoscaler", "foretype-gateway")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "foretype-gateway"
    assert "replicas" not in the(objects, "Deployment", "foretype-gateway")["spec"]
    assert scaler["minReplicas"] >= 2
    headless = services["foretype-vllm"]["spec"]
    assert headless["clusterIP"] == "None"
    assert the(objects, "StatefulSet", "foretype-vllm")["spec"]["serviceName"] == "foretype-vllm"


def test_nobody_reaches_a_replica_but_gateways_and_a_replica_reaches_nobody(overlay: str) -> None:
    objects = render(overlay)
    everything = the(objects, "NetworkPolicy", "foretype-nothing")["spec"]
    assert everything == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    vllm = the(objects, "NetworkPolicy", "foretype-vllm")["spec"]
    assert "egress" not in vllm and "Egress" in vllm["policyTypes"]
    assert vllm["ingress"] == [
        {
            "ports": [{"protocol": "TCP", "port": 8000}],
            "from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "foretype-gateway"}}}],
        }
    ]
    gateway = the(objects, "NetworkPolicy", "foretype-gateway")["spec"]
    for rule in gateway["ingress"]:
        assert "from" in rule or [port["port"] for port in rule["ports"]] == [7878]


def test_probes_ask_whether_it_lives_and_whether_it_can_serve(overlay: str) -> None:
    gateway = pods(render(overlay))["foretype-gateway"]["spec"]["containers"][0]
    paths = {kind: gateway[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/livez", "readiness": "/readyz", "liveness": "/livez"}


@pytest.mark.slow
def test_the_gateways_file_fits_the_pods_and_can_be_used(overlay: str, tmp_path: Path) -> None:
    objects = render(overlay)
    path = team_toml(objects, tmp_path)
    config = load_config(profile=path, host="0.0.0.0")
    pod = pods(objects)["foretype-gateway"]["spec"]
    (gateway,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in gateway["ports"]}
    assert ports == {"http": config.gateway.port, "metrics": config.metrics.port}
    assert config.metrics.host == "0.0.0.0"
    wait_s = float(gateway["lifecycle"]["preStop"]["exec"]["command"][1])
    assert wait_s + config.gateway.drain_s + 3 <= pod["terminationGracePeriodSeconds"]
    assert {"foretype-gateway", "foretype-gateway.foretype"} <= set(config.gateway.hosts)
    hosts = {rule["host"] for one in objects if one["kind"] == "Ingress" for rule in one["spec"]["rules"]}
    assert hosts <= set(config.gateway.hosts)
    vllm = the(objects, "StatefulSet", "foretype-vllm")["spec"]
    scaled = [one["spec"] for one in objects if one["kind"] == "ScaledObject"]
    discovery = config.pool.fast.discovery
    if scaled:
        assert discovery is not None and (discovery.source, discovery.port) == ("dns", 8000)
        assert discovery.name == f"{vllm['serviceName']}.foretype.svc.cluster.local"
        assert "replicas" not in vllm, "a number in the file would take away what the autoscaler added"
    else:
        names = [f"http://foretype-vllm-{n}.foretype-vllm:8000/v1" for n in range(vllm["replicas"])]
        assert list(config.pool.fast.replicas) == names

    # The same file with the mounts somewhere else: the command has nothing to say against it.
    mounts = {mount["mountPath"]: mount["name"] for mount in gateway["volumeMounts"]}
    assert config.identity.salt_file is not None and config.model.tokenizer is not None
    salt, tokenizer = Path(config.identity.salt_file), Path(config.model.tokenizer)
    assert (mounts[str(salt.parent)], mounts[str(tokenizer.parents[1])]) == ("salt", "models")
    make_secret(tmp_path / "salt")
    text = path.read_text().replace(str(salt), str(tmp_path / "salt"))
    path.write_text(text.replace(str(tokenizer), str(locate().tokenizer_path)))
    done = foretype("config", "check", path)
    first, *others = done.stdout.splitlines()
    assert (done.returncode, first, done.stderr) == (0, f"{path}: ok", "")
    assert all(line.startswith("not checked: ") for line in others)


def test_the_profile_that_replicas_start_with_is_the_one_of_the_gateways_tokenizer(overlay: str) -> None:
    import tomllib

    import yaml

    objects = render(overlay)
    (vllm,) = pods(objects)["foretype-vllm"]["spec"]["containers"]
    profiles = the(objects, "ConfigMap", "foretype-profiles")["data"]
    profile = yaml.safe_load(profiles[Path(vllm["args"][1]).name])
    model = tomllib.loads(the(objects, "ConfigMap", "foretype-config")["data"]["team.toml"])["model"]
    assert str(Path(model["tokenizer"]).parent) == profile["model"]
    gpus = int(vllm["resources"]["limits"].get("nvidia.com/gpu", "0"))
    assert gpus == (0 if profile.get("dtype") == "float32" else profile.get("tensor-parallel-size", 1))
