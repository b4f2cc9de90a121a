"""A Chromium of its own, driven by a script of Node that takes commands as lines of JSON."""

import json
import os
import shutil
import subprocess
import time
import urllib.request

from waiting import wait_until

DEADLINE_S = 180.0
CHROMIUM = os.environ.get("FORETYPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


def ended(process):
    """Wait until it has ended by itself; it is killed where it does not."""
    try:
        process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until_up(url, process):
    """Wait until it answers at this address; an AssertionError where it ends before."""

    def answers():
        assert process.poll() is None, f"it ended with {process.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=1):
                return True
        except OSError:
            return False

    wait_until(answers, DEADLINE_S)


class Browser:
    """`process` are further options of the script's."""

    NAME = "browser"

    def __init__(self, script, node="node", **process):
        self._process = subprocess.Popen(
            [node, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **process
        )

    def do(self, command, **options):
        """One command of the script."""
        self._process.stdin.write(json.dumps({"command": command, **options}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the browser's driver ended"
        answer = json.loads(line)
        assert "error" not in answer, f"{command}: {answer['error']}"
        return answer["result"]

    def press(self, *keys):
        self.do("press", keys=keys)

    def type(self, text, delay_ms=0):
        self.do("type", text=text, delay=delay_ms)

    def ghost(self):
        return self.do("ghost")

    def state(self):
        """What is told of it where something never comes."""
        raise NotImplementedError

    def until(self, satisfied, what, deadline_s=DEADLINE_S):
        end_s = time.monotonic() + deadline_s
        while not satisfied():
            if time.monotonic() > end_s:
                if pictures := os.environ.get("FORETYPE_SCREENSHOTS"):
                    self.do("screenshot", path=f"{pictures}/{self.NAME}-never-{time.time_ns()}.png")
                raise TimeoutError(f"never: {what}; {self.state()}")
            time.sleep(0.02)

    def close(self):
        if self._process.poll() is None:
            self._process.stdin.write('{"command": "close"}\n')
            self._process.stdin.close()
        ended(self._process)
        self._process.stdout.close()
