"""The embedded engine through its port: a real process, a real model file with random weights."""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import openvino
import psutil
import pytest
import pytest_asyncio
from backend.tiny_gguf import as_byte_level, byte_level_tokens, write_tiny_gguf
from backend.world import closing, until
from foretype_backend.engines.by_name import load_engine
from foretype_backend.engines.embedded.config import EmbeddedConfig
from foretype_backend.engines.embedded.engine import EmbeddedEngine
from foretype_backend.engines.embedded.ipc import Ready
from foretype_backend.engines.embedded.libraries import LIBRARIES
from foretype_backend.engines.embedded.process import EngineProcess
from foretype_backend.engines.port import Chunk, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.errors import EngineUnavailableError, UnknownEngineError

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [4 + i * 7 % 500 for i in range(100)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model: Path, library: str) -> AsyncIterator[EmbeddedEngine]:
    async with started(model=model, threads=1, library=library) as engine:
        yield engine


@contextlib.asynccontextmanager
async def started(**options: Any) -> AsyncGenerator[EmbeddedEngine]:
    engine = EmbeddedEngine.from_config(**options)
    await engine.start()
    async with closing(engine):
        yield engine


async def collect(
    engine: EmbeddedEngine, request_id: str, ids: list[int], max_tokens: int = 8, **kw: object
) -> list[Chunk]:
    ends = frozenset(kw.pop("ends", ()))  # pyright: ignore[reportArgumentType]
    chosen = {name: kw.pop(name) for name in ("temperature", "begins") if name in kw}
    params = GenerationParams(max_tokens=max_tokens, end_token_ids=ends, **chosen)  # pyright: ignore[reportArgumentType]
    return [c async for c in engine.generate(GenerationRequest(request_id, ids, params, **kw))]  # pyright: ignore[reportArgumentType]


def ids_of(chunks: list[Chunk]) -> list[int]:
    return [i for c in chunks for i in c.token_ids]


async def idle(engine: EmbeddedEngine) -> None:
    await until(lambda: engine.statistics()[:2] == (0, 0))


def bad_file(model: Path, path: Path, damage: str) -> None:
    match damage:
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "text":
            path.write_text("hello")
        case "header cut off":
            path.write_bytes(model.read_bytes()[:2000])
        case "truncated":
            path.write_bytes(model.read_bytes()[:-100])
        case "tensor missing":
            write_tiny_gguf(path, without="blk.1.attn_q.weight")
        case "architecture":
            write_tiny_gguf(path, architecture="starcoder2")
        case "quantisation":
            write_tiny_gguf(path, quantisation=gguf.GGMLQuantizationType.Q5_0, file_type=gguf.LlamaFileType.MOSTLY_Q5_0)
        case _:
            pass


async def test_greedy_output_is_repeatable_and_has_one_logprob_for_each_token(engine: EmbeddedEngine) -> None:
    first, second = [await collect(engine, f"repeat{i}", PROMPT) for i in range(2)]
    assert len(ids_of(first)) == 8
    assert ids_of(first) == ids_of(second)
    assert first[-1].finish is EngineFinish.LENGTH
    logprobs = [p for c in first for p in c.logprobs]
    assert len(logprobs) == 8
    assert all(p < 0.0 for p in logprobs), "zeros mean that the engine was not asked for them"


TEXTS = byte_level_tokens(512)[0]


@pytest.mark.parametrize("begins", ["a", " x", "_q(*", 'é"', "日本", "\\d{2}$"])
async def test_an_answer_begins_as_it_must(engine: EmbeddedEngine, begins: str) -> None:
    """A prompt that was healed leaves out what the user typed; random weights would hardly say it by themselves."""
    chunks = await collect(engine, f"begins-{begins}", PROMPT, 16, begins=begins)
    text = "".join(TEXTS[token_id] for token_id in ids_of(chunks))
    assert text.startswith(as_byte_level(begins))
    free = await collect(engine, f"free-{begins}", PROMPT, 16)
    assert ids_of(free) != ids_of(chunks)


