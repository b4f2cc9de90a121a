"""A compose file as containers, by the rules of Docker Compose: profiles and `deploy:` are not used by ours, and are refused."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import yaml

from rehearsal.containers import LIMIT_S, Bind, Container, Failed, Host, until
from rehearsal.images import Image, foreign, gateway_image, vllm_image

__all__ = ["Compose"]

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_KNOWN = {
    *(
        "image",
        "build",
        "command",
        "entrypoint",
        "environment",
        "volumes",
        "networks",
        "network_mode",
        "depends_on",
        "healthcheck",
        "hostname",  # the namespace has one for all
    ),
    *(
        "read_only",
        "user",
        "cap_drop",
        "security_opt",
        "ulimits",
        "tmpfs",
        "shm_size",
        "stop_grace_period",
        "ports",
        "restart",
        "secrets",
    ),
}


class Compose:
    """Args:
    file: the compose file; `.env` beside it is not read, `environment` stands for it.
    """

    def __init__(self, file: Path, host: Host, environment: dict[str, str]) -> None:
        self._deploy, self._host = file.parent, host
        text = re.sub(
            r"\$\{(\w+)(?::\?([^}]*))?\}", lambda found: self._value(found, environment), file.read_text("utf-8")
        )
        self._file: dict[str, Any] = yaml.safe_load(text)
        self.services: dict[str, dict[str, Any]] = self._file["services"]
        self.containers: dict[str, Container] = {}
        self.left_out: list[str] = []
        for name, service in self.services.items():
            if unknown := set(service) - _KNOWN:
                raise Failed(f"the rehearsal does not know `{min(unknown)}` of the service {name}")
            image = self._image(service)
            if image is None:
                self.left_out.append(name)
            else:
                self.containers[name] = self._container(name, service, image)
        for name, container in self.containers.items():
            own = set(self.services[name].get("networks", ("default",)))
            container.hosts = {
                other: found.address
                for other, found in self.containers.items()
                if own & set(self.services[other].get("networks", ("default",)))
                and "network_mode" not in self.services[name]
            }

    def up(self, name: str) -> Container:
        """Start a service after what it depends on. Raises Failed."""
        container, service = self.containers[name], self.services[name]
        if container.process is not None:
            return container
        for other, wanted in service.get("depends_on", {}).items():
            self.up(other)
            found = self.containers[other]
            assert found.process is not None
            if wanted["condition"] == "service_completed_successfully":
                if (code := found.process.wait(LIMIT_S)) != 0:
                    raise Failed(f"{other} ended with {code}:\n{self._host.said(found)}")
            elif wanted["condition"] == "service_healthy":
                self.wait_healthy(other)
        self._host.start(container)
        return container

    def wait_healthy(self, name: str) -> None:
        test = self.services[name]["healthcheck"]["test"]
        container = self.containers[name]

        def healthy() -> bool:
            self._host.alive(container)
            return (
                self._host.execute(container, test[1:] if test[0] == "CMD" else ["sh", "-c", test[1]]).returncode == 0
            )

        time.sleep(0.3)
        until(f"{name} is healthy", healthy, every_s=1.0)

    def again(self, name: str) -> Container:
        """`docker compose up --force-recreate`: the container is another one, volumes and address stay."""
        self._host.stop(self.containers[name])
        self.containers[name].process = None
        return self.up(name)

    def _value(self, found: re.Match[str], environment: dict[str, str]) -> str:
        value = environment.get(found[1])
        if value is None:
            raise Failed(f"{found[1]} is not set: {found[2] or ''}")
        return value

    def _image(self, service: dict[str, Any]) -> Image | None:
        build = service.get("build")
        if build is None:
            return foreign(service["image"])
        if build["dockerfile"].endswith(".vllm"):
            return vllm_image(self._deploy, build["target"])
        return gateway_image(self._deploy)

    def _container(self, name: str, service: dict[str, Any], image: Image) -> Container:
        entrypoint = service.get("entrypoint")
        command = [*(image.entrypoint if entrypoint is None else entrypoint)]
        default = image.command if entrypoint is None else ()
        command += service.get("command", default)
        user = service.get("user") or image.user
        binds = [self._tmpfs(one) for one in service.get("tmpfs", ())]
        binds += [self._volume(one, image) for one in service.get("volumes", ())]
        binds += [
            Bind(f"/run/secrets/{one}", self._deploy / self._file["secrets"][one]["file"])
            for one in service.get("secrets", ())
        ]
        return Container(
            name=name,
            image=image,
            command=command,
            environment={key: str(value) for key, value in service.get("environment", {}).items()},
            user=user,
            binds=binds,
            read_only=service.get("read_only", False),
            address=self._host.new_address(),
            restarts=2 if service.get("restart") == "unless-stopped" else 0,
            grace_s=float(service.get("stop_grace_period", "10s").removesuffix("s")),
        )

    def _tmpfs(self, text: str) -> Bind:
        target, _, rest = text.partition(":")
        options = dict(one.split("=") for one in rest.split(","))
        size = options["size"]
        return Bind(target, mode=int(options["mode"], 8), size=int(size[:-1]) * _UNITS[size[-1]])

    def _volume(self, text: str, image: Image) -> Bind:
        source, target, *options = text.split(":")
        if source.startswith((".", "/")):
            path = (self._deploy / source).resolve()
            if not path.exists():
                raise Failed(f"{source} is not there")
            return Bind(target, path, writable=options != ["ro"])
        if source not in self._file["volumes"]:
            raise Failed(f"the volume {source} is not declared")
        path = self._host.folder / "volumes" / source
        if not path.exists() or not any(path.iterdir()):  # an empty volume becomes what the image has there
            owner, mode = image.folders.get(target, (0, 0o755))
            path.mkdir(exist_ok=True)
            if target in image.folders or path.stat().st_uid == 0:
                os.chown(path, owner, owner)
                path.chmod(mode)
        return Bind(target, path, writable=options != ["ro"])

    def forget(self) -> None:
        shutil.rmtree(self._host.folder / "volumes")
