"""One replica of the real vLLM on a core of its own, behind a gateway, beside what a cell with one modelled engine does with the same requests.

Calibrated on two calm traces. First tokens of requests that were alone say what a prompt's token takes; paces of those that were not say
what a step takes, and what each further request adds to it. Checked on a third one, in which more people overlap and ask of other places.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Any, Final

import httpx
import msgspec
from foretype_eval.gateway import GatewayOptions
from foretype_eval.load.crowd import LoadOptions
from foretype_eval.load.developer import Habits
from foretype_eval.load.gateway import cores, pinned, target
from foretype_models.artifacts import Artifact, locate
from foretype_models.errors import ModelsError
from foretype_models.export import write_folder

from foretype_plan.errors import PlanError
from foretype_plan.simulation.asking import Asking, Phase, ask
from foretype_plan.simulation.cell_options import CellOptions
from foretype_plan.simulation.engine import BLOCK_TOKENS, EngineSpec
from foretype_plan.simulation.people import Arrivals
from foretype_plan.simulation.runs import Progress
from foretype_plan.simulation.traces import Answered, Sent, of_gateway, pair, pooled, predicted

_BATCH: Final = 8
_CHUNK_TOKENS: Final = 2048
_PEOPLE: Final = 24
_TOKENS: Final = 16
_BLOCKS: Final = 1024
"""Of cache: what a person's last prompt needs, and a part of those before."""
_CALM: Final = 3.0
_SHARED: Final = 8.0
_BUSY: Final = 16.0
"""Requests a second."""
_DEADLINE_S: Final = 10.0
_SEEDS: Final = 5
_LEAST_ALONE: Final = 10
_LEAST_TOKENS: Final = 4
_START_S: Final = 240.0
_ENVIRONMENT: Final = Path(__file__).resolve().parents[3] / ".venv-vllm" / "bin" / "python"
_PROFILE: Final = """\
[pool.fast]
replicas = ["{url}/v1"]
batch = {batch}
[model]
tokenizer = "{model}/tokenizer.json"
grammar = "{grammar}"
[limits]
max_running = {batch}
max_waiting = 256
"""


def find_vllm(named: Path | None) -> Path | None:
    """The interpreter of an environment with vLLM: the one named, `FORETYPE_VLLM_PYTHON`, or that of `make vllm-env`; None without one.

    Raises:
        PlanError: the one named cannot be run.
    """
    told = os.environ.get("FORETYPE_VLLM_PYTHON")
    wanted = named or (Path(told) if told else None)
    if wanted is not None and not os.access(wanted, os.X_OK):
        raise PlanError("vllm", f"{wanted} cannot be run: name the interpreter of an environment with vLLM")
    found = wanted or _ENVIRONMENT
    return found if os.access(found, os.X_OK) else None


def validate_vllm(python: Path, *, seconds: float, progress: Progress) -> dict[str, Any]:
    """Measure, calibrate, predict.

    Returns:
        `pairs`, `calibration` and `asked`, as of the scripted engine.

    Raises:
        PlanError: the shipped model cannot be read, or vLLM does not start; with its last words.
        GatewayGoneError: the gateway does not start, or broke connections.
    """
    phases = [
        Phase("vLLM warm-up", _CALM, 8.0),
        Phase("vLLM calm", _CALM, seconds),
        Phase("vLLM shared", _SHARED, seconds),
        Phase("vLLM busy", _BUSY, seconds),
    ]
    made = asyncio.run(measure(python, phases, _BLOCKS, progress))
    busy_s = made.begin_s["vLLM busy"]
    calm = [one for one in made.sent if one.moment_s < busy_s]  # the warm-up has the cold prompts
    options = calibrated(calm)
    lengths = [one.answered.generated_tokens for one in calm if one.answered is not None]
    runs = [
        predicted(msgspec.structs.replace(options, seed=seed), made.sent, busy_s, seconds, generated=lengths)
        for seed in range(_SEEDS)
    ]
    ours, real = pooled(runs), of_gateway(made.sent, busy_s, seconds)
    spec = options.specs[0]
    assert isinstance(spec, EngineSpec)
    return {
        "pairs": [
            pair("vLLM: first token p50, ms", 1000 * ours.first_s(0.5), 1000 * real.first_s(0.5)),
            pair("vLLM: goodput, requests/s", ours.goodput_rate, real.goodput_rate),
            pair("vLLM: share of prompts cached", ours.cached_share, real.cached_share),
        ],
        "calibration": {
            "prompt_token_us": 1e6 * spec.token_s,
            "step_ms": 1000 * spec.overhead_s,
            "request_ms": 1000 * spec.request_s,
            "overhead_ms": 1000 * options.overhead_s,
        },
        "asked": {
            "calm_rate": _CALM,
            "shared_rate": _SHARED,
            "busy_rate": _BUSY,
            "seconds": seconds,
            "batch": _BATCH,
            "blocks": _BLOCKS,
        },
    }


