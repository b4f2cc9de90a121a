"""From what somebody asked for to what the private gateway is to serve: looks, checks, and fetches what is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

from foretype_context.errors import UnknownControlError, UnknownGrammarError
from foretype_context.grammars.families import LEFT_TO_RIGHT, names_a_chat_model
from foretype_context.grammars.grammar import grammar as grammar_named
from foretype_context.text.pasted import shell_line

from foretype_models import running_servers
from foretype_models.errors import FetchError, GgufError, IdentifyError, NoServerError, UseError
from foretype_models.exact_weights import EXACT, default_prepared_dir, exact_copy, plan_weights
from foretype_models.identify import Identity, evidence_of, identify
from foretype_models.running_servers import Server
from foretype_models.use.catalogue import Catalogue, Entry
from foretype_models.use.download import Wanted, download
from foretype_models.use.machine import Machine
from foretype_models.use.profile import Choice
from foretype_models.use.proposal import check_memory, plan_for
from foretype_models.watching import Watcher

_OLLAMA: Final = "ollama:"
_OLLAMA_PORT: Final = "11434"
_LOCAL: Final = "127.0.0.1"
_ALL_ADDRESSES: Final = frozenset({"", "0.0.0.0", "::"})
"""Where a server listens for everybody; who asks it from the same machine asks the machine."""
_GGUF: Final = b"GGUF"
_PROMPT_MOST: Final = 2000
_ANSWER_TOKENS: Final = 256
"""Of a server's context that stays for the answer and for what the prompt's own count misses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWish:
    """What somebody asked for.

    Attributes:
        what: a name of the catalogue, a file, `ollama:NAME`, a server's URL, or `shipped`.
        folder: where downloaded models lie.
        accept_digest: SHA-256 of a file whose digest the catalogue does not know, as the user read it at its publisher.
        tokenizer: `tokenizer.json` or GGUF file of a server's model.
        model: which one of a server's models.
        grammar: id of the model's prompt grammar, where its vocabulary fits several.
        anyway: take it although a check says that it is no good; never one whose digest is wrong.
    """

    what: str
    folder: Path
    accept_digest: str | None = None
    tokenizer: Path | None = None
    model: str | None = None
    grammar: str | None = None
    anyway: bool = False
    machine: Machine = field(repr=False)
    catalogue: Catalogue = field(repr=False)
    look_at: Callable[[str], Server] = running_servers.look_at


def file_of(entry: Entry, folder: Path) -> Path:
    """Where the file of an entry lies, or will."""
    return folder / entry.name / entry.file


def choose(asked: ModelWish, events: Watcher) -> Choice:
    """What the private gateway is to serve. Blocking; downloads.

    Raises:
        UseError: it cannot be used; one sentence with the remedy.
    """
    what = asked.what
    if what == "shipped":
        return _shipped(what, events)
    if what.startswith(_OLLAMA):
        return _ollama(asked, _ollama_root(os.environ.get("OLLAMA_HOST", "")), what.removeprefix(_OLLAMA))
    if re.match(r"https?://", what):
        return _server(asked)
    if (entry := asked.catalogue.get(what)) is not None:
        return _entry(asked, entry, events)
    if what.endswith(".gguf") or "/" in what or os.sep in what:
        path = Path(what).expanduser().absolute()
        return _file(asked, path, events, what=str(path), name=path.stem)
    names = ", ".join(model_names(asked.catalogue))
    raise UseError(
        f"{what!r} is no model that is known; name one of {names}, a .gguf file, ollama:NAME, http://host:port/v1, or shipped"
    )


def model_names(catalogue: Catalogue) -> list[str]:
    return [entry.name for entry in catalogue.models]


def _shipped(what: str, events: Watcher) -> Choice:
    """The shipped model, which is made first where it ships as an adapter."""
    from foretype_models.fetch.place import make_shipped

    try:
        return Choice(asked=what, name=make_shipped(events).artifact.name)
    except FetchError as error:
        raise UseError(str(error)) from error


def _entry(asked: ModelWish, entry: Entry, events: Watcher) -> Choice:
    if entry.serve != "embedded":
        raise UseError(
            f"{entry.name} does not open in the embedded engine; start `llama-server -hf {entry.repository} --port 8012`, then "
            "`foretype use http://127.0.0.1:8012/v1`"
        )
    digest = _digest(asked, entry)
    if not asked.machine.embedded and not asked.anyway:
        raise UseError(
            f"the embedded engine is not expected to run on this processor; start `llama-server -hf {entry.repository} --port 8012`, "
            "then `foretype use http://127.0.0.1:8012/v1` (--anyway tries all the same)"
        )
    if entry.bytes is not None:
        check_memory(asked.machine, entry.bytes, entry.name)
    if not entry.commercial:
        events.note(f"its licence, {entry.licence}, forbids commercial use: {entry.licence_url}")
    target = file_of(entry, asked.folder)
    events.doing(f"fetching {entry.file}")
    download(Wanted(entry.source(), digest, entry.bytes), target, events.progress)
    grammar = asked.grammar or entry.grammar
    return _file(asked, target, events, what=entry.name, name=entry.name, licence=entry.licence, grammar=grammar)


