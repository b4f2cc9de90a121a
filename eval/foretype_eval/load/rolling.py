"""`--scenario rolling`: every worker is replaced, one after the other, while people type; the real client session moves them.

A worker is told to end as an operator's restart tells it (SIGTERM): it asks its clients to move first, finishes what runs, and the
next one takes its place on the same port.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil
from foretype_client.session.session import Session
from foretype_context.prompt.segments import Segment
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Complete, Delta, Done

from foretype_eval.load.drive import Progress
from foretype_eval.load.gateway import GatewayUnderLoad
from foretype_eval.load.recorder import percentiles_ms
from foretype_eval.load.scripts import ScriptedRequest

_SETTLE_S: Final = 2.0
_PATIENCE_S: Final = 30.0


class _Books:
    """How requests ended.

    `answered`; `lost` where it was sent, or text had come, and the end did not; `away` where no connection was open when it was
    asked, so that the editor showed nothing; else by the refusal's code.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.total_s: list[float] = []
        self.errors: Counter[str] = Counter()


async def rolling(
    found: GatewayUnderLoad,
    scripts: Sequence[tuple[ScriptedRequest, ...]],
    *,
    developers: int,
    rate: float,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Keys: `restarts`, `outcomes`, `lost_acknowledged` (must be 0), `away_share`, `total_ms`, `seconds`, `errors` by message."""
    assert found.process is not None
    books, stopping = _Books(), asyncio.Event()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="foretype-load-") as cache:
        async with asyncio.TaskGroup() as group:
            for number in range(developers):
                script = scripts[number % len(scripts)]
                typist = _type(
                    found, script, number, rate / developers, f"{seed}:{number}", Path(cache), books, stopping
                )
                group.create_task(typist)
            restarts = await _restart_all(found.process, progress)
            stopping.set()
    outcomes = books.outcomes
    asked = sum(outcomes.values())
    return {
        "developers": developers,
        "rate": rate,
        "seconds": round(time.perf_counter() - began, 1),
        "restarts": restarts,
        "requests": asked,
        "outcomes": dict(sorted(outcomes.items())),
        "lost_acknowledged": outcomes["lost"],
        "away_share": round(outcomes["away"] / asked, 5) if asked else None,
        "errors": dict(books.errors),
        "total_ms": percentiles_ms(books.total_s),
    }


async def _restart_all(parent: psutil.Process, progress: Progress) -> int:
    """SIGTERM to each worker in turn; the next when the one before has been replaced. Raises GatewayGoneError where it never is."""
    await asyncio.sleep(_SETTLE_S)
    former = _workers(parent)
    for done, worker in enumerate(former):
        progress("restarts", done, len(former))
        worker.terminate()
        deadline = time.perf_counter() + _PATIENCE_S
        while worker.is_running() or len(_workers(parent)) < len(former):
            if time.perf_counter() > deadline:
                raise GatewayGoneError("a worker that was told to end was not replaced within 30 s")
            await asyncio.sleep(0.05)
        await asyncio.sleep(_SETTLE_S)
    return len(former)


def _workers(parent: psutil.Process) -> list[psutil.Process]:
    return [child for child in parent.children() if child.status() != psutil.STATUS_ZOMBIE]


async def _type(
    found: GatewayUnderLoad,
    script: tuple[ScriptedRequest, ...],
    number: int,
    rate: float,
    seed: str,
    cache: Path,
    books: _Books,
    stop: asyncio.Event,
) -> None:
    """One developer with the real client: asks, waits for the answer, pauses, asks again."""
    rng = Random(seed)
    session = Session(
        found.endpoint.url,
        token=found.endpoint.token,
        client_name="foretype-load",
        clock=time.monotonic,
        rng=rng,
        cache_dir=cache / str(number),
    )
    await session.start()
    try:
        await session.ready(30)
        for at, step in enumerate(itertools.cycle(script)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rng.expovariate(rate)):
                    await stop.wait()
            if stop.is_set():
                return
            await _ask(session, step, f"{number}-{at}", books)
    finally:
        await session.close()


async def _ask(session: Session, step: ScriptedRequest, id: str, books: _Books) -> None:
    segments = [
        Segment(
            kind=part.kind, scope=part.text_form.scope, source=part.text_form.source, text=part.text_form.text or ""
        )
        for part in step.parts
    ]
    connected, text, began = session.connected, False, time.perf_counter()
    call = Complete(
        id=id,
        document=step.document,
        version=step.version,
        language=step.language,
        segments=segments,
        prompt_tokens=step.prompt_tokens,
        max_tokens=6,
    )
    outcome = "lost"
    try:
        async for event in session.complete(call):
            text |= isinstance(event, Delta)
            if isinstance(event, Done):
                outcome = "answered"
                books.total_s.append(time.perf_counter() - began)
    except RequestRefusedError as error:
        outcome = "lost" if text else error.code.value
        books.errors[str(error)] += 1
    except GatewayGoneError as error:
        outcome = "lost" if text or connected else "away"
        books.errors[str(error)] += 1
    books.outcomes[outcome] += 1
