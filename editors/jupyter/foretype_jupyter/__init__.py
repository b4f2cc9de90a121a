"""Foretype in JupyterLab and Notebook 7: ghost text in cells.

The page has the extension in `labextension`; this is the Jupyter server's part, which passes messages between the pages and one
language server, a process of its own.
"""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "foretype_jupyter"}]


def _load_jupyter_server_extension(app: Any) -> None:
    from foretype_jupyter.handlers import add_handlers

    add_handlers(app)
