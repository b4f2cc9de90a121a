"""Next edits on the embedded engine: a real process and a real file with random weights. What it says is junk, and is dropped."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from backend.test_next_edits import answered, asked, question
from backend.tiny_gguf import write_tiny_gguf
from backend.world import World, gateway, profile, until
from foretype_backend.config.settings import ModelConfig
from foretype_backend.engines.embedded.engine import EmbeddedEngine
from foretype_context.edit_models.answer import Nothing
from foretype_context.edit_models.format import edit_format
from foretype_context.edit_models.prompt import EditPrompts
from foretype_context.edit_models.question import RecentEdit
from foretype_context.grammars.grammar import GRAMMARS
from foretype_context.tokens.tokenizer import tokenizer_from_bytes
from foretype_models.gguf_tokenizer import tokenizer_of
from foretype_wire.messages import Cancel, Done, Finish

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORMATS = {"sweep-next-edit": "qwen2.5-coder", "zeta-2.1": "seed-coder"}
"""And the grammar of the base model."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=sorted(FORMATS))
async def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    format, grammar = str(request.param), FORMATS[str(request.param)]
    one = edit_format(format)
    # What ends a text comes first: the engine of the tests takes token 0 for it.
    controls = [
        one.end_tokens[0],
        *sorted({*one.controls(), *one.end_tokens, *GRAMMARS[grammar].controls()} - {one.end_tokens[0]}),
    ]
    path = write_tiny_gguf(
        tmp_path_factory.mktemp("model") / "tiny.gguf",
        controls=controls,
        pretokenizer="qwen2" if grammar == "qwen2.5-coder" else "seed-coder",
    )
    tokenizer = tokenizer_from_bytes(tokenizer_of(path))
    told = profile(grammar=grammar, layout=GRAMMARS[grammar].layouts[0], context_limit_tokens=4096)
    section: dict[str, Any] = {"model": ModelConfig(next_edit=format)}
    engine = EmbeddedEngine.from_config(model=path, threads=1, prompt_lookup_tokens=4 * (format == "zeta-2.1"))
    async with gateway(engine, tokenizer=tokenizer, with_profile=told, sections=section) as world:
        yield world


async def test_the_engine_computes_the_prompt_id_for_id_and_its_junk_is_dropped(world: World) -> None:
    format = world.config.model.next_edit
    assert format is not None
    edits = [RecentEdit(path="a.py", old="def total(items):\n", new="def total(basket):\n")]
    prompts = EditPrompts(world.service.tokenizer, edit_format(format))
    wanted = prompts.encode(question(edits=edits), most_tokens=4096)
    async with world.peer() as peer:
        for turn in range(2):
            await peer.send(asked(f"n{turn}", question=question(edits=edits), deadline_ms=60_000.0))
            edited, end = await answered(peer, f"n{turn}")
            assert edited is not None and edited.edit is None and edited.reason in set(Nothing)
            assert isinstance(end, Done) and end.finish in (Finish.LENGTH, Finish.END_OF_MIDDLE, Finish.STOP)
            assert end.usage.prompt_tokens == len(wanted.ids)
            assert 0 < end.usage.generated_tokens <= wanted.answer_tokens
        assert end.usage.cached_tokens > len(wanted.ids) // 2, "the same prompt again is cached"
    await world.idle()


async def test_a_cancel_frees_the_slot_of_the_engine(world: World) -> None:
    async with world.peer() as peer:
        await peer.send(asked("c1", deadline_ms=60_000.0))
        await until(lambda: world.engine.statistics().running > 0 or world.service.statistics() == (0, 0, 0))
        await peer.send(Cancel(id="c1"))
        _, end = await answered(peer, "c1")
        assert isinstance(end, Done) and end.finish is Finish.CANCELLED
        await world.idle()
        await peer.send(asked("c2", deadline_ms=60_000.0))
        _, end = await answered(peer, "c2")
        assert isinstance(end, Done) and end.finish is not Finish.CANCELLED
