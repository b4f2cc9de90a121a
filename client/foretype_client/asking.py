"""One completion from beginning to end, without the waiting and guessing that an editor needs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

import msgspec
from foretype_context.finish.post_processing import DOES_NOT_CONTINUE, Finished, finish
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.healing import strip_healed
from foretype_context.prompt.plan import Plan, PlanState
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Snapshot
from foretype_wire.messages import DEADLINE_MS, Done, RequestClass

from foretype_client.flow.planning import call_of
from foretype_client.session.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCompletion:
    """What came back.

    Attributes:
        text: to insert at the cursor.
        replaces: characters right of the cursor that it replaces.
        reason: why `text` is empty, where post-processing left nothing.
        raw: what the model wrote.
        timings_ms: the stages of `wire.Timings`, and `ttft`: request sent to first text, null if none came.
    """

    request_id: str
    text: str
    replaces: int
    reason: str | None
    raw: str
    done: Done
    timings_ms: dict[str, float | None]


def plan_at(
    assembler: Assembler, snapshot: Snapshot, offset: int, snippets: Sequence[Snippet] = ()
) -> tuple[Plan, float]:
    """The prompt for a place that nothing was asked about before, and the milliseconds that took.

    Planned twice: an editor's caches were filled long before, and in a cold process the time budget would drop what its
    user's prompts hold.
    """
    assembler.plan(PlanState.empty(), snapshot, offset, snippets=snippets, now=0.0)
    started = time.perf_counter()
    plan, _ = assembler.plan(PlanState.empty(), snapshot, offset, snippets=snippets, now=0.0)
    return plan, (time.perf_counter() - started) * 1e3


async def ask(
    session: Session,
    plan: Plan,
    snapshot: Snapshot,
    offset: int,
    *,
    assemble_ms: float = 0.0,
    on_text: Callable[[str], None] | None = None,
    class_: RequestClass = RequestClass.INTERACTIVE,
    max_tokens: int | None = None,
    deadline_ms: float = DEADLINE_MS,
) -> FinishedCompletion:
    """Ask for `plan` and wait for the end.

    Args:
        on_text: called with the suggestion so far, each time it grew.
        max_tokens: in place of the plan's.
        deadline_ms: after which an answer is worth nothing; a gateway refuses what it expects to take longer.

    Raises:
        RequestRefusedError, GatewayGoneError: there is no answer.
    """
    call = call_of(
        plan, snapshot, id=secrets.token_hex(8), class_=class_, max_tokens=max_tokens, deadline_ms=deadline_ms
    )
    started = time.perf_counter()
    ttft_ms: float | None = None
    written = ""
    done: Done | None = None
    stream = session.complete(call)
    try:
        async for item in stream:
            if isinstance(item, Done):
                done = item
                continue
            if ttft_ms is None:
                ttft_ms = (time.perf_counter() - started) * 1e3
            written += item.text
            if on_text is not None:
                on_text(_finished(written, plan, snapshot, offset, final=False).text)
    except asyncio.CancelledError:
        stream.cancel()  # nobody waits for it any more: the engine stops at once
        raise
    if done is None:
        raise RuntimeError("a completion stream ended without its end")
    finished = _finished(written, plan, snapshot, offset, final=done.finish.is_whole)
    timings_ms: dict[str, float | None] = dict(msgspec.structs.asdict(done.timings_ms))
    timings_ms |= {"assemble": assemble_ms, "ttft": ttft_ms}
    return FinishedCompletion(
        request_id=call.id,
        text=finished.text,
        replaces=finished.replaces,
        reason=finished.reason,
        raw=written,
        done=done,
        timings_ms={name: None if value is None else round(value, 3) for name, value in timings_ms.items()},
    )


async def stream(
    session: Session, plan: Plan, snapshot: Snapshot, offset: int, *, max_tokens: int | None = None
) -> AsyncGenerator[str]:
    """The suggestion so far, each time it became another; closing the iterator stops the engine. Raises as :func:`ask`."""
    grown: asyncio.Queue[str | None] = asyncio.Queue()
    asking = asyncio.ensure_future(
        ask(session, plan, snapshot, offset, on_text=grown.put_nowait, max_tokens=max_tokens)
    )
    asking.add_done_callback(lambda _: grown.put_nowait(None))
    said = ""
    try:
        while (text := await grown.get()) is not None:
            if text != said:
                said = text
                yield text
        if (text := (await asking).text) != said:
            yield text
    finally:
        asking.cancel()
        await asyncio.wait([asking])


def _finished(written: str, plan: Plan, snapshot: Snapshot, offset: int, *, final: bool) -> Finished:
    text = strip_healed(written, plan.healed)
    if text is None:
        return DOES_NOT_CONTINUE
    return finish(text, snapshot, offset, kind=plan.kind_of(text), final=final)
