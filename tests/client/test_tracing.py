import asyncio
import time

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.traces import Traces, is_child, times_ms, traceparent
from client.typing_desk import Desk
from foretype_client.flow.tracing import FlowTracer, TracedGateway
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions
from foretype_wire.errors import RequestRefusedError, TracingError
from foretype_wire.messages import ErrorCode
from foretype_wire.tracing.opening import check_endpoint, open_tracing
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.virtual_time

ANSWER = Script([(0.02, "foo"), (0.01, "(a"), (0.01, ")")])
SECRET = "swordfish_42"


class TracedDesk(Desk):
    """A desk whose flow is traced; `traces` has what was finished."""

    def __init__(self, gateway: ScriptedGateway, text: str = "|", **options) -> None:
        clock = asyncio.get_running_loop().time
        self.traces = Traces(clock)
        tracer = FlowTracer(self.traces.tracing, clock=clock)
        super().__init__(TracedGateway(gateway, tracer), text, **options)
        tracer.follow(self.flow.events)


async def test_from_the_key_to_the_answer() -> None:
    gateway = ScriptedGateway(ANSWER)
    async with TracedDesk(gateway) as desk:
        desk.type("x = ")
        await asyncio.sleep(0.03)  # the editor's own delay
        assert await desk.ask() is not None
        await asyncio.sleep(1)
        traces = desk.traces
        root, request = traces.one("foretype.suggestion"), traces.one("foretype.request")
        key, debounce = traces.one("foretype.keystroke"), traces.one("foretype.debounce")
        assembly = traces.one("foretype.assembly")
        assert root.parent is None and all(is_child(span, root) for span in (request, key, debounce, assembly))
        began, ended = times_ms(root)
        assert times_ms(key) == pytest.approx((began, began + 30), abs=0.1)
        assert times_ms(debounce) == pytest.approx((began + 30, began + 75), abs=0.1)  # counts from the key
        assert times_ms(request) == pytest.approx((began + 75, ended), abs=0.1)
        assert times_ms(debounce)[0] <= times_ms(assembly)[0] <= times_ms(debounce)[1]
        assert [event.name for event in request.events] == ["first_token"]
        assert request.attributes == {
            "foretype.class": "interactive",
            "foretype.prompt_tokens": 3,
            "foretype.finish": "end_of_middle",
            "foretype.generated_tokens": 3,
            "foretype.cached_tokens": 80,
        }
        assert root.attributes["foretype.served_from"] == "network"
        (call,) = gateway.calls
        assert call.traceparent == traceparent(request)


async def test_an_answer_out_of_the_cache_is_one_span_and_a_newer_question_ends_the_older() -> None:
    async with TracedDesk(ScriptedGateway(ANSWER)) as desk:
        await desk.typed("x = ")
        await desk.typed("f")
        _, second = desk.traces.named("foretype.suggestion")
        assert second.attributes["foretype.outcome"] == "suggested"
        assert second.attributes["foretype.served_from"] != "network"
        assert len(desk.traces.named("foretype.request")) == 1
        desk.type("zz")
        older = asyncio.ensure_future(desk.ask())
        await asyncio.sleep(0.01)
        await desk.ask()
        assert await older is None
        outcomes = [span.attributes["foretype.outcome"] for span in desk.traces.named("foretype.suggestion")]
        assert outcomes == ["suggested", "suggested", "superseded", "suggested"]


async def test_a_refusal_is_its_code_and_nothing_else() -> None:
    refused = Script(error=RequestRefusedError(ErrorCode.OVERLOADED, SECRET, retry_after_ms=10))

    async with TracedDesk(ScriptedGateway(refused)) as desk:
        assert await desk.typed("x = ") is None
        request = desk.traces.one("foretype.request")
        assert request.status.description == "overloaded" and not request.status.is_ok
        assert SECRET not in request.to_json()


async def test_what_is_asked_ahead_is_a_trace_of_its_own_and_nothing_of_the_text_is_in_any() -> None:
    policy = Policy(PolicyOptions(switches=Switches(speculative=True, preload=False)))
    script = Script([(0.02, f"{SECRET}()")])
    async with TracedDesk(ScriptedGateway(script), f"{SECRET} = 1\n|", policy=policy) as desk:
        await desk.typed(f"{SECRET}")
        await asyncio.sleep(2)
        requests = desk.traces.named("foretype.request")
        ahead = [span for span in requests if span.attributes["foretype.class"] == "speculative"]
        assert ahead and all(span.parent is None for span in ahead)
        told = "".join(span.to_json() for span in desk.traces.spans)
        assert SECRET not in told and "a.py" not in told and "file:" not in told


async def test_every_request_and_question_is_over_when_the_flow_is() -> None:
    traces = None
    async with TracedDesk(ScriptedGateway(Script([(9.0, "late")]))) as desk:
        traces = desk.traces
        desk.type("x = ")
        waiting = asyncio.ensure_future(desk.ask())
        await asyncio.sleep(0.2)
    assert await waiting is None
    assert traces.one("foretype.request") and traces.one("foretype.suggestion")


def test_only_who_is_asked_to_traces() -> None:
    def opened(**environ: str):
        return open_tracing("test", environ=environ, clock=time.monotonic)

    assert opened() is None
    assert opened(OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318") is None  # somebody else's, inherited
    assert opened(OTEL_TRACES_EXPORTER="console") is None
    assert opened(OTEL_TRACES_EXPORTER="otlp", OTEL_SDK_DISABLED="TRUE") is None
    with pytest.raises(TracingError, match="OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' is not spoken"):
        opened(OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")


@pytest.mark.parametrize(
    ("given", "posted"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("https://c/", "https://c/v1/traces"),
        ("http://c/otlp/v1/traces", "http://c/otlp/v1/traces"),
    ],
)
def test_an_endpoint_is_a_collector_or_its_url(given: str, posted: str) -> None:
    assert check_endpoint(given) == posted


@pytest.mark.parametrize(
    "bad", ["", "collector:4318", "ftp://c", "http://", "http://user:word@c", "http://c:0", "http://[::"]
)
def test_an_endpoint_that_is_none_is_named(bad: str) -> None:
    with pytest.raises(TracingError, match=r"tracing\.endpoint: .* is no HTTP URL"):
        check_endpoint(bad)


@given(st.text(max_size=300) | st.from_regex(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\s?"))
def test_whatever_stands_in_traceparent_a_span_begins(given_parent: str) -> None:
    traces = Traces(lambda: 1.0)
    span = traces.tracing.begin("any", 1.0, parent=given_parent)
    traces.tracing.end(span, 2.0)
    assert len(traces.tracing.traceparent(span)) == 55
    unsampled = given_parent.rstrip().endswith(("0", "2", "4", "6", "8", "a", "c", "e"))  # they may ask for that
    assert [times_ms(one) for one in traces.named("any")] in ([(1000, 2000)], [] if unsampled else None)


def test_clocks_that_stood_still_do_not_shift_later_spans() -> None:
    """A machine that sleeps stops the monotonic clock; wall time goes on."""
    now = {"wall": 10.0, "clock": 10.0}
    traces = Traces(lambda: now["clock"])
    tracing = traces.tracing
    tracing._wall_ns = lambda: round(now["wall"] * 1e9)
    tracing.end(tracing.begin("before", 10.0), 10.0)
    now.update(wall=3600.0, clock=11.0)
    tracing.end(tracing.begin("after", 11.0), 11.0)
    assert traces.one("after").start_time == 3_600_000_000_000
