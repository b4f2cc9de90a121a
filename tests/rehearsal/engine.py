"""podman with storage of its own in one folder, as a machine without systemd and with small bounds can run it. Needs root, as every engine does.

Debian's podman 4.3 is installed where it is not there. Its runc is named, since crun wants another layout of cgroups; there are no
timers without systemd, so whoever wants to know asks a container's health check himself (`healthy`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from rehearsal.steps import LIMIT_S, Failed

__all__ = ["Engine"]

# Without netavark and aardvark-dns Debian's podman takes other plug-ins, on whose networks no name is known.
_NEEDED: Final = {
    "podman": "podman",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
}

# Told of a container that came or went, this aardvark-dns sometimes leaves questions without an answer. As resolvers are set up elsewhere
# each of them would wait for a minute, and so would all that ask after it.
_SETTINGS: Final = """[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=1000:1000"]
dns_options = ["timeout:1", "attempts:1"]
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""


class Engine:
    """Args:
    folder: where images, networks and logs are kept from one run to the next; nothing of the engine is elsewhere.

    Raises Failed where no container can run here, in one sentence.
    """

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise Failed("no container can run here: it needs root, as an engine of containers does")
        self.folder = folder
        (folder / "networks").mkdir(parents=True, exist_ok=True)
        self._install()
        (folder / "containers.conf").write_text(_SETTINGS.format(folder=folder))
        # podman-compose is told a program.
        self.program = folder / "podman"
        self.program.write_text(
            f'#!/bin/sh\nexport CONTAINERS_CONF="{folder}/containers.conf"\n'
            f'exec podman --root "{folder}/storage" --runroot "{folder}/run" "$@"\n'
        )
        self.program.chmod(0o755)
        asked = self.run("info", "--format", "{{.Host.OCIRuntime.Name}}")
        if asked.returncode:
            raise Failed(f"no container can run here: {_last(asked.stderr)}")

    def close(self) -> None:
        """Unmounts what podman leaves mounted in the folder, which nobody could delete otherwise."""
        mounts = [line.split(" ")[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed(mounts):
            path = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), mount))  # `\\040` is a blank
            if path.is_relative_to(self.folder):
                subprocess.run(["umount", "--lazy", path], check=False)

    def _install(self) -> None:
        missing = [package for program, package in _NEEDED.items() if shutil.which(program) is None]
        if not missing:
            return
        words = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing]
        try:
            with (self.folder / "apt.log").open("w") as log:
                environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
                installed = subprocess.run(words, stdout=log, stderr=log, env=environment, check=False).returncode == 0
        except FileNotFoundError:
            installed = False
        if not installed:
            raise Failed(f"no container can run here: cannot install {', '.join(missing)}")

    def run(
        self, *words: str, stdin: bytes | None = None, timeout_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """What podman said, whatever it was."""
        given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        done = subprocess.run([self.program, *words], capture_output=True, check=False, timeout=timeout_s, **given)
        # Without systemd each start says twice that there are no timers.
        said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if "systemd" not in line]
        out = done.stdout.decode("utf-8", "replace")
        return subprocess.CompletedProcess(words, done.returncode, out, "\n".join(said))

    def __call__(self, *words: str, stdin: bytes | None = None, timeout_s: float = LIMIT_S) -> str:
        """What podman said, without the end of the line. Raises Failed where it failed."""
        done = self.run(*words, stdin=stdin, timeout_s=timeout_s)
        if done.returncode:
            raise Failed(f"podman {' '.join(words)}: {done.returncode}: {done.stdout[-800:]}{done.stderr[-800:]}")
        return done.stdout.strip()

    def healthy(self, container: str) -> bool:
        """Its own health check passes now."""
        return self.run("healthcheck", "run", container).returncode == 0

    def running(self, container: str) -> bool:
        return self.run("container", "inspect", "-f", "{{.State.Running}}", container).stdout.strip() == "true"

    def exit_code(self, container: str) -> int:
        return int(self("container", "inspect", "-f", "{{.State.ExitCode}}", container))

    def said(self, container: str, lines: int = 20) -> str:
        done = self.run("logs", "--tail", str(lines), container)
        return done.stdout + done.stderr


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "podman says nothing"
