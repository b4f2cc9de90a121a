"""What a new Python imports for a script: what a start waits for."""

import subprocess
import sys


def imported(script: str, *names: str) -> list[str]:
    """Those of these modules that are there when the script is over, in this order. The script says nothing itself."""
    script += f"\nimport sys\nprint('\\n'.join(name for name in {names!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.split()
