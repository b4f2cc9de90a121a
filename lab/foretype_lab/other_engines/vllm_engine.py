"""vLLM in its own environment (`make vllm-env`), as a child process that is asked over JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from foretype_lab.errors import VllmError

__all__ = ["PYTHON", "Completed", "Scored", "VllmProcess", "find_vllm"]

PYTHON: Final = Path(__file__).resolve().parents[3] / ".venv-vllm" / "bin" / "python"
_CHILD: Final = Path(__file__).with_name("vllm_child.py")


class Completed(msgspec.Struct, frozen=True):
    """A greedy continuation.

    Attributes:
        cached_tokens: of the prompt, found in the engine's own prefix cache, as the engine counts them.
        ids, logprobs: generated tokens and the natural logarithm of their probabilities.
    """

    cached_tokens: int
    ids: list[int]
    logprobs: list[float]


class Scored(msgspec.Struct, frozen=True):
    """Per token of a prompt but the first: its log-probability, and the likeliest token there."""

    logprobs: list[float]
    first: list[int]


def find_vllm() -> Path:
    """The interpreter: `FORETYPE_VLLM_PYTHON`, else that of `make vllm-env`. Raises VllmError if there is none."""
    named = os.environ.get("FORETYPE_VLLM_PYTHON")
    path = Path(named) if named else PYTHON
    if not os.access(path, os.X_OK):
        raise VllmError(f"{path} is not there; `make vllm-env` makes it (two gigabytes)")
    return path


class VllmProcess:
    """One engine with one model, from entering the context to leaving it. Starting takes 15 to 30 seconds.

    Args:
        model: Hugging Face folder, as `foretype models export --to safetensors` writes it.
        block_tokens: of the prefix cache; the CPU build wants 32.
        dtype: of weights and cache.
    """

    def __init__(
        self, model: Path, *, block_tokens: int = 32, dtype: str = "float32", context_tokens: int = 8192
    ) -> None:
        self._python = find_vllm()
        self._open = {
            "op": "open",
            "model": str(model),
            "block_tokens": block_tokens,
            "dtype": dtype,
            "context_tokens": context_tokens,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.version = ""

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [str(self._python), "-P", str(_CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        try:
            self.version = self._ask(self._open)["vllm"]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                with contextlib.suppress(OSError):  # what it did not read when it ended
                    process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._log.close()

    def complete(self, ids: Sequence[int], *, max_tokens: int = 1) -> Completed:
        """Continue greedily; what the prompt computed stays in the prefix cache."""
        return msgspec.convert(self._ask({"op": "complete", "ids": list(ids), "max_tokens": max_tokens}), Completed)

    def score(self, ids: Sequence[int]) -> Scored:
        """Teacher-forced: what the engine thinks of each token of a prompt."""
        return msgspec.convert(self._ask({"op": "score", "ids": list(ids)}), Scored)

    def forget(self) -> None:
        """Empty the prefix cache."""
        self._ask({"op": "forget"})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise VllmError("the engine is not running")
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        if not line:
            raise VllmError(f"vLLM ended during {request['op']}:\n{self._tail()}")
        return json.loads(line)

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace")
