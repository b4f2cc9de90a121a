"""What a server that somebody already runs says of its model before it is asked for anything: where it is, and its vocabulary.

So no tokenizer has to be named where the server or its files give it. Nothing is generated here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from foretype_context.authorities import trusted
from foretype_context.text.pasted import shell_line
from foretype_context.tokens.tokenizer import Tokenizer
from foretype_models.errors import GgufError
from foretype_models.gguf_tokenizer import tokenizer_from, tokenizer_of

from foretype_backend.config.config import Config
from foretype_backend.config.load import read_token
from foretype_backend.config.settings import RUNNING_SERVERS
from foretype_backend.engines.openai.model_list import pick_model
from foretype_backend.errors import ConfigError, EngineUnavailableError

if TYPE_CHECKING:  # a gateway whose engine is its own asks nobody
    import httpx

_ANSWER_S: Final = 20.0
"""A vocabulary is some megabytes of JSON."""
PATIENCE_S: Final = 120.0
"""For a server that still loads its model."""
_SECOND_S: Final = 2.0
"""For another one at the next usual port, where the first has answered."""
_LOADING_S: Final = 0.5
_TEXT_ENGINES: Final = frozenset({"ollama", "lm-studio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server, as the gateway is to ask it.

    Attributes:
        url: its address.
        model: which of its models; None leaves it to the engine.
        file: of the model, where it can be read on this machine.
        metadata: of the model, as in its GGUF file, where the server says it.
    """

    engine: str
    url: str
    model: str | None = None
    file: Path | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def takes_text(self) -> bool:
        return self.engine in _TEXT_ENGINES

    def tokenizer(self) -> tuple[str, bytes]:
        """Name and bytes of its tokenizer. Raises ConfigError where neither server nor files give it."""
        try:
            if self.metadata.get("tokenizer.ggml.tokens"):
                return self.url, tokenizer_from(self.metadata, self.url)
            if self.file is not None:
                return str(self.file), tokenizer_of(self.file)
        except GgufError as error:
            raise ConfigError("model.tokenizer", str(error)) from error
        told = "does not say its tokenizer, and its file is not on this machine"
        raise ConfigError(
            "model.tokenizer",
            f"{self.url} {told}; name the model's tokenizer.json or .gguf file in --profile FILE as `[model] tokenizer = …`",
        )

    def puts_begin(self) -> bool:
        """Whether it puts the begin token before every text; by the rule of llama.cpp where the file does not say."""
        said = self.metadata.get("tokenizer.ggml.add_bos_token")
        if isinstance(said, bool):
            return said
        kind, pre = self.metadata.get("tokenizer.ggml.model"), self.metadata.get("tokenizer.ggml.pre")
        return kind in (None, "llama") or pre in ("llama-bpe", "llama3", "llama-v3", "tekken")

    def puts_space(self, grammar_spaces: bool) -> bool:
        """Whether it puts SentencePiece's space before texts, so that no text gives the prompt's ids."""
        if self.metadata.get("tokenizer.ggml.model") == "llama":
            return self.metadata.get("tokenizer.ggml.add_space_prefix", True) is not False
        return grammar_spaces


def find_server(config: Config, *, patience_s: float = PATIENCE_S) -> RunningServer:
    """The server of a configuration whose engine is one of `RUNNING_SERVERS`.

    Args:
        patience_s: how long each address may take, loading included.

    Raises:
        ConfigError: none answers in time, it lacks the model, or several answer where they are looked for.
    """
    import httpx

    engine, given = config.engine.name, config.engine.model
    named = config.model.name
    urls = RUNNING_SERVERS[engine]
    if given is not None and given.startswith(("http://", "https://")):
        urls = (given,)
    elif given is not None and engine == "ollama":
        named = given
    elif given is not None:
        raise ConfigError("engine.model", f"engine `{engine}` takes the base URL of a server, {urls[0]}")
    look = {"ollama": _ollama, "llama-cpp": _llama_cpp, "lm-studio": _lm_studio}[engine]
    problem: Exception | None = None
    found: list[RunningServer] = []
    for url in urls:
        wait_s = min(patience_s, _SECOND_S) if found else patience_s
        with _client(config, wait_s) as client:
            try:
                found.append(
                    look(_Asker(client, time.monotonic() + wait_s), url.rstrip("/").removesuffix("/v1"), named)
                )
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                problem = error
            except EngineUnavailableError as error:
                if not found:
                    raise ConfigError("engine.model", str(error)) from error
    if len(found) > 1:
        here = " and ".join(one.url for one in found)
        raise ConfigError("engine.model", f"several {engine} servers run, at {here}; say which with --model URL")
    if found:
        return found[0]
    raise ConfigError(
        "engine.model",
        f"no {engine} answers at {' or '.join(urls)} ({problem}); start it, or give its address with --model URL",
    )