def calibrated(calm: Sequence[Sent]) -> CellOptions:
    """A cell whose engine takes what the requests took that were alone in the real one.

    Raises:
        PlanError: too few of them were.
    """
    alone = list(_alone(calm))
    if len(alone) < _LEAST_ALONE:
        raise PlanError(
            "vllm", f"{len(alone)} requests were alone, {_LEAST_ALONE} are needed: this machine is too busy"
        )
    if len({found.cached_tokens for _, found in alone}) < 2:
        raise PlanError("vllm", "all prompts were cached alike: nothing says what a token of one takes")
    computed = [one.prompt_tokens - found.cached_tokens for one, found in alone]
    first = linear_regression(computed, [found.first_s for _, found in alone])
    paces = list(_paces(calm, first.slope))
    if len({others for others, _ in paces}) < 2:
        raise PlanError("vllm", "no two requests overlapped: nothing says what a further one adds to a step")
    shared = linear_regression(*zip(*paces, strict=True))
    request_s = max(0.0, shared.slope)
    step_s = max(0.0, shared.intercept - request_s)
    return CellOptions(
        specs=(
            EngineSpec(
                batch=_BATCH,
                chunk_tokens=_CHUNK_TOKENS,
                blocks=_BLOCKS,
                token_s=max(1e-7, first.slope),
                weights_s=0.0,
                context_s=0.0,
                overhead_s=step_s,
                request_s=request_s,
            ),
        ),
        tenants=(),
        arrivals=Arrivals((), 1.0),
        replicas=1,
        network_s=0.0,
        overhead_s=max(0.0, first.intercept - step_s - request_s),
        deadline_s=_DEADLINE_S,
    )


def _alone(sent: Sequence[Sent]) -> Iterator[tuple[Sent, Answered]]:
    """Those that began when nobody was in the engine, and during which nobody came."""
    until_s = 0.0
    for one, after in itertools.pairwise(sent):
        found = one.answered
        if found is None:
            continue
        if one.moment_s > until_s and after.moment_s > one.moment_s + found.total_s:
            yield one, found
        until_s = max(until_s, one.moment_s + found.total_s)


def _paces(sent: Sequence[Sent], token_s: float) -> Iterator[tuple[float, float]]:
    """Of each answer: how many others were written on the average while it was, and seconds a token without the prompts computed then."""
    written = [
        (
            one.moment_s + found.first_s,
            one.moment_s + found.total_s,
            found.generated_tokens,
            one.prompt_tokens - found.cached_tokens,
        )
        for one in sent
        if (found := one.answered) is not None
    ]
    for begin_s, end_s, tokens, _ in written:
        if tokens <= _LEAST_TOKENS or end_s <= begin_s:
            continue
        together = sum(max(0.0, min(end_s, other[1]) - max(begin_s, other[0])) for other in written)
        prompts_s = token_s * sum(other[3] for other in written if begin_s < other[0] <= end_s)
        yield together / (end_s - begin_s) - 1, (end_s - begin_s - prompts_s) / (tokens - 1)


async def measure(python: Path, phases: Sequence[Phase], blocks: int, progress: Progress) -> Asking:
    """Start vLLM with the shipped model and `blocks` of cache, a gateway before it, and ask.

    Raises:
        PlanError: the shipped model cannot be read, or vLLM does not start; with its last words.
        GatewayGoneError: the gateway does not start, or broke connections.
    """
    load = LoadOptions(
        developers=_PEOPLE,
        habits=Habits(
            supersede=0.0, cancel=0.0, early=0.0, branch=0.0, max_tokens=_TOKENS, deadline_ms=1000 * _DEADLINE_S
        ),
        scripts=_PEOPLE,
    )
    with tempfile.TemporaryDirectory(prefix="foretype-vllm-") as name:
        folder = Path(name)
        shipped, model = _exported(folder)
        async with _serving(python, model, folder, blocks, progress) as url:
            profile = folder / "gateway.toml"
            profile.write_text(_PROFILE.format(url=url, batch=_BATCH, model=model, grammar=shipped.grammar), "utf-8")
            core = cores()[0] if len(cores()) > 1 else None
            with pinned(core):  # this process and the gateway; vLLM has the last core to itself
                async with target(GatewayOptions(profile=profile), frame_ms=0.0, slots=_BATCH, core=core) as found:
                    return await ask(found, load, phases, progress, blocks=True)


def _exported(folder: Path) -> tuple[Artifact, Path]:
    """The shipped model, and where it lies as vLLM loads it."""
    try:
        shipped = locate()
        write_folder(shipped.path, folder / "model")
    except ModelsError as error:
        raise PlanError("vllm", str(error)) from error
    return shipped, folder / "model"


@contextlib.asynccontextmanager
async def _serving(python: Path, model: Path, folder: Path, blocks: int, progress: Progress) -> AsyncGenerator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "vllm.log"
    with _started(python, model, port, log, blocks) as process:
        url, began_s = f"http://127.0.0.1:{port}", time.monotonic()
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                passed_s = time.monotonic() - began_s
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"{url}/health")).status_code == 200:
                        break
                if process.poll() is not None or passed_s > _START_S:
                    raise PlanError("vllm", f"{python} did not serve: {_end(log.read_bytes())}")
                progress("vLLM starts", min(59, int(passed_s)), 60)
                await asyncio.sleep(0.25)
        progress("vLLM starts", 60, 60)
        yield url


@contextlib.contextmanager
def _started(python: Path, model: Path, port: int, log: Path, blocks: int) -> Generator[subprocess.Popen[bytes]]:
    last = cores()[-1] if cores() else 0
    own = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": str(last),
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [
        # What `vllm serve` runs; the command itself looks for a distribution `vllm`, which the CPU build is not.
        *(str(python), "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", "shipped", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"),
        *("--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(blocks), "--enforce-eager"),
        *("--max-num-seqs", str(_BATCH), "--max-num-batched-tokens", str(_CHUNK_TOKENS)),
        *("--scheduling-policy", "priority", "--enable-prompt-tokens-details", "--enable-scale-out"),
    ]
    with log.open("wb") as out, pinned(last if len(cores()) > 1 else None):
        process = subprocess.Popen(command, env={**os.environ, **own}, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def _end(said: bytes) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no word"
