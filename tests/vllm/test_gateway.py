"""`foretype serve --engine vllm`: a gateway that completes for a client, and starts that end in a sentence."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from asking import ABOVE, answer_of, connected, question
from foretype_client.session.session import Session
from foretype_context.edit_models.format import edit_format
from foretype_context.edit_models.prompt import EditPrompts
from foretype_context.edit_models.question import question_at, recent_edit
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models.artifacts import available, locate
from foretype_wire.messages import Done, NextEdit
from vllm_world.guard import Guard

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_S = 600.0  # a machine that does other work as well; a quiet one takes 20


async def serve(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "foretype_backend", "serve", "--engine", "vllm", "--port", "0", "--no-telemetry"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    profile = tmp_path_factory.mktemp("profile") / "cpu.toml"
    profile.write_text(
        f'[engine]\nname = "vllm"\nmodel = "{model_folder}"\n[engine.options]\neager = true\ncache_gib = 1.0\n'
        '[engine.options.speculation]\nmethod = "ngram"\ntokens = 8\nlookup_min = 2\nlookup_max = 4\n'
        '[model]\nnext_edit = "sweep-next-edit"\n'
    )
    process = await serve("--profile", str(profile))
    assert process.stdout is not None and process.stderr is not None
    drained, guard = asyncio.create_task(process.stderr.read()), Guard(process.pid)
    async with asyncio.timeout(START_S):
        while not (line := (await process.stdout.readline()).decode()).startswith("ready"):
            assert line, (await drained).decode()[-2000:]
    yield line.split()[1]
    process.terminate()
    async with asyncio.timeout(300):
        await process.wait()
        await drained
    guard.close()


async def complete(session: Session, name: str) -> tuple[str, Done]:
    typed = "def function_40(value):\n    return "
    return await answer_of(session, question(name, typed, max_tokens=12, deadline_ms=30_000.0))


async def test_a_client_gets_text_and_the_second_time_out_of_the_cache(url: str, tmp_path: Path) -> None:
    async with connected(url, client_name="test", cache_dir=tmp_path) as session:
        profile = session.profile
        assert profile is not None
        assert profile.grammar == available()[0].grammar and profile.block_tokens == 32
        first, done = await complete(session, "one")
        assert done.usage.cached_tokens == 0 and done.usage.generated_tokens > 0
        again, warm = await complete(session, "two")
        assert again == first
        assert warm.usage.prompt_tokens - 32 <= warm.usage.cached_tokens < warm.usage.prompt_tokens


async def test_a_next_edit_is_asked_with_the_ids_of_its_format_and_a_cancel_frees_the_slot(
    url: str, tmp_path: Path
) -> None:
    """The shipped model was never trained on next edits: what it says may be dropped, what it is asked is exact."""
    async with connected(url, client_name="test", cache_dir=tmp_path) as session:
        profile = session.profile
        assert profile is not None
        assert profile.next_edit is not None and profile.next_edit.format == "sweep-next-edit"
        edit = recent_edit("a.py", ABOVE, 0, 3, "async def", around_lines=1)
        assert edit is not None
        asked_of = question_at("async " + ABOVE, 40, profile.next_edit, path="a.py", edits=[edit])
        assert asked_of is not None
        prompts = EditPrompts(load_tokenizer(locate().tokenizer_path), edit_format("sweep-next-edit"))
        wanted = prompts.encode(asked_of, most_tokens=profile.context_limit_tokens)
        before = 0
        for turn in range(2):
            asked = NextEdit(id=f"n{turn}", document="file:///w/a.py", question=asked_of, deadline_ms=60_000.0)
            found = await session.next_edit(asked)
            assert found.done.usage.prompt_tokens == len(wanted.ids)
            assert found.done.usage.generated_tokens <= wanted.answer_tokens
            assert (found.edit is None) is (found.reason != "")
            if found.edit is not None:
                assert 0 <= found.edit.start <= found.edit.end <= len(asked_of.window) and "<|" not in found.edit.text
            before = found.done.usage.cached_tokens
        assert before >= len(wanted.ids) - 64, "the same prompt again is cached"
        asking = asyncio.create_task(session.next_edit(NextEdit(id="c", question=asked_of, deadline_ms=60_000.0)))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        _, done = await complete(session, "after")
        assert done.usage.generated_tokens > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("context_tokens = 100000", "made for 8192"),
        ("nonsense = 1", "no option 'nonsense'"),
        ("cache_gib = 0.001", "too small for one prompt"),
        ('speculation = { method = "draft_model", model = "/nowhere" }', "speculation.model"),
        ("cache_gib = 100000.0", "do not fit"),
        ('eager = true\ndtype = "float7"', "vLLM did not start"),
    ],
)
async def test_a_profile_that_cannot_work_ends_with_the_reason(
    model_folder: Path, tmp_path: Path, options: str, message: str
) -> None:
    profile = tmp_path / "bad.toml"
    profile.write_text(f'[engine]\nmodel = "{model_folder}"\n[engine.options]\n{options}\n')
    process = await serve("--profile", str(profile))
    async with asyncio.timeout(START_S):
        _, errors = await process.communicate()
    assert process.returncode == 2
    [said] = [line for line in errors.decode().splitlines() if line.startswith("foretype serve: ")]
    assert message in said