def check_tokenizer(config: Config, server: RunningServer, tokenizer: Tokenizer, controls: Collection[str]) -> None:
    """Compare a tokenizer with the server's own, where that can be asked: the file under its model's path may be another by now.

    Args:
        controls: tokens that prompts will have.

    Raises:
        ConfigError: the server has other ids for the same text.
    """
    if server.engine != "llama-cpp":
        return
    import httpx

    with _client(config) as client:
        for text in (_SAMPLE, *sorted(controls)):
            ours = tokenizer.encode(text) if text is _SAMPLE else [tokenizer.control(text)]
            try:
                reply = client.post(
                    f"{server.url}/tokenize", json={"content": text, "parse_special": text is not _SAMPLE}
                )
                theirs: object = reply.json()["tokens"] if reply.status_code == 200 else None
            except (httpx.HTTPError, ValueError, KeyError, TypeError):
                theirs = None  # an old one: the canary is what is left
            if not isinstance(theirs, list):
                return
            found = cast("list[object]", theirs)
            if (
                found[-len(ours) :] != list(ours) or len(found) > len(ours) + 1
            ):  # SentencePiece begins a text with a space
                raise ConfigError(
                    "model.tokenizer",
                    f"{server.file or config.model.tokenizer} is not the vocabulary of the model at {server.url} (for "
                    f"{text.strip()[:20]!r} that has other ids); name its own tokenizer.json or .gguf file with `[model] tokenizer`",
                )


_SAMPLE: Final = "\ndef größe(x, *, n=1234):\n\treturn f'{x!r}'  # 日本 \r\n\n    if x is None:\n"


def _client(config: Config, patience_s: float = PATIENCE_S) -> httpx.Client:
    import httpx

    key_file = config.engine.api_key_file
    key = None if key_file is None else read_token(Path(key_file), "engine.api_key_file", min_chars=1)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    timeout = httpx.Timeout(min(patience_s, _ANSWER_S), connect=2.0)
    return httpx.Client(headers=headers, timeout=timeout, trust_env=False, verify=trusted())


def _ollama(asker: _Asker, root: str, named: str | None) -> RunningServer:
    listed = asker.get(f"{root}/api/tags").get("models")
    if not isinstance(listed, list):
        raise ValueError("it is no Ollama")  # noqa: TRY004
    entries = [cast("dict[str, object]", one) for one in cast("list[object]", listed) if isinstance(one, dict)]
    names = [str(one.get("name")) for one in entries]
    if named is not None and named not in names and f"{named}:latest" in names:
        named = f"{named}:latest"
    get = f"; get it with `{shell_line('ollama', 'pull', named or 'qwen2.5-coder:1.5b-base')}`"
    model = pick_model(names, named, root, get=get, only=True)
    if model not in names:
        raise EngineUnavailableError(f"{root}: Ollama has no model {model!r}{get}")
    reply = asker.client.post(f"{root}/api/show", json={"model": model, "verbose": True})
    reply.raise_for_status()
    said = cast("dict[str, Any]", reply.json())
    metadata = said.get("model_info")
    blob = re.search(r"^FROM (/.+|[A-Za-z]:\\.+)$", str(said.get("modelfile", "")), re.MULTILINE)
    return RunningServer(
        engine="ollama",
        url=root,
        model=model,
        file=None if blob is None else _readable(blob[1].strip()),
        metadata=cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {},
    )


def _llama_cpp(asker: _Asker, root: str, named: str | None) -> RunningServer:
    props = asker.get(f"{root}/props")
    if "default_generation_settings" not in props:
        raise ValueError("it is no llama-server")
    path = str(props.get("model_path") or "")
    name = PurePath(path)
    if named is not None and named not in (path, name.name, name.stem, props.get("model_alias")):
        raise EngineUnavailableError(
            f"{root}: serves {name.name} now, not {named}; start that again, or `{shell_line('foretype', 'use', root)}`"
        )
    return RunningServer(engine="llama-cpp", url=root, model=named, file=_readable(path))


def _lm_studio(asker: _Asker, root: str, named: str | None) -> RunningServer:
    if not isinstance(asker.get(f"{root}/api/v0/models").get("data"), list):
        raise ValueError("it is no LM Studio")  # noqa: TRY004  the server's answer is wrong, not an argument
    return RunningServer(engine="lm-studio", url=root, model=named)


def _readable(path: str) -> Path | None:
    """The file, where it is one of this machine's and a model's: the server may be on another."""
    found = Path(path)
    try:
        with found.open("rb") as file:
            return found if file.read(4) == b"GGUF" else None
    except OSError:
        return None


class _Asker(NamedTuple):
    client: httpx.Client
    give_up_s: float

    def get(self, url: str) -> dict[str, Any]:
        while (reply := self.client.get(url)).status_code == 503:  # llama-server, while it loads its model
            if time.monotonic() >= self.give_up_s:
                raise EngineUnavailableError(f"{url}: is still loading its model; wait until it is there")
            time.sleep(_LOADING_S)
        reply.raise_for_status()
        found: object = reply.json()
        if not isinstance(found, dict):
            raise ValueError("it does not answer with an object")  # noqa: TRY004
        return cast("dict[str, Any]", found)
