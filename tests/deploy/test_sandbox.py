"""The gateway as its container would run it: uid 10001, no capabilities, a root that cannot be written, a /tmp of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
UID = "10001"

INSIDE = """
import json, os, subprocess, sys, time, urllib.request

def refused(path):
    try:
        open(path, "r+b" if os.path.exists(path) else "wb")
    except OSError as error:
        return type(error).__name__, error.errno
    return "written", 0

def status():
    lines = open("/proc/self/status").read().splitlines()
    return {line.split(":")[0]: line.split(":")[1].split() for line in lines}

serve = [sys.executable, "-m", "foretype_backend", "serve", "--engine", "scripted", "--port", "0", "--workers", "2"]
served = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
url = served.stdout.readline().split()[1]
body = json.dumps({"prompt": "x = ", "max_tokens": 4}).encode()
ask = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
with urllib.request.urlopen(ask, timeout=300) as answer:
    text = json.load(answer)["choices"][0]["text"]
metrics, until = "", time.monotonic() + 60
while "foretype_workers 2.0" not in metrics and time.monotonic() < until:  # a worker that is busy is left out of a scrape
    with urllib.request.urlopen(url + "/metrics", timeout=300) as answer:
        metrics = answer.read().decode()
own = {key: status()[key] for key in ("Uid", "CapEff", "CapBnd", "NoNewPrivs")}
files = {path: refused(path) for path in ("/usr/x", sys.argv[1] + "/x", "/etc/passwd", "/root/x", "/tmp/x")}
served.terminate()
print(json.dumps({"text": text, "metrics": metrics, "own": own, "files": files, "code": served.wait(300)}))
"""


def sandbox(*seen: Path) -> list[str]:
    """The command in front of another one, which sees the checkout, its Python and `seen`, wherever they lie.

    Skips where bubblewrap, or what it needs of the kernel, is not to be had.
    """
    if shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap here: apt-get install bubblewrap")
    command = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--perms", "1777", "--tmpfs", "/tmp"]
    needed = sorted({ROOT, Path(sys.base_prefix), Path(sys.prefix), *seen})
    hidden = sorted({Path("/root"), *(closed for one in needed for closed in _closed(one))})
    for path in hidden:
        command += ["--perms", "0755", "--tmpfs", str(path)]
    for path in needed:  # all that is seen of what is hidden, /tmp among it
        for parent in reversed(path.parents):
            if any(one in parent.parents for one in (Path("/tmp"), *hidden)):
                command += ["--perms", "0755", "--dir", str(parent)]
        command += ["--ro-bind", str(path), str(path)]
    command += ["--die-with-parent", "--clearenv", "--setenv", "HOME", "/tmp", "--setenv", "PATH", os.environ["PATH"]]
    command += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    if os.geteuid() == 0:  # really that user, and not root by another name
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP", "setpriv"]
        command += ["--reuid", UID, "--regid", UID, "--clear-groups", "--no-new-privs", "--bounding-set", "-all"]
    else:
        command += ["--unshare-user", "--uid", UID, "--gid", UID]
    probe = subprocess.run([*command, sys.executable, "-c", ""], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no sandbox here: {probe.stderr.strip()}")
    return command


def _closed(path: Path) -> list[Path]:
    """The outermost folder above `path` that others may not pass, if there is one."""
    return [parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001][:1]


def test_a_gateway_runs_without_rights_on_a_read_only_root() -> None:
    command = [*sandbox(), sys.executable, "-c", INSIDE, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["text"]
    assert "foretype_workers 2.0" in told["metrics"]
    assert told["code"] == 0
    assert told["own"]["Uid"] == [UID] * 4
    assert int(told["own"]["CapEff"][0], 16) == 0
    if os.geteuid() == 0:
        assert told["own"]["NoNewPrivs"] == ["1"]
        assert int(told["own"]["CapBnd"][0], 16) == 0
    assert told["files"].pop("/tmp/x")[0] == "written"
    assert {name for name, _ in told["files"].values()} <= {"OSError", "PermissionError"}, told["files"]
    assert not (ROOT / "x").exists()
