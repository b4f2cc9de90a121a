"""Ray's head on this machine: started, found again by later commands, and ended with everything that it started.

`ray stop` is never used: it ends every Ray on the machine. The head leads a session, so its processes are known
whatever their parents are.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import filelock
import msgspec
import psutil

from foretype_backend.errors import FleetError
from foretype_backend.fleet.ray.engine_process import free_port
from foretype_backend.fleet.ray.fleet_file import FleetFile

RAY: Final = "2.60"
"""Whose interfaces are used here; another minor version may have other ones."""
_END_S: Final = 30.0
_LAST_S: Final = 5.0
_LOG_CHARS: Final = 1500
_MEMORY_BYTES: Final = 100_000_000
"""Of Ray's object store, which nothing is put into; 75 MiB is the least that Ray takes."""


def check_ray(found: str | None = None, *, of: str = "") -> None:
    """Raises FleetError where Ray, here or of a cluster (the field `of` the file), is another one than this was made for."""
    if found is None:
        if importlib.util.find_spec("ray") is None:
            raise FleetError("Ray is not installed here: pip install 'foretype[fleet]'")
        found = importlib.metadata.version("ray")
    if not found.startswith(f"{RAY}."):
        raise FleetError(
            f"{of}{': ' if of else ''}this is made for Ray {RAY}, and found {found}: pip install 'ray[serve]=={RAY}.*' on every node"
        )


class HeadState(msgspec.Struct, frozen=True, kw_only=True):
    """What later commands find of a head: its process, and when that began, since numbers are used again."""

    pid: int
    created: float
    url: str


