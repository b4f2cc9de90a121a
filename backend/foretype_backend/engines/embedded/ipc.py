"""Frames between the gateway and the embedded engine's process: a 4-byte length, then a tagged MessagePack map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024


class Configure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """First command: what to load and how.

    Attributes:
        library: what computes: `openvino` or `llama.cpp`; empty for the one of this machine.
        device: where it computes, by OpenVINO's names.
        cache_bytes: most memory of the key-value cache.
        chunk_tokens: prefill tokens in one step.
        threads: inference threads; None takes half of the cores.
        nice: added to the process's niceness.
        prompt_lookup_tokens: tokens drafted from the prompt itself in each step; 0 switches it off.
        prepared_dir: where what is made of files is kept; None keeps nothing.
    """

    model: str
    library: str = ""
    device: str = "CPU"
    cache_bytes: int
    chunk_tokens: int
    max_sequences: int
    max_overtakes: int
    head_start_tokens: int
    threads: int | None = None
    nice: int = 0
    prompt_lookup_tokens: int = 0
    prepared_dir: str | None = None


class Submit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Generate. `expires_in_s` counts from when the frame is read."""

    id: int
    token_ids: list[int]
    max_tokens: int
    end_token_ids: list[int]
    temperature: float = 0.0
    priority: int = 0
    expires_in_s: float | None = None
    warm: bool = False
    begins: str = ""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    id: int


class Preparing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Before the model is loaded something has to be made of its file; that takes at most `within_s` seconds."""

    message: str
    within_s: float


class Ready(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """The model is loaded and has run once."""

    model: str
    context_limit_tokens: int
    vocabulary_tokens: int
    block_tokens: int
    pool_blocks: int
    notes: list[str] = []


class Failed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """The model cannot be loaded; the process exits."""

    message: str


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Tokens of a request; the figures come with its first."""

    id: int
    token_ids: list[int]
    logprobs: list[float]
    cached_tokens: int | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A request is over. `how` is the engine's finish, or why there is none; `end_logprob` that of the end token."""

    id: int
    how: Literal["end_token", "length", "aborted", "refused", "lost"]
    message: str = ""
    end_logprob: float | None = None


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Counters, sent when they changed and once a second while busy (a sign of life).

    Attributes:
        running: requests in the pipeline, cancelled ones included until their slot is free.
        tokens_after_cancel: tokens computed for requests that had been cancelled.
        pipeline_restarts: times the pipeline threw and was built again.
    """

    running: int = 0
    waiting: int = 0
    preemptions: int = 0
    held: int = 0
    dropped_warm: int = 0
    tokens_after_cancel: int = 0
    pipeline_restarts: int = 0


Command = Configure | Submit | Cancel
Report = Preparing | Ready | Failed | Output | Ended | EngineLoad

_encoder: Final = msgspec.msgpack.Encoder()
_commands: Final = msgspec.msgpack.Decoder(Command)
_reports: Final = msgspec.msgpack.Decoder(Report)


def encode(frames: Iterable[Command | Report]) -> bytes:
    """Frames as bytes, ready to be written in one go."""
    out = bytearray()
    for frame in frames:
        body = _encoder.encode(frame)
        out += len(body).to_bytes(4, "little")
        out += body
    return bytes(out)


def decode_command(body: bytes) -> Command:
    return _commands.decode(body)


def decode_report(body: bytes) -> Report:
    return _reports.decode(body)


class FrameDecoder:
    """Cuts a stream of bytes into frame bodies, however the bytes arrive. Raises ValueError on an absurd length."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        while len(self._buffer) >= 4:
            length = int.from_bytes(self._buffer[:4], "little")
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes was announced; the stream is out of step")
            if len(self._buffer) < 4 + length:
                return
            body = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            yield body
