"""Traces from the client's key to the replica's step: real sockets, spans in memory, and one collector that is real."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from backend.test_chat import ASK, chatting
from backend.test_gateway_process import serving
from backend.world import complete, gateway, scripted, until
from client.traces import Traces, is_child, times_ms, traceparent
from foretype_backend.config.config import Config
from foretype_backend.config.load import load_config
from foretype_backend.config.settings import TracingConfig
from foretype_backend.errors import ConfigError
from foretype_backend.operations.reload import fixed_changes
from foretype_backend.start.check import check_file
from foretype_backend.transport.server import running
from foretype_client.client import ClientOptions, open_client
from foretype_context.syntax.document import Document, Edit
from foretype_wire.messages import Error
from foretype_wire.tracing.exporting import exporting_tracing
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

SECRET = "swordfish_42"
PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"


def traces() -> Traces:
    return Traces(time.perf_counter)


async def test_the_stages_of_a_completion_are_its_timings() -> None:
    seen = traces()
    engine = scripted(decode_s_per_token=0.001, prefill_s_per_token=0.0001)
    async with gateway(engine, tracing=seen.tracing) as world, world.peer() as peer:
        _, done = await peer.answer(traceparent=PARENT, language="python")
        await world.idle()
    root, prefill = seen.one("foretype.completion"), seen.one("foretype.prefill")
    assert f"{root.context.trace_id:032x}" == "ab" * 16 and f"{root.parent.span_id:016x}" == "cd" * 8
    told = dict(root.attributes)
    assert told["foretype.reason"] == "end_of_middle" and told["foretype.language"] == "python"
    assert (told["foretype.pool"], told["foretype.class"], told["foretype.attempts"]) == ("fast", "interactive", 1)
    assert dict(prefill.attributes) == {
        "foretype.prompt_tokens": done.usage.prompt_tokens,
        "foretype.cached_tokens": done.usage.cached_tokens,
        "foretype.computed_tokens": done.usage.prompt_tokens - done.usage.cached_tokens,
        "foretype.cached_source": done.usage.cached_source,
    }
    at = times_ms(root)[0]
    for stage in ("admit", "queue", "prefill", "decode_first", "stream"):
        for span in seen.named(f"foretype.{stage}"):
            began, ended = times_ms(span)
            assert is_child(span, root) and began == pytest.approx(at, abs=0.01)
            assert ended - began == pytest.approx(getattr(done.timings_ms, stage), abs=0.1)
            at = ended
    assert len(seen.spans) >= 5 and at <= times_ms(root)[1] + 0.01
    assert [event.name for event in root.events] == ["first_token"]


async def test_a_request_that_is_refused_or_given_up_is_a_span_too() -> None:
    seen = traces()
    async with gateway(scripted(decode_s_per_token=60.0), tracing=seen.tracing) as world:
        async with world.peer() as peer:
            await peer.send(complete("gone"))
            await until(lambda: world.service.statistics() != (0, 0, 0))
        await world.idle()
        async with world.peer() as peer:
            error = await peer.refusal("late", deadline_ms=100.0)
            assert error.code == "expired"
            await world.idle()
    gone, late = seen.named("foretype.completion")
    assert gone.attributes["foretype.reason"] == "disconnected"
    assert late.attributes["foretype.reason"] == "expired" and late.status.description is None


async def test_a_language_that_is_no_name_and_a_parent_that_is_none_are_left_out() -> None:
    seen = traces()
    async with gateway(tracing=seen.tracing) as world, world.peer() as peer:
        await peer.ask(traceparent=f"{PARENT}{SECRET}", language=f"def {SECRET}():", document=f"file:///{SECRET}.py")
        await world.idle()
    root = seen.one("foretype.completion")
    assert root.parent is None and SECRET not in "".join(span.to_json() for span in seen.spans)


async def test_a_traceparent_of_another_type_is_named() -> None:
    async with gateway() as world, world.peer() as peer:
        await peer.send(msgspec.to_builtins(complete("r1")) | {"traceparent": 7})
        _, error, _ = await peer.until_end("r1")
        assert isinstance(error, Error) and error.field == "traceparent"
        await peer.still_works()


async def test_http_doors_take_the_header_and_replicas_get_the_gateways_span() -> None:
    seen = traces()
    async with chatting(tracing=seen.tracing) as (world, upstream), world.http() as http:
        answer = await http.post("/v1/chat/completions", json=ASK, headers={"traceparent": PARENT})
        assert answer.status_code == 200
        body = {"prompt": "x = ", "suffix": "\n", "max_tokens": 4}
        assert (await http.post("/v1/completions", json=body, headers={"traceparent": PARENT})).status_code == 200
    chat, fim = seen.named("foretype.completion")
    assert (chat.attributes["foretype.pool"], fim.attributes["foretype.pool"]) == ("quality", "fast")
    assert chat.context.trace_id == fim.context.trace_id == int("ab" * 16, 16)
    assert upstream.headers[0]["traceparent"] == traceparent(chat)
    assert "Why" not in "".join(span.to_json() for span in seen.spans)


async def test_without_tracing_replicas_get_no_header_whatever_a_client_sends() -> None:
    async with chatting() as (world, upstream), world.http() as http:
        assert (await http.post("/v1/chat/completions", json=ASK, headers={"traceparent": PARENT})).status_code == 200
        assert "traceparent" not in upstream.headers[0]


class Collector:
    """Takes OTLP over HTTP, as a collector does."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.app = Starlette()
        self.app.add_route("/v1/traces", self.take, methods=["POST"])

    async def take(self, request: Request) -> Response:
        assert request.headers["content-type"] == "application/x-protobuf"
        self.payloads.append(await request.body())
        return Response(status_code=200, media_type="application/x-protobuf")

    def spans(self) -> dict[str, list[Any]]:
        """By `service.name` and name of the span."""
        found: dict[str, list[Any]] = {}
        for payload in self.payloads:
            for resource in ExportTraceServiceRequest.FromString(payload).resource_spans:
                names = {item.key: item.value.string_value for item in resource.resource.attributes}
                assert set(names) == {"service.name", "service.version"}
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found.setdefault(f"{names['service.name']} {span.name}", []).append(span)
        return found


