"""A real gateway whose answers are asked for once.

Debounce and client decide when to ask, not what the model says to a prompt; so the many settings of a sweep share the
answers to equal prompts, while every latency comes from a trace that was measured beforehand.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from hashlib import blake2b
from pathlib import Path
from random import Random

import msgspec
from foretype_context.prompt.segments import Segment
from foretype_eval.gateway import GatewayOptions
from foretype_eval.replay.answer_sources import LiveGateway
from foretype_eval.replay.trace import Answer, LatencyTrace, MeasuredGateway
from foretype_eval.replay.virtual import VirtualLoop
from foretype_wire.messages import Complete, Delta, Done

__all__ = ["RememberingSide"]


class _Kept(msgspec.Struct, frozen=True):
    """One line of the file of answers."""

    key: bytes
    deltas: list[tuple[float, Delta]]
    done_ms: float
    done: Done


class RememberingSide(LiveGateway):
    """Answers by prompt.

    Args:
        kept: a file that keeps them between runs of one model. They are text made from somebody's repository, so it is
            made (mode 0600) only where the user names it; None keeps them in memory.
    """

    def __init__(self, options: GatewayOptions, *, kept: Path | None = None) -> None:
        super().__init__(options)
        self._answers: dict[bytes, Answer] = {}
        self._kept = kept
        self._writing = threading.Lock()
        if kept is not None and kept.exists():
            self._read(kept)
        self.asked = 0
        self.remembered = 0

    def gateway(self, loop: VirtualLoop, trace: LatencyTrace | None, rng: Random) -> MeasuredGateway:
        return MeasuredGateway(self.ask if trace is None else self._ask, self.profile, loop, trace=trace)

    def _ask(self, call: Complete[Segment]) -> concurrent.futures.Future[Answer]:
        key = _key(call)
        known: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        if key in self._answers:
            self.remembered += 1
            known.set_result(_named(self._answers[key], call.id))
            return known
        self.asked += 1
        future = self.ask(call)

        def keep(done: concurrent.futures.Future[Answer]) -> None:
            if not done.cancelled() and done.exception() is None:
                self._answers[key] = done.result()
                self._write(key, done.result())

        future.add_done_callback(keep)
        return future

    def _write(self, key: bytes, answer: Answer) -> None:
        if self._kept is None:
            return
        line = msgspec.json.encode(_Kept(key, *answer)) + b"\n"
        with self._writing, open(self._kept, "ab", opener=_private) as file:
            file.write(line)

    def _read(self, path: Path) -> None:
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):  # the last one, where a run was killed
                one = msgspec.json.decode(line, type=_Kept)
                self._answers[one.key] = (one.deltas, one.done_ms, one.done)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _key(call: Complete[Segment]) -> bytes:
    """Equal for calls that a deterministic engine answers alike; source spans and ids do not matter, paths do."""
    digest = blake2b(digest_size=16)
    for segment in call.segments:
        digest.update(f"{segment.kind}\0{segment.source.path}\0{len(segment.text)}\0".encode())
        digest.update(segment.text.encode("utf-8", "replace"))
    digest.update(msgspec.json.encode((call.max_tokens, call.stop)))
    return digest.digest()


def _named(answer: Answer, id: str) -> Answer:
    deltas, done_ms, done = answer
    named: list[tuple[float, Delta]] = [(ms, msgspec.structs.replace(delta, id=id)) for ms, delta in deltas]
    return named, done_ms, msgspec.structs.replace(done, id=id)
