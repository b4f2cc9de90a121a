"""A chosen model is tried before anybody depends on it: in a gateway of its own, by a canary and a short benchmark."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from foretype_client.asking import ask, plan_at
from foretype_client.client import Client, ClientOptions, open_client
from foretype_client.commands.doctor_probe import judge
from foretype_client.errors import GatewayStartError
from foretype_client.private_gateway.starting import LOG_NAME, ensure_gateway
from foretype_context.errors import TokenizerError, UnknownControlError, UnknownGrammarError
from foretype_context.syntax.document import Document
from foretype_wire.announcement import FILE_NAME
from foretype_wire.errors import GatewayGoneError, RequestRefusedError

from foretype_models.errors import UseError
from foretype_models.use.profile import Choice, render, write

_PREFIX: Final = ".trying-"
_START_S: Final = 180.0
_LINGER_S: Final = 30.0
_BENCH_S: Final = 10.0
_MOST_ROUNDS: Final = 40
_DEADLINE_MS: Final = 120_000.0
"""Of a question: a large model on a busy machine is measured, and not refused for what an editor would not wait for."""


@dataclass(frozen=True, slots=True)
class _Hole:
    """A place in a small file, and what every model that fills holes writes there."""

    before: str
    after: str
    right: tuple[str, ...]


_HOLES: Final = (
    _Hole("def add(a, b):\n    return ", "\n\n\ndef subtract(a, b):\n    return a - b\n", ("a + b", "b + a")),
    _Hole(
        "class Point:\n    def __init__(self, width, height):\n        self.width = width\n        self.height = ",
        "\n\n    def area(self):\n        return self.width * self.height\n",
        ("height",),
    ),
    _Hole("total = 0\nfor number in numbers:\n    total += ", "\nprint(total)\n", ("number",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryVerdict:
    """What the canary says.

    Attributes:
        right: of `asked` holes, those that were filled as they had to be.
        wrong: what shows a wrong template or a chat model; empty where nothing does.
    """

    right: int
    asked: int
    wrong: str = ""

    def __str__(self) -> str:
        return self.wrong or f"{self.right} of {self.asked} holes filled as they had to be"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFigures:
    """What was measured through the gateway, as an editor would see it.

    Attributes:
        cold_ms, cold_tokens: to the first text of a prompt that nothing was known of, and its length.
        warm_ms: to the first text after one more key; the median.
        decode_tokens_s: tokens written per second; 0 where no answer had two.
        rounds: keys that were measured.
    """

    cold_ms: float
    cold_tokens: int
    warm_ms: float
    decode_tokens_s: float
    rounds: int

    def __str__(self) -> str:
        written = f", {self.decode_tokens_s:.0f} tokens/s" if self.decode_tokens_s else ""
        return (
            f"{self.warm_ms:.0f} ms to the first text after a key, {self.cold_ms / 1e3:.1f} s at the first sight of a file "
            f"({self.cold_tokens} tokens){written}"
        )


async def try_out(
    choice: Choice, state_dir: Path, doing: Callable[[str], None], *, bench_s: float = _BENCH_S
) -> tuple[CanaryVerdict, TrialFigures | None]:
    """Serve `choice` in a gateway of its own and ask it.

    Raises:
        UseError: it cannot be served, or does not answer.
    """
    try:
        folder = await asyncio.to_thread(_folder, state_dir)
    except OSError as error:
        raise UseError(
            f"{state_dir} cannot be written to ({error.strerror or error}); give --state-dir, or correct its owner or mode"
        ) from error
    try:
        doing(f"starting {choice.name}")
        async with _served(choice, folder) as client:
            doing("asking it to fill holes")
            verdict = await _canary(client)
            if verdict.wrong:
                return verdict, None
            doing("measuring it")
            return verdict, await _bench(client, bench_s)
    except GatewayStartError as error:
        sentence, *more = str(error).splitlines()
        if more:  # it crashed: its last words are in the log, which is kept
            log = await asyncio.to_thread(_keep_log, folder, state_dir)
            sentence = f"{sentence} ({more[-2].strip() if len(more) > 1 else more[-1].strip()}); its log is {log}"
        more_said = " (for `foretype use`: --grammar ID)" if "[model] grammar" in sentence else ""
        raise UseError(f"{choice.name} does not serve: {sentence}{more_said}") from error
    except (GatewayGoneError, RequestRefusedError) as error:
        raise UseError(f"{choice.name} does not answer: {error}") from error
    except (TokenizerError, UnknownGrammarError, UnknownControlError) as error:
        raise UseError(f"{choice.name} cannot be prompted: {error}") from error
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _folder(state_dir: Path) -> Path:
    """One at a time tries (`use.lock`), so what is there is of one that was killed; its gateway ends, as nobody finds it any more."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for abandoned in state_dir.glob(f"{_PREFIX}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=state_dir))