@asynccontextmanager
async def collector() -> AsyncGenerator[tuple[Collector, str]]:
    taking = Collector()
    config = Config()
    config = msgspec.structs.replace(config, gateway=msgspec.structs.replace(config.gateway, port=0))
    async with running(taking.app, config) as (host, port):
        yield taking, f"http://{host}:{port}/v1/traces"


async def test_one_trace_reaches_a_collector_from_both_ends_and_holds_no_source(tmp_path: Path) -> None:
    async with collector() as (taking, url):
        options: dict[str, Any] = {"named": False, "endpoint": url, "sample_share": None}
        server = exporting_tracing("foretype-gateway", clock=time.perf_counter, **options)
        editor = exporting_tracing("foretype-lsp", clock=time.monotonic, **options)
        async with gateway(scripted(f"{SECRET} + 1\n"), tracing=server) as world:
            told = ClientOptions(gateway=world.ws_url, cache_dir=tmp_path / "cache", local=False)
            async with open_client(told, tracing=editor) as client:
                await client.ready()
                uri = (tmp_path / f"{SECRET}.py").as_uri()
                document = Document(uri, f"def {SECRET}(x):\n    \n", language="python", path=f"{SECRET}.py")
                client.flow.document_opened(document.snapshot())
                at = len(f"def {SECRET}(x):\n    ")
                document.apply([Edit(at, at, "y = ")], 1)
                client.flow.document_changed(document.change(client.flow.clock()))
                suggestion = await client.flow.suggest(document.snapshot(), at + 4)
                assert suggestion is not None and SECRET in suggestion.text
        await editor.close()
        await server.close()
    spans = taking.spans()
    (root,), (request,) = spans["foretype-lsp foretype.suggestion"], spans["foretype-lsp foretype.request"]
    (completion,), (prefill,) = (
        spans["foretype-gateway foretype.completion"],
        spans["foretype-gateway foretype.prefill"],
    )
    assert len({span.trace_id for span in (root, request, completion, prefill)}) == 1
    assert request.parent_span_id == root.span_id
    assert completion.parent_span_id == request.span_id
    assert prefill.parent_span_id == completion.span_id
    assert root.start_time_unix_nano <= request.start_time_unix_nano <= completion.start_time_unix_nano
    assert abs(root.start_time_unix_nano - time.time_ns()) < 120e9
    sent = b"".join(taking.payloads)
    for secret in (SECRET, "def ", ".py", "file:", str(tmp_path), "y = "):
        assert secret.encode() not in sent, secret


async def test_a_collector_that_is_away_holds_nobody_up(tmp_path: Path) -> None:
    away = exporting_tracing(
        "x", clock=time.perf_counter, named=False, endpoint="http://127.0.0.1:9/v1/traces", sample_share=1.0
    )
    async with gateway(tracing=away) as world, world.peer() as peer:
        await peer.still_works()
    async with asyncio.timeout(60):
        await away.close()


def test_the_file_names_the_collector_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    file = tmp_path / "g.toml"
    file.write_text('[tracing]\nendpoint = "http://collector:4318"\nsample_share = 0.1\n')
    assert load_config(profile=file).tracing == TracingConfig(endpoint="http://collector:4318", sample_share=0.1)
    assert check_file(file) is None
    wrong = {
        'endpoint = "collector:4318"': "tracing.endpoint",
        "sample_share = 2": "tracing.sample_share",
        "sample_share = nan": "tracing.sample_share",
        'endpiont = "http://c"': "tracing.endpiont",
        "endpoint = 7": "tracing.endpoint",
    }
    for line, field in wrong.items():
        file.write_text(f"[tracing]\n{line}\n")
        finding = check_file(file)
        assert finding is not None and (finding.line, finding.field) == (2, field), line
        with pytest.raises(ConfigError):
            load_config(profile=file)
    assert fixed_changes(Config(), Config(tracing=TracingConfig(endpoint="http://c"))) == ["tracing"]


@pytest.mark.slow
async def test_a_gateway_process_traces_by_its_file_and_by_its_environment(tmp_path: Path) -> None:
    async with collector() as (taking, url):
        named = tmp_path / "named.toml"
        named.write_text(f'[engine]\nname = "scripted"\n[tracing]\nendpoint = "{url.removesuffix("/v1/traces")}"\n')
        plain = tmp_path / "plain.toml"
        plain.write_text('[engine]\nname = "scripted"\n')
        environment = {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url,
            "OTEL_SERVICE_NAME": "mine",
        }
        for profile, more, service in ((named, {}, "foretype-gateway"), (plain, environment, "mine")):
            async with (
                serving("--profile", str(profile), "--port", "0", env=os.environ | more) as (process, url),
                httpx.AsyncClient(trust_env=False, timeout=60) as http,
            ):
                body = {"prompt": SECRET, "max_tokens": 4}
                assert (await http.post(f"{url}/v1/completions", json=body)).status_code == 200
                process.send_signal(signal.SIGINT)
                await process.communicate()
            assert len(taking.spans()[f"{service} foretype.completion"]) == 1
        assert SECRET.encode() not in b"".join(taking.payloads)
