"""Initialization options: what an editor may set, each with its default.

Editors send them as `initializationOptions`, and again in `workspace/didChangeConfiguration`, in camelCase. A wrong one is
reported once and falls back to its default; the others are kept, because half a configuration is better than no server.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, cast

import msgspec
from foretype_client.policy.switches import Switches
from foretype_client.session.connecting import without_credentials
from foretype_context.edits.pace import Eagerness
from msgspec import Meta


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class IndexOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What of other files may stand in a prompt.

    Attributes:
        enable: index the open folders.
        dependencies: signatures of installed packages that the imports name may stand in a prompt too.
        cache_dir: where indexes are kept. Unset: the user's cache directory.
    """

    enable: bool = True
    dependencies: bool = False
    cache_dir: str = ""


class NextEditOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Suggestions beyond the cursor: the edit that the last ones call for (docs/next-edit.md).

    Attributes:
        enabled: offer them.
        eagerness: `low` shows renames that were followed once by hand, and changed signatures; `medium` also what a renamed declaration
            says alone, and two like edits; `high` also what a model says.
    """

    enabled: bool = True
    eagerness: Eagerness = Eagerness.LOW


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an editor may set.

    Attributes:
        enable: suggestions at all: per language id, `*` for all that are not named; a single boolean means `*`.
        debounce_ms: wait after the last change before the model is asked. Unset: by the policy, 75 to begin with.
        multi_line: whether a suggestion may have several lines; if not, it ends with its first.
        in_comments, in_strings: whether suggestions come unasked in comments and strings, per language id, `*` for all that are not
            named; a single boolean means `*`. Unset: in comments, and not in strings.
        excluded_globs: files that get no suggestions, as `**/`-style globs on the path.
        gateway_url: a team's gateway, `wss://host/v1/stream`; of several, between spaces, the nearest. Unset: a private gateway.
        token: credential for it.
        token_file: file that holds it, which is read at start and wins.
        token_in_clear: send it over `ws://` to another machine too, for everybody on the way to read.
        state_dir: where the private gateway says that it runs. Unset: the platform's place.
        model: model file for a private gateway. Unset: the shipped one.
        index: other files as context, see below; a single boolean means `enable`.
        next_edit: edits beyond the cursor, see below; a single boolean means `enabled`.
        log_level: of the server's own log; warnings, because editors show standard error as errors (Neovim, Helix).
        suggestion_grew: the client understands `foretype/suggestionGrew`: it is answered with the beginning of a line, and told
            when there is more.
        ask_early: the editor asks some time after each key: when the debounce ends the model is asked, before the editor asks.
        policies: parts of the client's policy, each a boolean, see below.
        telemetry: tell the gateway what became of suggestions: ids, times and lengths (docs/telemetry.md).
        ask_how_it_feels: ask, every twelve weeks at most, whether completions feel instant; the answer goes where telemetry goes.
        trusted: the user trusts who made the open folders. If not, nothing in them is read: what the editor has open is all
            that is known, and no git runs. Whatever is no boolean counts as `false`.
    """

    enable: dict[str, bool] = {}
    debounce_ms: Annotated[float, Meta(ge=0, le=10_000)] | None = None
    multi_line: bool = True
    in_comments: dict[str, bool] = {}
    in_strings: dict[str, bool] = {}
    excluded_globs: tuple[str, ...] = ()
    gateway_url: Annotated[str, Meta(pattern=r"^$|^wss?://[^/\s]+(/\S*)?( +wss?://[^/\s]+(/\S*)?)*$")] = ""
    token: str = ""
    token_file: str = ""
    token_in_clear: bool = False
    state_dir: str = ""
    model: str = ""
    index: IndexOptions = IndexOptions()
    next_edit: NextEditOptions = NextEditOptions()
    log_level: LogLevel = LogLevel.WARNING
    suggestion_grew: bool = False
    ask_early: bool = False
    policies: Switches = Switches()
    telemetry: bool = True
    ask_how_it_feels: bool = False
    trusted: bool = True

    def enabled(self, language: str) -> bool:
        """Whether files of a language get suggestions."""
        return self.enable.get(language, self.enable.get("*", True))

    def redacted(self) -> dict[str, Any]:
        """The options for a log: everything but credentials."""
        told = {"token": "***" if self.token else "", "gatewayUrl": without_credentials(self.gateway_url)}
        return {**msgspec.to_builtins(self), **told}


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """One option that was not taken, and what is used instead."""

    option: str
    message: str

    def __str__(self) -> str:
        return f"option {self.option}: {self.message}"


