"""A gateway on a fleet's directory, and developers who type through it all the time, each over a session of their own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import httpx
from asking import connected, question
from fleet.support import LIMIT_S, until
from foretype_client.session.session import Session
from foretype_models.artifacts import locate
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Delta, Done, Finish

__all__ = ["KEYS", "Answer", "Typists", "gateway_process"]

_LAST: Final = "def function_40(value):\n    return value"
KEYS: Final = tuple(_LAST[:end] for end in range(len(_LAST) - 11, len(_LAST), 2))
"""What stands before the cursor, key by key."""
_CALM_S: Final = 3.0
_LIVELY_S: Final = 0.7
"""Between two keys: while something starts, which has the processors then, and while a test waits for answers."""
_CALM_SHARE: Final = 4.0
"""Who is calm pauses so many times as long as an answer took: else six who wait for a slow machine look like a load, and no replica goes."""
_DEADLINE_MS: Final = 120_000.0
_WHOLE: Final = (Finish.END_OF_MIDDLE, Finish.STOP, Finish.LENGTH)


class Answer(NamedTuple):
    """What a developer got, and when it had come whole; `fault` where they got none."""

    user: str
    key: str
    text: str
    at_s: float
    fault: str = ""


@contextlib.contextmanager
def gateway_process(folder: Path, directory: str, port: int) -> Iterator[str]:
    """`foretype serve` on what a directory announces; its URL. Returns when the first replica serves."""
    folder.mkdir()
    profile, log = folder / "gateway.toml", folder / "gateway.log"
    profile.write_text(
        f"[model]\ntokenizer = '{locate().tokenizer_path}'\ngrammar = 'foretype-1'\n"
        # A replica that is slow on a busy machine is not away: who is killed ends its connections.
        "[pool.fast]\nsilence_s = 60\nidle_timeout_s = 120\ncheck_every_s = 30\n"
        f'[pool.fast.discovery]\nsource = "http"\nurl = "{directory}/replicas"\nfirst_wait_s = {LIMIT_S}\n'
    )
    command = (sys.executable, "-m", "foretype_backend", "serve", "--profile", str(profile), "--port", str(port))
    url = f"http://127.0.0.1:{port}"

    def serves() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{url}/readyz", timeout=5.0, trust_env=False, verify=False).status_code == 200
        return False

    with log.open("wb") as told:
        process = subprocess.Popen([*command, "--no-telemetry", "--state-dir", str(folder)], stdout=told, stderr=told)
    try:
        until(serves, what="the gateway")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(LIMIT_S)
        finally:
            process.kill()
            process.wait()


class Typists:
    """See the module. Calm at the beginning."""

    def __init__(self, url: str, folder: Path, *, users: int) -> None:
        self._pause_s: float | None = _CALM_S
        self._waited = False
        self.answers: list[Answer] = []
        self.users = [f"dev-{number}" for number in range(users)]
        self._url, self._folder = url, folder
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()), daemon=True)
        self._fault: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "somebody waits for an answer that does not come"
        if self._fault is not None:
            raise self._fault

    def busy(self) -> None:
        """Each asks as soon as there is an answer."""
        self._pause_s = 0.0

    def calm(self) -> None:
        self._pause_s = _CALM_S

    def rest(self) -> None:
        """Nobody types."""
        self._pause_s = None

    def each(self, count: int) -> list[Answer]:
        """Waits until everybody has had so many answers, from now on."""
        first = len(self.answers)

        def whole() -> list[Answer]:
            assert self._fault is None, self._fault
            found = self.answers[first:]
            counts = Counter(one.user for one in found)
            return found if all(counts[user] >= count for user in self.users) else []

        self._waited = True
        try:
            return until(whole, what=f"{count} answers each")
        finally:
            self._waited = False

    def signals(self) -> dict[str, Any]:
        """What the gateway says of its pool."""
        return httpx.get(f"{self._url}/v1/fleet/signals", timeout=LIMIT_S, trust_env=False, verify=False).json()["fast"]

    def faults(self, first: int = 0, last: int | None = None) -> list[Answer]:
        return [one for one in self.answers[first:last] if one.fault]

    async def _all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for number, user in enumerate(self.users):
                    group.create_task(self._type(number, user))
        except BaseException as error:  # noqa: BLE001 - told by who ends it
            self._fault = error

    async def _type(self, number: int, user: str) -> None:
        options: dict[str, Any] = {"client_name": "test", "user": user, "cache_dir": self._folder}
        async with connected(self._url, ready_s=LIMIT_S, seed=number, **options) as session:
            for turn in itertools.count():
                if self._ends.is_set():
                    return
                asked_s = time.monotonic()
                if self._pause_s is not None:
                    self.answers.append(await _ask(session, user, f"{number}.{turn}", KEYS[turn % len(KEYS)]))
                calm_s = max(_LIVELY_S if self._waited else _CALM_S, _CALM_SHARE * (time.monotonic() - asked_s))
                await asyncio.sleep(calm_s if self._pause_s != 0.0 else 0.0)


async def _ask(session: Session, user: str, name: str, key: str) -> Answer:
    call = question(name, key, max_tokens=12, deadline_ms=_DEADLINE_MS)
    text, fault = "", "no end"
    try:
        async for event in session.complete(call):
            if isinstance(event, Delta):
                text += event.text
            elif isinstance(event, Done):
                fault = "" if event.finish in _WHOLE else event.finish
    except (RequestRefusedError, GatewayGoneError) as error:
        fault = f"{type(error).__name__}: {error}"
    return Answer(user, key, text, time.monotonic(), fault)
