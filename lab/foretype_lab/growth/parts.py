"""What `foretype bench growth` measures, each in a process of its own: `python -m foretype_lab.growth.parts WHAT N`."""

from __future__ import annotations

import asyncio
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil
from foretype_context.terminal import say_json

from foretype_lab.errors import LabError

_MIB: Final = 1 << 20
_LOAD: Final = ("--scenario", "sessions", "--idle-s", "3", "--seconds", "4", "--rate", "100", "--developers", "100")
_LOOKS: Final = 2_000
_TIMES: Final = 5


def files(number: int) -> dict[str, Any]:
    """An index of generated files: made, used, told of saves."""
    from foretype_lab.retrieval.large_repository import bench_large_repository

    return bench_large_repository(files=number, saves=5)


def sessions(number: int) -> dict[str, Any]:
    """Silent connections of a gateway, beside a hundred that type."""
    program = "from foretype_eval.cli import bench; bench()"
    command = [sys.executable, "-P", "-c", program, "load", *_LOAD, "--idle", str(number), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise LabError(f"bench load ended with status {ran.returncode}: {ran.stderr.strip()[-300:]}")
    return json.loads(ran.stdout)


def lines(number: int) -> dict[str, Any]:
    """Keys in a file of so many lines."""
    from foretype_lab.editor_side.assembly import measure_context

    return measure_context(lines=number, keys=400, snippets=24, seed=0)


def tokens(number: int) -> dict[str, Any]:
    """A prompt of so many tokens: from text to ids, and the engine's first token of one that it has not seen."""
    from foretype_backend.engines.embedded.engine import EmbeddedEngine
    from foretype_backend.engines.port import GenerationParams, GenerationRequest
    from foretype_context.tokens.tokenizer import load_tokenizer
    from foretype_models.artifacts import locate

    from foretype_lab.editor_side.assembly import source_text

    model = locate().path
    tokenizer = load_tokenizer(model.parent / "tokenizer.json")
    text = tokenizer.decode(tokenizer.encode(source_text(number))[:number]).decode(errors="replace")
    encode_ms = min(_cpu_ms(lambda: tokenizer.encode(text)) for _ in range(_TIMES))

    async def first_ms() -> float:
        engine = EmbeddedEngine.from_config(model=model)
        await engine.start()
        try:
            process, taken = psutil.Process(engine.process_id), list[float]()
            for turn in range(_TIMES):
                ids = [(turn + 1 + at * 7919) % tokenizer.vocabulary_tokens for at in range(number)]
                before = sum(process.cpu_times()[:2])
                async for _ in engine.generate(GenerationRequest(str(turn), ids, GenerationParams(max_tokens=1))):
                    pass
                taken.append((sum(process.cpu_times()[:2]) - before) * 1e3)
            return statistics.median(taken)
        finally:
            await engine.close()

    return {"encode_ms": round(encode_ms, 3), "first_ms": round(asyncio.run(first_ms()), 1)}


def tenants(number: int) -> dict[str, Any]:
    """A store of so many tenants with a key each: read whole, as gateways do, and asked whose a key is."""
    from foretype_backend.identity.keys import parse
    from foretype_backend.identity.store import IdentityStore
    from foretype_eval.load.fairness import make_keys

    async def measured(url: str) -> dict[str, Any]:
        keys = await make_keys(url, [f"tenant-{at}" for at in range(number)], secrets.token_bytes)
        store = await IdentityStore.open(url)
        try:
            await store.snapshot()  # statements are compiled once
            process = psutil.Process()
            before, began = process.memory_info().rss, time.process_time()
            directories = [await store.snapshot() for _ in range(_TIMES)]
            snapshot_ms = (time.process_time() - began) * 1e3 / _TIMES
            mib = (process.memory_info().rss - before) / _MIB / _TIMES
        finally:
            await store.close()
        key = parse(keys["tenant-0"])
        assert key is not None  # it was just made
        looked_ms = _cpu_ms(lambda: [directories[0].of_key(key, 0) for _ in range(_LOOKS)])
        return {
            "snapshot_ms": round(snapshot_ms, 2),
            "mib": round(mib, 3),
            "of_key_us": round(looked_ms * 1e3 / _LOOKS, 2),
        }

    with tempfile.TemporaryDirectory(prefix="foretype-bench-") as folder:
        return asyncio.run(measured(f"sqlite:///{Path(folder, 'identity.db')}"))


def _cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


PARTS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    one.__name__: one for one in (files, sessions, lines, tokens, tenants)
}


def main(what: str, number: str) -> None:
    """Prints the figures as JSON."""
    say_json(PARTS[what](int(number)))


if __name__ == "__main__":
    main(*sys.argv[1:])
