"""Snippets of other files for a command that asks once: sources are opened, asked and closed again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from foretype_context.syntax.document import Snapshot

from foretype_client.sources.all_sources import Gathered, SourceNote
from foretype_client.sources.committed import repository_of
from foretype_client.sources.loading import SourceOptions, open_sources

RetrievalOption = Annotated[
    bool, typer.Option("--retrieval/--no-retrieval", help="Look into the other files of the file's git repository.")
]
DependenciesOption = Annotated[
    bool, typer.Option("--dependencies", help="Also show signatures of installed packages that the imports name.")
]

_ASK_S: Final = 5.0
_LIMIT: Final = 8


async def gather_at(
    path: Path, snapshot: Snapshot, offset: int, *, retrieval: bool, dependencies: bool = False, wait_s: float
) -> Gathered:
    """What all sources say about a place.

    Args:
        path: of the file; its git repository is what is looked into, and without one there is nothing.
        retrieval: whether to look at all.
        wait_s: how long the index may take to get ready. A first index of a large repository takes longer: then the note
            says so, and `foretype index` makes it once and for all.
    """
    root = repository_of(path)
    if root is None or not retrieval:
        reason = "switched off" if not retrieval else f"{path} lies in no git repository"
        return Gathered(notes=(SourceNote("retrieval", 0, 0.0, reason),))
    loop = asyncio.get_running_loop()
    options = SourceOptions(dependencies=dependencies)
    sources = await asyncio.to_thread(
        open_sources, [root], options, call_soon=loop.call_soon_threadsafe, clock=time.monotonic
    )
    try:
        sources.opened(snapshot.uri, snapshot.text)
        await asyncio.to_thread(sources.wait, wait_s)
        complete = asyncio.Event()
        gathering = sources.gather(snapshot, offset, limit=_LIMIT, complete=complete.set)
        try:
            async with asyncio.timeout(_ASK_S):
                while not gathering.done:
                    await complete.wait()
        except TimeoutError:
            pass
        gathered, status = gathering.take(), sources.status()
        notes = [note._replace(reason=note.reason or status.get(note.name, "")) for note in gathered.notes]
        return gathered._replace(notes=tuple(notes))
    finally:
        await asyncio.to_thread(sources.close)


def sources_as_objects(gathered: Gathered) -> list[dict[str, object]]:
    """The notes about all sources, for `--json`."""
    return [note._asdict() for note in gathered.notes]
