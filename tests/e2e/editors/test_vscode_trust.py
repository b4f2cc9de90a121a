"""VS Code in a folder that somebody else made: nothing of the folder is run or believed, and what it knows comes with trust."""

import json
import os
from contextlib import closing

import pytest
from e2e.editors.test_vscode import MISSING, launcher
from e2e.editors.vscode_support import VsCode
from e2e.lsp_support import SOURCE

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

SETTINGS = {
    "workbench.startupEditor": "none",
    "security.workspace.trust.startupPrompt": "never",
    "security.workspace.trust.banner": "never",
    "security.workspace.trust.untrustedFiles": "open",
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.suggestOnTriggerCharacters": False,
    "chat.commandCenter.enabled": False,
}
ELSEWHERE = "ws://127.0.0.1:9/v1/stream"


def hostile(marker):
    """A folder that would have its own programs run, and the open documents sent elsewhere."""
    program = f"#!/bin/sh\necho $0 >>{marker}\nexit 3\n"
    module = f"open({str(marker)!r}, 'a').write(__file__)\n"
    settings = {
        "foretype.server.path": "${workspaceFolder}/foretype",
        "foretype.python.path": "${workspaceFolder}/python3",
        "foretype.server.arguments": ["--gateway", ELSEWHERE],
        "foretype.gatewayUrl": ELSEWHERE,
        "foretype.tokenInClear": True,
        "foretype.token": "theirs",
        "foretype.tokenFile": "/etc/passwd",
        "foretype.model": "theirs.gguf",
        "foretype.stateDir": "state",
        "foretype.multiLine": False,
    }
    programs = ("foretype", "python3", "python3.13", "python3.12", "python3.11", "python", "git")
    modules = (
        "venv.py",
        "ensurepip.py",
        "pip.py",
        "foretype_lsp/__init__.py",
        "foretype_client/__init__.py",
        "sitecustomize.py",
    )
    return {
        ".vscode/settings.json": json.dumps(settings),
        **dict.fromkeys(programs, program),
        **dict.fromkeys(modules, module),
    }


def options(vscode):
    """What the server has been told of its options, one after the other."""
    entries = map(json.loads, (vscode.folder / "tap.jsonl").read_text().splitlines())
    found = []
    for entry in entries:
        message = entry["message"]
        if message.get("method") == "initialize":
            found.append(message["params"]["initializationOptions"])
        elif message.get("method") == "workspace/didChangeConfiguration":
            found.append(message["params"]["settings"]["foretype"])
    return found


def index(vscode):
    """What the server said last about other files."""
    entries = map(json.loads, (vscode.folder / "tap.jsonl").read_text().splitlines())
    told = [
        entry["message"]["params"]["index"]
        for entry in entries
        if entry["message"].get("method") == "foretype/didChangeStatus"
    ]
    return told[-1] if told else ""


def found_first(folder):
    """Where programs are looked for: in the open folder before all others. VS Code asks a login shell as well."""
    first = f"{folder / 'work'}:.:"
    (folder / "home/.profile").write_text(f'PATH="{first}:$PATH"\n')
    return {"PATH": f"{first}:/usr/local/bin:/usr/bin:/bin"}


OURS = {"gatewayUrl": "", "tokenInClear": False}
THEIRS = ("token", "tokenFile", "model", "stateDir")


def test_a_restricted_folder_configures_nothing_and_trust_lets_it_say_what_is_harmless(served, tmp_path):
    marker = tmp_path / "marker"
    ours = tmp_path / "home/.local/bin"
    ours.mkdir(parents=True)
    launcher(tmp_path, served.url)
    (tmp_path / "foretype").rename(ours / "foretype")
    found = found_first(tmp_path)
    with closing(VsCode(tmp_path, SOURCE, SETTINGS, files=hostile(marker), trust=False, env_more=found)) as vscode:
        vscode.folder = tmp_path
        vscode.do("focus")
        vscode.until(lambda: "ready" in (vscode.do("status") or ""), "ready")
        vscode.press("Control+End")
        vscode.type("value = ", delay_ms=30)
        vscode.until(lambda: "value =  # scripted" in vscode.ghost(), "ghost text")
        for said in options(vscode):
            assert said["trusted"] is False and said["multiLine"] is True and said.items() >= OURS.items()
            assert not any(name in said for name in THEIRS)
        assert "not trusted" in index(vscode)
        if pictures := os.environ.get("FORETYPE_SCREENSHOTS"):
            vscode.do("screenshot", path=f"{pictures}/vscode-restricted.png")
        assert not marker.exists()

        vscode.run("Workspaces: Manage Workspace Trust")
        vscode.do("trust")
        vscode.until(lambda: options(vscode)[-1]["trusted"], "the server is told")
        vscode.until(lambda: not options(vscode)[-1]["multiLine"], "the folder's harmless setting is taken")
        vscode.until(lambda: "not trusted" not in index(vscode), "the folder is read")
        vscode.until(lambda: "ready" in (vscode.do("status") or ""), "ready")
        said = options(vscode)[-1]
        assert said.items() >= OURS.items() and not any(name in said for name in THEIRS)
        ran = marker.read_text().splitlines() if marker.exists() else []
        assert [one for one in ran if not one.endswith("/git")] == []  # VS Code itself runs the first git that it finds


def test_no_python_of_the_folder_installs_the_server(tmp_path):
    """Where no server is found the extension makes one: with a Python from elsewhere, which imports nothing from the folder."""
    marker = tmp_path / "marker"
    (tmp_path / "home").mkdir()
    nothing = {
        **found_first(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
    }
    with closing(VsCode(tmp_path, SOURCE, SETTINGS, files=hostile(marker), trust=False, env_more=nothing)) as vscode:
        vscode.do("focus")
        vscode.until(lambda: "degraded" in (vscode.do("status") or ""), "it gave up")
        assert not marker.exists()
