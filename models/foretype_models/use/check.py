"""What `foretype doctor` says of the model that was chosen: where it runs, how it is asked, whether it was trained to fill in."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from foretype_client.private_gateway.finding import chosen_profile, default_state_dir
from foretype_context.grammars.families import names_a_chat_model
from foretype_context.text.pasted import shell_line

from foretype_models import artifacts
from foretype_models.errors import ArtifactError, IdentifyError, NoServerError, UseError
from foretype_models.identify import identify
from foretype_models.running_servers import Server, look_at
from foretype_models.use.catalogue import read_catalogue
from foretype_models.use.machine import look
from foretype_models.use.proposal import expected

_NAME = "chosen model"
_URL = re.compile(r"https?://")

Check = tuple[str, bool, str, str]


def checks() -> Iterator[Check]:
    """Of this user's private gateway: name, whether it is well, detail, remedy."""
    yield check_choice(default_state_dir())


def check_choice(state_dir: Path, look_at: Callable[[str], Server] = look_at) -> Check:
    """The chosen model, from its profile, its file and its server. Nothing is generated."""
    path = chosen_profile(state_dir)
    if path is None:
        return _of_shipped()
    try:
        text = path.read_text("utf-8")
        said = tomllib.loads(text)
        place, name = str(said["engine"]["model"]), str(said["model"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return (_NAME, False, f"{path} is not what `foretype use` writes", "choose a model again: foretype use")
    licence = re.search(r'^# licence: "(.*)"$', text, re.MULTILINE)
    facts = [name, f"licence {licence[1] if licence else 'not known'}"]
    if _URL.match(place):
        return _of_server(facts, name, place, look_at)
    return _of_file(facts, Path(place), said)


def _of_shipped() -> Check:
    try:
        shipped = artifacts.available()[0]
    except ArtifactError as error:
        return (_NAME, False, str(error), "reinstall foretype")
    facts = f"the shipped one, {shipped.name} {shipped.version}: base, raw, {shipped.licence}"
    if not shipped.made:
        return (_NAME, False, f"{facts}; it is not made on this machine yet", "foretype models fetch")
    return (_NAME, True, f"{facts}; `foretype use` proposes others", "")


def _of_server(facts: list[str], name: str, url: str, look_at: Callable[[str], Server]) -> Check:
    try:
        server = look_at(url)
    except NoServerError as error:
        return (_NAME, False, f"{', '.join(facts)}: {error}", "start it, or choose another model: foretype use")
    model = next((one for one in server.models if name in (one.name, Path(one.name).stem)), None)
    context = server.context_tokens or (None if model is None else model.context_tokens)
    facts += [
        "trained to chat, by its name" if names_a_chat_model(name) else "base, by its name",
        f"{server.kind} at {server.url}, asked with {server.asked}",
        f"{context:,} tokens of context" if context else "context not told",
        f"{server.slots} slots" if server.slots else "",
        ""
        if model is None or model.loaded is None
        else "in memory"
        if model.loaded
        else "not in memory: its next key waits",
        f"cached tokens {server.cached}",
    ]
    detail = ", ".join(fact for fact in facts if fact)
    if server.loading:
        return (_NAME, False, f"{detail}: it is still loading", "wait until it is there")
    if model is None:
        has = ", ".join(server.names[:4]) or "none"
        return (
            _NAME,
            False,
            f"{detail}: it has {has} now",
            f"start {name} again, or take that: {shell_line('foretype', 'use', url)}",
        )
    return (_NAME, not names_a_chat_model(name), detail, "take the base model" if names_a_chat_model(name) else "")


def _of_file(facts: list[str], file: Path, said: dict[str, Any]) -> Check:
    try:
        found = identify(file)
        size = file.stat().st_size
    except (IdentifyError, OSError) as error:
        return (_NAME, False, f"{facts[0]}: {error}", "choose a model again: foretype use")
    grammar = said["model"].get("grammar")
    family = f"family {found.family}{'' if found.proven else ' (unproven)'}" if found.family else f"grammar {grammar}"
    facts += [
        "trained to chat, by its name" if names_a_chat_model(found.name) else "base, by its name",
        f"{family}, raw, in memory as long as the gateway runs",
        f"{size / 1e6:,.0f} MB",
        _expectation(facts[0]),
    ]
    if found.problem() and not grammar:
        return (_NAME, False, f"{', '.join(filter(None, facts))}: {found.problem()}", "foretype use FILE --grammar ID")
    remark = found.warning() if found.chat else ""
    return (_NAME, not remark, ", ".join(filter(None, facts)), remark)


def _expectation(name: str) -> str:
    """What the catalogue expects, beside what the probe of the same doctor measures."""
    try:
        catalogue = read_catalogue()
    except UseError:
        return ""
    entry = catalogue.get(name)
    speed = None if entry is None else expected(entry, look(), catalogue)
    return "" if speed is None else f"expected: first text after a key in {speed.warm_ms:.0f} ms ({speed.source})"
