"""`make rehearse`: starts what deploy/compose.yaml and deploy/kubernetes name, and does with it what a team does. Needs root and Linux.

Everything runs in namespaces of its own, against Debian's PostgreSQL, Redis and Prometheus and the real vLLM on processors. Not started:
Grafana (nothing here can), the images themselves (their Dockerfiles are read, and their pip lines run), GPUs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rehearsal.containers import Failed, ip
from rehearsal.images import ROOT, install
from rehearsal.stories import STORIES

__all__ = ["main"]

_INSIDE = "--inside"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make rehearse", description=__doc__)
    parser.add_argument("stories", nargs="*", help=f"of {', '.join(STORIES)}; default all")
    parser.add_argument(
        "--deploy", type=Path, default=ROOT / "deploy", help="the folder of files; default this checkout's"
    )
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen: list[str] = arguments.stories or list(STORIES)
    if unknown := set(chosen) - set(STORIES):
        parser.error(f"there is no story {min(unknown)}; there are {', '.join(STORIES)}")
    if os.geteuid() != 0:
        parser.error("needs root, as a container engine does: sudo make rehearse")
    if not arguments.inside:
        began = time.monotonic()
        install(arguments.deploy)
        print(f"ok {time.monotonic() - began:6.1f} s  what the images hold is installed", flush=True)
        # The processes of the rehearsal end with it, however it ends: it is the first of their namespace.
        apart = ["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        os.execvp("unshare", [*apart, sys.executable, "-m", "rehearsal", *sys.argv[1:], _INSIDE])
    os.umask(0o022)  # what others write into containers is for containers' users
    Path("/run/netns").mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
    began = time.monotonic()
    for name in chosen:
        folder = Path(tempfile.mkdtemp(prefix="ftrehearse"))
        folder.chmod(0o755)
        try:
            STORIES[name](arguments.deploy.resolve(), folder)
        except BaseException as failure:
            print(f"FAILED {name}: {failure}\nlogs: {folder}/logs", flush=True)
            if isinstance(failure, Failed):
                return 1
            raise
        shutil.rmtree(folder)
        subprocess.run(["ip", "-all", "netns", "delete"], check=False)
        ip("link", "del", "ft0")
    print(f"rehearsed {', '.join(chosen)} in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
