"""Containers by bubblewrap: a root of their own that may be read alone, an address of their own, one user without any right.

What a container engine does is done by its own rules: who owns a volume, a secret's file or a temporary folder. Needs root, as it
does, and runs in a network namespace of this process's own. Memory limits and seccomp's profile are not applied.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rehearsal.images import Image

__all__ = ["LIMIT_S", "Bind", "Container", "Failed", "Host", "until"]

BRIDGE = "ft0"


class Failed(Exception):
    """Something did not do what it should."""


@dataclass(frozen=True)
class Bind:
    """A folder or file of this machine in a container; `source` None is a temporary folder in memory."""

    target: str
    source: Path | None = None
    writable: bool = False
    mode: int = 0o1777
    size: int | None = None


@dataclass
class Container:
    """One process as a file names it.

    Attributes:
        grace_s: from SIGTERM to SIGKILL.
        before_stop: run in it before SIGTERM.
        restarts: how often it may end before the rehearsal fails; 0 where its file says that it is not started again.
    """

    name: str
    image: Image
    command: list[str]
    environment: dict[str, str]
    user: str
    binds: list[Bind]
    read_only: bool
    address: str = ""
    hosts: dict[str, str] = field(default_factory=dict)
    grace_s: float = 10.0
    before_stop: list[str] | None = None
    restarts: int = 0
    process: subprocess.Popen[bytes] | None = None


LIMIT_S = 600.0
"""A busy machine is slow to start what takes a quiet one seconds; it ends what would never end."""


def until(what: str, met: object, every_s: float = 0.2) -> None:
    """Ask `met` (a function) until it is true. Raises Failed."""
    ends = time.monotonic() + LIMIT_S
    assert callable(met)
    while not met():
        if time.monotonic() > ends:
            raise Failed(f"{what}: not within {LIMIT_S:g} s")
        time.sleep(every_s)


class Host:
    """This machine as the host of containers: a bridge, addresses, and everything ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._next = 2
        self._started: list[Container] = []
        self.address = "10.77.0.1"
        ip("link", "set", "lo", "up")
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{self.address}/16", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for name in ("logs", "volumes", "files"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def new_address(self) -> str:
        """Of a container, in a network namespace of its own."""
        number, self._next = self._next, self._next + 1
        address, space, veth = f"10.77.0.{number}", f"ft{number}", f"ftv{number}"
        ip("netns", "add", space)
        ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", veth, "master", BRIDGE, "up")
        for command in (["link", "set", "lo", "up"], ["link", "set", "eth0", "up"]):
            ip("-n", space, *command)
        ip("-n", space, "addr", "add", f"{address}/16", "dev", "eth0")
        return address

    def service_address(self, number: int) -> str:
        """Of a service: this machine answers there."""
        address = f"10.77.1.{number}"
        ip("addr", "add", f"{address}/16", "dev", BRIDGE)
        return address

    def log(self, container: Container) -> Path:
        return self.folder / "logs" / f"{container.name}.log"

    def said(self, container: Container, lines: int = 12) -> str:
        path = self.log(container)
        return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:]) if path.exists() else ""

    def start(self, container: Container) -> None:
        with self.log(container).open("ab") as log:
            container.process = subprocess.Popen(
                self._sandbox(container, container.command),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._started.append(container)

    def run(self, container: Container, timeout_s: float = LIMIT_S) -> None:
        """Start one that ends by itself. Raises Failed where it ends with anything but 0."""
        self.start(container)
        assert container.process is not None
        code = container.process.wait(timeout_s)
        if code != 0:
            raise Failed(f"{container.name} ended with {code}:\n{self.said(container)}")

    def execute(
        self, container: Container, command: list[str], timeout_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run beside its process, as `docker compose exec` and `kubectl exec` do."""
        wrapped = self._sandbox(container, command)
        return subprocess.run(
            wrapped, capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
        )

    def alive(self, container: Container) -> None:
        """Raises Failed where it has ended, and may not be started again by its file."""
        assert container.process is not None
        if (code := container.process.poll()) is not None:
            if container.restarts > 0:
                container.restarts -= 1
                print(
                    f"            {container.name} ended with {code}, is started again: {self.said(container, 1)}",
                    flush=True,
                )
                self.start(container)
                return
            raise Failed(f"{container.name} ended with {code}:\n{self.said(container)}")

    def inner_pid(self, container: Container) -> int:
        """Of the named process itself: below it stand those of the sandbox."""
        assert container.process is not None
        pid = container.process.pid
        while True:
            status = Path(f"/proc/{pid}/status").read_text()
            if (
                "\nNoNewPrivs:\t1" in status
                and "bwrap" not in status.splitlines()[0]
                and "setpriv" not in status.splitlines()[0]
            ):
                return pid
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if not children:
                raise Failed(f"{container.name}: there is no process without rights")
            pid = int(children[0])

    def stop(self, container: Container) -> int:
        """What stands before the stop, SIGTERM to the named process, SIGKILL after the grace. Returns the exit code."""
        if container.process is None or container.process.poll() is not None:
            return -1 if container.process is None else container.process.returncode
        ends = time.monotonic() + container.grace_s
        if container.before_stop is not None:
            self.execute(container, container.before_stop)
        os.kill(self.inner_pid(container), signal.SIGTERM)
        try:
            return container.process.wait(max(0.1, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill(container)
            return -signal.SIGKILL

    def kill(self, container: Container) -> None:
        if container.process is not None and container.process.poll() is None:
            os.killpg(container.process.pid, signal.SIGKILL)
            container.process.wait()

    def close(self) -> None:
        for container in self._started:
            self.kill(container)

    def _sandbox(self, container: Container, command: list[str]) -> list[str]:
        number = container.address.rpartition(".")[2]
        wrap = ["ip", "netns", "exec", f"ft{number}", "bwrap", "--clearenv"]
        wrap += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", container.name]
        wrap += [
            "--ro-bind",
            "/usr",
            "/usr",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--perms",
            "1777",
            "--tmpfs",
            "/dev/shm",
        ]
        for link in ("bin", "sbin", "lib", "lib64"):
            wrap += ["--symlink", f"usr/{link}", f"/{link}"]
        for path in ("/sys", "/etc/ssl", "/etc/ld.so.cache", "/etc/alternatives", sys.base_prefix):
            wrap += ["--ro-bind", path, path]
        uid = container.user.partition(":")[0]
        for name, text in {
            "passwd": f"root:x:0:0::/root:/bin/sh\nforetype:x:{uid}:{uid}::/tmp:/usr/sbin/nologin\n",
            "group": f"root:x:0:\nforetype:x:{uid}:\n",
            "nsswitch.conf": "hosts: files\npasswd: files\ngroup: files\n",
            "hosts": "".join(
                f"{a}\t{n}\n"
                for n, a in {"localhost": "127.0.0.1", container.name: container.address, **container.hosts}.items()
            ),
        }.items():
            file = self.folder / "files" / f"{container.name}-{name}"
            file.write_text(text)
            wrap += ["--ro-bind", str(file), f"/etc/{name}"]
        if not container.read_only:
            wrap += ["--perms", "1777", "--tmpfs", "/tmp"]
        for place, source in container.image.binds.items():
            wrap += ["--ro-bind", str(source), place]
        for bind in container.binds:
            if bind.source is None:
                size = [] if bind.size is None else ["--size", str(bind.size)]
                wrap += [*size, "--perms", f"{bind.mode:04o}", "--tmpfs", bind.target]
            else:
                wrap += ["--bind" if bind.writable else "--ro-bind", str(bind.source), bind.target]
        for source in container.image.binds.values():
            if source.is_relative_to(Path(__file__).parents[2]) or (source / "pyvenv.cfg").exists():
                # Its commands name their Python by this path: after a /tmp of the container's own, in which a checkout may be.
                wrap += ["--ro-bind", str(source), str(source)]
        if container.read_only:
            wrap += ["--remount-ro", "/"]
        for key, value in {"HOME": "/", **container.image.environment, **container.environment}.items():
            wrap += ["--setenv", key, value]
        uid, _, gid = container.user.partition(":")
        wrap += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]
        wrap += ["setpriv", "--reuid", uid, "--regid", gid or uid, "--clear-groups", "--no-new-privs"]
        return [*_open_to_all(wrap), "--inh-caps=-all", "--bounding-set=-all", *command]


def _open_to_all(wrap: list[str]) -> list[str]:
    """Folders above what is mounted are made for everybody: bubblewrap makes them for root alone."""
    operands = {"--ro-bind": 2, "--bind": 2, "--tmpfs": 1, "--proc": 1, "--dev": 1}
    opened: list[str] = []
    mounted: set[Path] = set()
    empty: set[Path] = set()
    made: set[Path] = set()
    at = 0
    while at < len(wrap):
        words = 1 + operands.get(wrap[at], 0)
        if words > 1:
            target = Path(wrap[at + words - 1])
            for parent in reversed(target.parents[:-1]):
                if parent not in made | mounted and not (mounted - empty) & set(parent.parents):
                    # What stands before an option that changes it, as `--perms` does, stays before it.
                    cut = len(opened) - (2 if opened[-2:-1] == ["--perms"] else 0)
                    opened[cut:cut] = ["--perms", "0755", "--dir", str(parent)]
                    made.add(parent)
            mounted.add(target)
            empty |= {target} if wrap[at] in ("--tmpfs", "--bind") else set()  # a volume may hold nothing yet
        opened += wrap[at : at + words]
        at += words
    return opened


@contextmanager
def host(folder: Path) -> Iterator[Host]:
    """A host whose containers are gone at the end."""
    made = Host(folder)
    try:
        yield made
    finally:
        made.close()


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"ip {' '.join(arguments)}: {done.stderr.strip()}; the rehearsal needs root")
