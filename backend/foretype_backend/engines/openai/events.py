"""What travels between us and an OpenAI-compatible server: configuration, events of a stream, errors."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx
import msgspec
from foretype_wire.credentials import without_credentials

from foretype_backend.engines.port import EngineFinish
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError

_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIConfig:
    """How to reach the server.

    Attributes:
        url: base URL, up to and with `/v1`. A user and a password in it are sent, and stand in no name and no message.
        model: name of the model. Unset: the first that the server lists and that is not, by its name, trained to chat.
        api_key: sent as bearer token.
        send_token_ids: whether prompts go as token ids; where the server refuses them text is sent, and counts are not exact. Unset:
            found out at the start.
        context_limit_tokens: of the model; a smaller limit that the server states wins.
        block_tokens: prefix-cache block of the server (vLLM on GPU: 16).
        connect_timeout_s: seconds that a connection may take.
        idle_timeout_s: seconds of silence within a response after which it is given up.
        load_timeout_s: seconds that the server may take at the start, where it loads the model with the first request.
        extra_body: fields added to every request.
        user: name and password out of the URL.
    """

    url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    send_token_ids: bool | None = None
    context_limit_tokens: int = 8192
    block_tokens: int = 16
    connect_timeout_s: float = 5.0
    idle_timeout_s: float = 30.0
    load_timeout_s: float = 300.0
    extra_body: dict[str, Any] = field(default_factory=dict[str, Any])
    user: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, **config: Any) -> OpenAIConfig:
        """From plain values; raises TypeError that names an option which does not exist, or `url` when missing."""
        known = {f.name for f in fields(cls)}
        for name in config:
            if name not in known:
                raise TypeError(f"the openai engine has no option {name!r}; it has {', '.join(sorted(known))}")
        url = str(config.get("url") or "")
        if not url.startswith(("http://", "https://")):
            shown = without_credentials(url)
            raise TypeError(f"the openai engine needs the option 'url': http://host:port/v1, not {shown!r}")
        parts = urlsplit(url)
        user, _, place = parts.netloc.rpartition("@")
        if user and config.get("api_key"):
            raise TypeError("the option 'url' names a user, and 'api_key' a key; a server gets one of them")
        bare = urlunsplit(parts._replace(netloc=place)).rstrip("/")
        options: dict[str, Any] = {**config, "url": bare, "user": unquote(user) or None}
        return cls(**options)

    @property
    def authorization(self) -> str | None:
        """The header's value; None where the server asks for nothing."""
        if self.api_key:
            return f"Bearer {self.api_key}"
        return None if self.user is None else f"Basic {b64encode(self.user.encode()).decode()}"

    def endpoint(self, path: str) -> str:
        return f"{self.url}/{path}"

    def root(self, path: str) -> str:
        """Of what a server has beside its `/v1`; `path` begins with a slash."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc, parts.path.removesuffix("/v1") + path, "", ""))


class ServerFeatures(NamedTuple):
    """What the server was found to understand."""

    token_ids: bool = False
    logprobs: bool = False
    usage: bool = False
    stop_token_ids: bool = False


class Event(msgspec.Struct, frozen=True):
    """One event of a stream.

    Attributes:
        tokens: how many tokens `text` is, where known, else 1.
        token_ids: what `text` is made of, from servers that were asked for it.
        prompt_tokens, generated_tokens, cached_tokens: on the event that carries the usage.
        last: nothing comes after it.
        cut: the last, but the server goes on: its answer has to be ended from here.
    """

    text: str = ""
    tokens: int = 0
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: EngineFinish | None = None
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    cached_tokens: int | None = None
    last: bool = False
    cut: bool = False


class Token(msgspec.Struct):
    logprob: float | None = None


class _Logprobs(msgspec.Struct):
    """`token_logprobs` as OpenAI's completions say it; `content` as its chat says it, and llama.cpp and Ollama everywhere."""

    token_logprobs: list[float | None] | None = None
    content: list[Token] | None = None

    @property
    def values(self) -> list[float | None]:
        if self.token_logprobs is not None:
            return self.token_logprobs
        return [token.logprob for token in self.content or ()]


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None  # a chat's
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek's

    @property
    def cached_tokens(self) -> int | None:
        details = self.prompt_tokens_details
        return self.prompt_cache_hit_tokens if details is None else details.cached_tokens