_OF_THE_CLIENT: Final = frozenset({"trace", "server", "statusBar"})
_BY_LANGUAGE: Final = frozenset({"enable", "in_comments", "in_strings"})
_BY_SWITCH: Final = {"index": "enable", "next_edit": "enabled"}
"""What a single boolean means."""
_FIELDS: Final = {field.encode_name: field for field in msgspec.structs.fields(Options)}
_PARTIAL: Final = frozenset(name for name, field in _FIELDS.items() if isinstance(field.default, msgspec.Struct))
"""What is a table of its own: who names one entry leaves the others as they are."""


def section_of(settings: Mapping[str, object]) -> object:
    """What `workspace/didChangeConfiguration` says of these options, below `foretype` or by itself; None where that is nothing.

    Some editors send an empty object as soon as they are connected (Emacs' eglot), or what they know of other servers.
    """
    own = settings.get("foretype")
    return own if own is not None else settings if not _FIELDS.keys().isdisjoint(settings) else None


def parse(
    raw: object, overrides: Mapping[str, object] | None = None, *, trusted: bool = True
) -> tuple[Options, list[Problem]]:
    """Read options from what an editor sent; never raises.

    Args:
        overrides: options that win over the editor's (the command line's). Of tables (`index`, `policies`) they set the entries
            that they name, and leave the editor's others.
        trusted: the option of that name where nothing is said about it.

    Returns:
        The options, and a problem for each entry that was not understood. Unknown names are problems too (a misspelt option
        that is silently ignored is the hardest to find), except those that editors keep in the same section for themselves.
    """
    overrides = overrides or {}
    options, problems = Options(trusted=trusted), list[Problem]()
    if isinstance(raw, Mapping):
        given = cast("Mapping[object, object]", raw)
        options, problems = _taken(options, {n: v for n, v in given.items() if n not in overrides or n in _PARTIAL})
    elif raw is not None and raw != []:  # an empty table of Lua
        told = f"expected an object, got {type(raw).__name__}; using defaults"
        problems = [Problem("initializationOptions", told)]
    options, others = _taken(options, overrides)
    return options, problems + others


def _taken(options: Options, given: Mapping[Any, object]) -> tuple[Options, list[Problem]]:
    """Options with what is given in place of their own, where it can be read."""
    values: dict[str, object] = {}
    problems: list[Problem] = []
    for name, value in given.items():
        field = _FIELDS.get(str(name))
        if field is None:
            if "." not in str(name) and name not in _OF_THE_CLIENT:
                problems.append(Problem(str(name), f"unknown; the options are {', '.join(sorted(_FIELDS))}"))
            continue
        if value is None or (
            value == [] and (field.name in _BY_LANGUAGE or name in _PARTIAL)
        ):  # how Lua and Lisp clients spell "not set"
            continue
        if field.name in _BY_LANGUAGE and isinstance(value, bool):
            value = {"*": value}
        if field.name in _BY_SWITCH and isinstance(value, bool):
            value = {_BY_SWITCH[field.name]: value}
        if field.name == "log_level" and isinstance(value, str):
            value = value.lower()
        own = getattr(options, field.name)
        if name in _PARTIAL and isinstance(value, Mapping):
            value = msgspec.to_builtins(own) | dict(cast("Mapping[str, object]", value))
        try:
            values[field.name] = msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            if field.name == "trusted":
                own = values["trusted"] = False
            kept = own if field.name == "trusted" else options.redacted()[field.encode_name]
            using = "its defaults" if isinstance(own, msgspec.Struct) else repr(kept)
            problems.append(Problem(str(name), f"{error}; using {using}"))
    return msgspec.structs.replace(options, **values), problems
