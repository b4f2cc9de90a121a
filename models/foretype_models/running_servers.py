"""Servers of models that run already: found on the usual ports, or looked at where somebody names one. Nothing is generated or changed.

A server is known by what it answers, never by its port. What a model is for is told by its name alone; Ollama says more.
"""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

import httpx
import msgspec
from foretype_context.authorities import trusted
from foretype_context.grammars.families import names_a_chat_model

from foretype_models.errors import NoServerError

PORTS: Final = (11434, 8012, 8080, 8011, 1234, 8000, 30000)
"""Ollama; llama.cpp's presets and default; LM Studio; vLLM; SGLang."""

_LOOK_S: Final = 5.0
"""A server that somebody names may be far away."""
_DETAILS_SHARE: Final = 0.4
_MOST_BYTES: Final = 4 << 20
_MOST_SHOWN: Final = 8
_CONNECT_S: Final = 0.1
_LAST_PORT: Final = 65535
_CODE: Final = re.compile(r"cod(er|e|estral|egemma)|starcoder|mellum|granite|refact|santacoder", re.IGNORECASE)


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One of a server's models.

    Attributes:
        code, base: by its name: for code, and not trained to chat.
        inserts: whether the server's own template fills in, where it says so. Prompts go past it in any case.
        context_tokens: of the model, or of what is loaded.
        loaded: it is in memory; None where the server does not say.
    """

    name: str
    code: bool
    base: bool
    inserts: bool | None = None
    context_tokens: int | None = None
    loaded: bool | None = None


class _Kind(NamedTuple):
    engine: str
    asked: str
    cached: str


_KINDS: Final = {
    "ollama": _Kind("ollama", "raw text", "not counted"),
    "llama.cpp": _Kind("llama-cpp", "token ids, raw", "counted"),
    "lm-studio": _Kind("lm-studio", "text, without a template by its documentation", "not counted"),
    "vllm": _Kind("openai", "token ids, raw", "counted where it has --enable-prompt-tokens-details"),
    "openai": _Kind("openai", "ids or text, found out at the start", "found out at the start"),
}


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server as it says of itself.

    Attributes:
        kind: `ollama`, `llama.cpp`, `lm-studio`, `vllm`, or `openai` for anything else that lists models.
        url: as `foretype use` takes it.
        models: the loaded one first where there is one.
        model_path: file of the model, on the server's machine.
        context_tokens: of one slot.
        slots: requests that it computes at once, each with a cache of its own.
        loading: it says that its model is not loaded yet.
    """

    kind: str
    url: str
    models: tuple[ServedModel, ...] = ()
    model_path: str = ""
    context_tokens: int | None = None
    slots: int | None = None
    loading: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.models)

    @property
    def engine(self) -> str:
        """Of the gateway, that asks it."""
        return _KINDS[self.kind].engine

    @property
    def asked(self) -> str:
        """How prompts go there."""
        return _KINDS[self.kind].asked

    @property
    def cached(self) -> str:
        """Whether it says how much of a prompt was cached."""
        return _KINDS[self.kind].cached

    @property
    def good(self) -> str | None:
        """The model that may be proposed: for code, and not trained to chat."""
        return next((one.name for one in self.models if one.code and one.base), None)


def is_code(name: str) -> bool:
    """Whether a model's name says that it is for code."""
    return _CODE.search(name) is not None


def probe(ports: tuple[int, ...] = PORTS, *, limit_s: float = 1.0) -> list[Server]:
    """What serves models on this machine, in the order of `ports`, all asked at once; raises nothing.

    Args:
        limit_s: who has not answered by then is left out.
    """

    async def one(client: httpx.AsyncClient, port: int) -> Server | None:
        with suppress(NoServerError):
            return await _look(client, f"http://127.0.0.1:{port}", limit_s)
        return None

    async def every() -> list[Server]:
        async with _client(limit_s, local=True) as client:
            found = await asyncio.gather(*(one(client, port) for port in ports if _listens(port)))
        return [server for server in found if server is not None]

    return asyncio.run(every())


def _listens(port: int) -> bool:
    """Loopback says so at once; an HTTP client for every port that nobody has would take most of the second."""
    with socket.socket() as asking:
        asking.settimeout(_CONNECT_S)
        return asking.connect_ex(("127.0.0.1", port)) == 0


def look_at(url: str) -> Server:
    """The server at an address. Takes five seconds at most.

    Raises:
        NoServerError: none answers, or it is none of models, or it is a gateway of Foretype.
    """
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        parts = httpx.URL()
    if parts.scheme not in ("http", "https") or not parts.host or (parts.port or 0) > _LAST_PORT:
        raise NoServerError(f"{url} is no address of a server; it looks like http://127.0.0.1:8012/v1")

    async def look() -> Server:
        async with _client(_LOOK_S, local=parts.host in ("127.0.0.1", "localhost", "::1")) as client:
            return await _look(client, url, _LOOK_S)

    return asyncio.run(look())


def _client(limit_s: float, *, local: bool) -> httpx.AsyncClient:
    """Certificates are read, and proxies looked for, where they may be needed: that takes longer than all questions."""
    return httpx.AsyncClient(timeout=limit_s, trust_env=not local, verify=False if local else trusted())


async def _look(client: httpx.AsyncClient, url: str, limit_s: float) -> Server:
    root = url.rstrip("/").removesuffix("/v1")
    try:
        async with asyncio.timeout(limit_s * (1 - _DETAILS_SHARE)):
            answers = await asyncio.gather(*(_get(client, f"{root}{path}") for path in _PATHS))
    except TimeoutError:  # what it is cannot be told from half of its answers
        raise NoServerError(f"what is at {url} does not answer in time; look at that server, or name another") from None
    server = _server(url, root, dict(zip(_PATHS, answers, strict=True)))
    if server.kind == "ollama":
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s * _DETAILS_SHARE):
                return await _with_details(client, server)
    return server