@pytest.mark.parametrize("begins", ["\n", "\n\n", "\r\n"])
async def test_a_line_break_that_was_left_out_comes_first(engine: EmbeddedEngine, begins: str) -> None:
    chunks = await collect(engine, f"break-{begins}", PROMPT, 16, begins=begins)
    text = "".join(TEXTS[token_id] for token_id in ids_of(chunks))
    assert text.startswith((as_byte_level("\n"), as_byte_level("\r\n")))


async def test_how_sure_the_model_was_of_its_end_is_told(engine: EmbeddedEngine) -> None:
    first = ids_of(await collect(engine, "surely", PROMPT, 4))
    chunks = await collect(engine, "ends-there", PROMPT, 4, ends=(first[2],))
    assert ids_of(chunks) == first[: first.index(first[2])]
    assert chunks[-1].finish is EngineFinish.END_TOKEN and chunks[-1].end_logprob is not None
    assert -100 < chunks[-1].end_logprob < 0
    assert (await collect(engine, "no-end", PROMPT, 4))[-1].end_logprob is None


async def test_the_first_chunk_alone_tells_cached_tokens_and_timings(engine: EmbeddedEngine) -> None:
    await collect(engine, "figures0", PROMPT)
    chunks = await collect(engine, "figures1", PROMPT)
    assert chunks[0].cached_tokens == 96
    assert chunks[0].queue_ms is not None
    assert chunks[0].prefill_ms is not None
    assert all(c.cached_tokens is None and c.prefill_ms is None for c in chunks[1:])


async def test_sampling_differs_between_requests_and_keeps_logprobs(engine: EmbeddedEngine) -> None:
    runs = [await collect(engine, f"sample{i}", PROMPT, temperature=1.5) for i in range(4)]
    assert len({tuple(ids_of(r)) for r in runs}) > 1
    assert all(p < 0.0 for r in runs for c in r for p in c.logprobs)


async def test_a_live_request_id_cannot_be_used_twice(engine: EmbeddedEngine) -> None:
    stream = engine.generate(GenerationRequest("twice", PROMPT, GenerationParams(max_tokens=2000)))
    await anext(stream)
    with pytest.raises(ValueError, match="twice"):
        await collect(engine, "twice", PROMPT)
    await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]


async def test_many_requests_at_once_each_get_their_own_answer(engine: EmbeddedEngine) -> None:
    prompts = [[*PROMPT[: 10 + 5 * i], 5 + i] for i in range(12)]
    alone = [ids_of(await collect(engine, f"alone{i}", p)) for i, p in enumerate(prompts)]
    together = await asyncio.gather(
        *(collect(engine, f"together{i}", p, priority=i % 4) for i, p in enumerate(prompts))
    )
    assert [len(ids_of(c)) for c in together] == [8] * 12
    # batching changes rounding, and so, with random weights, now and then a token
    assert sum(ids_of(c) == a for c, a in zip(together, alone, strict=True)) >= 9


async def test_warm_makes_a_prefix_cached(engine: EmbeddedEngine) -> None:
    prompt = [500 - i % 490 for i in range(200)]
    await idle(engine)
    await engine.warm(prompt)
    assert (await collect(engine, "warmed", [*prompt, 7]))[0].cached_tokens == 192


async def test_warm_is_dropped_while_a_request_runs(engine: EmbeddedEngine) -> None:
    stream = engine.generate(GenerationRequest("busy", PROMPT, GenerationParams(max_tokens=2000)))
    await anext(stream)
    dropped = engine.load().dropped_warm
    await engine.warm(list(range(300)))
    await until(lambda: engine.load().dropped_warm > dropped)
    await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]


async def test_generation_ends_with_the_context(engine: EmbeddedEngine) -> None:
    chunks = await collect(engine, "brim", [5] * 4094, max_tokens=10)
    assert len(ids_of(chunks)) == 2
    assert chunks[-1].finish is EngineFinish.LENGTH


async def test_capabilities_say_what_is_missing(engine: EmbeddedEngine) -> None:
    capabilities = engine.capabilities()
    assert not capabilities.salt
    assert (capabilities.context_limit_tokens, capabilities.block_tokens, capabilities.model) == (4096, 32, "tiny")


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_a_stop_of_the_whole_service_leaves_what_runs_to_the_gateway(model: Path, stop: signal.Signals) -> None:
    async with started(model=model, threads=1) as engine:
        assert engine.process_id is not None
        os.kill(engine.process_id, stop)
        assert len(ids_of(await collect(engine, "drains", PROMPT))) == 8
        assert engine.statistics().restarts == 0