def _digest(asked: ModelWish, entry: Entry) -> str:
    given = None if asked.accept_digest is None else asked.accept_digest.lower()
    if given is not None and re.fullmatch("[0-9a-f]{64}", given) is None:
        raise UseError("--accept-digest takes a SHA-256, 64 hexadecimal digits, as the file's publisher states it")
    if entry.sha256 is None:
        if given is None:
            raise UseError(
                f"the SHA-256 of {entry.file} is not known here, so it is not downloaded; read it at {entry.page} and repeat with "
                "--accept-digest SHA256"
            )
        return given
    if given is not None and given != entry.sha256:
        raise UseError(f"--accept-digest names another digest than the catalogue has for {entry.name}; leave it out")
    return entry.sha256


def _file(
    asked: ModelWish,
    path: Path,
    events: Watcher,
    *,
    what: str,
    name: str,
    licence: str = "not known",
    grammar: str | None = None,
) -> Choice:
    """A GGUF file for the embedded engine. What else is wrong with it, the trial says."""
    try:
        if path.is_dir():
            raise UseError(
                f"{path} is a folder; name the .gguf file in it, or prepare a checkpoint with `foretype models pull`"
            )
        with path.open("rb") as stream:
            magic = stream.read(len(_GGUF))
        size = path.stat().st_size
    except OSError as error:
        raise UseError(f"{path} cannot be read ({error.strerror or error}); name a .gguf file") from error
    if magic != _GGUF:
        raise UseError(f"{path} is no GGUF file; name one, or prepare a checkpoint with `foretype models pull`")
    grammar = grammar or asked.grammar
    plain = _identified(path, grammar, events)
    if not plain:
        _refuse_chat(asked, name, "take its base model")
    check_memory(asked.machine, max(size, _made_exact(asked, path, events)), name)
    device, prompt_tokens = plan_for(asked.machine)
    return Choice(
        asked=what,
        name=name,
        model=str(path),
        options={} if device == "CPU" else {"device": device},
        rules={**_grammar(grammar), "budgets": _budgets(prompt_tokens)},
        licence=licence,
    )


def _refuse_chat(asked: ModelWish, name: str, instead: str) -> None:
    if names_a_chat_model(name) and not asked.anyway:
        raise UseError(f"{name} was trained to chat, by its name, and would answer in prose; {instead}, or --anyway")


def _made_exact(asked: ModelWish, path: Path, events: Watcher) -> int:
    """Bytes of the file as the embedded engine reads it; made now where that takes a copy, since its start would wait for it."""
    if asked.machine.architecture != "x86_64":
        return 0  # llama.cpp computes there, and reads every type as it is
    try:
        plan = plan_weights(path)
    except GgufError:
        return 0  # opening the file later says what is wrong with it
    if plan.types:
        events.note(f"{path.name}: {plan}")
        events.doing("keeping it as Q8_0")
        try:
            exact_copy(path, default_prepared_dir() / EXACT, events.progress)
        except GgufError as error:
            raise UseError(str(error)) from error
    return plan.bytes


def _grammar(grammar: str | None) -> dict[str, Any]:
    """Named where it is known; else the gateway finds it by the vocabulary."""
    return {} if grammar is None else {"grammar": grammar}


