"""Client SDK: suggestions of a gateway for an editor, a command or a bench (docs/sdk.md).

A name is imported when it is first asked for: `import foretype_client`, and any module inside, cost what they name alone.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as type checkers know it; importing it from `typing` costs more than all else here
if TYPE_CHECKING:
    from typing import Any

    from foretype_context.errors import ForetypeError
    from foretype_context.prompt.sources import Snippet, SnippetSource
    from foretype_context.syntax.document import Document, Snapshot
    from foretype_wire.errors import GatewayGoneError, RequestRefusedError

    from foretype_client.client import Client, ClientOptions, open_client
    from foretype_client.errors import GatewayStartError
    from foretype_client.flow.collaborators import FlowOptions
    from foretype_client.flow.suggestion import Suggestion
    from foretype_client.locations import Location, open_location
    from foretype_client.open_document import OpenDocument

__all__ = [
    "Client",
    "ClientOptions",
    "Document",
    "FlowOptions",
    "ForetypeError",
    "GatewayGoneError",
    "GatewayStartError",
    "Location",
    "OpenDocument",
    "RequestRefusedError",
    "Snapshot",
    "Snippet",
    "SnippetSource",
    "Suggestion",
    "open_client",
    "open_location",
]

_HOMES = {
    "Client": "foretype_client.client",
    "ClientOptions": "foretype_client.client",
    "Document": "foretype_context.syntax.document",
    "FlowOptions": "foretype_client.flow.collaborators",
    "ForetypeError": "foretype_context.errors",
    "GatewayGoneError": "foretype_wire.errors",
    "GatewayStartError": "foretype_client.errors",
    "Location": "foretype_client.locations",
    "OpenDocument": "foretype_client.open_document",
    "RequestRefusedError": "foretype_wire.errors",
    "Snapshot": "foretype_context.syntax.document",
    "Snippet": "foretype_context.prompt.sources",
    "SnippetSource": "foretype_context.prompt.sources",
    "Suggestion": "foretype_client.flow.suggestion",
    "open_client": "foretype_client.client",
    "open_location": "foretype_client.locations",
}


def __getattr__(name: str) -> Any:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
