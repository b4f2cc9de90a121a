"""Rendered manifests as containers, by the rules of a kubelet: volumes, an fsGroup, probes, preStop, services of what is ready."""

from __future__ import annotations

import contextlib
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from rehearsal.containers import Bind, Container, Failed, Host, until
from rehearsal.images import Image, gateway_image, vllm_image
from rehearsal.rendering import the

__all__ = ["Cluster", "Pod"]


class Pod:
    """One address, containers that begin it and one that stays."""

    def __init__(self, name: str, spec: dict[str, Any], first: list[Container], main: Container, host: Host) -> None:
        self.name, self.first, self.main, self._host = name, first, main, host
        self._container: dict[str, Any] = spec["containers"][0]
        self.ready = False

    @property
    def address(self) -> str:
        return self.main.address

    def start(self) -> None:
        for container in self.first:
            self._host.run(container)
        self._host.start(self.main)

    def wait_ready(self) -> None:
        """What a kubelet does: the start-up probe until it passes, then the one for readiness. Raises Failed."""
        for kind in ("startup", "readiness"):
            if f"{kind}Probe" not in self._container:
                raise Failed(f"{self.name} has no {kind} probe")

            def passes(kind: str = kind) -> bool:
                self._host.alive(self.main)
                return self.probe(kind)

            until(f"{self.name}: {kind} probe", passes)
        self.ready = True

    def probe(self, kind: str) -> bool:
        """As a kubelet asks: by the pod's address, without a credential."""
        asked = self._container[f"{kind}Probe"]["httpGet"]
        port = next(one["containerPort"] for one in self._container["ports"] if one["name"] == asked["port"])
        timeout = self._container[f"{kind}Probe"].get("timeoutSeconds", 1)
        try:
            with _HTTP.open(f"http://{self.address}:{port}{asked['path']}", timeout=max(timeout, 10)) as answer:
                return 200 <= answer.status < 400
        except (OSError, urllib.error.URLError):
            return False

    def stop(self) -> int:
        """Out of every service at once, then preStop and SIGTERM."""
        self.ready = False
        return self._host.stop(self.main)


_HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Cluster:
    """Args:
    secrets: what an operator makes, by name and key.
    """

    def __init__(
        self, objects: list[dict[str, Any]], secrets: dict[str, dict[str, bytes]], deploy: Path, host: Host
    ) -> None:
        self.objects, self._secrets, self._deploy, self._host = objects, secrets, deploy, host
        self.hosts: dict[str, str] = {}
        self._made = 0

    def pod(self, kind: str, owner: str, name: str = "") -> Pod:
        """One more pod of a workload; it is not started."""
        self._made += 1
        name = name or f"{owner}-{self._made}"
        template: dict[str, Any] = the(self.objects, kind, owner)["spec"]["template"]
        spec = template["spec"]
        address = self._host.new_address()
        binds = {volume["name"]: self._volume(volume, spec, name) for volume in spec["volumes"]}
        first = [
            self._container(one, spec, f"{name}-{one['name']}", address, binds)
            for one in spec.get("initContainers", ())
        ]
        (one,) = spec["containers"]
        return Pod(name, spec, first, self._container(one, spec, name, address, binds), self._host)

    def run_job(self, name: str) -> None:
        """Until it has ended. Raises Failed."""
        pod = self.pod("Job", name)
        pod.main.hosts = self.hosts
        self._host.run(pod.main)

    def _image(self, name: str) -> Image:
        repository, _, tag = name.rpartition("/")[2].partition(":")
        if repository == "foretype":
            return gateway_image(self._deploy)
        if repository == "foretype-vllm":
            return vllm_image(self._deploy, "cpu" if tag.endswith("-cpu") else "gpu")
        raise Failed(f"nobody builds the image {name}")

    def _container(
        self, one: dict[str, Any], spec: dict[str, Any], name: str, address: str, binds: dict[str, Bind]
    ) -> Container:
        image = self._image(one["image"])
        security = spec["securityContext"] | one.get("securityContext", {})
        if "ALL" not in security["capabilities"]["drop"] or security.get("allowPrivilegeEscalation", True):
            raise Failed(f"{name} has rights that the rehearsal cannot give")
        stop = one.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        mounts = [(mount, binds[mount["name"]]) for mount in one["volumeMounts"]]
        return Container(
            name=name,
            image=image,
            command=[
                *one.get("command", image.entrypoint),
                *one.get("args", () if "command" in one else image.command),
            ],
            environment={variable["name"]: self._value(variable) for variable in one.get("env", ())},
            user=f"{security['runAsUser']}:{security['runAsGroup']}",
            binds=[
                Bind(
                    mount["mountPath"],
                    bind.source,
                    bind.writable and not mount.get("readOnly", False),
                    bind.mode,
                    bind.size,
                )
                for mount, bind in mounts
            ],
            read_only=security["readOnlyRootFilesystem"],
            address=address,
            hosts=self.hosts,
            grace_s=float(spec.get("terminationGracePeriodSeconds", 30)),
            before_stop=stop,
            restarts=2 if spec.get("restartPolicy", "Always") == "Always" else 0,
        )

    def _value(self, variable: dict[str, Any]) -> str:
        if "value" in variable:
            return str(variable["value"])
        wanted = variable["valueFrom"]["secretKeyRef"]
        return self._secrets[wanted["name"]][wanted["key"]].decode()

    def _volume(self, volume: dict[str, Any], spec: dict[str, Any], pod: str) -> Bind:
        group: int = spec["securityContext"]["fsGroup"]
        path = self._host.folder / "volumes" / f"{pod}-{volume['name']}"
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]
            path = self._host.folder / "volumes" / claim["claimName"]
            path.mkdir(exist_ok=True)
            os.chown(path, 0, group)
            path.chmod(0o2775)
            return Bind("", path, writable=not claim.get("readOnly", False))
        if "emptyDir" in volume:
            if volume["emptyDir"].get("medium") == "Memory":
                return Bind("", None, writable=True)
            path.mkdir()
            os.chown(path, 0, group)
            path.chmod(0o2777)
            return Bind("", path, writable=True)
        if "configMap" in volume:
            data = the(self.objects, "ConfigMap", volume["configMap"]["name"])["data"]
            files, mode = (
                {key: text.encode() for key, text in data.items()},
                volume["configMap"].get("defaultMode", 0o644),
            )
        else:
            wanted = volume["secret"]["secretName"]
            if wanted not in self._secrets:
                raise Failed(f"nobody makes the secret {wanted}")
            files, mode = self._secrets[wanted], volume["secret"].get("defaultMode", 0o644)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        for key, data in files.items():
            (path / key).write_bytes(data)
            os.chown(path / key, 0, group)
            (path / key).chmod(mode | 0o440)  # what an fsGroup does
        os.chown(path, 0, group)
        path.chmod(0o2755)
        return Bind("", path)


@contextlib.contextmanager
def names_of_this_machine(folder: Path, names: dict[str, str]):
    """Names that this process, in a mount namespace of its own, finds addresses for."""
    import subprocess

    file = folder / "hosts"
    file.write_text("".join(f"{address}\t{name}\n" for name, address in {"localhost": "127.0.0.1", **names}.items()))
    subprocess.run(["mount", "--bind", str(file), "/etc/hosts"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "/etc/hosts"], check=True)
