"""When a shared Redis is cheaper than computing: loads measured through the tier's own client, by bytes, against prefill rates.

A load of the cache of `n` tokens took `s` seconds, so it wins on an engine that computes fewer than `n / s` tokens a second. For
a network the bytes' time on its link is added to the measured time, which on this machine has no network in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from foretype_backend.errors import TierUnavailableError
from foretype_backend.prefix.redis_chunks import RedisChunks

from foretype_lab.errors import RedisUnavailableError

__all__ = ["SHAPES", "Shape", "break_even", "redis_server"]

LINKS_GBIT: Final = (10, 25, 100)
_START_S: Final = 10.0
_SECRET: Final = bytes(32)


class Shape(NamedTuple):
    """A model by the bytes of one token's cache: 2 · layers · KV heads · head size · bytes of a number."""

    name: str
    bytes_per_token: int


SHAPES: Final = (
    Shape("7B, 16-bit cache", 2 * 28 * 4 * 128 * 2),
    Shape("7B, FP8 cache", 2 * 28 * 4 * 128),
    Shape("1.5B, 16-bit cache", 2 * 28 * 2 * 128 * 2),
    Shape("shipped 10M, float32 cache", 2 * 8 * 1 * 64 * 4),
)


@contextlib.contextmanager
def redis_server() -> Generator[str]:
    """The URL of a server of our own on a loopback port, which keeps nothing on disk."""
    if shutil.which("redis-server") is None:
        raise RedisUnavailableError("redis-server is not installed; apt-get install redis-server")
    with tempfile.TemporaryDirectory(prefix="ftredis") as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        process = subprocess.Popen(
            [*command, "--appendonly", "no"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        url = f"redis://127.0.0.1:{port}/0"
        try:
            deadline = time.monotonic() + _START_S
            while True:
                with contextlib.suppress(TierUnavailableError):
                    RedisChunks(url, secret=_SECRET).check()
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RedisUnavailableError("redis-server does not start")
                time.sleep(0.02)
            yield url
        finally:
            process.terminate()
            process.wait(10)


def break_even(
    url: str,
    *,
    shapes: Sequence[Shape] = SHAPES,
    tokens: Sequence[int] = (128, 512, 2048),
    chunk_tokens: int = 16,
    repeats: int = 7,
    rates: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Stores and loads prefixes of each size; medians.

    Args:
        rates: prefill rates in tokens per second that a verdict is wanted for, by name.
    """
    chunks = RedisChunks(url, secret=_SECRET, timeout_s=30.0)
    chunks.check()
    rows: list[dict[str, Any]] = []
    for shape in shapes:
        size = shape.bytes_per_token * chunk_tokens
        for count in tokens:
            keys = [f"{shape.name}/{at}".encode() for at in range(count // chunk_tokens)]
            payload = os.urandom(size)
            stored: list[float] = []
            loaded: list[float] = []
            for _ in range(repeats):
                chunks.purge("bench")
                began = time.perf_counter()
                chunks.store("bench", [(key, payload) for key in keys])
                stored.append(time.perf_counter() - began)
                began = time.perf_counter()
                found = chunks.load("bench", keys, size)
                loaded.append(time.perf_counter() - began)
                if any(one != payload for one in found):
                    raise AssertionError("a chunk came back as something else")
            rows.append(_row(shape, count, size * len(keys), float(np.median(stored)), float(np.median(loaded)), rates))
            chunks.purge("bench")
    chunks.close()
    return rows


def _row(
    shape: Shape, tokens: int, size: int, store_s: float, load_s: float, rates: Mapping[str, float] | None
) -> dict[str, Any]:
    seconds = {"measured": load_s} | {f"{gbit}_gbit": load_s + 8 * size / (gbit * 1e9) for gbit in LINKS_GBIT}
    below = {name: round(tokens / took) for name, took in seconds.items()}
    return {
        "model": shape.name,
        "tokens": tokens,
        "megabytes": round(size / 1e6, 2),
        "store_ms": round(1000 * store_s, 2),
        "load_ms": {name: round(1000 * took, 2) for name, took in seconds.items()},
        "load_megabytes_per_s": round(size / 1e6 / load_s),
        "wins_below_tokens_per_s": below,
        "wins": {name: {link: rate < limit for link, limit in below.items()} for name, rate in (rates or {}).items()},
    }