class _Data(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_NO_CHOICE: Final = _Choice()
_LINE_MAX_BYTES = 1 << 20


class Reader:
    """Events out of the lines of one answer, in whatever pieces they come.

    Attributes:
        expected: what the server should be, for who reads that it sent something else.
        nonsense: what it sent then.
        decoder: of what a line holds.
    """

    expected: ClassVar[str] = "compatible"
    nonsense: ClassVar[str] = "an event that is no completion"
    decoder: ClassVar[msgspec.json.Decoder[Any]]

    def __init__(self, url: str) -> None:
        self._url = url
        self._part = b""

    def feed(self, data: bytes) -> list[Event]:
        """What is whole by now; nothing follows an event that is the last.

        Args:
            data: the next bytes; none at the end of the stream.

        Raises:
            EngineUnavailableError: the server reports an error inside the answer, or sends what is none.
        """
        *lines, self._part = (self._part + (data or b"\n")).split(b"\n")
        if len(self._part) > _LINE_MAX_BYTES:
            told = f"{self._url}: sent a line without end; is it {self.expected}?"
            raise EngineUnavailableError(told, fault=Fault.GARBAGE)
        found: list[Event] = []
        for line in lines:
            if not line or (event := self._event(line)) is None:
                continue
            found.append(event)
            if event.last:
                break
        return found

    def _event(self, line: bytes) -> Event | None:
        """None for a line that says nothing."""
        raise NotImplementedError

    def _decoded(self, payload: bytes) -> Any:
        try:
            return self.decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            told = f"{self._url}: sent {self.nonsense} ({error}); is it {self.expected}?"
            raise EngineUnavailableError(told, fault=Fault.GARBAGE) from None

    def _failed(self, told: str) -> EngineUnavailableError:
        return EngineUnavailableError(f"{self._url}: failed while generating: {told}", fault=Fault.ERROR)


def all_of(values: Sequence[float | None]) -> tuple[float, ...]:
    """Log-probabilities that a server says; none where one of them is missing."""
    found = tuple(value for value in values if value is not None)
    return found if len(found) == len(values) else ()


class Events(Reader):
    """Of a server-sent stream of completions."""

    decoder = msgspec.json.Decoder(_Data)

    def _event(self, line: bytes) -> Event | None:
        if not line.startswith(b"data:"):
            return None  # comments and empty lines keep the connection alive
        payload = line[5:].strip()
        if payload == b"[DONE]":
            return Event(last=True)
        data: _Data = self._decoded(payload)
        if data.error is not None:
            raise self._failed(f"{_message(data.error)}; retry")
        choice = data.choices[0] if data.choices else _NO_CHOICE
        # On the event after the last choice, or on the last choice itself (llama.cpp, LM Studio, DeepSeek); before, it counts on.
        usage = data.usage if not data.choices or choice.finish_reason is not None else None
        text = choice.text or (choice.delta.content if choice.delta is not None else None) or ""
        values = choice.logprobs.values if choice.logprobs else ()
        token_ids = tuple(choice.token_ids) if choice.token_ids else ()
        tokens, logprobs = len(token_ids or values) or int(bool(text)), all_of(values) if values else ()
        finish = None if choice.finish_reason is None else _finish(choice.finish_reason)
        if usage is None:
            return Event(text, tokens, token_ids, logprobs, finish)
        counts = usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
        return Event(text, tokens, token_ids, logprobs, finish, *counts, last=not data.choices)


def _finish(reason: str) -> EngineFinish:
    if reason == "length":
        return EngineFinish.LENGTH
    return EngineFinish.ABORTED if reason == "abort" else EngineFinish.END_TOKEN


def status_error(url: str, status: int, body: str) -> EngineUnavailableError | PromptRefusedError:
    """The typed error for an HTTP status, with the server's own words."""
    try:
        parsed: Any = json.loads(body)
    except json.JSONDecodeError:
        parsed = body
    message = _message(parsed.get("error", parsed) if isinstance(parsed, dict) else parsed)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    match status:
        case 400 | 413 | 422:
            place = urlsplit(url)
            told = _ADDRESS.sub("the engine", message).replace(place.netloc, "the engine")
            if place.hostname and "." in place.hostname:
                told = told.replace(place.hostname, "the engine")
            refuses = f"refuses the request ({status})"
            return PromptRefusedError(f"{url}: {refuses}: {message}", client_message=f"the engine {refuses}: {told}")
        case 401 | 403:
            return EngineUnavailableError(
                f"{url}: refuses the credential ({status}): {message}; check the option 'api_key'"
            )
        case 404:
            return EngineUnavailableError(
                f"{url}: not found: {message}; check the options 'url' (up to /v1) and 'model'"
            )
        case 429 | 503:
            return EngineUnavailableError(f"{url}: is overloaded ({status}): {message}; retry later", fault=Fault.BUSY)
        case _:
            return EngineUnavailableError(
                f"{url}: fails with status {status}: {message}; see its log", fault=Fault.ERROR
            )


def error_of(url: str, error: httpx.HTTPError) -> EngineUnavailableError:
    """The typed error for a transport error."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        fault = Fault.CERTIFICATE if "certificate" in str(error).lower() else Fault.LOST
        return EngineUnavailableError(
            f"{url}: cannot connect ({error}); is the server running, and the URL right?", fault=fault
        )
    if isinstance(error, httpx.TimeoutException):
        silent = f"{url}: said nothing for too long; raise 'idle_timeout_s', or look at the server"
        return EngineUnavailableError(silent, fault=Fault.SILENT)
    return EngineUnavailableError(f"{url}: the connection broke ({error or type(error).__name__}); retry")


def _message(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return str(error)[:300]  # pyright: ignore[reportUnknownArgumentType]