class _Answer(NamedTuple):
    status: int
    said: dict[str, Any]


_NOTHING: Final = _Answer(0, {})
_PATHS: Final = ("/healthz", "/api/tags", "/props", "/api/v0/models", "/v1/models")


def _server(url: str, root: str, answers: dict[str, _Answer]) -> Server:
    good = {path: answer.said for path, answer in answers.items() if answer.status == 200}
    if {"grammar", "authorized"} <= good.get("/healthz", {}).keys():
        raise NoServerError(
            f"{url} is a gateway of Foretype; editors reach it with `foretype lsp --gateway`, not as a model's server"
        )
    if isinstance(good.get("/api/tags", {}).get("models"), list):
        return Server(kind="ollama", url=root, models=_models(good["/api/tags"]["models"], "name"))
    listed = _entries(good.get("/v1/models", {}).get("data"))
    if "default_generation_settings" in good.get("/props", {}):
        return _llama_cpp(root, good["/props"], listed)
    if _loading(answers["/props"]) or _loading(answers["/v1/models"]):
        return Server(kind="llama.cpp", url=f"{root}/v1", loading=True)
    studio = good.get("/api/v0/models", {}).get("data")
    if isinstance(studio, list):
        return _lm_studio(root, _entries(cast("object", studio)))
    if not listed:
        raise NoServerError(
            f"no server of models answers at {url}; start it, or name another: `foretype models servers` lists what runs"
        )
    path = listed[0].get("root")
    return Server(
        kind="vllm" if listed[0].get("owned_by") == "vllm" else "openai",
        url=f"{root}/v1",
        models=_models(listed, "id"),
        model_path=path if isinstance(path, str) else "",
        context_tokens=_positive(listed[0].get("max_model_len")),
    )


def _llama_cpp(root: str, props: dict[str, Any], listed: list[dict[str, Any]]) -> Server:
    settings: object = props["default_generation_settings"]
    path = props.get("model_path")
    return Server(
        kind="llama.cpp",
        url=f"{root}/v1",
        models=_models(listed, "id"),
        model_path=path if isinstance(path, str) else "",
        context_tokens=_positive(cast("dict[str, object]", settings).get("n_ctx") if isinstance(settings, dict) else 0),
        slots=_positive(props.get("total_slots")),
    )


def _lm_studio(root: str, entries: list[dict[str, Any]]) -> Server:
    entries = [one for one in entries if one.get("type", "llm") == "llm"]
    entries.sort(key=lambda one: one.get("state") != "loaded")
    models = tuple(
        msgspec.structs.replace(
            model,
            loaded=entry.get("state") == "loaded",
            context_tokens=_positive(entry.get("loaded_context_length") or entry.get("max_context_length")),
        )
        for entry in entries
        for model in _models([entry], "id")
    )
    return Server(kind="lm-studio", url=f"{root}/v1", models=models)


async def _with_details(client: httpx.AsyncClient, server: Server) -> Server:
    """Which of Ollama's models are in memory, and what it says of those for code."""
    code = [one for one in server.models if one.code and one.base][:_MOST_SHOWN]
    running, *shown = await asyncio.gather(
        _get(client, f"{server.url}/api/ps"),
        *(_get(client, f"{server.url}/api/show", {"model": one.name}) for one in code),
    )
    loaded = {str(one.get("name")) for one in _entries(running.said.get("models"))} if running.status == 200 else None
    said = {one.name: _shown(answer) for one, answer in zip(code, shown, strict=True)}
    models = (
        msgspec.structs.replace(one, loaded=None if loaded is None else one.name in loaded, **said.get(one.name, {}))
        for one in server.models
    )
    return msgspec.structs.replace(server, models=tuple(sorted(models, key=lambda one: not one.loaded)))


def _shown(answer: _Answer) -> dict[str, Any]:
    able, info = answer.said.get("capabilities"), answer.said.get("model_info")
    info = cast("dict[str, object]", info) if isinstance(info, dict) else {}
    return {
        "inserts": "insert" in cast("list[object]", able) if isinstance(able, list) else None,
        "context_tokens": _positive(info.get(f"{info.get('general.architecture')}.context_length")),
    }


def _loading(answer: _Answer) -> bool:
    """As llama-server says it."""
    error: object = answer.said.get("error")
    return answer.status == 503 and isinstance(error, dict) and "type" in error


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _entries(found: object) -> list[dict[str, Any]]:
    many = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", one) for one in many if isinstance(one, dict)]


def _models(found: object, key: str) -> tuple[ServedModel, ...]:
    names = [str(one[key]) for one in _entries(found) if isinstance(one.get(key), str)]
    return tuple(ServedModel(name=name, code=is_code(name), base=not names_a_chat_model(name)) for name in names)


async def _get(client: httpx.AsyncClient, url: str, body: dict[str, Any] | None = None) -> _Answer:
    """A JSON object of bounded size, or nothing for whatever else there is."""
    data = b""
    try:
        async with client.stream("GET" if body is None else "POST", url, json=body) as response:
            async for part in response.aiter_bytes():
                data += part
                if len(data) > _MOST_BYTES:
                    return _NOTHING
            found: object = msgspec.json.decode(data)
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError, UnicodeError, RecursionError):
        return _NOTHING
    return _Answer(response.status_code, cast("dict[str, Any]", found)) if isinstance(found, dict) else _NOTHING
