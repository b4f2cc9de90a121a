"""Servers of models that run already: found on the usual ports, or looked at where somebody names one.

A server is known by what it answers, never by its port. Whoever has a richer probe puts it in the place of :func:`probe`.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, cast

import httpx

from foretype_models.errors import UseError

__all__ = ["PORTS", "Server", "blob_of", "is_code", "is_instruct", "look_at", "probe"]

PORTS: Final = (11434, 8012, 8080, 8011, 1234, 8000, 30000)
"""Ollama; llama.cpp's presets and default; LM Studio; vLLM; SGLang."""

_TIMEOUT: Final = httpx.Timeout(1.0, connect=0.3)
_MOST_BYTES: Final = 4 << 20
_CODE: Final = re.compile(r"cod(er|e|estral|egemma)|starcoder|mellum|granite|refact|santacoder", re.IGNORECASE)
_INSTRUCT: Final = re.compile(r"instruct|chat|[-_.:]it\b|assistant", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server as it says of itself.

    Attributes:
        kind: `ollama`, `llama.cpp`, `lm-studio`, `vllm`, or `openai` for anything else that lists models.
        url: as `foretype use` takes it.
        models: their names, the loaded one first where there is one.
        model_path: file of the model, on the server's machine.
        context_tokens: of one slot.
        slots: requests that it computes at once, each with a cache of its own.
    """

    kind: str
    url: str
    models: tuple[str, ...] = ()
    model_path: str = ""
    context_tokens: int | None = None
    slots: int | None = None

    @property
    def serves(self) -> bool:
        """Whether the gateway can ask it today without spoiling prompts."""
        return self.kind in ("llama.cpp", "vllm", "openai")

    @property
    def good(self) -> str | None:
        """The model that may be proposed: for code, and not trained to chat."""
        if not self.serves:
            return None
        return next((name for name in self.models if is_code(name) and not is_instruct(name)), None)


def is_code(name: str) -> bool:
    """Whether a model's name says that it is for code."""
    return _CODE.search(name) is not None


def is_instruct(name: str) -> bool:
    """Whether a model's name says that it was trained to chat."""
    return _INSTRUCT.search(name) is not None


def probe(ports: tuple[int, ...] = PORTS, host: str = "127.0.0.1") -> list[Server]:
    """What serves models on this machine, in the order of `ports`. Takes a second and a half at most; raises nothing."""

    def one(port: int) -> Server | None:
        try:
            return look_at(f"http://{host}:{port}/v1")
        except UseError:
            return None

    with ThreadPoolExecutor(len(ports) or 1) as pool:
        return [found for found in pool.map(one, ports) if found is not None]


def look_at(url: str) -> Server:
    """The server at an address.

    Raises:
        UseError: none answers, or it is none of models, or it is a gateway of Foretype.
    """
    root = url.rstrip("/").removesuffix("/v1")
    try:
        parts = httpx.URL(root)
    except httpx.InvalidURL:
        parts = httpx.URL()
    if parts.scheme not in ("http", "https") or not parts.host:
        raise UseError(f"{url} is no address of a server; it looks like http://127.0.0.1:8012/v1")
    local = parts.host in ("127.0.0.1", "localhost", "::1")
    with httpx.Client(timeout=_TIMEOUT, trust_env=not local) as client:
        health = _get(client, f"{root}/healthz")
        if health is not None and {"grammar", "authorized"} <= health.keys():
            raise UseError(
                f"{url} is a gateway of Foretype; editors reach it with `foretype lsp --gateway`, not as a model's server"
            )
        if (tags := _get(client, f"{root}/api/tags")) is not None and isinstance(tags.get("models"), list):
            return Server(kind="ollama", url=root, models=_names(tags["models"], "name"))
        if (props := _get(client, f"{root}/props")) is not None and "default_generation_settings" in props:
            return _llama_cpp(root, props, _models(client, root))
        if (said := _get(client, f"{root}/api/v0/models")) is not None and isinstance(said.get("data"), list):
            entries = sorted(_entries(said["data"]), key=lambda one: one.get("state") != "loaded")
            return Server(kind="lm-studio", url=root, models=_names(entries, "id"))
        listed = _models(client, root)
    if not listed:
        raise UseError(
            f"no server of models answers at {url}; start it, or name another: `foretype use` lists what runs"
        )
    kind = "vllm" if listed[0].get("owned_by") == "vllm" else "openai"
    limit = listed[0].get("max_model_len")
    path = listed[0].get("root")
    return Server(
        kind=kind,
        url=f"{root}/v1",
        models=_names(listed, "id"),
        model_path=path if isinstance(path, str) else "",
        context_tokens=limit if isinstance(limit, int) and limit > 0 else None,
    )


def blob_of(root: str, model: str) -> str:
    """The file of one of Ollama's models, as Ollama says it. Raises UseError."""
    try:
        with httpx.Client(timeout=_TIMEOUT, trust_env=False) as client:
            said = client.post(f"{root}/api/show", json={"model": model})
            said.raise_for_status()
            modelfile = str(cast("dict[str, object]", said.json()).get("modelfile", ""))
    except (httpx.HTTPError, ValueError, AttributeError) as error:
        raise UseError(f"Ollama at {root} does not tell of {model} ({error}); see `ollama show {model}`") from error
    found = re.search(r"^FROM (/.+|[A-Za-z]:\\.+)$", modelfile, re.MULTILINE)
    if found is None:
        raise UseError(
            f"Ollama at {root} does not say in which file {model} lies; see `ollama show --modelfile {model}`"
        )
    return found[1].strip()


def _llama_cpp(root: str, props: dict[str, Any], listed: list[dict[str, Any]]) -> Server:
    settings = props["default_generation_settings"]
    context = cast("dict[str, object]", settings).get("n_ctx") if isinstance(settings, dict) else None
    slots = props.get("total_slots")
    path = props.get("model_path")
    return Server(
        kind="llama.cpp",
        url=f"{root}/v1",
        models=_names(listed, "id"),
        model_path=path if isinstance(path, str) else "",
        context_tokens=context if isinstance(context, int) and context > 0 else None,
        slots=slots if isinstance(slots, int) else None,
    )


def _models(client: httpx.Client, root: str) -> list[dict[str, Any]]:
    said = _get(client, f"{root}/v1/models")
    return [] if said is None else _entries(said.get("data"))


def _entries(found: object) -> list[dict[str, Any]]:
    return (
        [cast("dict[str, Any]", one) for one in cast("list[object]", found) if isinstance(one, dict)]
        if isinstance(found, list)
        else []
    )


def _names(found: object, key: str) -> tuple[str, ...]:
    return tuple(str(one[key]) for one in _entries(found) if isinstance(one.get(key), str))


def _get(client: httpx.Client, url: str) -> dict[str, Any] | None:
    """A JSON object of bounded size, or None for whatever else there is."""
    try:
        with client.stream("GET", url) as response:
            if response.status_code != 200:
                return None
            data = b""
            for part in response.iter_bytes():
                data += part
                if len(data) > _MOST_BYTES:
                    return None
        found: object = httpx.Response(200, content=data).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
