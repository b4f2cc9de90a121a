"""VS Code in a folder that somebody else made: nothing of the folder is run or believed, and what it knows comes with trust."""

import json
import os
from contextlib import closing

import pytest
from e2e.editors.session_support import Tapped
from e2e.editors.vscode_support import MISSING, VsCode, tapped_launcher
from e2e.lsp_support import DID_CHANGE_STATUS, SOURCE

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


def options(tapped):
    """What the server has been told of its options, one after the other."""
    told = ((one.get("method"), one.get("params")) for one in tapped.messages("editor"))
    started, changed = "initialize", "workspace/didChangeConfiguration"
    return [
        params["initializationOptions"] if method == started else params["settings"]["foretype"]
        for method, params in told
        if method in (started, changed)
    ]


def index(tapped):
    """What the server said last about other files."""
    said = [one["params"] for one in tapped.messages("server") if one.get("method") == DID_CHANGE_STATUS]
    return said[-1]["index"] if said else ""


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
    tapped_launcher(tmp_path, served.url)
    (tmp_path / "foretype").rename(ours / "foretype")
    found, tapped = found_first(tmp_path), Tapped(tmp_path / "tap.jsonl")
    with closing(VsCode(tmp_path, SOURCE, SETTINGS, files=hostile(marker), trust=False, env_more=found)) as vscode:
        vscode.until_ready()
        vscode.press("Control+End")
        vscode.type("value = ", delay_ms=30)
        vscode.until(lambda: "value =  # scripted" in vscode.ghost(), "ghost text")
        for said in options(tapped):
            assert said["trusted"] is False and said["multiLine"] is True and said.items() >= OURS.items()
            assert not any(name in said for name in THEIRS)
        assert "not trusted" in index(tapped)
        if pictures := os.environ.get("FORETYPE_SCREENSHOTS"):
            vscode.do("screenshot", path=f"{pictures}/vscode-restricted.png")
        assert not marker.exists()

        vscode.run("Workspaces: Manage Workspace Trust")
        vscode.do("trust")
        vscode.until(lambda: options(tapped)[-1]["trusted"], "the server is told")
        vscode.until(lambda: not options(tapped)[-1]["multiLine"], "the folder's harmless setting is taken")
        vscode.until(lambda: "not trusted" not in index(tapped), "the folder is read")
        vscode.until(lambda: "ready" in vscode.status(), "ready")
        said = options(tapped)[-1]
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
        vscode.until(lambda: "degraded" in vscode.status(), "it gave up")
        assert not marker.exists()
