"""Workers of one gateway answer for each other: the one that gets the scrape asks the others, and answers with the sum.

A worker that ends an epoch of salts asks the others to follow in the same way. Each worker has a slot, and a Unix
socket of that name in a folder that belongs to the gateway's user alone. A worker that dies leaves what it last told of
its counters in a file; the others tell that meanwhile, and the next worker of the slot begins with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from foretype_backend.operations.merged_metrics import Family, counters, merged, merged_reports, metrics_of, taken

_log = logging.getLogger("foretype.gateway")

_ANSWER_S: Final = 1.0
"""Prometheus gives a scrape ten seconds; of a worker that is busy for longer than this only the counters count."""

_MOST_BYTES: Final = 16 << 20

_Answer = TypeVar("_Answer")


class WorkerAddress(msgspec.Struct, frozen=True):
    """Where a worker stands among the others; as an option, `SLOT/COUNT:FOLDER`."""

    folder: Path
    slot: int
    count: int

    def __str__(self) -> str:
        return f"{self.slot}/{self.count}:{self.folder}"

    @classmethod
    def of(cls, text: str) -> WorkerAddress:
        """Raises ValueError."""
        numbers, _, folder = text.partition(":")
        slot, _, count = numbers.partition("/")
        return cls(Path(folder), int(slot), int(count))

    def socket(self, slot: int) -> Path:
        return self.folder / f"{slot}.sock"

    def last(self, slot: int) -> Path:
        return self.folder / f"{slot}.last"


class WorkerPeers:
    """Metrics and status of the whole gateway, whichever of its workers is asked; without a place, of this process.

    Args:
        families: the metrics of this process, as they are now.
        report: its status.
    """

    def __init__(
        self,
        families: Callable[[], Iterable[Metric]],
        report: Callable[[], dict[str, Any]],
        place: WorkerAddress | None = None,
    ) -> None:
        self._families = families
        self._report = report
        self._place = place
        self._answers: dict[str, Callable[[], object]] = {"metrics": self._own_metrics, "status": report}
        self._server: asyncio.AbstractServer | None = None
        self._before = [] if place is None else _read(place.last(place.slot))

    def answer_to(self, question: str, answer: Callable[[], object]) -> None:
        """Tell another worker that asks `question` what `answer` returns, in MessagePack.

        Raises:
            ValueError: somebody else answers that question.
        """
        if question in self._answers:
            raise ValueError(f"the question {question!r} has an answer already")
        self._answers[question] = answer

    async def start(self) -> None:
        """Answer from now on."""
        if self._place is not None:
            path = self._place.socket(self._place.slot)
            path.unlink(missing_ok=True)  # of a worker that was killed
            self._server = await asyncio.start_unix_server(self._answer, str(path))

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._own_metrics()  # the last words count

    async def metrics(self) -> bytes:
        """The text that a scrape gets."""
        place = self._place
        if place is None:
            return _text(self._families())
        others = await self.ask("metrics", list[Family])
        parts = [
            self._own_metrics(),
            *(_read(place.last(slot)) if one is None else one for slot, one in others.items()),
        ]
        alive = GaugeMetricFamily("foretype_workers", "Worker processes that answered this scrape.")
        alive.add_metric([], 1 + sum(one is not None for one in others.values()))
        return _text([*metrics_of(merged(parts)), alive])

    async def status(self) -> dict[str, Any]:
        """The report of all workers."""
        if self._place is None:
            return self._report()
        others = await self.ask("status", dict[str, Any])
        return merged_reports([self._report(), *(one for one in others.values() if one is not None)])

    def _own_metrics(self) -> list[Family]:
        """This worker's and those of the dead before it. What is told here is kept: nobody may be told less later."""
        assert self._place is not None
        families = merged([taken(self._families()), self._before])
        path = self._place.last(self._place.slot)
        fresh = path.with_suffix(".new")
        with contextlib.suppress(OSError):  # a full disk costs what a death would cost; a scrape it does not
            fresh.write_bytes(msgspec.msgpack.encode(counters(families)))
            os.replace(fresh, path)
        return families

    @property
    def slot(self) -> int:
        """Of this worker."""
        return 0 if self._place is None else self._place.slot

    async def ask(self, question: str, type_: type[_Answer]) -> Mapping[int, _Answer | None]:
        """What the others say, by slot; None of those that do not answer in time. They know `question` by :meth:`answer_to`."""
        if self._place is None:
            return {}
        slots = [slot for slot in range(self._place.count) if slot != self._place.slot]
        answers = await asyncio.gather(*(self._ask_one(slot, question, type_) for slot in slots))
        return dict(zip(slots, answers, strict=True))

    async def _ask_one(self, slot: int, question: str, type_: type[_Answer]) -> _Answer | None:
        assert self._place is not None
        writer = None
        try:
            async with asyncio.timeout(_ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(str(self._place.socket(slot)))
                writer.write(f"{question}\n".encode())
                return msgspec.msgpack.decode(await reader.read(_MOST_BYTES), type=type_)
        except (OSError, TimeoutError, msgspec.MsgspecError) as error:
            _log.debug("worker %d does not answer: %s", slot, type(error).__name__)
            return None
        finally:
            if writer is not None:
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_ANSWER_S):
                question = (await reader.readline()).strip()
                answer = self._answers.get(question.decode("ascii"))
                if answer is not None:
                    writer.write(msgspec.msgpack.encode(answer()))
                    await writer.drain()
        writer.close()


def _read(path: Path) -> list[Family]:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=list[Family])
    except (OSError, msgspec.MsgspecError):
        return []


class _Given(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _text(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(list(metrics)))
    return generate_latest(registry)
