"""Stand-ins for servers of models, by what they answer to those who look at them (written from their sources; not the thing)."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretype_context.tokens.tokenizer import tokenizer_from_bytes
from foretype_models.gguf_tokenizer import tokenizer_of
from json_server import QuietHandler, listening

CODER = "qwen2.5-coder-1.5b"


def ollama(*names: str, modelfile: str = "") -> dict[str, Any]:
    """Source: notes on ollama fb30760, server/routes.go."""
    return {
        "/api/tags": {"models": [{"name": name, "model": name} for name in names]},
        "/v1/models": {"object": "list", "data": [{"id": name, "owned_by": "library"} for name in names]},
        "/api/show": {"modelfile": modelfile, "details": {"family": "qwen2"}},
    }


def llama_cpp(name: str = f"{CODER}-q8_0.gguf", *, model_path: str = "", context: int = 32768) -> dict[str, Any]:
    """Source: llama.cpp 3f545be, tools/server/server.cpp."""
    return {
        "/props": {"default_generation_settings": {"n_ctx": context}, "total_slots": 4, "model_path": model_path},
        "/v1/models": {
            "object": "list",
            "data": [{"id": name, "owned_by": "llamacpp", "meta": {"n_ctx_train": 32768}}],
        },
    }


def lm_studio(*names: str) -> dict[str, Any]:
    """Source: LM Studio's documentation of its REST API v0."""
    return {
        "/api/v0/models": {"data": [{"id": name, "state": "not-loaded"} for name in names]},
        "/v1/models": {"data": [{"id": name} for name in names]},
    }


def vllm(name: str = CODER, *, root: str = "", context: int = 32768) -> dict[str, Any]:
    """Source: vLLM 0.11, entrypoints/openai/serving_models.py."""
    return {
        "/v1/models": {
            "object": "list",
            "data": [{"id": name, "owned_by": "vllm", "root": root or name, "max_model_len": context}],
        }
    }


@dataclass
class ModelServer:
    """One server.

    Attributes:
        says: JSON by path, with `status`.
        answer: what it writes for a prompt, as text.
    """

    says: dict[str, Any]
    answer: Callable[[str], str] = lambda prompt: ""
    prompts: list[str] = field(default_factory=list)
    port: int = 0
    status: int = 200

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def fills_holes(prompt: str) -> str:
    """What every model that fills holes writes into those of the canary; else a line."""
    return (
        "a + b"
        if "def add(a, b)" in prompt
        else "height"
        if "class Point" in prompt
        else "number"
        if "numbers" in prompt
        else "values"
    )


def _text_of(model: str, ids: list[int]) -> str:
    tokenizer = tokenizer_from_bytes(tokenizer_of(Path(model)))
    controls = {tokenizer.control(token) for token in tokenizer.controls()}
    return tokenizer.decode([one for one in ids if one not in controls]).decode("utf-8", "replace")


@contextmanager
def serving(served: ModelServer) -> Iterator[ModelServer]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def stream(self, *events: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.close_connection = True
            self.end_headers()
            self.wfile.write("".join(f"data: {event}\n\n" for event in events).encode())

        def complete(self, body: dict[str, Any]) -> None:
            """As llama.cpp does: 3f545be, tools/server/server-task.cpp."""
            served.prompts.append(_text_of(served.says["/props"]["model_path"], body["prompt"]))
            text = served.answer(served.prompts[-1])
            last = {
                "content": "",
                "tokens": [],
                "stop": True,
                "stop_type": "eos",
                "tokens_evaluated": len(body["prompt"]),
            }
            if not body.get("stream"):
                self.say(200, last | {"tokens": [1]})
                return
            pieces = text.splitlines(keepends=True)
            parts = [{"content": piece, "tokens": [1 << 20], "stop": False} for piece in pieces]
            self.stream(*map(json.dumps, [*parts, last]))

        def do_GET(self) -> None:
            found = served.says.get(self.path)
            self.say(
                404 if found is None else served.status, {"error": {"message": "not found"}} if found is None else found
            )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/api/show":
                self.do_GET()
                return
            if self.path == "/completion":
                self.complete(body)
                return
            if isinstance(body["prompt"], list):
                self.say(400, {"error": {"message": "prompt must be a string"}})
                return
            served.prompts.append(body["prompt"])
            text = served.answer(body["prompt"])
            model = served.says["/v1/models"]["data"][0]["id"]
            usage = {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
            choice = {"index": 0, "text": text, "finish_reason": "stop"}
            if not body.get("stream"):
                self.say(200, {"model": model, "choices": [choice], "usage": usage})
                return
            pieces = (*text.splitlines(keepends=True), "")
            choices = [{"index": 0, "text": one, "finish_reason": None if one else "stop"} for one in pieces]
            parts = [{"model": model, "choices": [choice]} for choice in choices]
            self.stream(*map(json.dumps, [*parts, {"choices": [], "usage": usage}]), "[DONE]")

    with listening(Handler, served.port) as server:
        served.port = server.server_port
        yield served
