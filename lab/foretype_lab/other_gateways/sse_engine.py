"""A scripted completion server: OpenAI's completions, a text frame every so many milliseconds, and nothing else.

The same engine behind every gateway that is compared. It shares a core with the generator, so it is as thin as it can be: one
protocol per connection, no framework. `python -m foretype_lab.other_gateways.sse_engine --frame-ms 5` prints its port and serves until
it is told to end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import sys
from collections import deque
from typing import Any, Final, cast

import httptools
import msgspec

MODEL: Final = "scripted"
_WORD: Final = " token"
_HEAD: Final = b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\n%s\r\n"


class _Options(msgspec.Struct, frozen=True):
    include_usage: bool = False


class _Body(msgspec.Struct, frozen=True):
    prompt: msgspec.Raw = msgspec.Raw(b'""')
    max_tokens: int | None = None
    stream: bool = False
    stream_options: _Options | None = None


_decode: Final = msgspec.json.Decoder(_Body).decode
_encode: Final = msgspec.json.Encoder().encode
_numbers: Final = itertools.count(1)


class ScriptedServer(asyncio.Protocol):
    """One HTTP/1.1 connection; requests one after the other, as clients with a pool send them."""

    def __init__(self, frame_s: float) -> None:
        self._frame_s = frame_s
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[tuple[bytes, str, bytes]] = deque()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, and is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url, self._body = b"", bytearray()

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        path = self._url.decode("latin-1").partition("?")[0]
        self._waiting.append((self._parser.get_method(), path, bytes(self._body)))
        self._next()

    def _next(self) -> None:
        """Answers one whole request after the other, unless one is being answered."""
        while self._timer is None and self._waiting:
            self._answer(*self._waiting.popleft())

    def _answer(self, method: bytes, path: str, body: bytes) -> None:
        if method == b"POST" and path == "/v1/completions":
            try:
                self._complete(_decode(body))
            except msgspec.DecodeError as error:
                self._whole(400, {"error": {"message": str(error)}})
        elif path == "/v1/models":
            self._whole(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 32768}]})
        elif path in ("/health", "/health_generate", "/"):
            self._whole(200, {})
        else:
            self._whole(404, {"error": {"message": f"{path} is not served here"}})

    def _complete(self, body: _Body) -> None:
        count = 16 if body.max_tokens is None else body.max_tokens
        id = f"cmpl-{next(_numbers)}"
        prompt_tokens = max(1, len(bytes(body.prompt)) // 4)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count, "total_tokens": prompt_tokens + count}
        if not body.stream:
            self._whole(200, _completion(id, _WORD * count, "length") | {"usage": usage})
            return
        self._write(_HEAD % (200, b"OK", b"text/event-stream", b"transfer-encoding: chunked\r\n"))
        frames = [_sse(_completion(id, _WORD, "length" if n == count - 1 else None)) for n in range(count)]
        if body.stream_options is not None and body.stream_options.include_usage:
            frames[-1:] = [*frames[-1:], _sse(_completion(id, "", None) | {"choices": [], "usage": usage})]
        self._frame(frames, 0, max(1, count), self._loop.time())

    def _frame(self, frames: list[bytes], at: int, count: int, began: float) -> None:
        def send() -> None:
            if at + 1 < count:
                self._write(_chunk(frames[at]))
                self._frame(frames, at + 1, count, began)
                return
            self._timer = None
            self._write(_chunk(b"".join(frames[at:]) + b"data: [DONE]\n\n") + b"0\r\n\r\n")
            self._next()

        self._timer = self._loop.call_at(began + (at + 1) * self._frame_s, send)

    def _whole(self, status: int, body: dict[str, Any]) -> None:
        text = _encode(body)
        reason = {200: b"OK", 400: b"Bad Request", 404: b"Not Found"}[status]
        self._write(_HEAD % (status, reason, b"application/json", b"content-length: %d\r\n" % len(text)) + text)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _completion(id: str, text: str, finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": id, "object": "text_completion", "created": 0, "model": MODEL, "choices": [choice]}


def _sse(event: dict[str, Any]) -> bytes:
    return b"data: " + _encode(event) + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve(port: int, frame_s: float) -> asyncio.Server:
    """Listen on 127.0.0.1; port 0 takes a free one."""
    return await asyncio.get_running_loop().create_server(
        lambda: ScriptedServer(frame_s), "127.0.0.1", port, backlog=4096
    )


async def _main(port: int, frame_s: float) -> None:
    server = await serve(port, frame_s)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--frame-ms", type=float, default=5.0)
    chosen = parser.parse_args()
    gc.disable()  # a pause of the engine is no latency of the gateway, and nothing here holds itself
    if sys.platform == "win32":
        asyncio.run(_main(chosen.port, chosen.frame_ms / 1000))
    else:
        import uvloop

        uvloop.run(_main(chosen.port, chosen.frame_ms / 1000))
