"""Nothing of one system alone in `foretype use`, in the embedded engine and on the editor's side, as far as types can say: pyright, told that it is elsewhere.

Nobody has run Foretype on macOS or Windows here; this is the least that can be said without one.
"""

import json
import subprocess
import sys
from pathlib import Path
from platform import system

import pytest

ROOT = Path(__file__).parent.parent
CHECKED = (
    "models/foretype_models/use",
    "client",
    "lsp_server",
    "context",
    "wire",
    "backend/foretype_backend/engines/embedded",
)
OTHERWISE_SAID = {"reportDeprecated"}
"""On Windows `url2pathname` is typed by a module whose name is deprecated; the function is not."""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("platform", ["Darwin", "Windows", "Linux"])
def test_types_hold_on_every_platform(platform: str) -> None:
    if platform == system():
        pytest.skip("this system: make types")
    program = Path(sys.executable).with_name("pyright")
    if not program.is_file():
        pytest.skip("pyright is not installed: make setup")
    done = subprocess.run(
        [program, "--pythonplatform", platform, "--outputjson", *CHECKED],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=380,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 150
    wrong = [
        f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in found["generalDiagnostics"]
        if one["severity"] == "error" and one.get("rule") not in OTHERWISE_SAID
    ]
    assert wrong == []