def _budgets(prompt_tokens: int) -> dict[str, int]:
    """The shares that the profile's defaults have."""
    return {"prompt_tokens": prompt_tokens, "context_tokens": prompt_tokens // 3, "suffix_tokens": prompt_tokens // 8}


def _identified(path: Path, named: str | None, events: Watcher) -> bool:
    """Refuses a vocabulary that cannot be asked, before anything is started; whether it is asked left to right."""
    try:
        found = identify(path)
        controls = evidence_of(path)[0].controls
    except IdentifyError:
        return named == LEFT_TO_RIGHT  # opening the file later says what is wrong with it
    if named is not None:
        _check_named(path, named, controls, found)
    elif found.problem():
        raise UseError(f"{path.name}: {found.problem()} (for `foretype use`: --grammar ID)")
    plain = LEFT_TO_RIGHT in (named, found.grammar)
    if not plain and named is None:
        events.note(f"{path.name} is of the family {found.family}{'' if found.proven else ' (unproven)'}")
    if found.warning() and named in (None, found.grammar):
        events.note(f"{path.name}: {found.warning()}" if plain else found.warning())
    return plain


def _check_named(path: Path, named: str, controls: Collection[str], found: Identity) -> None:
    """Raises UseError where the vocabulary lacks what the grammar that was named needs."""
    try:
        missing = grammar_named(named).for_vocabulary(controls).needed() - set(controls)
    except (UnknownGrammarError, UnknownControlError) as error:
        raise UseError(f"--grammar: {error}") from error
    if missing:
        instead = f"; without --grammar it is asked in {found.grammar}" if found.grammar else ""
        raise UseError(f"{path.name}: --grammar {named} needs {', '.join(sorted(missing))}, which it lacks{instead}")


def _look_at(asked: ModelWish, url: str) -> Server:
    try:
        server = asked.look_at(url)
    except NoServerError as error:
        raise UseError(str(error)) from error
    if server.loading:
        raise UseError(f"{url} is still loading its model; wait until it is there, and try again")
    return server


def _ollama_root(host: str) -> str:
    """The address that `OLLAMA_HOST` means to Ollama itself, which takes its own port where neither a scheme nor a port is named."""
    scheme, named, rest = host.strip().partition("://")
    if not named:
        scheme, rest = "http", scheme
    place, slash, path = rest.partition("/")
    name, _, port = place.rpartition(":")
    if not port.isdecimal() or (":" in name and not name.endswith("]")):  # no port, but a name or a bare IPv6 address
        name, port = place, "" if named else _OLLAMA_PORT
    name = name.strip("[]")
    name = _LOCAL if name in _ALL_ADDRESSES else f"[{name}]" if ":" in name else name
    return f"{scheme}://{name}{port and f':{port}'}{slash}{path}".rstrip("/")


def _ollama(asked: ModelWish, root: str, name: str) -> Choice:
    """One of Ollama's models, asked raw by Ollama's own interface."""
    try:
        server = _look_at(asked, root)
    except UseError:
        raise UseError(f"no Ollama answers at {root}; start it with `ollama serve`, or set OLLAMA_HOST") from None
    if server.kind != "ollama":
        raise UseError(f"{root} is no Ollama but {server.kind}; set OLLAMA_HOST, or name that server's URL")
    has = next((one for one in server.names if one in (name, f"{name}:latest")), None)
    if has is None:
        there = ", ".join(server.names[:8]) or "none"
        raise UseError(
            f"Ollama has no model {name} (it has {there}); get it with `{shell_line('ollama', 'pull', name)}`"
        )
    _refuse_chat(asked, has, "take a -base model")
    rules: dict[str, Any] = _grammar(asked.grammar) | _named_tokenizer(asked)
    if not asked.machine.gpus:  # a long prompt takes seconds there
        rules["budgets"] = _budgets(plan_for(asked.machine)[1])
    return Choice(asked=f"{_OLLAMA}{has}", name=has, engine=server.engine, model=server.url, rules=rules)


def _server(asked: ModelWish) -> Choice:
    server = _look_at(asked, asked.what)
    name = _model_of(asked, server)
    if server.kind == "ollama":
        return _ollama(asked, server.url, name)
    label = PurePath(name).stem if name.endswith(".gguf") else name
    _refuse_chat(asked, label, "serve its base model")
    rules: dict[str, Any] = _grammar(asked.grammar) | _tokenizer(asked, server)
    limit = next((one.context_tokens for one in server.models if one.name == name), None) or server.context_tokens
    if limit is not None:
        rules["context_limit_tokens"] = limit
        if (room := limit - _ANSWER_TOKENS) < _PROMPT_MOST:
            if room < _ANSWER_TOKENS:
                raise UseError(
                    f"{server.url} has a context of {limit} tokens, which is too little; start it with at least 2,304"
                )
            rules["budgets"] = _budgets(room)
    shown = label if server.engine == "llama-cpp" else name  # the others are asked for a model by its name
    return Choice(asked=asked.what, name=shown, engine=server.engine, model=server.url, rules=rules)


def _model_of(asked: ModelWish, server: Server) -> str:
    """The model that is meant: named, the only one, or the only one that fits."""
    names = server.names
    if asked.model is not None:
        if asked.model not in names:
            raise UseError(f"{server.url} has no model {asked.model}; it has {', '.join(names) or 'none'}")
        return asked.model
    fitting = [one.name for one in server.models if one.code and one.base]
    for several in (names, fitting):
        if len(several) == 1:
            return several[0]
    raise UseError(f"{server.url} has {len(names)} models ({', '.join(names)}); choose one with --model NAME")


def _named_tokenizer(asked: ModelWish) -> dict[str, Any]:
    if asked.tokenizer is None:
        return {}
    if not asked.tokenizer.is_file():
        raise UseError(f"--tokenizer: there is no file {asked.tokenizer}; name the model's tokenizer.json or .gguf")
    return {"tokenizer": str(asked.tokenizer.absolute())}


def _tokenizer(asked: ModelWish, server: Server) -> dict[str, Any]:
    """Of the server's model: as named, else out of the model's own file where that lies on this machine."""
    if named := _named_tokenizer(asked):
        return named
    path = Path(server.model_path)
    if server.model_path and path.is_absolute():
        found = path / "tokenizer.json" if path.is_dir() else path
        if found.is_file() and found.suffix in (".gguf", ".json"):
            # llama.cpp's engine reads the file that the server has at the time
            return {} if server.engine == "llama-cpp" else {"tokenizer": str(found)}
    relative = server.model_path and not path.is_absolute() and server.kind == "llama.cpp"
    whole = "start the server with the whole path of its model, or " if relative else ""
    raise UseError(
        f"the tokenizer of {server.url}'s model is not on this machine; {whole}name it with --tokenizer FILE (its tokenizer.json or "
        ".gguf)"
    )