async def test_a_process_that_was_begun_before_its_model_was_known_is_the_one_that_serves(model: Path) -> None:
    begun = await EngineProcess.begin()
    engine = EmbeddedEngine.from_config(model=model, threads=1)
    engine.use(begun)
    await engine.start()
    async with closing(engine):
        stream = engine.generate(GenerationRequest("k", PROMPT, GenerationParams(max_tokens=3000)))
        await anext(stream)
        os.kill(begun.pid, signal.SIGKILL)
        with pytest.raises(EngineUnavailableError):
            async for _ in stream:
                pass
    assert not psutil.pid_exists(begun.pid)


async def test_a_process_that_was_begun_for_nothing_is_gone_when_its_engine_is_closed(model: Path) -> None:
    begun = await EngineProcess.begin()
    engine = EmbeddedEngine.from_config(model=model, threads=1)
    engine.use(begun)
    await engine.close()
    assert not psutil.pid_exists(begun.pid)
    await begun.close()  # whoever began it closes it, too


async def test_a_process_that_hangs_is_ended_whoever_stops_to_wait_for_its_end(model: Path) -> None:
    begun = await EngineProcess.begin()
    process = psutil.Process(begun.pid)
    process.suspend()
    config = EmbeddedEngine.from_config(model=model)._config  # pyright: ignore[reportPrivateUsage]
    opening = asyncio.create_task(EngineProcess.open(config, begun))
    try:
        for _ in range(2):  # the start is given up, and then its end
            await asyncio.sleep(0)
            opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        assert not (await asyncio.to_thread(psutil.wait_procs, [process], timeout=60))[1]
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


async def test_a_process_that_nobody_asks_ends_and_the_next_request_starts_another(model: Path) -> None:
    engine = EmbeddedEngine.from_config(
        model=model, threads=1, restart_wait_s=60.0, hang_s=0.1, healthy_after_s=0.0, rest_after_s=0.5
    )
    await engine.start()
    for name in ("first", "second"):
        before = engine.process_id
        assert before is not None and len(ids_of(await collect(engine, name, PROMPT))) == 8
        await until(lambda before=before: engine.process_id is None and not psutil.pid_exists(before))
        await engine.ready()  # it serves: a request is all that it waits for
        assert engine.statistics().restarts == 0 and engine.capabilities().token_ids
        warming = asyncio.ensure_future(engine.warm(PROMPT))
        while not warming.done():
            await engine.ready()  # on its way back, too
            await asyncio.sleep(0.01)
        assert engine.process_id not in (None, before)
    await engine.close()


