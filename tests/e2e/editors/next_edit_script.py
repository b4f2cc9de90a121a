"""Stand between an editor and its language server, and answer some questions for the next edit by a script.

    python next_edit_script.py SCRIPT FILE COMMAND...

While SCRIPT exists it holds a JSON list of edits (`text`, `range`, and where they differ from the question's `uri` and `version`;
`jumpOnly`). Each question gets the first; once the editor has shown it, it is taken off. Without SCRIPT the server itself answers.
While a file beside it exists whose name ends in .hold, nothing of the server reaches the editor; then it does, in its order. FILE gets what both say, as :mod:`tap` writes it.
"""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from foretype_lsp.transport.framing import Framing, frame

ASK, SHOWN, EXECUTE = "textDocument/copilotInlineEdit", "textDocument/didShowInlineEdit", "workspace/executeCommand"


class Script:
    def __init__(self, file: Path):
        self._file = file
        self._ids = map("scripted-{}".format, itertools.count(1))

    def edits(self):
        return json.loads(self._file.read_text()) if self._file.exists() else None

    def shown(self):
        if edits := self.edits():
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps(edits[1:]))
            new.rename(self._file)

    def answer(self, message):
        """The result of a request; None where the server is to give it."""
        method, params = message.get("method"), message.get("params") or {}
        if method == EXECUTE and str((params.get("arguments") or [""])[0]).startswith("scripted-"):
            return {}
        edits = self.edits() if method == ASK else None
        if edits is None:
            return None
        about, id = params["textDocument"], next(self._ids)
        command = {"title": "Accept next edit", "command": "foretype.nextEdit.accept", "arguments": [id]}
        items = [
            {
                "text": one["text"],
                "range": one["range"],
                "textDocument": {"uri": one.get("uri", about["uri"]), "version": one.get("version", about["version"])},
                "command": command,
                "data": {"id": id, "evidence": "model", "left": 0, "jumpOnly": one.get("jumpOnly", False)},
            }
            for one in edits[:1]
        ]
        return {"edits": items}


def main():
    script, file, *command = sys.argv[1:]
    hold = Path(script).with_suffix(".hold")
    script = Script(Path(script))
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with open(file, "a") as log:
        lock = threading.Lock()

        def said(speaker, message):
            with lock:
                entry = {"from": speaker, "at_ms": time.perf_counter() * 1000, "message": message}
                log.write(json.dumps(entry) + "\n")
                log.flush()

        def to_editor(message):
            said("server", message)
            with lock:
                os.write(1, frame(json.dumps(message).encode()))

        def editor():
            framing = Framing()
            while data := os.read(0, 1 << 16):
                for message in map(json.loads, framing.feed(data)):
                    said("editor", message)
                    if message.get("method") == SHOWN:
                        script.shown()
                    result = script.answer(message)
                    if result is not None:
                        to_editor({"jsonrpc": "2.0", "id": message["id"], "result": result})
                    else:
                        server.stdin.write(frame(json.dumps(message).encode()))
                        server.stdin.flush()
            server.stdin.close()

        threading.Thread(target=editor, daemon=True).start()
        framing = Framing()
        while data := os.read(server.stdout.fileno(), 1 << 16):
            for message in map(json.loads, framing.feed(data)):
                while hold.exists():
                    time.sleep(0.01)
                to_editor(message)
    sys.exit(server.wait())


if __name__ == "__main__":
    main()