class Head:
    """See the module.

    Args:
        folder: where its state, token and log are.
    """

    def __init__(self, fleet: FleetFile, folder: Path) -> None:
        self._fleet = fleet
        self._state_file = folder / f"{fleet.name}.json"
        self._token_file = folder / f"{fleet.name}.token"
        self._log = folder / f"{fleet.name}.log"
        self._lock = filelock.FileLock(folder / f"{fleet.name}.lock")

    @property
    def url(self) -> str:
        return f"http://{self._fleet.cluster.host}:{self._fleet.cluster.dashboard_port}"

    def token(self) -> str | None:
        with contextlib.suppress(OSError):
            return self._token_file.read_text("utf-8")
        return None

    def state(self) -> HeadState | None:
        """None where it does not run."""
        try:
            state = msgspec.json.decode(self._state_file.read_bytes(), type=HeadState)
        except (OSError, msgspec.DecodeError):
            return None
        return state if _processes(state) else None

    @contextlib.contextmanager
    def starting(self):
        """Held while somebody starts it. Raises FleetError where somebody else does."""
        self._state_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with self._lock.acquire(timeout=0):
                yield
        except filelock.Timeout:
            raise FleetError(
                f"{self._fleet.name} is being started already; wait for it, or end it with `foretype fleet down`"
            ) from None

    def check_free(self) -> None:
        """Raises FleetError where it runs already, or one of its ports is taken."""
        running = self.state()
        if running is not None:
            raise FleetError(
                f"{self._fleet.name} is up already (process {running.pid}, {running.url}); change it with `scale` and `roll`, "
                "or end it with `foretype fleet down`"
            )
        self._check_ports()

    def start(self) -> HeadState:
        """Starts Ray's head. From then on :meth:`state` knows it, also if the command is interrupted."""
        cluster = self._fleet.cluster
        self._token_file.unlink(missing_ok=True)
        self._token_file.touch(0o600)
        self._token_file.write_text(secrets.token_hex(32), "utf-8")
        command = [
            *(sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
            *("--port", str(cluster.port), "--node-ip-address", cluster.host),
            *("--dashboard-host", cluster.host, "--dashboard-port", str(cluster.dashboard_port)),
            # Ray's own choices of ports overlap those that a file names.
            *("--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0"),
            # Nobody connects by Ray's own client, which cannot be switched off; nodes are not bought by Ray, and no driver waits for logs.
            *(
                "--ray-client-server-port",
                str(free_port(cluster.host)),
                "--no-monitor",
                "--include-log-monitor",
                "false",
            ),
            *("--object-store-memory", str(_MEMORY_BYTES)),
            *(() if cluster.cpus is None else ("--num-cpus", f"{cluster.cpus:g}")),
            *(() if cluster.gpus is None else ("--num-gpus", f"{cluster.gpus:g}")),
            *(("--resources", msgspec.json.encode(cluster.resources).decode()) if cluster.resources else ()),
            *(() if cluster.folder is None else ("--temp-dir", cluster.folder)),
        ]
        own = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._token_file),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # `down` has drained what serves
            "RAY_worker_niceness": "0",  # with Ray's own 15 an engine waits for whatever else runs on its node
            # Ray's own five seconds are too few for its imports on a busy machine: it would start a proxy after the other.
            "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=inherited | own, start_new_session=True
            )
        try:
            state = HeadState(pid=process.pid, created=psutil.Process(process.pid).create_time(), url=self.url)
            fresh = self._state_file.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(state))
            fresh.replace(self._state_file)
        except BaseException:
            if self.state() is None:  # it has only just begun, and started nobody yet
                process.kill()
            raise
        return state

    def check(self, state: HeadState) -> None:
        """Raises FleetError where the head has ended: by itself, with the end of its log, or by `down`, which says so first."""
        if not self._state_file.exists():
            raise FleetError(f"{self._fleet.name} was ended by `foretype fleet down` while it started")
        if _lives(state):
            return
        told = self._log.read_text("utf-8", "replace")[-_LOG_CHARS:]
        raise FleetError(f"Ray's head ended while it started; {self._log} ends: {told}")

    def gave_up(self, state: HeadState, *, soon: bool) -> bool:
        """Whether it has ended by itself; `soon`, or may do so, since it does not answer: that is waited for."""
        ends_s = time.monotonic() + (_END_S if soon else 0.0)
        while self._state_file.exists() and _lives(state) and time.monotonic() < ends_s:
            time.sleep(0.1)
        return self._state_file.exists() and not _lives(state)

    def end(self, state: HeadState) -> int:
        """Returns how many processes did not end by themselves, and were killed."""
        self._state_file.unlink(missing_ok=True)  # first: an `up` that waits knows then why its head goes
        for process in _processes(state):
            if process.pid == state.pid:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGTERM)
        ends_s = time.monotonic() + _END_S
        while _processes(state, head_alone=True) and time.monotonic() < ends_s:
            time.sleep(0.1)
        psutil.wait_procs(_processes(state), timeout=_LAST_S)  # what the head ended is still ending
        killed = 0
        ends_s = time.monotonic() + _END_S
        # Looked for again: one that is ended may have started another meanwhile.
        while (left := _processes(state)) and time.monotonic() < ends_s:
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            killed += len(psutil.wait_procs(left, timeout=_LAST_S)[0])
        self._token_file.unlink(missing_ok=True)
        return killed

    def _check_ports(self) -> None:
        cluster, directory = self._fleet.cluster, self._fleet.directory
        for field, host, port in (
            ("cluster.port", cluster.host, cluster.port),
            ("cluster.dashboard_port", cluster.host, cluster.dashboard_port),
            ("directory.port", directory.host, directory.port),
        ):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError as error:
                    raise FleetError(
                        f"{field}: {host}:{port} cannot be listened on ({error.strerror}); end who has it, or choose another port"
                    ) from error


def _lives(state: HeadState) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(state.pid)
        return process.create_time() == state.created and process.status() != psutil.STATUS_ZOMBIE
    return False


def _processes(state: HeadState, *, head_alone: bool = False) -> list[psutil.Process]:
    """Those of a head's session that live: also where the head itself was killed."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.pid == state.pid:
                if process.create_time() != state.created:
                    return []  # its number is another's, and so is the session of that number
            elif head_alone or os.getsid(process.pid) != state.pid or process.create_time() < state.created:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            continue
    return found
