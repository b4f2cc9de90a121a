"""Starting the private gateway: one per user, joined if it runs (:mod:`.finding`), started if it does not.

Agreement with the backend: `python -m foretype_backend serve --private --state-dir DIR` binds a free loopback port,
writes `DIR/gateway.json` when it is ready, removes it at exit, and ends by itself when the last connection left some
time ago. The child runs in a session of its own, so it survives the editor that started it and serves the next one.

A model that the user chose (`foretype use`) is `DIR/private.toml`, the profile that the next gateway is started with. To change it
under the hands of somebody who types, a new gateway is started beside the one that runs (:func:`replace_gateway`): it takes over
`gateway.json`, and the former one, which sees that, asks its clients to move and ends.

Two editors that start at the same instant are serialised by a file lock; the second finds the first one's gateway.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import filelock
from foretype_wire.announcement import FILE_NAME, Announcement

from foretype_client.errors import GatewayStartError
from foretype_client.ports import Clock, Endpoint
from foretype_client.private_gateway.finding import chosen_profile, default_state_dir, find_gateway

_REFUSED: Final = 2
"""Exit status of a gateway whose configuration cannot be used; its last line says why."""
_SAID: Final = "foretype serve: "
_COMMAND: Final = (sys.executable, "-P", "-m", "foretype_backend", "serve")
_LOCK: Final = "gateway.lock"
LOG_NAME: Final = "gateway.log"
START_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05
_LOOK_S: Final = 0.01
"""Between two looks at whether the child has written its file: a look is cheaper than what it may make somebody wait."""
_LOG_LIMIT_BYTES: Final = 1 << 20
_TAIL_LINES: Final = 12


def _endpoint_of(record: Announcement) -> Endpoint:
    return Endpoint(record.stream_url, record.token, process=record.pid)


async def ensure_gateway(
    state_dir: Path | None = None,
    *,
    model: Path | None = None,
    clock: Clock,
    timeout_s: float = START_TIMEOUT_S,
    linger_s: float | None = None,
    command: Sequence[str] = _COMMAND,
    arguments: Sequence[str] = (),
) -> Endpoint:
    """Join the user's private gateway, or start one.

    Args:
        state_dir: where it is registered; default is the user's state directory.
        model: model file for a gateway that has to be started, in place of what the user chose; one that runs keeps its own.
        clock: monotonic seconds.
        timeout_s: for all of it: waiting for another starter, loading the model, the first answer.
        linger_s: how long a started one outlives its last connection; the backend's default otherwise.
        command: the program that takes `--private --state-dir DIR`.
        arguments: more arguments for it.

    Raises:
        GatewayStartError: it ended or did not get ready; the message quotes its last lines of output.
    """
    state_dir = state_dir or default_state_dir()
    if model is None and (chosen := chosen_profile(state_dir)) is not None:
        arguments = ["--profile", str(chosen.absolute()), *arguments]
    start = [*command, *_options(state_dir, model, linger_s), *arguments]
    return _endpoint_of(await _ensure(state_dir, start, clock=clock, timeout_s=timeout_s))


async def replace_gateway(
    state_dir: Path, *, clock: Clock, timeout_s: float = 180.0, command: Sequence[str] = _COMMAND
) -> Announcement | None:
    """Start a private gateway with the chosen profile beside the one that runs; its clients move without losing an answer.

    Returns:
        The new one; None where none ran: the next client starts it.

    Raises:
        GatewayStartError: it ended or did not get ready; the former one goes on.
    """
    former = await find_gateway(state_dir)
    if former is None:
        return None
    chosen = chosen_profile(state_dir)
    start = [
        *command,
        *_options(state_dir, None, None),
        *([] if chosen is None else ["--profile", str(chosen.absolute())]),
    ]
    return await _ensure(state_dir, start, clock=clock, timeout_s=timeout_s, former=former.token)


async def _ensure(
    state_dir: Path, command: list[str], *, clock: Clock, timeout_s: float, former: str | None = None
) -> Announcement:
    """A live gateway that is not the `former` one, by its token: joined, else started. Raises GatewayStartError."""
    deadline = clock() + timeout_s
    try:
        await asyncio.to_thread(_make_private, state_dir)
    except OSError as error:
        raise _unwritable(state_dir, error) from error
    lock = filelock.FileLock(state_dir / _LOCK, mode=0o600, thread_local=False, blocking=False)
    while True:
        if (record := await _find_other(state_dir, former)) is not None:
            return record
        try:
            lock.acquire()
            break
        except filelock.Timeout:
            if clock() >= deadline:
                message = f"another process has been starting a gateway for {timeout_s:g} s; see {state_dir / LOG_NAME}"
                raise GatewayStartError(message) from None
            await asyncio.sleep(_POLL_S)
        except OSError as error:
            raise _unwritable(state_dir, error) from error
    try:
        if (record := await _find_other(state_dir, former)) is not None:  # the former holder of the lock started it
            return record
        if former is None:
            await asyncio.to_thread((state_dir / FILE_NAME).unlink, missing_ok=True)
        return await _start(command, state_dir, clock=clock, deadline=deadline, former=former)
    finally:
        lock.release()


async def _find_other(state_dir: Path, former: str | None) -> Announcement | None:
    record = await find_gateway(state_dir)
    return None if record is None or record.token == former else record


def _options(state_dir: Path, model: Path | None, linger_s: float | None) -> list[str]:
    """Paths are absolute, for the child works in another directory."""
    options = ["--private", "--state-dir", os.path.abspath(state_dir)]
    if model is not None:
        options += ["--model", os.path.abspath(model)]
    if linger_s is not None:
        options += ["--linger-s", f"{linger_s:g}"]
    return options


async def _start(
    command: list[str], state_dir: Path, *, clock: Clock, deadline: float, former: str | None
) -> Announcement:
    log = state_dir / LOG_NAME
    try:
        child, log_start = await asyncio.to_thread(_spawn, command, log)
    except OSError as error:
        raise GatewayStartError(f"cannot start {command[0]}: {error}") from error
    while True:
        if (record := await _find_other(state_dir, former)) is not None:
            return record
        if (status := child.poll()) is not None:
            words = await asyncio.to_thread(_tail, log, log_start)
            if status == _REFUSED and _SAID in (last := words.splitlines()[-1]):
                choose = "" if chosen_profile(state_dir) is None else "; or choose another model: `foretype use`"
                raise GatewayStartError(f"{last.partition(_SAID)[2]}{choose}")
            raise GatewayStartError(f"the gateway ended at once with status {status}\n{words}\nfull log: {log}")
        if clock() >= deadline:
            child.terminate()
            words = await asyncio.to_thread(_tail, log, log_start)
            raise GatewayStartError(f"the gateway was not ready in time and was stopped\n{words}\nfull log: {log}")
        await _changed(state_dir / FILE_NAME, child)


async def _changed(file: Path, child: subprocess.Popen[bytes]) -> None:
    """For a short while, until the file is another one: asking its writer takes a hundred times as long as looking at it."""
    before = _written_ns(file)
    for _ in range(round(_POLL_S / _LOOK_S)):
        await asyncio.sleep(_LOOK_S)
        if _written_ns(file) != before or child.returncode is not None:
            return


def _written_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _spawn(command: list[str], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start the child detached, its output in `log`; and where in the log its output begins."""
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        start = os.fstat(handle).st_size
        flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "DETACHED_PROCESS", 0)
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            cwd=log.parent,  # `-m` imports from there: never from a workspace, which may hold anything
            start_new_session=True,
            creationflags=flags,
            close_fds=True,
        )
    finally:
        os.close(handle)
    # It usually outlives its starter; if not, somebody has to collect it, or it stays as a zombie with a live pid.
    threading.Thread(target=child.wait, name="foretype gateway", daemon=True).start()
    return child, start


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _unwritable(state_dir: Path, error: OSError) -> GatewayStartError:
    return GatewayStartError(
        f"the state directory {state_dir} cannot be written ({error.strerror}): name another one with --state-dir, or with XDG_STATE_HOME"
    )


def _tail(log: Path, start: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(start)
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:]) or "  (it said nothing)"
