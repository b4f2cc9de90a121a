"""A torch model in a process of its own: `python -m foretype_retrieval.embedder_process NAME`, and what speaks with it.

The language server never imports torch, and no completion waits for a model: a question that is not answered in its time goes
by words alone, and its vector is there when the same place asks again. The process prints one JSON line, `{"dimensions": …,
"digest": …}` or `{"error": …}`, then answers frames: a length (u32), and of a request a JSON object `{"texts": […],
"question": bool}`, of an answer float32 rows. It ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import struct
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from itertools import count
from typing import IO, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.errors import EmbedderError

QUESTION_WAIT_S: Final = 0.02
"""Nobody waits longer. MiniLM takes 28 ms at the median on two cores, so most of its vectors count when the place asks again."""

_BATCH: Final = 16
_REMEMBERED: Final = 256
_START_S: Final = 120.0
_LENGTH: Final = struct.Struct("<I")

Rows = NDArray[np.float32]
Job = tuple[int, int, list[str], "Future[Rows]"]


class ProcessEmbedder:
    """An :class:`foretype_retrieval.embedder.Embedder` whose model lives in another process. Safe for threads.

    Args:
        name: folder or name of a sentence-transformers model.
        wait_s: how long a question may wait.

    Raises:
        EmbedderError: the process says why, or does not come up.
    """

    def __init__(self, name: str, *, wait_s: float = QUESTION_WAIT_S, start_s: float = _START_S) -> None:
        self._name = name
        self._wait_s = wait_s
        self._process = subprocess.Popen(
            # -P: `-m` would import from the working directory first, which may be a workspace and hold anything.
            [sys.executable, "-P", "-m", "foretype_retrieval.embedder_process", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        killer = threading.Timer(start_s, self._process.kill)
        killer.start()
        try:
            said = _object(self._out.readline())
        finally:
            killer.cancel()
        if "dimensions" not in said:
            self._process.kill()
            self._reap()
            reason = said.get("error", f"its process ended, or did not answer within {start_s:.0f} s")
            raise EmbedderError(str(reason))
        self.dimensions = int(said["dimensions"])
        self.digest = str(said["digest"])
        self._numbers = count()
        # Questions go before documents; what is asked first is answered first.
        self._jobs: queue.PriorityQueue[Job] = queue.PriorityQueue()
        self._remembered: OrderedDict[str, Future[Rows]] = OrderedDict()
        self._lock = threading.Lock()
        self._door = threading.Lock()
        """Between a job's entry and the close: nothing may come into the queue behind the last job, where nobody serves it."""
        self._broken = ""
        threading.Thread(target=self._serve, name="foretype embedding", daemon=True).start()

    @property
    def _out(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdout)

    def embed(self, texts: Sequence[str]) -> Rows:
        """One row per text; waits for the model. Raises EmbedderError when its process is gone."""
        pieces = [self._ask(1, list(texts[at : at + _BATCH])) for at in range(0, len(texts), _BATCH)]
        return np.concatenate([piece.result() for piece in pieces]) if pieces else np.zeros((0, self.dimensions), "f4")

    def question(self, text: str) -> Rows | None:
        """The vector of a question, or None where it is not there in time."""
        with self._lock:
            asked = self._remembered.get(text)
            if asked is None:
                asked = self._remembered[text] = self._ask(0, [text])
                if len(self._remembered) > _REMEMBERED:
                    self._remembered.popitem(last=False)
        try:
            return asked.result(self._wait_s)[0]
        except (Late, EmbedderError):
            return None

    def close(self) -> None:
        """Ends the process."""
        with self._door:
            self._broken = self._broken or f"embedder {self._name} was closed"
            self._jobs.put((2, next(self._numbers), [], Future()))
        self._process.kill()

    def _ask(self, urgency: int, texts: list[str]) -> Future[Rows]:
        answer: Future[Rows] = Future()
        with self._door:
            if not self._broken:
                self._jobs.put((urgency, next(self._numbers), texts, answer))
                return answer
        answer.set_exception(EmbedderError(self._broken))
        return answer

    def _serve(self) -> None:
        while True:
            urgency, _, texts, answer = self._jobs.get()
            if not self._broken:
                try:
                    answer.set_result(self._exchange(urgency == 0, texts))
                    continue
                except (OSError, ValueError, struct.error) as error:
                    self._broken = self._broken or f"embedder {self._name}: its process ended ({error})"
                    self._process.kill()
                    self._reap()
            answer.set_exception(EmbedderError(self._broken))
            if urgency == 2:
                self._reap()
                return

    def _exchange(self, question: bool, texts: list[str]) -> Rows:
        _write(cast("IO[bytes]", self._process.stdin), json.dumps({"texts": texts, "question": question}).encode())
        rows = np.frombuffer(_read(self._out), np.float32)
        return rows.reshape(len(texts), self.dimensions)

    def _reap(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self._process.wait()


def _object(line: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        said = json.loads(line)
        if isinstance(said, dict):
            return cast("dict[str, Any]", said)
    return {}


def _write(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes:
    (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
    data = stream.read(length)
    if len(data) != length:
        raise ValueError("a frame was cut short")
    return data


def main(name: str) -> int:
    """The process."""
    from foretype_retrieval.transformer import load_transformer

    # Libraries print to standard output; the frames must not meet them there.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        embedder = load_transformer(name)
    except EmbedderError as error:
        out.write(json.dumps({"error": str(error)}).encode() + b"\n")
        out.flush()
        return 1
    out.write(json.dumps({"dimensions": embedder.dimensions, "digest": embedder.digest}).encode() + b"\n")
    out.flush()
    with contextlib.suppress(struct.error, BrokenPipeError):
        while True:
            asked = _object(_read(sys.stdin.buffer))
            texts = cast("list[str]", asked["texts"])
            rows = embedder.question(texts[0])[None] if asked["question"] else embedder.embed(texts)
            _write(out, np.ascontiguousarray(rows, np.float32).tobytes())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
