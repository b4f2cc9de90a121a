"""The next edit as an editor meets it: a real server over pipes, a real folder with its index, and a real gateway's store."""

import asyncio

from e2e.lsp_support import DEADLINE_S, editor, gateway
from e2e.stored import stored
from lsprotocol import types
from waiting import until

MODULE = "def width(a):\n    return a\n\n\nprint(width(0))\n"
USER = "from mod import width\n\nprint(width(1))\n"


class Typist:
    """Types in one document of a real server."""

    def __init__(self, it, path, content):
        self.it, self.uri, self.text = it, path.as_uri(), content
        it.open(content, uri=self.uri)
        self.version = it.version

    def replace(self, line, start, end, new):
        self.version += 1
        span = types.Range(types.Position(line, start), types.Position(line, end))
        change = types.TextDocumentContentChangePartial(range=span, text=new)
        identifier = types.VersionedTextDocumentIdentifier(self.version, self.uri)
        self.it.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change]))

    async def next(self, line=0, character=0):
        document = {"uri": self.uri, "version": self.version}
        position = {"line": line, "character": character}
        async with asyncio.timeout(DEADLINE_S):
            answer = await self.it.send(
                "textDocument/copilotInlineEdit", {"textDocument": document, "position": position}
            )
        return answer.edits[0] if answer.edits else None

    async def take(self, edit):
        self.it.client.protocol.notify(
            "textDocument/didShowInlineEdit", {"item": {"command": {"arguments": list(edit.command.arguments)}}}
        )
        start, end = edit.range.start, edit.range.end
        self.replace(start.line, start.character, end.character, edit.text)
        await self.it.taken(edit)


async def test_a_rename_is_followed_in_its_file_and_then_in_the_folder_and_the_store_knows(tmp_path):
    root = tmp_path / "w"
    root.mkdir()
    (root / "mod.py").write_text(MODULE)
    (root / "use.py").write_text(USER)
    for number in range(200):
        (root / f"other{number}.py").write_text(f"def other{number}():\n    return {number}\n")
    events = tmp_path / "events.db"
    with gateway(
        tmp_path, more=f'[telemetry]\nurl = "{events}"\n', options=("--state-dir", tmp_path / "gateway")
    ) as served:
        given = {
            "stateDir": str(tmp_path / "state"),
            "index": {"cacheDir": str(tmp_path / "cache")},
            "nextEdit": {"eagerness": "medium"},
        }
        async with editor(tmp_path, "--gateway", served.url, options=given, folders=[root]) as it:
            typist = Typist(it, root / "mod.py", MODULE)
            typist.replace(0, 4, 9, "size")
            edit = await typist.next(1, 0)
            assert (edit.text, edit.range.start.line, edit.data.evidence) == ("size", 4, "declaration")
            await typist.take(edit)
            # The index of the folder is made in the background.
            edit = await until(lambda: typist.next(4, 10))
            assert (edit.textDocument.uri, edit.textDocument.version) == ((root / "use.py").as_uri(), None)
            other = Typist(it, root / "use.py", USER)
            edit = await other.next(0, 0)
            assert (edit.textDocument.uri, edit.textDocument.version) == (other.uri, other.version)
            await other.take(edit)
            rows = await stored(events, "next_edit", 2)
    assert [(row.end, row.evidence, row.inserted, row.deleted) for row in rows] == [
        ("accepted", "declaration", 4, 5)
    ] * 2
