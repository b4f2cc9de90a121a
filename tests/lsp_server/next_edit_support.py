"""Somebody who types in one document of a server and asks for the next edit."""

import asyncio

from foretype_lsp.next_edit.handlers import DID_SHOW, ENDED, QUESTION

URI = "file:///w/a.py"
MEDIUM = {"nextEdit": {"eagerness": "medium"}}
"""A renamed declaration suffices."""
AREA = "def area(width, height):\n    if width < 0:\n        return 0\n    return width * height\n"


class Typist:
    """Types in one document and asks for the next edit."""

    def __init__(self, client, text=AREA, uri=URI, language="python"):
        self.client, self.uri, self.version = client, uri, 1
        client.open(text, uri=uri, language=language)

    @property
    def text(self):
        return self.client.text(self.uri)

    def replace(self, line, start, end, text):
        self.version += 1
        at = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
        self.client.change({"range": at, "text": text}, uri=self.uri, version=self.version)

    def retype(self, line, start, old, new):
        """Key by key."""
        for end in range(start + len(old), start, -1):
            self.replace(line, end - 1, end, "")
        for offset, character in enumerate(new):
            self.replace(line, start + offset, start + offset, character)

    def ask(self, line=0, character=0, version=None):
        document = {"uri": self.uri, "version": self.version if version is None else version}
        return self.client.request(QUESTION, textDocument=document, position={"line": line, "character": character})

    async def next(self, line=0, character=0):
        return await self.answer(self.ask(line, character))

    async def answer(self, id):
        """The edit, or None."""
        edits = (await answered(self.client, id))["result"]["edits"]
        assert len(edits) <= 1
        return edits[0] if edits else None

    def show(self, edit):
        self.client.notify(DID_SHOW, item={"command": edit["command"]})

    def end(self, edit, reason="rejected"):
        self.client.notify(ENDED, id=edit["data"]["id"], reason=reason)

    def take(self, edit):
        assert edit["textDocument"] == {"uri": self.uri, "version": self.version}
        start, end = edit["range"]["start"], edit["range"]["end"]
        assert start["line"] == end["line"]
        self.replace(start["line"], start["character"], end["character"], edit["text"])
        self.client.request("workspace/executeCommand", **{k: edit["command"][k] for k in ("command", "arguments")})


async def answered(client, id):
    async with asyncio.timeout(60):
        while not client.answers(id):
            client.arrived.clear()
            await client.arrived.wait()
    (answer,) = client.answers(id)
    return answer
