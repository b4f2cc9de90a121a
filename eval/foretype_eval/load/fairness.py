"""`--scenario fairness`: one tenant asks twenty times its share, and another notices how much of it.

Runs without and with the flood take turns on one gateway, and the difference is taken pair by pair: what the machine does to both
is in neither.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from foretype_eval.load.crowd import Crowd
from foretype_eval.load.drive import Progress
from foretype_eval.load.recorder import Recorder, percentiles_ms

TENANTS: Final = 10
"""That would share the engine: a share is a tenth of its capacity."""
_TIMES: Final = 20


async def make_keys(url: str, names: list[str], random_bytes: Any) -> dict[str, str]:
    """Tenants and a key for each, in the store at `url`, as of the epoch."""
    # A database's libraries take longer to import than all else here, and most runs need none.
    from foretype_backend.identity.directory import KeyRecord, Tenant
    from foretype_backend.identity.keys import mint
    from foretype_backend.identity.store import IdentityStore

    store = await IdentityStore.open(url)
    try:
        keys: dict[str, str] = {}
        for name in names:
            key = mint(random_bytes)
            await store.add_tenant(Tenant(name=name), 0)
            await store.add_key(key, KeyRecord(id=key.id, hash=key.hash, tenant=name), 0)
            keys[name] = key.text
        return keys
    finally:
        await store.close()


async def fairness(
    quiet: Crowd, flood: Crowd, *, capacity: float, pairs: int, seconds: float, progress: Progress
) -> dict[str, Any]:
    """The quiet tenant asks its share, the flood twenty of them.

    Keys: `alone`, `beside` (each run's `ttft_ms` and `total_ms` of the quiet tenant's interactive requests, of that the wait for a
    slot in `queued_ms`, and how many of all were `refused`), `moved_ms` (p99 of the first text beside the flood less p99 without it,
    pair by pair, None where a run showed no text), `moved_p99_ms` (their median), `noise_ms` (what p99 differs by from one run without
    the flood to the next, which nothing explains; their median), `flood` {`offered_rate`, `refused_share`}.
    """
    share = capacity / TENANTS
    runs: dict[str, list[Recorder]] = {"alone": [], "beside": []}
    asked = refused = 0
    for kind, name in turns(pairs):
        books, crowded = quiet.book(), flood.book()
        work = [quiet.steady(share, seconds, name, progress)]
        if kind == "beside":
            work.append(flood.steady(_TIMES * share, seconds, kind, _silent))
        await asyncio.gather(*work)
        await asyncio.gather(quiet.drain(), flood.drain())
        runs[kind].append(books)
        asked, refused = asked + crowded.requests, refused + sum(crowded.refused.values())
    rows = {kind: [_row(books) for books in found] for kind, found in runs.items()}
    return {
        "share_rate": share,
        **rows,
        **compared(rows),
        "flood": {
            "offered_rate": round(asked / (pairs * seconds), 1),
            "refused_share": round(refused / asked, 4) if asked else None,
        },
    }


def _row(books: Recorder) -> dict[str, Any]:
    return {
        "ttft_ms": percentiles_ms(books.ttft_s.get("interactive", [])),
        "queued_ms": percentiles_ms(books.queued_s.get("interactive", [])),
        "total_ms": percentiles_ms(books.total_s.get("interactive", [])),
        "refused": sum(books.refused.values()),
    }


def turns(pairs: int) -> Iterator[tuple[str, str]]:
    """Runs `alone` and `beside`, each first in every other pair, and what each is called."""
    for pair in range(pairs):
        for kind in ("alone", "beside") if pair % 2 == 0 else ("beside", "alone"):
            yield kind, f"{kind} {pair + 1} of {pairs}"


def compared(rows: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """`moved_ms`, `moved_p99_ms` and `noise_ms` of the runs alone and beside."""
    alone, beside = ([row["ttft_ms"]["p99"] for row in rows[kind]] for kind in ("alone", "beside"))
    moved = [_less(one, other) for one, other in zip(beside, alone, strict=True)]
    noise = [_less(after, before) for before, after in pairwise(alone)]
    steady = _median(None if one is None else abs(one) for one in noise)
    return {"moved_ms": moved, "moved_p99_ms": _median(moved), "noise_ms": steady}


def _less(one_ms: float | None, other_ms: float | None) -> float | None:
    """The difference; None where one of both is not known."""
    return None if one_ms is None or other_ms is None else round(one_ms - other_ms, 3)


def _median(found_ms: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [one for one in found_ms if one is not None]
    return round(statistics.median(known), 3) if known else None


def _silent(_name: str, _done: int, _total: int) -> None:
    """One of two crowds tells how far they are."""
