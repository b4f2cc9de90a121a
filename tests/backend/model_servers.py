"""Stand-ins for Ollama, llama.cpp's server, LM Studio and any server of OpenAI's completions, written from their sources. They are not the thing: no model runs in them.

Ollama: by notes on fb30760, not its text: api/types.go and server/routes.go. llama.cpp: 3f545be, tools/server/server-context.cpp and server-task.cpp. LM Studio: its documentation of
REST API v0 and of OpenAI compatibility. Each keeps the bodies that it was sent, and counts who hung up on it.
"""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import uvicorn
from foretype_backend.engines.openai.streaming import StreamingServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass(kw_only=True)
class StandIn:
    """What the three have in common.

    Attributes:
        writes: pieces of what it generates.
        endless: go on with `x` until the asker hangs up.
    """

    writes: tuple[str, ...] = ("a", " + b")
    endless: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def routes(self) -> list[Route]:
        raise NotImplementedError

    async def pieces(self) -> AsyncIterator[str]:
        try:
            for piece in self.writes:
                yield piece
            while self.endless:
                yield "x"
                await asyncio.sleep(0.005)
        except (asyncio.CancelledError, GeneratorExit):
            self.hung_up.set()
            raise

    def openai_answer(self, body: dict[str, Any], usage: dict[str, int], *, apart: bool = False) -> Response:
        """An answer of OpenAI's completions; where it is streamed its counts come with the end, or `apart` from it."""
        if not body.get("stream"):
            return JSONResponse({"choices": [{"text": "x", "finish_reason": "length"}], "usage": usage})

        async def events() -> AsyncIterator[str]:
            async for piece in self.pieces():
                yield f"data: {json.dumps({'choices': [{'text': piece, 'finish_reason': None}]})}\n\n"
            last: dict[str, Any] = {"choices": [{"text": "", "finish_reason": "stop"}]}
            for one in (last, {"choices": [], "usage": usage}) if apart else (last | {"usage": usage},):
                yield f"data: {json.dumps(one)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


def wait_for_answers(engine: StreamingServer, idle_timeout_s: float) -> None:
    """From here on: where a silence is wanted, and no longer, or one of a busy machine would count."""
    engine._config = replace(engine._config, idle_timeout_s=idle_timeout_s)
    assert engine._streams is not None
    engine._streams.idle_timeout_s = idle_timeout_s


_T = TypeVar("_T", bound=StandIn)

KEPT: dict[str, Any] = {"timeout_keep_alive": 600}
"""A server closes no connection that is being used again: who asks is never refused because the machine was busy in between."""


