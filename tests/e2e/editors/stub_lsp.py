"""A language server that answers every question for a suggestion with what a file says: JSON with `text` and `replaces`.

`next` in it lists next edits, each with `range` and `text`, and what else is not as usual (`uri`, `version`, `jumpOnly`): the first
until it is accepted, then the second. The next document that is opened begins with the first again.

python stub_lsp.py FILE
"""

import json
import os
import sys
from pathlib import Path

from foretype_lsp.transport.framing import Framing, frame

ACCEPT = "foretype.nextEdit.accept"
CAPABILITIES = {
    "textDocumentSync": {"openClose": True, "change": 2},
    "inlineCompletionProvider": True,
    "executeCommandProvider": {"commands": [ACCEPT]},
    "experimental": {"foretype": {"nextEdit": True}},
}


class NextEdits:
    """Which of those that the file lists is the next."""

    def __init__(self):
        self._taken = 0

    def told(self, message):
        if message["method"] in ("textDocument/didOpen", "notebookDocument/didOpen"):
            self._taken = 0
        if message["method"] == "workspace/executeCommand" and message["params"]["command"] == ACCEPT:
            self._taken += 1

    def answer(self, message, listed):
        """One edit of the text that was asked about, or none."""
        document = message["params"]["textDocument"]
        return {"edits": [_item(document, self._taken, one) for one in listed[self._taken : self._taken + 1]]}


def _item(document, index, one):
    document = {"uri": one.get("uri", document["uri"]), "version": one.get("version", document["version"])}
    command = {"title": "Accept next edit", "command": ACCEPT, "arguments": [f"stub-{index}"]}
    data = {"id": f"stub-{index}", "evidence": "rename", "left": 0, "jumpOnly": one.get("jumpOnly", False)}
    return {"text": one["text"], "range": one["range"], "textDocument": document, "command": command, "data": data}


def answer(message, wanted, next_edits):
    """The result of one request."""
    if message["method"] == "textDocument/copilotInlineEdit":
        return next_edits.answer(message, wanted["next"])
    if message["method"] == "foretype/status":
        return {"state": "ready"}
    if message["method"] != "textDocument/inlineCompletion":
        capabilities = CAPABILITIES if "next" in wanted else {}
        return {"capabilities": capabilities} if message["method"] == "initialize" else None
    if "text" not in wanted:
        return {"items": []}
    at = message["params"]["position"]
    end = {**at, "character": at["character"] + wanted["replaces"]}
    command = {"title": "Accepted", "command": "foretype.didAcceptCompletionItem", "arguments": [str(message["id"])]}
    return {"items": [{"insertText": wanted["text"], "range": {"start": at, "end": end}, "command": command}]}


def main():
    file = Path(sys.argv[1])
    ready = {
        "method": "foretype/didChangeStatus",
        "params": {"state": "ready", "model": "", "detail": "", "advice": ""},
    }
    framing, next_edits = Framing(), NextEdits()
    while data := os.read(0, 1 << 16):
        for message in map(json.loads, framing.feed(data)):
            said = []
            if "method" not in message:
                continue
            next_edits.told(message)
            if "id" in message:
                wanted = json.loads(file.read_text())
                said.append({"id": message["id"], "result": answer(message, wanted, next_edits)})
            if message["method"] == "initialized":
                said.append(ready)
            for one in said:
                os.write(1, frame(json.dumps({"jsonrpc": "2.0", **one}).encode()))


if __name__ == "__main__":
    main()
