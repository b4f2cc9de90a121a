"""A network between two namespaces, whose one wire can be cut, be slow, or lose packets.

Both ends are TUN devices, and a thread carries the packets between them: what `tc netem` does in the kernel, for kernels that were
built without it. Everything else is real: the kernel's TCP on either side sees silence, retransmits, and times out by itself.
"""

import contextlib
import ctypes
import fcntl
import heapq
import ipaddress
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

import pytest

__all__ = ["Wire", "wire"]

_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001
_CLONE_NEWNET: Final = 0x40000000

_Result = TypeVar("_Result")


class Wire:
    """Set the attributes at any time; they count for packets from then on, in both directions.

    Attributes:
        cut: every packet vanishes, without a word to anybody.
        delay_s: how long a packet takes, one way.
        loss: share of packets that vanish, by a seeded chance.
        lost: packets.
    """

    def __init__(self, ends: tuple[int, int], namespace: str, here: str, there: str) -> None:
        self.namespace, self.here, self.there = namespace, here, there
        self.cut = False
        self.delay_s = self.loss = 0.0
        self.lost = 0
        self._ends = ends
        self._chance = random.Random(7)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="wire", daemon=True)
        self._thread.start()

    def listen(self, port: int) -> socket.socket:
        """A socket on the far side; a server in this process may serve it."""

        def make() -> socket.socket:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.there, port))
            return listener

        return _inside(self.namespace, make)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        for end in self._ends:
            os.close(end)

    def _carry(self) -> None:
        flying: list[tuple[float, int, int, bytes]] = []  # due, number, to which end, packet
        number = 0
        while not self._ending.is_set():
            now = time.monotonic()
            while flying and flying[0][0] <= now:
                _, _, end, packet = heapq.heappop(flying)
                with contextlib.suppress(OSError):
                    os.write(end, packet)
            pause_s = min(0.05, max(0.0, flying[0][0] - now)) if flying else 0.05
            for end in select.select(self._ends, (), (), pause_s)[0]:
                packet = os.read(end, 65536)
                if self.cut or self._chance.random() < self.loss:
                    self.lost += 1
                    continue
                number += 1
                other = self._ends[1 - self._ends.index(end)]
                heapq.heappush(flying, (time.monotonic() + self.delay_s, number, other, packet))


def _inside(namespace: str, make: Callable[[], _Result]) -> _Result:
    """The result of `make`, called in the network namespace: sockets and devices stay where they were made."""
    results: list[_Result] = []
    faults: list[Exception] = []

    def run() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/run/netns/{namespace}") as file:
                if libc.setns(file.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            results.append(make())
        except Exception as fault:  # noqa: BLE001 - raised again by the caller
            faults.append(fault)

    thread = threading.Thread(target=run)  # of its own: a thread cannot come back from another namespace
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
    return results[0]


def _tun(name: str) -> int:
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN_NO_PI))
    return end


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def wire() -> Generator[Wire]:
    """Skips the test where network namespaces or TUN devices cannot be made."""
    if shutil.which("ip") is None:
        pytest.skip("no `ip` here: apt-get install iproute2")
    if os.geteuid():
        pytest.skip("network namespaces need root")
    with contextlib.ExitStack() as stack:
        name = f"ft{os.getpid() % 100_000}"
        # A subnet for this process alone, of the 32,768 that are there for tests (RFC 2544): with another run's, packets go to its far side.
        first = ipaddress.IPv4Address("198.18.0.0") + os.getpid() % (1 << 15) * 4
        here, there = str(first + 1), str(first + 2)
        try:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            ends = _tun(name), _inside(name, lambda: _tun("far0"))
            _ip("addr", "add", f"{here}/30", "dev", name)
            _ip("link", "set", name, "up")
            _ip("-n", name, "addr", "add", f"{there}/30", "dev", "far0")
            _ip("-n", name, "link", "set", "far0", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', '') or error}")
        made = Wire(ends, name, here, there)
        stack.callback(made.close)
        yield made