@asynccontextmanager
async def served(routes: list[Route], port: int = 0, **options: Any) -> AsyncGenerator[int]:
    """Serve them on a port of loopback, the one given or one of their own, which it gives."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        options = KEPT | {"log_level": "critical", "lifespan": "off", "timeout_graceful_shutdown": 1} | options
        serving = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), **options))
        task = asyncio.create_task(serving.serve(sockets=[listener]))
        while not serving.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.005)
        try:
            yield listener.getsockname()[1]
        finally:
            serving.should_exit = True
            await task


@asynccontextmanager
async def running(server: _T, port: int = 0) -> AsyncGenerator[_T]:
    async with served(server.routes(), port) as server.port:
        yield server


@dataclass(kw_only=True)
class Ollama(StandIn):
    """`info` is what `/api/show` says as `model_info`; `fails` an error in the middle of a stream."""

    models: list[str] = field(default_factory=lambda: ["qwen2.5-coder:1.5b-base"])
    info: dict[str, Any] = field(
        default_factory=lambda: {"general.architecture": "qwen2", "qwen2.context_length": 32768}
    )
    modelfile: str = ""
    knows_logprobs: bool = True
    fails: str = ""

    def routes(self) -> list[Route]:
        async def version(request: Request) -> Response:
            return JSONResponse({"version": "0.33.0"})

        async def tags(request: Request) -> Response:
            return JSONResponse({"models": [{"name": name, "model": name} for name in self.models]})

        async def show(request: Request) -> Response:
            body = await request.json()
            if body["model"] not in self.models:
                return JSONResponse({"error": f"model '{body['model']}' not found"}, 404)
            full = {
                name: value if body.get("verbose") or not isinstance(value, list) else None
                for name, value in self.info.items()
            }
            return JSONResponse({"model_info": full, "modelfile": self.modelfile, "capabilities": ["completion"]})

        async def openai_models(request: Request) -> Response:
            return JSONResponse({"data": [{"id": name, "owned_by": "library"} for name in self.models]})

        return [
            Route("/api/version", version),
            Route("/api/tags", tags),
            Route("/api/show", show, methods=["POST"]),
            Route("/api/generate", self.generate, methods=["POST"]),
            Route("/v1/models", openai_models),
        ]

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if not isinstance(body["prompt"], str):
            return JSONResponse(
                {"error": "json: cannot unmarshal array into Go struct field GenerateRequest.prompt of type string"},
                400,
            )
        if body["model"] not in self.models:
            return JSONResponse({"error": f"model '{body['model']}' not found"}, 404)
        if not body["prompt"]:
            return JSONResponse({"model": body["model"], "response": "", "done": True, "done_reason": "load"})
        logprobs = (
            {"logprobs": [{"token": "t", "logprob": -0.5}]} if self.knows_logprobs and body.get("logprobs") else {}
        )
        counts = {"prompt_eval_count": 9, "eval_count": len(self.writes)}
        if not body["stream"]:
            return JSONResponse({"response": "x", "done": True, "done_reason": "length", **logprobs, **counts})

        async def lines() -> AsyncIterator[str]:
            async for piece in self.pieces():
                yield json.dumps({"model": body["model"], "response": piece, "done": False, **logprobs}) + "\n"
                if self.fails:
                    yield json.dumps({"error": self.fails}) + "\n"
                    return
            yield (
                json.dumps({"model": body["model"], "response": "", "done": True, "done_reason": "stop", **counts})
                + "\n"
            )

        return StreamingResponse(lines(), media_type="application/x-ndjson")


@dataclass(kw_only=True)
class LlamaCpp(StandIn):
    """`ids` are those of `writes`, one each; `context` is of one slot; `loading` answers 503 so many times."""

    model_path: str = "/models/qwen2.5-coder-1.5b-q8_0.gguf"
    ids: tuple[int, ...] = (10, 11)
    context: int = 4096
    slots: int = 2
    loading: int = 0
    ends_itself: bool = True
    props_asked: int = 0

    def routes(self) -> list[Route]:
        async def props(request: Request) -> Response:
            self.props_asked += 1
            if self.loading:
                self.loading -= 1
                return JSONResponse(
                    {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503
                )
            return JSONResponse(
                {
                    "default_generation_settings": {"params": {}, "n_ctx": self.context},
                    "total_slots": self.slots,
                    "model_path": self.model_path,
                }
            )

        async def models(request: Request) -> Response:
            return JSONResponse({"data": [{"id": self.model_path, "owned_by": "llamacpp"}]})

        return [
            Route("/props", props),
            Route("/v1/models", models),
            Route("/completion", self.completion, methods=["POST"]),
        ]

    async def completion(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        evaluated = len(body["prompt"])
        last: dict[str, Any] = {
            "content": "",
            "tokens": [],
            "stop": True,
            "stop_type": "eos" if self.ends_itself else "limit",
            "tokens_predicted": len(self.writes),
            "tokens_evaluated": evaluated,
            "timings": {"cache_n": evaluated - 1, "prompt_n": 1},
        }
        if not body.get("stream"):
            return JSONResponse(last | {"content": "x", "tokens": [5] if body.get("return_tokens") else []})

        async def parts() -> AsyncIterator[str]:
            ids = iter(self.ids)
            if body.get("return_progress"):
                progress = {"total": evaluated, "cache": evaluated - 1, "processed": evaluated, "time_ms": 1}
                yield f"data: {json.dumps({'content': '', 'tokens': [0], 'stop': False, 'prompt_progress': progress})}\n\n"
            async for piece in self.pieces():
                one = next(ids, 9)
                part: dict[str, Any] = {"index": 0, "content": piece, "tokens": [one], "stop": False, "id_slot": 0}
                if body.get("n_probs"):
                    part["completion_probabilities"] = [
                        {"id": one, "token": piece, "logprob": -0.25, "top_logprobs": []}
                    ]
                yield f"data: {json.dumps(part)}\n\n"
            yield f"data: {json.dumps(last)}\n\n"

        return StreamingResponse(parts(), media_type="text/event-stream")


@dataclass(kw_only=True)
class LmStudio(StandIn):
    """`models` are those of `/api/v0/models`."""

    models: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"id": "qwen2.5-coder-1.5b", "type": "llm", "state": "loaded", "loaded_context_length": 4096},
            {"id": "text-embedding", "type": "embeddings", "state": "loaded"},
            {"id": "llama-3.2-3b-instruct", "type": "llm", "state": "not-loaded"},
        ]
    )

    def routes(self) -> list[Route]:
        async def listed(request: Request) -> Response:
            return JSONResponse({"data": self.models})

        return [Route("/api/v0/models", listed), Route("/v1/completions", self.completions, methods=["POST"])]

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        return self.openai_answer(body, {"prompt_tokens": 7, "completion_tokens": len(self.writes)})


@dataclass(kw_only=True)
class OpenAiServer(StandIn):
    """Any server of `/v1/completions` that takes text alone; `counts` is how many tokens it finds in every prompt."""

    counts: int = 7

    def routes(self) -> list[Route]:
        async def listed(request: Request) -> Response:
            return JSONResponse({"data": [{"id": "coder-1b"}]})

        return [Route("/v1/models", listed), Route("/v1/completions", self.completions, methods=["POST"])]

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if not isinstance(body["prompt"], str):
            return JSONResponse({"error": {"message": "prompt: string expected"}}, 400)
        return self.openai_answer(
            body, {"prompt_tokens": self.counts, "completion_tokens": len(self.writes)}, apart=True
        )
