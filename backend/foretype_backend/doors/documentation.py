"""`/openapi.json`, and the same as a page for people that loads nothing from anywhere and runs nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from html import escape
from typing import Any, Final

import msgspec
from starlette.responses import Response

from foretype_backend.doors.contract import DocumentedAnswer, DocumentedApp

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
pre { overflow-x: auto; border: 1px solid; border-radius: .3rem; padding: .6rem; font-size: .85rem; }
summary { cursor: pointer; } td, th { text-align: left; padding: .1rem .8rem .1rem 0; vertical-align: top; }
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class DocumentDoor:
    """Serves what `document` says."""

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self._document = document

    def register(self, app: DocumentedApp) -> None:
        told = DocumentedAnswer("the document", media="application/json")
        app.door("GET", "/openapi.json", self.openapi_json, tag="document", answers={200: told})
        app.door(
            "GET", "/docs", self.docs, tag="document", answers={200: DocumentedAnswer("the page", media="text/html")}
        )

    async def openapi_json(self) -> Response:
        """This document.

        A private gateway, which is on loopback, asks for no credential here.
        """
        return Response(msgspec.json.encode(self._document()), media_type="application/json", headers=_HEADERS)

    async def docs(self) -> Response:
        """This document as a page, which needs no network and no script.

        A private gateway, which is on loopback, asks for no credential here.
        """
        return Response(page(self._document()), media_type="text/html", headers=_HEADERS)


def page(document: dict[str, Any]) -> str:
    """The document as HTML."""
    title = escape(document["info"]["title"])
    tags: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags[operation["tags"][0]].append(_operation(f"{method.upper()} {path}", operation))
    parts = [f"<h1>{title}</h1>", *_paragraphs(document["info"]["description"])]
    for tag in document["tags"]:
        parts += [f"<h2>{escape(tag['name'])}</h2>", *_paragraphs(tag["description"]), *tags[tag["name"]]]
    parts.append("<h2>schemas</h2>")
    for name, schema in document["components"]["schemas"].items():
        parts.append(
            f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>{_shown(schema)}</details>'
        )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>"
    )


def _operation(name: str, operation: dict[str, Any]) -> str:
    told = [
        f"<details><summary><code>{escape(name)}</code> {escape(operation['summary'])}</summary>",
        *_paragraphs(operation.get("description", "")),
        "<table>",
    ]
    told += [_row(f"{one['in']} {one['name']}", "", one["schema"]) for one in operation.get("parameters", ())]
    if "requestBody" in operation:
        told += [_row("body", media, one["schema"]) for media, one in operation["requestBody"]["content"].items()]
    for status, answer in operation["responses"].items():
        content: dict[str, Any] = answer.get("content") or {"": {"schema": {}}}
        told += [_row(f"{status} {answer['description']}", media, _of(one)) for media, one in content.items()]
    return "".join([*told, "</table></details>"])


def _of(content: dict[str, Any]) -> dict[str, Any]:
    """What an answer is, or the events of a stream are."""
    if "schema" in content:
        return content["schema"]
    data = content["itemSchema"]["properties"]["data"]
    return data.get("anyOf", [data])[0]["contentSchema"]


def _row(name: str, media: str, schema: dict[str, Any]) -> str:
    names = [one["$ref"].rpartition("/")[2] for one in schema.get("anyOf", [schema]) if "$ref" in one]
    links = ", ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in names)
    return f"<tr><th>{escape(name)}</th><td>{escape(media)}</td><td>{links or escape(schema.get('description', ''))}</td></tr>"


def _paragraphs(text: str) -> list[str]:
    return [f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip()]


def _shown(schema: dict[str, Any]) -> str:
    return f"<pre>{escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())}</pre>"
