"""Where the stream door hands feedback over: committed in groups, acknowledged one by one.

The store is opened with the first batch (its libraries take longer to load than a model), on the event loop's threads; while it
cannot be opened, or cannot take anything, batches are refused, and the clients keep them. A completion never waits for any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foretype_wire.tasks import end_tasks

from foretype_backend.config.settings import TelemetryConfig
from foretype_backend.errors import StoreBusyError, StoreError
from foretype_backend.telemetry.consent import Consent, RememberedConsents

if TYPE_CHECKING:
    from foretype_wire.telemetry import Sample

    from foretype_backend.telemetry.intake import Received, RefusedEvent, Sender
    from foretype_backend.telemetry.store import Store
    from foretype_backend.telemetry.texts import Texts
    from foretype_backend.telemetry.upkeep import Kept

_log = logging.getLogger("foretype.gateway")

_CHUNK_EVENTS: Final = 100
"""Events read at a stretch: the event loop is ours for about a millisecond."""
_WAITING_EVENTS: Final = 20_000
_GROUP_EVENTS: Final = 4_000
_REOPEN_S: Final = 30.0
_HOUSEKEEPING_S: Final = 60.0
_CLOSE_S: Final = 2.0


class Receipt(NamedTuple):
    """What became of a batch that is committed; `store_text`: the tenant wants samples."""

    refused: Sequence[RefusedEvent] = ()
    store_text: bool = False


class _Waiting(NamedTuple):
    rows: list[tuple[Any, ...]]
    done: asyncio.Future[None]


class TelemetrySink:
    """A `FeedbackSink`.

    Args:
        directory: of the default store, key and texts.
        clock: monotonic seconds.
        wall_ms: Unix milliseconds.
    """

    def __init__(
        self, config: TelemetryConfig, directory: Path, *, clock: Callable[[], float], wall_ms: Callable[[], int]
    ) -> None:
        self.url = config.url or str(directory / "events.db")
        self._config = config
        self._directory = directory
        self._clock = clock
        self._wall_ms = wall_ms
        self._store: Store | None = None
        self._texts: Texts | None = None
        self._opening: asyncio.Task[Store] | None = None
        self._retry_s = 0.0
        self._fault: Exception | None = None
        self._waiting: list[_Waiting] = []
        self._waiting_events = 0
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._consents = RememberedConsents(clock)
        self._dirty: set[tuple[str, str]] = set()
        self._tidied: tuple[date, list[Consent]] | None = None  # what the last tidying went by
        self._modules: Any = None
        self._starting: asyncio.Task[None] | None = None
        self.kept: Sequence[Kept] = ()
        """As the last look after it found it."""

    def start(self, after_s: float = _HOUSEKEEPING_S) -> None:
        """Look after what former processes kept, also where no batch comes: what is over its retention goes."""
        self._starting = asyncio.get_running_loop().create_task(self._start(after_s))

    async def _start(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        with contextlib.suppress(StoreError):  # logged, and tried again with the first batch
            if await asyncio.to_thread(_is_there, self.url):
                await self.tidy()

    async def open(self) -> Store:
        """The open store. Raises StoreError; the same again, without trying, for half a minute after."""
        if self._store is not None:
            return self._store
        if self._opening is None or self._opening.done():
            if self._fault is not None and self._clock() < self._retry_s:
                raise self._fault
            self._opening = asyncio.get_running_loop().create_task(self._open(), name="open the telemetry store")
            self._opening.add_done_callback(_seen)
        return await asyncio.shield(self._opening)  # whoever asked first may leave

    async def _open(self) -> Store:
        modules = await asyncio.to_thread(_Modules)
        try:
            store = await modules.store.Store.open(self.url)
            try:
                # What a former process committed and did not add up any more.
                self._dirty |= await modules.upkeep.unsummed(store)
            except BaseException:
                await store.close()
                raise
        except StoreError as error:
            self._fault, self._retry_s = error, self._clock() + _REOPEN_S
            _log.warning("telemetry: %s", error)
            raise
        loop = asyncio.get_running_loop()
        self._modules, self._fault, self._store = modules, None, store
        self._tasks = [loop.create_task(self._write()), loop.create_task(self._housekeeping())]
        return store

    async def __call__(self, sender: Sender, batch: str, events: Sequence[dict[str, object]]) -> Receipt:
        """Commit a batch. Raises StoreError: nothing of it counts as stored."""
        store = await self.open()
        consent = await self._consents.of(self._modules.intake.safe_name(sender.tenant), store.consent)
        if self._waiting_events + len(events) > _WAITING_EVENTS:
            raise StoreBusyError(f"{self._waiting_events} events wait for {store.place} already")
        self._waiting_events += len(events)
        try:
            received = await self._read(sender, events, consent.events_days)
            if received.samples and consent.store_text:
                await self._keep(sender, batch, received.samples)
            done = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(received.rows, done))
            self._wake.set()
            await done
        finally:
            self._waiting_events -= len(events)
        self._dirty |= {(row[0], row[6]) for row in received.rows}
        return Receipt(received.refused, consent.store_text)

    async def close(self) -> None:
        """Commit what waits, and close."""
        await end_tasks(self._starting, self._opening)
        for task in self._tasks[1:]:
            task.cancel()
        if self._store is not None and self._waiting:
            await asyncio.wait([one.done for one in self._waiting], timeout=_CLOSE_S)
        await end_tasks(*self._tasks)
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def _read(self, sender: Sender, events: Sequence[dict[str, object]], kept_days: int) -> Received:
        intake, whole = self._modules.intake, None
        now_ms = self._wall_ms()
        for start in range(0, len(events), _CHUNK_EVENTS):
            some = events[start : start + _CHUNK_EVENTS]
            part = intake.read(sender, some, received_ms=now_ms, first=start, kept_days=kept_days)
            if whole is None:
                whole = part
            else:
                for mine, more in zip(whole, part, strict=True):
                    mine.extend(more)
            await asyncio.sleep(0)
        return whole or intake.Received([], [], [])

    async def _keep(self, sender: Sender, batch: str, samples: list[tuple[str, Sample]]) -> None:
        """Text before the events are committed: sent again, it replaces itself."""
        if self._texts is None:
            self._texts = await asyncio.to_thread(self._open_texts)
        name = self._modules.intake.safe_name
        by_day: dict[str, list[Sample]] = {}
        for day, sample in samples:
            by_day.setdefault(day, []).append(sample)
        for day, some in by_day.items():
            await self._texts.put(name(sender.tenant), name(sender.user), day, name(batch), some)

    def _open_texts(self) -> Texts:
        module = import_module("foretype_backend.telemetry.texts")
        key = module.read_key(self._config.key_file, self._directory / "key")
        return module.Texts(self._config.text_url or str(self._directory / "texts"), key)

    async def _write(self) -> None:
        """Commit what waits, as one transaction; alone, where together it cannot be."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                group, size = list[_Waiting](), 0
                while self._waiting and (not group or size + len(self._waiting[0].rows) <= _GROUP_EVENTS):
                    group.append(self._waiting[0])
                    size += len(self._waiting.pop(0).rows)
                if not await self._commit(group) and len(group) > 1:
                    for one in group:
                        await self._commit([one])

    async def _commit(self, group: list[_Waiting]) -> bool:
        store = self._store
        assert store is not None
        try:
            await store.write([row for one in group for row in one.rows])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the senders' answer: not stored
            if len(group) == 1 and not group[0].done.done():
                group[0].done.set_exception(error)
            return False
        for one in group:
            if not one.done.done():
                one.done.set_result(None)
        return True

    async def _housekeeping(self) -> None:
        """Sums, and the end of what was kept long enough."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            days, self._dirty = self._dirty, set()
            try:
                if days or await self._due():
                    await self.tidy(days)
            except StoreError as error:
                self._dirty |= days
                _log.warning("telemetry: %s", error)

    async def _due(self) -> bool:
        """Whether there is something to do though no event came: a laptop at rest is not kept busy by what was done before."""
        store = await self.open()
        if self._tidied != (self._today(), await store.consents()):
            return True
        return self._texts is not None and await self._modules.upkeep.rotates(self._texts)

    def _today(self) -> date:
        return datetime.fromtimestamp(self._wall_ms() / 1000, UTC).date()

    async def tidy(self, days: set[tuple[str, str]] | None = None) -> None:
        """Add up `days` (by default all that changed), and remove what is over its retention. Raises StoreError."""
        store = await self.open()
        if days is None:
            days, self._dirty = self._dirty, set()
        if self._texts is None and (self._config.text_url or (self._directory / "texts").exists()):
            self._texts = await asyncio.to_thread(self._open_texts)
        today = self._today()
        consents = await self._modules.upkeep.tidy(store, self._texts, days, today=today, now_ms=self._wall_ms())
        self.kept = await self._modules.upkeep.kept(store, self._texts)
        self._tidied = today, consents


def _is_there(url: str) -> bool:
    """Asked in a thread: the module brings a database's libraries."""
    return bool(import_module("foretype_backend.database").is_there(url, "telemetry.url"))


def _seen(opening: asyncio.Task[Store]) -> None:
    """Its failure is told to whoever asks; where all of them have left, nobody logs it as never retrieved."""
    if not opening.cancelled():
        opening.exception()


class _Modules:
    """What takes long to load, loaded together, in a thread."""

    def __init__(self) -> None:
        names = ("intake", "store", "upkeep")
        self.intake, self.store, self.upkeep = (import_module(f"foretype_backend.telemetry.{name}") for name in names)
