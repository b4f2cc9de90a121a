"""A Chromium of its own, driven by a script of Node that takes commands as lines of JSON."""

import json
import os
import subprocess


class Browser:
    def __init__(self, script, chromium, **env):
        self._process = subprocess.Popen(
            ["node", script],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.do("launch", path=chromium)

    def do(self, command, **options):
        self._process.stdin.write(json.dumps({"command": command, **options}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the browser's driver ended"
        answer = json.loads(line)
        assert "error" not in answer, f"{command}: {answer['error']}"
        return answer["result"]

    def press(self, *keys):
        self.do("press", keys=keys)

    def close(self):
        self.do("close")
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(180)
