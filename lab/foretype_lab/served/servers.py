"""`vllm serve` of the laboratory's own, and one request to it as its times."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import httpx

from foretype_lab.errors import VllmError
from foretype_lab.other_engines.vllm_engine import find_vllm
from foretype_lab.processes import environment, free_ports

__all__ = ["BLOCK_TOKENS", "Answer", "Served", "ask", "client", "started", "tier", "warmed"]

BLOCK_TOKENS: Final = 32
_START_S: Final = 240.0


class Answer(NamedTuple):
    """Of one request; seconds from its sending. `cached_tokens` were found in whatever tier."""

    first_s: float
    gaps_s: tuple[float, ...]
    cached_tokens: int
    token_ids: tuple[int, ...]


def tier(host_bytes: int, folder: Path | None = None) -> dict[str, Any]:
    """`--kv-transfer-config`: blocks go to host memory, and from there to files that other servers read, where a folder is named."""
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": host_bytes,
            "spec_name": "HostCopyTieringSpec",
            "spec_module_path": "foretype_backend.vllm_plugin.host_copies",
            "secondary_tiers": [] if folder is None else [{"type": "fs", "root_dir": str(folder)}],
        },
    }


class Served:
    """A server, from entering the context to leaving it; several start beside each other (:meth:`ready` waits).

    Args:
        core: the one that it may use; all of them where it is None.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        *,
        transfer: Mapping[str, Any],
        step_tokens: int,
        context_tokens: int,
        cache_blocks: int | None = None,
        core: int | None = None,
    ) -> None:
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        self._command = [
            *([] if core is None else ["taskset", "-c", str(core)]),
            *(str(find_vllm()), "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
            *("--served-model-name", "shipped", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"),
            *("--block-size", str(BLOCK_TOKENS), "--enforce-eager", "--max-num-seqs", "8"),
            *("--max-num-batched-tokens", str(step_tokens), "--enable-chunked-prefill"),
            *("--max-model-len", str(context_tokens)),
            *("--scheduling-policy", "priority", "--enable-prompt-tokens-details"),
            *("--kv-transfer-config", json.dumps(transfer)),
            *([] if cache_blocks is None else ["--num-gpu-blocks-override", str(cache_blocks)]),
        ]
        own = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        own |= {} if core is None else {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": str(core)}
        self._environment = {**environment(), **own}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def ready(self) -> None:
        """Returns when it answers. Raises VllmError with the end of its log."""
        assert self._process is not None
        ends_s = time.monotonic() + _START_S
        while time.monotonic() < ends_s and self._process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", trust_env=False).status_code == 200:
                    return
            time.sleep(0.2)
        said = self._log.read_text("utf-8", "replace").splitlines()
        raise VllmError("the server did not start: " + "\n".join([one for one in said if "Error" in one][-5:]))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        for ending in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, ending)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)


async def ask(
    client: httpx.AsyncClient, url: str, ids: Sequence[int], *, tokens: int, salt: str, kept: bool = True
) -> Answer:
    """One streamed request, never ended early by the model.

    Args:
        kept: its blocks may leave the first tier.
    """
    body: dict[str, Any] = {
        "model": "shipped",
        "prompt": list(ids),
        "max_tokens": tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "cache_salt": salt,
    }
    if not kept:
        body["kv_transfer_params"] = {"max_offload_tokens": 0}
    began = time.perf_counter()
    times, found, cached = list[float](), list[int](), 0
    async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
        if response.status_code != 200:
            raise VllmError(f"the server answers {response.status_code}: {(await response.aread())[:300]!r}")
        async for line in response.aiter_lines():
            for event in _event(line):
                for choice in event.get("choices") or ():
                    if ids_now := choice.get("token_ids"):
                        times.append(time.perf_counter() - began)
                        found += ids_now
                usage: dict[str, Any] = event.get("usage") or {}
                details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
                cached = details.get("cached_tokens") or cached
    if len(found) != tokens:
        raise VllmError(f"{len(found)} tokens came, {tokens} were asked for")
    gaps = tuple(after - before for before, after in itertools.pairwise(times))
    return Answer(times[0], gaps, cached, tuple(found))


def _event(line: str) -> Iterator[dict[str, Any]]:
    if line.startswith("data: ") and line != "data: [DONE]":
        yield json.loads(line.removeprefix("data: "))


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=120, trust_env=False)


def started(servers: Sequence[Served]) -> None:
    for one in servers:
        one.ready()


async def warmed(servers: Sequence[Served]) -> None:
    """What a server computes for the first time takes longer: that is over when this returns."""
    async with client() as http:
        await asyncio.gather(
            *(ask(http, one.url, range(300, 900), tokens=8, salt="warm", kept=False) for one in servers)
        )
