"""A notebook through a real language server and a real gateway."""

import asyncio

from e2e.lsp_support import DEADLINE_S, INLINE, raw_editor

NOTEBOOK = "file:///w/analysis.ipynb"
CELLS = ["import os\n\ndef total(values):", "# text", "    return "]


async def test_a_cell_is_completed_and_its_ranges_are_its_own(served, tmp_path):
    async with raw_editor(tmp_path, "--gateway", served.url, initialize=False) as it:
        known = {"notebookDocument": {"synchronization": {}}}
        it.send(id=0, method="initialize", params={"processId": None, "capabilities": known})
        assert "notebookDocumentSync" in (await it.answer(0))["result"]["capabilities"]
        it.send(method="initialized", params={})
        await it.until_ready()
        uris = [f"{NOTEBOOK}#{index}" for index in range(len(CELLS))]
        kinds = [2, 1, 2]
        notebook = {
            "uri": NOTEBOOK,
            "notebookType": "jupyter-notebook",
            "version": 0,
            "cells": [{"kind": kind, "document": uri} for kind, uri in zip(kinds, uris, strict=True)],
        }
        texts = [
            {"uri": uri, "languageId": "python" if kind == 2 else "markdown", "version": 0, "text": text}
            for uri, kind, text in zip(uris, kinds, CELLS, strict=True)
        ]
        it.send(method="notebookDocument/didOpen", params={"notebookDocument": notebook, "cellTextDocuments": texts})
        at = {"line": 0, "character": 11}
        asked = {"textDocument": {"uri": uris[2]}, "position": at, "context": {"triggerKind": 2}}
        it.send(id=1, method=INLINE, params=asked)
        (item,) = (await it.answer(1))["result"]["items"]
        assert item["insertText"] == "return return  # scripted"
        assert item["range"] == {"start": {"line": 0, "character": 4}, "end": at}
        it.send(method="notebookDocument/didClose", params={"notebookDocument": notebook, "cellTextDocuments": []})
        it.send(id=3, method=INLINE, params=asked)
        assert (await it.answer(3))["result"] is None
        async with asyncio.timeout(DEADLINE_S):
            it.send(id=4, method="shutdown")
            await it.answer(4)