def _keep_log(folder: Path, state_dir: Path) -> Path:
    kept = state_dir / "use.log"
    shutil.copyfile(folder / LOG_NAME, kept)
    return kept


@asynccontextmanager
async def _served(choice: Choice, folder: Path) -> AsyncGenerator[Client]:
    profile = folder / "trial.toml"
    await asyncio.to_thread(write, profile, render(choice))
    try:
        endpoint = await ensure_gateway(
            folder,
            clock=time.monotonic,
            timeout_s=_START_S,
            linger_s=_LINGER_S,
            arguments=("--profile", str(profile), "--no-telemetry"),
        )
        options = ClientOptions(gateway=endpoint.url, token=endpoint.token, local=False, client_name="foretype-use")
        async with open_client(options) as client:
            await client.ready(_START_S)
            yield client
    finally:
        # A private gateway that nobody can find any more ends by itself.
        await asyncio.to_thread((folder / FILE_NAME).unlink, missing_ok=True)


async def _canary(client: Client) -> CanaryVerdict:
    assembler = await client.ready(_START_S)
    right = 0
    for number, hole in enumerate(_HOLES):
        uri = f"foretype:canary{number}.py"
        snapshot = Document(uri, hole.before + hole.after, path=f"canary{number}.py", language="python").snapshot()
        plan, _ = plan_at(assembler, snapshot, len(hole.before))
        answer = await ask(client.session, plan, snapshot, len(hole.before), deadline_ms=_DEADLINE_MS)
        if (judged := judge(answer.raw)).broken:
            return CanaryVerdict(right=right, asked=len(_HOLES), wrong=judged.detail)
        first = answer.raw.partition("\n")[0].strip()
        right += first.startswith(hole.right)
    return CanaryVerdict(right=right, asked=len(_HOLES))


async def _bench(client: Client, seconds: float) -> TrialFigures:
    """A file of functions, typed on for some seconds: a key, its suggestion, the next key."""
    assembler = await client.ready(_START_S)
    head = "".join(
        f"def scaled_{number}(value, factor={number}):\n    result = value * factor\n    return result + {number}\n\n\n"
        for number in range(60)
    )
    line = "def scaled_all(values):\n    return [scaled_1(value) for value in values]\n"
    document = Document("foretype:bench.py", head, path="bench.py", language="python")
    ends = time.monotonic() + seconds
    cold_ms, cold_tokens = 0.0, 0
    warm: list[float] = []
    written, writing_s = 0, 0.0
    for typed in range(_MOST_ROUNDS):
        document = Document("foretype:bench.py", head + line[: 12 + typed], path="bench.py", language="python")
        snapshot = document.snapshot()
        offset = len(head) + 12 + typed
        plan, _ = plan_at(assembler, snapshot, offset)
        started = time.perf_counter()
        answer = await ask(client.session, plan, snapshot, offset, deadline_ms=_DEADLINE_MS)
        elapsed_s = time.perf_counter() - started
        ttft_ms = answer.timings_ms["ttft"] or 1e3 * elapsed_s
        if typed == 0:
            cold_ms, cold_tokens = ttft_ms, answer.done.usage.prompt_tokens
        else:
            warm.append(ttft_ms)
        if (tokens := answer.done.usage.generated_tokens) > 1:
            written += tokens - 1
            writing_s += elapsed_s - ttft_ms / 1e3
        if time.monotonic() >= ends and warm:
            break
    return TrialFigures(
        cold_ms=cold_ms,
        cold_tokens=cold_tokens,
        warm_ms=median(warm),
        decode_tokens_s=written / writing_s if writing_s > 0 else 0.0,
        rounds=len(warm),
    )
