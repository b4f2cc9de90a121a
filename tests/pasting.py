"""Commands that are shown, pasted: run by a shell, where programs that only write down their words stand in for ours and others."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["AWKWARD", "STANDS_IN", "commands_in", "pasted"]

AWKWARD = 'new comer\'s "clone" $HOME'
"""A folder that many a shell, and each language of editors, would take apart."""

# Of a shell and of Python: what stands behind `#!` has no blanks, and an interpreter's path may.
STANDS_IN = f"""#!/bin/sh
''':'
exec {shlex.quote(sys.executable)} "$0" "$@"
'''
import os, sys
with open(os.environ["PASTED"], "a", encoding="utf-8", errors="surrogateescape") as file:
    file.write("\\0".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\0\\0")
"""


def pasted(lines: str, folder: Path, *programs: str) -> list[list[str]]:
    """The words of each of `programs` that the lines start, in order, the program's name first."""
    (folder / "bin").mkdir(exist_ok=True)
    for program in programs:
        (folder / "bin" / program).write_text(STANDS_IN)
        (folder / "bin" / program).chmod(0o755)
    written = folder / "pasted"
    written.unlink(missing_ok=True)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PASTED": str(written)}
    shell = shutil.which("bash") or "sh"
    subprocess.run([shell, "-euc", lines], env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return [line.split("\0") for line in written.read_text("utf-8").split("\0\0")[:-1]] if written.exists() else []


def commands_in(sentence: str) -> list[str]:
    """What stands between backquotes, of which `AWKWARD` has none."""
    return re.findall(r"`([^`]+)`", sentence)
