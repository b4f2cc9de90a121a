"""Stand between an editor and its language server, and write down every message.

    python tap.py FILE COMMAND...

FILE gets one JSON object per line: `from` ("editor" or "server"), `at_ms` (monotonic) and `message`. Bytes pass
unchanged.
"""

import json
import os
import subprocess
import sys
import threading
import time

from foretype_lsp.transport.framing import Framing


def copy(source, write, speaker, log, lock):
    framing = Framing()
    while data := os.read(source, 1 << 16):
        with lock:
            for body in framing.feed(data):
                entry = {"from": speaker, "at_ms": time.perf_counter() * 1000, "message": json.loads(body)}
                log.write(json.dumps(entry) + "\n")
            log.flush()
        write(data)


def main():
    file, *command = sys.argv[1:]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def to_server(data):
        server.stdin.write(data)
        server.stdin.flush()

    with open(file, "a") as log:
        lock = threading.Lock()

        def editor():
            copy(0, to_server, "editor", log, lock)
            server.stdin.close()

        threading.Thread(target=editor, daemon=True).start()
        copy(server.stdout.fileno(), lambda data: os.write(1, data), "server", log, lock)
    sys.exit(server.wait())


if __name__ == "__main__":
    main()
