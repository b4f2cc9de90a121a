import asyncio

import msgspec
import pytest
from backend.world import TOKENIZER
from foretype_backend.admission.limits import Reservation
from foretype_backend.admission.outcomes import CODES, FINISHES, HTTP_STATUS, Reason
from foretype_backend.doors.readiness import UnreadyReason
from foretype_backend.engines.port import Chunk, EngineFinish
from foretype_backend.errors import FAULT_MESSAGES, Fault
from foretype_backend.serving.completion import AdmittedRequest, Asked, Claim, Record
from foretype_backend.serving.output_text import OutputText
from foretype_backend.serving.render import Prompt
from foretype_context.prompt.profile import Stop
from foretype_wire.messages import ErrorCode
from hypothesis import given
from hypothesis import strategies as st


def record(received: float = 0.0, arrived: float = 0.0) -> Record:
    job = AdmittedRequest(
        key="k", session="s", prompt=Prompt(ids=[1, 2], text="x"), received=received, deadline=9.0, max_tokens=4
    )
    loop = asyncio.new_event_loop()
    decision: asyncio.Future[Reason | None] = loop.create_future()
    loop.close()
    return Record(job=job, output=OutputText(TOKENIZER, Stop()), arrived=arrived, decision=decision)


@pytest.mark.parametrize(("wanted", "generated"), [(4, 4), (100, 8), (0, 1)])
def test_a_request_keeps_to_its_context_and_takes_its_claim_over(wanted: int, generated: int) -> None:
    reserved, settled = Reservation(1, 9, ()), list[Reservation]()
    asked = Asked(key="k", session="s", received=1.0, deadline=9.0, document="a.py", language="python")
    with Claim(reserved, 2, lambda one, _: settled.append(one)) as claim:
        job = AdmittedRequest.of(
            asked, Prompt(ids=[1, 2], text="x"), claim, max_tokens=wanted, context_tokens=10, stop=Stop(strings=["\n"])
        )
    assert (job.max_tokens, job.reservation, settled) == (generated, reserved, [])
    assert (job.key, job.deadline, job.origin.document, job.origin.language) == ("k", 9.0, "a.py", "python")
    assert job.stop.strings == ["\n"]


STEPS = st.lists(st.floats(0, 5), min_size=7, max_size=7)


@given(STEPS, st.integers(0, 4), st.none() | st.floats(0, 20_000), st.none() | st.floats(0, 20_000))
def test_stages_are_never_negative_and_add_up_to_the_whole(
    steps: list[float], reached: int, queue_ms: float | None, prefill_ms: float | None
) -> None:
    """However far a request came, and whatever the engine claims about its own time."""
    marks = [sum(steps[: count + 1]) for count in range(7)]
    received, arrived, started, first_chunk, first_text, last_chunk, now = marks
    one = record(received, arrived)
    if reached >= 1:
        one.started = started
    if reached >= 2:
        one.note(Chunk(queue_ms=queue_ms, prefill_ms=prefill_ms), first_chunk)
    if reached >= 3:
        one.first_text = first_text
    if reached >= 4:
        one.note(Chunk(), last_chunk)
    stages = msgspec.structs.asdict(one.timings(now))
    assert min(stages.values()) >= 0
    assert sum(stages.values()) == pytest.approx((now - received) * 1000, abs=1e-6)


def test_a_retry_has_an_id_of_its_own() -> None:
    one = record()
    one.attempts = 1
    assert one.engine_id == "k"
    one.attempts = 2
    assert one.engine_id == "k~2"


def test_tokens_are_counted_after_the_cancel_only() -> None:
    one = record()
    one.note(Chunk(token_ids=(300, 301)), 1.0)
    one.output.feed(Chunk(token_ids=(300, 301)))
    assert one.usage().tokens_after_cancel == 0
    one.stop(Reason.CANCELLED)
    one.output.feed(Chunk(token_ids=(302,)))
    assert (one.usage().generated_tokens, one.usage().tokens_after_cancel) == (3, 1)


@pytest.mark.parametrize(
    ("chunk", "counts"),
    [
        (Chunk(finish=EngineFinish.ABORTED), False),
        (Chunk(token_ids=(300,), finish=EngineFinish.ABORTED), True),
        (Chunk(finish=EngineFinish.END_TOKEN), True),
        (Chunk(token_ids=(300,)), True),
    ],
)
def test_a_prompt_that_was_given_up_before_its_first_token_counts_nothing(chunk: Chunk, counts: bool) -> None:
    one = record()
    one.cached_tokens, one.cached_source = 1, "directory"
    one.note(chunk, 1.0)
    usage = one.usage()
    assert (usage.prompt_tokens > 0, usage.cached_tokens > 0) == (counts, counts)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_exactly_one_answer_on_the_wire(reason: Reason) -> None:
    outcome = record().ended(reason, 1.0, "why")
    assert (outcome.finish is None) != (outcome.refusal is None)
    if outcome.refusal is not None:
        assert outcome.refusal.code in ErrorCode
        assert reason in HTTP_STATUS
    else:
        assert outcome.finish is FINISHES[reason]


def test_a_deadline_is_a_refusal_before_the_first_text_and_a_finish_after_it() -> None:
    one = record()
    assert one.ended(Reason.EXPIRED, 1.0).refusal is not None
    one.first_text = 0.5
    assert one.ended(Reason.EXPIRED, 1.0).finish == "expired"


ENDINGS = [
    ("end_of_middle", "end_of_middle", 200),
    ("stop", "stop", 200),
    ("length", "length", 200),
    ("cancelled", "cancelled", 499),
    ("superseded", "cancelled", 499),
    ("document_limit", "cancelled", 499),
    ("disconnected", "cancelled", 499),
    ("expired", "expired", 408),
    ("rate_limited", "rate_limited", 429),
    ("overloaded", "overloaded", 503),
    ("invalid", "invalid_request", 400),
    ("mismatch", "tokenizer_mismatch", 400),
    ("engine_lost", "engine_unavailable", 503),
    ("fault", "engine_unavailable", 500),
]


def test_clients_and_dashboards_know_how_a_request_ended_by_these_words() -> None:
    told = [
        (str(one), str(FINISHES[one] if one in FINISHES else CODES[one]), HTTP_STATUS.get(one, 200)) for one in Reason
    ]
    assert told == ENDINGS


def test_what_is_wrong_with_an_engine_or_a_start_is_told_by_these_words() -> None:
    engines = {"lost", "certificate", "silent", "garbage", "error", "busy", "region", "replaced"}
    assert {str(one) for one in Fault} == engines == {str(one) for one in FAULT_MESSAGES}
    assert {str(one) for one in UnreadyReason} == {"draining", "engine", "issuer"}
