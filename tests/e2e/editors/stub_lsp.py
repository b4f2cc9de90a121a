"""A language server that answers every question for a suggestion with what a file says: JSON with `text` and `replaces`.

python stub_lsp.py FILE
"""

import json
import os
import sys
from pathlib import Path

from foretype_lsp.transport.framing import Framing, frame


def answer(message, wanted):
    """The result of one request."""
    if message["method"] != "textDocument/inlineCompletion":
        return {"capabilities": {}} if message["method"] == "initialize" else None
    at = message["params"]["position"]
    end = {**at, "character": at["character"] + wanted["replaces"]}
    command = {"title": "Accepted", "command": "foretype.didAcceptCompletionItem", "arguments": [str(message["id"])]}
    return {"items": [{"insertText": wanted["text"], "range": {"start": at, "end": end}, "command": command}]}


def main():
    file = Path(sys.argv[1])
    ready = {"method": "foretype/didChangeStatus", "params": {"state": "ready"}}
    framing = Framing()
    while data := os.read(0, 1 << 16):
        for message in map(json.loads, framing.feed(data)):
            said = []
            if "id" in message:
                wanted = json.loads(file.read_text())
                said.append({"id": message["id"], "result": answer(message, wanted)})
            if message["method"] == "initialized":
                said.append(ready)
            for one in said:
                os.write(1, frame(json.dumps({"jsonrpc": "2.0", **one}).encode()))


if __name__ == "__main__":
    main()
