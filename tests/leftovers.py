"""What a test leaves: descriptors, threads, tasks, processes and the environment, before and after each; the test that leaves one fails.

Otherwise a neighbour does: a socket that nobody closed is collected in another test, where its ResourceWarning is an error. A test's
count begins when the fixtures that it shares with others are made, and ends when its own are gone. What a shared fixture opens while a
test runs is the fixture's, and counted when the module ends, as what it opened before. Linux alone has the lists that are read here.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

__all__ = [
    "Held",
    "no_task_is_left",
    "no_task_is_left_on_the_module_s_loop",
    "nothing_is_left",
    "nothing_is_left_by_the_module",
    "started_again",
    "the_environment_is_as_it_was",
    "threads_of_the_module_s_loop",
]

PROC = Path("/proc")
OURS = "PYTEST_STARTED_BY"
"""In the environment of every process that comes of this one, also of one whose parent has ended."""
GRACE_S = float(os.environ.get("LEFTOVERS_GRACE_S", "10"))
"""What was told to end may take its time on a busy machine; it is waited for only where something is still there."""
SCOPES = ("function", "class", "module", "package", "session")

HERE = Path(__file__).parent
LEFT_OUT = {
    "vllm": "vLLM's own engine leaves sockets and threads to the end of the process (tests/vllm/conftest.py)",
    "fleet": "a cluster is one for all tests of a file, and ended by the last",
    "e2e/editors": "an editor is one for all tests of a file, and begins what it needs while they run",
    "models/test_pull.py": "transformers keeps the threads that it has read weights with",
}
"""Folders and files whose tests are not counted, each with the reason."""
_SHARED = "loop of a module"
EXPECTED = {
    _SHARED: "threads of a loop that the tests of a module share; it ends them when it ends itself",
    "tqdm_monitor": "tqdm keeps the thread that watches its bars, drawn or not",
}
"""Beginnings of names of what may stay, each with the reason."""

KEPT = {".ttf": "matplotlib keeps the fonts that it has drawn with"}
"""Ends of names of files that a library keeps open, each with the reason."""

OF_LIBRARIES = frozenset(
    [
        "GGML_NO_BACKTRACE",
        "HF_HUB_DISABLE_PROGRESS_BARS",
        "HF_HUB_OFFLINE",
        "TOKENIZERS_PARALLELISM",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRANSFORMERS_OFFLINE",
        "VLLM_LOGGING_LEVEL",
        "VLLM_NO_USAGE_STATS",
    ]
)
"""Variables that a library reads when it is imported, once in a process: our own code sets them before, and leaves them."""
SETS_VARIABLES = {"vllm"}
"""Folders of tests whose library sets variables of its own, others with each release, when its parts are first used."""


Descriptor = tuple[int, str]
"""Its number, and what it is open on."""


@dataclass(frozen=True)
class Held:
    """What this process holds: descriptors with what they are open on, threads, and the ids of all processes of the machine."""

    descriptors: frozenset[Descriptor]
    threads: frozenset[threading.Thread]
    processes: frozenset[int]

    @classmethod
    def now(cls) -> Held:
        # Descriptors last: those of a thread that ends in between would be counted, and the thread not.
        threads, processes = frozenset(threading.enumerate()), frozenset(_processes())
        return cls(frozenset(_descriptors()), threads, processes)

    def __sub__(self, other: Held) -> Held:
        return Held(
            self.descriptors - other.descriptors, self.threads - other.threads, self.processes - other.processes
        )

    def __or__(self, other: Held) -> Held:
        return Held(
            self.descriptors | other.descriptors, self.threads | other.threads, self.processes | other.processes
        )

    def ours(self) -> Held:
        """Without what has ended, other processes of the machine, and what is expected."""
        return Held(
            frozenset(one for one in self.descriptors if Path(one[1]).suffix not in KEPT) - _of_maps(self.descriptors),
            frozenset(one for one in self.threads if one.is_alive() and not one.name.startswith(tuple(EXPECTED))),
            frozenset(filter(_is_ours, self.processes)),
        )

    def told(self) -> list[str]:
        return [
            *(_descriptor(number, target) for number, target in sorted(self.descriptors)),
            *(f"thread {thread.name!r}" for thread in self.threads),
            *(_process(pid) for pid in sorted(self.processes)),
        ]


class Count:
    """From where it is made: what has come since, without what belongs to fixtures of a wider scope."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self._before = Held.now()

    def exclude(self, held: Held) -> None:
        self._before |= held

    def left(self) -> Held:
        """What is still there."""
        left = self._now()
        waiting, waits = threading.Event(), int(GRACE_S / 0.05)
        while waits and (left.threads or left.processes):
            waiting.wait(0.05)
            left, waits = self._now(), waits - 1
        return Held(self._unclosed(left.descriptors), left.threads, left.processes)

    def _now(self) -> Held:
        left = (Held.now() - self._before).ours()
        return Held(left.descriptors, left.threads, frozenset(pid for pid in left.processes if not self._is_of(pid)))

    def _is_of(self, pid: int) -> bool:
        """Whether it is the child of a server that was there before: a fixture's that begins its worker again."""
        parent = _parent(pid)
        return parent in self._before.processes and parent != os.getpid() and _is_ours(parent)

    def _unclosed(self, left: frozenset[Descriptor]) -> frozenset[Descriptor]:
        """Garbage goes here, and warns here if it was not closed: not in the test after this one."""
        if not left:
            return left
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            gc.collect()
        warned = any(issubclass(one.category, ResourceWarning) for one in told)
        still = self._now().descriptors
        return frozenset(one for one in left if one in still or warned or not one[1].startswith("/"))