async def test_a_rest_that_the_machine_does_not_let_end_is_told_and_ended_later(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EmbeddedEngine.from_config(
        model=model, threads=1, restart_wait_s=60.0, hang_s=0.1, healthy_after_s=0.0, rest_after_s=0.3
    )
    await engine.start()
    opened, tried = EngineProcess.open, 0

    async def open_(config: EmbeddedConfig, begun: EngineProcess | None = None) -> tuple[EngineProcess, Ready]:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise OSError(errno.EMFILE, "too many open files")
        with pytest.raises(EngineUnavailableError, match="too many open files"):
            await engine.ready()
        return await opened(config, begun)

    monkeypatch.setattr(EngineProcess, "open", open_)
    await until(lambda: engine.process_id is None)
    await engine.ready()
    assert len(ids_of(await collect(engine, "after", PROMPT))) == 8 and tried == 2
    await engine.close()
    with pytest.raises(EngineUnavailableError, match="closed"):
        await engine.ready()


async def test_a_process_that_has_to_wait_for_its_requests_does_not_rest(model: Path) -> None:
    engine = EmbeddedEngine.from_config(model=model, threads=1, hang_s=5.0, rest_after_s=0.001)
    await engine.start()
    before = engine.process_id
    stream = engine.generate(GenerationRequest("long", PROMPT, GenerationParams(max_tokens=300)))
    assert sum([len(chunk.token_ids) async for chunk in stream]) > 0 and engine.process_id == before
    await engine.close()


@pytest.mark.slow
async def test_a_process_that_hangs_is_ended_and_started_again(model: Path) -> None:
    engine = EmbeddedEngine.from_config(model=model, threads=1, restart_wait_s=60.0)
    patient = engine._config  # pyright: ignore[reportPrivateUsage]
    await engine.start()
    stream = engine.generate(GenerationRequest("hangs", PROMPT, GenerationParams(max_tokens=3000)))
    await anext(stream)
    assert engine.process_id is not None
    process = psutil.Process(engine.process_id)
    engine._config = replace(patient, hang_s=0.5)  # not before: a busy machine is as silent
    with pytest.raises(EngineUnavailableError, match="said nothing"):
        async for _ in stream:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
    engine._config = patient
    assert len(ids_of(await collect(engine, "after", PROMPT))) == 8
    await engine.close()


@pytest.mark.slow
async def test_a_model_that_vanished_fails_requests_with_the_reason_until_it_is_back(
    model: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(model, tmp_path / "copy.gguf"))
    async with started(model=copy, threads=1, restart_wait_s=0.2, restart_most_s=0.2) as engine:
        await engine.ready()
        shutil.move(copy, tmp_path / "away.gguf")
        assert engine.process_id is not None
        os.kill(engine.process_id, signal.SIGKILL)
        while "no such file" not in (reason := await why_not_ready(engine)):
            assert not reason or "started again" in reason
            await asyncio.sleep(0.005)
        with pytest.raises(EngineUnavailableError, match="no such file"):
            await collect(engine, "without", PROMPT)
        shutil.move(tmp_path / "away.gguf", copy)
        await until(lambda: engine.process_id is not None)
        await engine.ready()
        assert len(ids_of(await collect(engine, "with", PROMPT))) == 8


async def why_not_ready(engine: EmbeddedEngine) -> str:
    """Empty where it is ready."""
    try:
        await engine.ready()
    except EngineUnavailableError as error:
        return str(error)
    return ""


@pytest.mark.slow
async def test_until_it_is_started_again_the_reason_is_what_ended_it_and_not_what_was_before(
    model: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(model, tmp_path / "copy.gguf"))
    wait_s = 600.0  # nobody waits for it: the engine stays between its death and its restart
    engine = EmbeddedEngine.from_config(
        model=copy, threads=1, restart_wait_s=0.01, restart_first_s=wait_s, restart_most_s=wait_s
    )
    assert await why_not_ready(engine) == "the engine is not started; call start() first"
    shutil.move(copy, tmp_path / "away.gguf")
    with pytest.raises(EngineUnavailableError, match="no such file"):
        await engine.start()
    assert "no such file" in await why_not_ready(engine)
    shutil.move(tmp_path / "away.gguf", copy)
    await engine.start()
    assert engine.process_id is not None
    os.kill(engine.process_id, signal.SIGKILL)
    await until(lambda: engine.process_id is None)
    with pytest.raises(EngineUnavailableError, match=r"ended by SIGKILL.*; it is started again, retry"):
        await collect(engine, "between", PROMPT)
    await engine.close()
    assert await why_not_ready(engine) == "the engine was closed"


async def test_the_process_ends_when_the_gateway_is_killed(model: Path) -> None:
    script = f"""
import asyncio
from foretype_backend.engines.by_name import load_engine
async def main():
    engine = load_engine("embedded", model={str(model)!r}, threads=1)
    await engine.start()
    print(engine.process_id, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    gateway = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert gateway.stdout is not None
    engine_process = psutil.Process(int(await gateway.stdout.readline()))
    gateway.kill()
    await gateway.wait()
    await asyncio.to_thread(psutil.wait_procs, [engine_process], timeout=60)
    assert not engine_process.is_running() or engine_process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("missing", "no such file"),
        ("folder", "is a folder"),
        ("empty", "is empty"),
        ("text", "not a GGUF file"),
        ("header cut off", "cut off or damaged"),
        ("truncated", "truncated"),
        ("architecture", "architecture 'starcoder2' does not open"),
        ("tensor missing", "the engine cannot open it"),
        ("quantisation", "Q5_0 would be read as another model or not at all"),
    ],
)
async def test_start_names_file_reason_and_remedy_for(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str, message: str
) -> None:
    path = tmp_path / "bad.gguf"
    bad_file(model, path, damage)
    engine = EmbeddedEngine.from_config(model=path)
    with caplog.at_level("INFO", "foretype.engine"), pytest.raises(EngineUnavailableError, match=message) as caught:
        await engine.start()
    assert ("unordered_map" in caplog.text) == (damage == "tensor missing"), (
        "the engine's own words belong into the log"
    )
    assert "bad.gguf" in str(caught.value)
    assert ";" in str(caught.value), "no remedy"
    await engine.close()


@pytest.fixture
def read_only(model: Path, tmp_path: Path) -> Generator[Path]:
    """The model on a file system that nobody can write to."""
    folder = tmp_path / "disk"
    folder.mkdir()
    shutil.copy(model, folder)
    if os.geteuid():
        pytest.skip("a read-only disk needs root, to mount it")
    mounted = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a read-only disk cannot be mounted: {mounted.stderr.strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield folder / model.name
    finally:
        subprocess.run(["umount", folder], check=True)


async def test_a_file_that_nobody_can_write_is_served_and_no_copy_stays(
    read_only: Path, tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    engine = EmbeddedEngine.from_config(model=read_only, threads=1, library=library)
    await engine.start()
    assert ids_of(await collect(engine, "one", PROMPT, 1))
    await engine.close()
    assert list(room.iterdir()) == []


async def test_the_process_imports_nothing_from_the_folder_it_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    engine = EmbeddedEngine.from_config(model=tmp_path / "missing.gguf")
    with pytest.raises(EngineUnavailableError):
        await engine.start()
    assert not (tmp_path / "ran").exists()


async def test_a_device_that_cannot_run_the_model_leaves_it_to_the_cpu_and_says_so(
    model: Path, engine: EmbeddedEngine, library: str
) -> None:
    """GPU.9 is on no machine; what is tried is the way back, not a GPU."""
    async with started(model=model, threads=1, device="GPU.9", library=library) as other:
        assert any(
            "GPU.9 cannot run this model" in note and "the CPU does" in note for note in other.capabilities().notes
        )
        assert other.capabilities().block_tokens == engine.capabilities().block_tokens
        assert ids_of(await collect(other, "a", PROMPT)) == ids_of(await collect(engine, "device", PROMPT))


async def test_a_device_that_is_left_open_is_the_cpu_where_there_is_no_other(
    model: Path, engine: EmbeddedEngine, library: str
) -> None:
    """Where OpenVINO names a GPU that would answer, in figures of its own."""
    devices = str(openvino.Core().available_devices)
    if "GPU" in devices:
        pytest.skip(f"OpenVINO computes with {devices} here")
    async with started(model=model, threads=1, device="AUTO", library=library) as other:
        assert not [note for note in other.capabilities().notes if "the CPU does" in note]
        assert ids_of(await collect(other, "a", PROMPT)) == ids_of(await collect(engine, "auto", PROMPT))


async def test_options_that_do_not_exist_or_cannot_be_are_named() -> None:
    with pytest.raises(TypeError, match="model"):
        load_engine("embedded")
    with pytest.raises(TypeError, match="modle"):
        load_engine("embedded", modle="x")
    with pytest.raises(ValueError, match="chunk_tokens"):
        load_engine("embedded", model="x.gguf", chunk_tokens=1)
    with pytest.raises(ValueError, match=r"device is 'NPU'; it is AUTO, CPU, GPU, or GPU\.1"):
        load_engine("embedded", model="x.gguf", device="NPU")
    with pytest.raises(ValueError, match=r"library is 'lama'; it is openvino or llama\.cpp"):
        load_engine("embedded", model="x.gguf", library="lama")
    with pytest.raises(UnknownEngineError, match="embedded"):
        load_engine("lama")


async def test_a_cancel_waits_for_a_prefill_of_128_tokens_at_most_unless_configured_otherwise() -> None:
    assert EmbeddedConfig.of(model="m.gguf").chunk_tokens == 128
    assert EmbeddedConfig.of(model="m.gguf", chunk_tokens=64).chunk_tokens == 64
