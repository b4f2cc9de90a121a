"""All that users may rely on, by kind and name, from what the code says of itself.

A checkout's own commands (lab/README.md) are no promise, nor is the text of a page or a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast, get_args, get_origin

import msgspec
from foretype_backend.admission.outcomes import Reason
from foretype_backend.doors.auth import CLOSE_CREDENTIALS, CLOSE_FORBIDDEN
from foretype_backend.doors.readiness import UnreadyReason
from foretype_backend.engines.by_name import ENGINES
from foretype_backend.errors import Fault
from foretype_backend.start.openapi import document
from foretype_context.edit_models.format import FORMATS
from foretype_context.grammars.families import families
from foretype_context.grammars.grammar import GRAMMARS
from foretype_context.syntax.languages import LANGUAGES
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_lsp.server import DID_CHANGE_STATUS, Server
from foretype_lsp.suggestions.handlers import SUGGESTION_GREW
from foretype_models.artifacts import FOLDER
from foretype_wire import telemetry
from foretype_wire.messages import ClientMessage, ErrorCode, GatewayMessage

from foretype_lab.reference.commands import every_command, is_shown
from foretype_lab.reference.metrics import every_metric
from foretype_lab.reference.settings import FLEET, OPTIONS, rows_of, settings_tables

_EDITORS: Final = Path(__file__).parents[3] / "editors"


def promises() -> dict[str, list[str]]:
    """Names by kind, sorted."""
    return {kind: sorted(set(collected())) for kind, collected in KINDS.items()}


def _options() -> Iterator[str]:
    for name, command in every_command():
        for one in filter(is_shown, command.params):
            if one.param_type_name == "argument":
                yield f"{name} {one.name.upper()}"
            else:
                yield from (f"{name} {spelled}" for spelled in (*one.opts, *one.secondary_opts))


def _fields(tables: Iterable[tuple[str, str, type]]) -> Iterator[str]:
    for title, prefix, cls in tables:
        before = prefix or f"{title}: ".replace("`", "").replace("Options: ", "")
        yield from (before + row.name for row in rows_of(cls))


def _paths() -> Iterator[str]:
    yield "GET /v1/stream"  # a WebSocket, which OpenAPI does not describe
    for path, doors in document(load_tokenizer(FOLDER / "tokenizer.json"))["paths"].items():
        yield from (f"{method.upper()} {path}" for method in doors)


def _tags(*unions: Any) -> Iterator[str]:
    for union in unions:
        for one in get_args(union):
            yield _tag(get_origin(one) or one)


def _events() -> Iterator[str]:
    found = ((name, one) for name, one in vars(telemetry).items() if isinstance(one, type))
    yield from (tag for name, one in found if not name.startswith("_") and (tag := _tag(one)))


def _tag(of: Any) -> str:
    """Empty where a class is no message."""
    found = getattr(of, "__struct_config__", None)
    return "" if found is None or found.tag is None else str(found.tag)


def _methods() -> Iterator[str]:
    """What an editor sends; and what it is sent that is not the standard's."""
    for popup in (False, True):
        yield from cast(Any, Server(popup=popup).protocol.fm).features
    yield from (DID_CHANGE_STATUS, SUGGESTION_GREW)


def _commands_of_server() -> Iterator[str]:
    yield from cast(Any, Server(popup=True).protocol.fm).commands


def _editor_actions() -> Iterator[str]:
    told = _package()
    yield from (f"vscode {one['command']}" for one in told["commands"])
    yield from (f"vscode {one['key']} {one['command']}" for one in told["keybindings"])
    yield from _found("neovim", "nvim/lua", "*.lua", r"(?:user_command\('|^  )(Foretype\w+)(?:',| = \{ 'foretype)")
    yield from _found("emacs", "emacs", "*.el", r"^\(defun (foretype-[a-z]\S*) .*\n(?:(?!\().*\n)*?  \(interactive")
    yield from _found("jupyter", "jupyter/src", "*.ts", r"'(foretype:[\w-]+)'")


def _editor_settings() -> Iterator[str]:
    yield from (f"vscode {name}" for name in _package()["configuration"]["properties"])
    [defaults] = re.findall(
        r"^M\.defaults = \{\n(.*?)^\}", _text("nvim/lua/foretype/init.lua"), re.MULTILINE | re.DOTALL
    )
    yield from (
        f"neovim {name}" for name in re.findall(r"(?:^ +|, )(\w+) = ", re.sub(r"--.*", "", defaults), re.MULTILINE)
    )
    yield from _found("emacs", "emacs", "*.el", r"^\(defcustom (\S+)")
    schema = msgspec.json.decode(_text("jupyter/schema/plugin.json"))
    yield from (f"jupyter {name}" for name in schema["properties"])


def _package() -> dict[str, Any]:
    return msgspec.json.decode(_text("vscode/package.json"))["contributes"]


def _found(editor: str, folder: str, files: str, pattern: str) -> Iterator[str]:
    for path in sorted((_EDITORS / folder).rglob(files)):
        yield from (f"{editor} {name}" for name in re.findall(pattern, path.read_text("utf-8"), re.MULTILINE))


def _text(name: str) -> str:
    return (_EDITORS / name).read_text("utf-8")


def _errors() -> Iterator[str]:
    yield from (f"code {one}" for one in ErrorCode)
    yield from (f"reason {one}" for one in Reason)
    yield from (f"unready {one}" for one in UnreadyReason)
    yield from (f"engine {one}" for one in Fault)
    yield from (f"close {one}" for one in (CLOSE_CREDENTIALS, CLOSE_FORBIDDEN))


KINDS: Final[Mapping[str, Callable[[], Iterable[str]]]] = {
    "command": lambda: (name for name, _ in every_command()),
    "option": _options,
    "config field": lambda: _fields(settings_tables()),
    "fleet key": lambda: _fields(FLEET),
    "metric": lambda: (one.name for one in every_metric()),
    "HTTP path": _paths,
    "wire message": lambda: _tags(ClientMessage, GatewayMessage),
    "telemetry event": _events,
    "LSP method": _methods,
    "LSP command": _commands_of_server,
    "LSP option": lambda: _fields(OPTIONS),
    "editor action": _editor_actions,
    "editor setting": _editor_settings,
    "error": _errors,
    "language": lambda: LANGUAGES,
    "engine": lambda: ENGINES,
    "family": lambda: (one.id for one in families()),
    "grammar": lambda: GRAMMARS,
    "edit format": lambda: FORMATS,
}
