"""The embedded engine's process: ``python -m foretype_backend.engines.embedded.worker [LIBRARY]``.

Commands come on standard input, reports go to what was standard output; whatever the engine's libraries print goes to
standard error. A small thread reads the commands, so that a cancel is seen between any two steps. The end of standard
input, which is also the death of the gateway, ends the process at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from foretype_models.errors import GgufError
from foretype_models.exact_weights import EXACT, exact_copy, plan_weights
from foretype_wire.garbage_collection import give_back, spare_start_and_end

from foretype_backend.engines.embedded.gguf_header import ModelHeader, read_header
from foretype_backend.engines.embedded.ipc import (
    Cancel,
    Configure,
    Failed,
    FrameDecoder,
    Preparing,
    Ready,
    Report,
    Submit,
    decode_command,
    encode,
)
from foretype_backend.engines.embedded.jobs import StepLimits
from foretype_backend.engines.embedded.libraries import library_here, load_library
from foretype_backend.engines.embedded.loop import WorkerLoop
from foretype_backend.engines.embedded.pipeline import Library, Pipeline, PipelineConfig
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_backend.errors import LibraryError, ModelFileError, PipelineError

_logger = logging.getLogger("foretype.engine")

_PATIENCE: Final = 10.0
"""How many times as long as on one slow core the conversion of a model may take: other work may run."""

Commands = queue.SimpleQueue[Configure | Submit | Cancel]


def main() -> None:
    """Serve one gateway until its pipe ends."""
    spare_start_and_end()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    # The lock changes hands between two steps only if the reader asks in time: a decode step takes 3 ms, the default 5.
    sys.setswitchinterval(0.0002)
    # Ctrl-C in a terminal and a service manager's stop reach us too; the gateway drains, and decides when we end.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.SIG_IGN)
    reports = os.dup(1)
    os.dup2(2, 1)
    commands: Commands = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands,), name="commands", daemon=True).start()
    with contextlib.suppress(LibraryError):  # told below, when it is known which is wanted
        load_library(_named() or library_here())  # imported while nobody has told a model yet
    configure = commands.get()
    if not isinstance(configure, Configure):
        raise TypeError(f"the first command must be Configure, not {type(configure).__name__}")

    def send(frames: list[Report]) -> None:
        data = memoryview(encode(frames))
        while data:
            data = data[os.write(reports, data) :]

    _be_nice(configure.nice)
    try:
        library = load_library(configure.library or library_here())()
        header = read_header(Path(configure.model))
        if not library.reads_every_type:
            configure, header = _exact(configure, header, send)
        loop, ready = _load(library, configure, header, send)
    except (LibraryError, ModelFileError) as error:
        send([Failed(message=str(error))])
        raise SystemExit(2) from None
    except PipelineError as error:
        _logger.error("%s", error.__cause__ or error)
        remedy = "use a smaller model or less cache_bytes" if "memory" in str(error) else "export it again as Q8_0"
        send([Failed(message=f"{configure.model}: the engine cannot open it ({error}); {remedy}")])
        raise SystemExit(3) from None
    send([ready])
    _serve(loop, commands)


def _named() -> str:
    """The library that the command line names, if it names one."""
    return sys.argv[1] if len(sys.argv) > 1 else ""


def _exact(
    configure: Configure, header: ModelHeader, send: Callable[[list[Report]], None]
) -> tuple[Configure, ModelHeader]:
    """With a file whose weights the library reads as they are: a copy, where it would make others of them. Raises ModelFileError."""
    model = Path(configure.model)
    try:
        plan = plan_weights(model)
        if not plan.types:
            return configure, header
        told = f"{model}: {plan}"
        if configure.prepared_dir is None:
            raise ModelFileError(f"{told}; name prepared_dir, or take a file quantised as Q8_0")
        send([Preparing(message=told, within_s=_PATIENCE * plan.seconds)])
        exact = exact_copy(model, Path(configure.prepared_dir) / EXACT)
    except GgufError as error:
        raise ModelFileError(str(error)) from error
    note = f"{', '.join(plan.types)} is served from its copy in Q8_0"
    return msgspec.structs.replace(configure, model=str(exact)), replace(header, notes=(*header.notes, note))


def _serve(loop: WorkerLoop, commands: Commands) -> None:
    while True:
        if not loop.busy:
            loop.command(_expect(commands.get()))
        while not commands.empty():
            loop.command(_expect(commands.get()))
        if loop.busy:
            loop.turn()
        else:
            loop.flush()
        time.sleep(0)  # the reader's turn


def _expect(command: Configure | Submit | Cancel) -> Submit | Cancel:
    if isinstance(command, Configure):
        raise TypeError("Configure comes once")
    return command


def _read_commands(commands: Commands) -> None:
    decoder = FrameDecoder()
    try:
        while data := os.read(0, 1 << 16):
            for body in decoder.feed(data):
                commands.put(decode_command(body))
    except Exception:
        _logger.exception("a command cannot be read")
        raise
    finally:
        os._exit(0)  # the gateway is gone; nothing of ours is worth saving, and a step may be running


def _load(
    library: Library, configure: Configure, header: ModelHeader, send: Callable[[list[Report]], None]
) -> tuple[WorkerLoop, Ready]:
    """On the device that is asked for; on the CPU where that cannot open the model."""
    device = library.first_gpu() or "CPU" if configure.device == "AUTO" else configure.device
    try:
        return _load_on(library, device, configure, header, send)
    except PipelineError as error:
        if device == "CPU":
            raise
        note = f"{device} cannot run this model ({error}); the CPU does"
        _logger.warning("%s", note)
    return _load_on(library, "CPU", configure, replace(header, notes=(*header.notes, note)), send)


def _load_on(
    library: Library, device: str, configure: Configure, header: ModelHeader, send: Callable[[list[Report]], None]
) -> tuple[WorkerLoop, Ready]:
    block_tokens, block_bytes = library.block_tokens(device), library.block_bytes(header, device)
    pool_blocks = configure.cache_bytes // block_bytes
    if pool_blocks < 8:
        raise ModelFileError(
            f"cache_bytes {configure.cache_bytes} holds {pool_blocks} blocks of {block_tokens} tokens; give at least "
            f"{64 * block_bytes}"
        )
    pipeline_config = PipelineConfig(
        model=configure.model,
        pool_blocks=pool_blocks,
        chunk_tokens=configure.chunk_tokens,
        max_sequences=configure.max_sequences,
        threads=configure.threads if configure.threads is not None else _half_the_cores(),
        device=device,
        prompt_lookup_tokens=configure.prompt_lookup_tokens,
        prepared_dir=None if configure.prepared_dir is None else Path(configure.prepared_dir),
    )

    def open_pipeline() -> Pipeline:
        pipeline = library.open(pipeline_config)
        _run_in(pipeline, header, configure.chunk_tokens)
        pipeline.settle()
        give_back()
        return pipeline

    limits = StepLimits(
        chunk_tokens=configure.chunk_tokens,
        max_sequences=configure.max_sequences,
        reserved_sequences=min(2, configure.max_sequences - 1),
        pool_blocks=pool_blocks,
        max_overtakes=configure.max_overtakes,
        head_start_tokens=configure.head_start_tokens,
    )
    # a quarter less than there is: what the shadow promises must still be there
    shadow = ShadowPrefixCache(max(pool_blocks * 3 // 4, 1), block_tokens)
    loop = WorkerLoop(open_pipeline, limits, shadow, send, time.monotonic)
    ready = Ready(
        model=header.name,
        context_limit_tokens=header.context_limit_tokens,
        vocabulary_tokens=header.vocabulary_tokens,
        block_tokens=block_tokens,
        pool_blocks=pool_blocks,
        notes=list(header.notes),
    )
    return loop, ready


def _run_in(pipeline: Pipeline, header: ModelHeader, chunk_tokens: int) -> None:
    """Compute something, so that the first request does not pay for kernels being chosen."""
    length = min(chunk_tokens + 16, header.context_limit_tokens - 4)
    ids = [token % header.vocabulary_tokens for token in range(length)]
    pipeline.add(Submit(id=-1, token_ids=ids, max_tokens=3, end_token_ids=[]))
    while True:
        reads, _ = pipeline.step()
        if -1 in reads and reads[-1].done:
            return


def _half_the_cores() -> int:
    """Threads by default.

    The editor, its servers and the gateway run on the same machine, and a thread that waits for its core stops all others: on
    two busy cores one thread was faster than two (cold prompt of 2,000 tokens 320 ms against 396, warm 10 ms for both).
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, cores // 2)


def _be_nice(nice: int) -> None:
    if nice and sys.platform != "win32":
        os.nice(nice)


if __name__ == "__main__":
    main()
