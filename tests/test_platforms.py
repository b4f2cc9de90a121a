"""Nothing of one system alone in `foretype use`, in the embedded engine and on the editor's side, as far as types can say: pyright, told that it is elsewhere.

Nobody has run Foretype on macOS or Windows here; this is the least that can be said without one.
"""

import ast
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
DIFFER = {
    *(
        "_winapi",
        "asyncio",
        "ctypes",
        "errno",
        "fcntl",
        "grp",
        "locale",
        "mmap",
        "msvcrt",
        "multiprocessing",
        "os",
        "pathlib",
    ),
    *(
        "platform",
        "psutil",
        "pwd",
        "resource",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "stat",
        "subprocess",
    ),
    *("sys", "tempfile", "termios", "threading", "time", "urllib", "winreg"),
}
"""Modules that are typed otherwise on another system. Who imports none of them, and nothing of ours that asks which system it is,
has the same types everywhere."""
OTHERWISE_SAID = {"reportDeprecated"}
"""On Windows `url2pathname` is typed by a module whose name is deprecated; the function is not."""


def imported(tree: ast.AST) -> set[str]:
    """Modules by their full names, and for `from a import b` also `a.b`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return names


def differing() -> list[Path]:
    """Files whose types can depend on the system."""
    files = {file: file.read_text("utf-8") for folder in CHECKED for file in sorted((ROOT / folder).rglob("*.py"))}
    asks = {
        ".".join(file.with_suffix("").parts[-depth:])
        for file, text in files.items()
        if "sys.platform" in text or "os.name" in text
        for depth in range(2, 6)
    }
    uses = {file: imported(ast.parse(text)) for file, text in files.items()}
    return [file for file, names in uses.items() if names & asks or {name.split(".")[0] for name in names} & DIFFER]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("platform", ["Darwin", "Windows", "Linux"])
def test_types_hold_on_every_platform(platform: str) -> None:
    if platform == system():
        pytest.skip("this system: make types")
    program = Path(sys.executable).with_name("pyright")
    if not program.is_file():
        pytest.skip("pyright is not installed: make setup")
    files = differing()
    done = subprocess.run(
        [program, "--pythonplatform", platform, "--outputjson", *files],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=380,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(files) > 80
    wrong = [
        f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in found["generalDiagnostics"]
        if one["severity"] == "error" and one.get("rule") not in OTHERWISE_SAID
    ]
    assert wrong == []