COUNTS = pytest.StashKey[list[Count]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = []
    os.environ[OURS] = str(os.getpid())
    _begin_what_lasts()


def _begin_what_lasts() -> None:
    """Two libraries open something once in a process and keep it: before the first test, for it is none's."""
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.new_event_loop().close()  # libuv: a pipe for signals
    with contextlib.suppress(ImportError):
        import obstore
        from obstore.store import MemoryStore

        obstore.put(MemoryStore(), "any", b"")  # Tokio: a runtime


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    width = SCOPES.index(fixturedef.scope)
    narrower = [count for count in request.config.stash[COUNTS] if SCOPES.index(count.scope) < width]
    if not narrower:
        return (yield)
    before = Held.now()
    try:
        return (yield)
    finally:
        opened = Held.now() - before
        for count in narrower:
            count.exclude(opened)


def _is_counted(request: pytest.FixtureRequest) -> bool:
    path = request.path.relative_to(HERE) if HERE in request.path.parents else Path()
    rooms = {*path.parts[:1], path.parent.as_posix(), path.as_posix()}
    return not rooms & LEFT_OUT.keys() and (PROC / "self/fd").is_dir()


@contextlib.contextmanager
def _counted(request: pytest.FixtureRequest, scope: str, named: str) -> Generator[None]:
    if not _is_counted(request):
        yield
        return
    counts, count = request.config.stash[COUNTS], Count(scope)
    counts.append(count)
    try:
        yield
    finally:
        counts.remove(count)
    left = count.left()
    if told := left.told():
        for wider in counts:
            wider.exclude(left)
        pytest.fail(f"{named} leaves open: " + "; ".join(told), pytrace=False)


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_by_the_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """The fixtures that the tests of a module share end what they began."""
    with _counted(request, "module", f"{request.node.nodeid}, or a fixture that its tests share,"):
        yield


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test closes and ends what it opened and began."""
    with _counted(request, "function", request.node.nodeid):
        yield


@pytest.fixture(autouse=True)
def the_environment_is_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """The processes of the tests after it would have what a test leaves there."""
    before = dict(os.environ)
    yield
    if SETS_VARIABLES & set(request.path.parts):
        return
    names = {name for name, _ in before.items() ^ os.environ.items()} - {"PYTEST_CURRENT_TEST"} - OF_LIBRARIES
    if names:
        os.environ.clear()
        os.environ.update(before)
        pytest.fail(f"{request.node.nodeid} leaves in the environment: {', '.join(sorted(names))}", pytrace=False)


@pytest.fixture
def started_again(request: pytest.FixtureRequest) -> Callable[[Callable[[], None]], None]:
    """Calls what starts a module's server again, which a test has killed: its process is the module's, and counted when that ends."""

    def again(start: Callable[[], None]) -> None:
        before = Held.now()
        start()
        begun = Held(frozenset(), frozenset(), (Held.now() - before).processes)
        for count in request.config.stash[COUNTS]:
            if count.scope == "function":
                count.exclude(begun)

    return again


@pytest.fixture(autouse=True)
def tasks_are_counted(request: pytest.FixtureRequest, nothing_is_left: None) -> None:
    """A loop that ends cancels what still runs on it, and says nothing: so tasks are counted before."""
    if _is_counted(request) and pytest_asyncio.is_async_test(request.node):
        marked = request.node.get_closest_marker("asyncio")
        shared = marked is not None and marked.kwargs.get("loop_scope") == "module"
        request.getfixturevalue("no_task_is_left_on_the_module_s_loop" if shared else "no_task_is_left")


async def _tasks_counted(named: str) -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield

    def left() -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks() - before - {asyncio.current_task()}

    for _ in range(10):  # what is ready may end
        if not left():
            return
        await asyncio.sleep(0)
    if cancelled := [task for task in left() if task.cancelling()]:
        await asyncio.wait(cancelled, timeout=GRACE_S)
    if still := left():
        pytest.fail(f"{named} leaves tasks: " + "; ".join(map(repr, still)), pytrace=False)


@pytest_asyncio.fixture(loop_scope="function")
async def no_task_is_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    async for _ in _tasks_counted(request.node.nodeid):
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def threads_of_the_module_s_loop() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(thread_name_prefix=_SHARED))


@pytest_asyncio.fixture(loop_scope="module")
async def no_task_is_left_on_the_module_s_loop(
    request: pytest.FixtureRequest, threads_of_the_module_s_loop: None
) -> AsyncIterator[None]:
    async for _ in _tasks_counted(request.node.nodeid):
        yield


def _descriptors() -> Iterator[Descriptor]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            yield int(name), os.readlink(f"/proc/self/fd/{name}")


def _of_maps(descriptors: frozenset[Descriptor]) -> frozenset[Descriptor]:
    """Of files whose text is mapped: a map has no other end than its last reference, and pytest keeps the last test's arguments."""
    if not any(Path(target).suffix for _, target in descriptors):
        return frozenset()
    mapped = {line.split(maxsplit=5)[-1] for line in (PROC / "self/maps").read_text("utf-8", "replace").splitlines()}
    return frozenset(one for one in descriptors if one[1] in mapped and not one[1].endswith("-shm"))


def _descriptor(number: int, target: str) -> str:
    told = f"descriptor {number}, {target}"
    if target.startswith("socket:"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as same:
            told = f"socket {number}, {same.family.name} {same.getsockname()}"
            with contextlib.suppress(OSError):
                told += f" to {same.getpeername()}"
    return told


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdigit())


def _parent(pid: int) -> int:
    """0 where it has gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _environment(pid: int) -> bytes:
    """Nothing stands there for a moment while a program begins, which is waited for."""
    for _ in range(20):
        if environment := (PROC / str(pid) / "environ").read_bytes():
            return environment
        try:
            os.readlink(PROC / str(pid) / "exe")
        except OSError:  # it has ended and was not waited for, or is the kernel's
            break
        time.sleep(0.005)
    return b""


def _is_ours(pid: int) -> bool:
    try:
        environment = _environment(pid).split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or another user's
        return False
    return _parent(pid) == os.getpid() or f"{OURS}={os.getpid()}".encode() in environment


def _process(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        command = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        return f"process {pid}, {command}" if state != "Z" else f"process {pid}, which ended and was not waited for"
    return f"process {pid}"
