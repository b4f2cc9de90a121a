"""What editors offer: VS Code's manifest and its code name the same, and what the pages tell users to press, set or run is there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EDITORS = ROOT / "editors"
MANIFEST: dict[str, Any] = json.loads((EDITORS / "vscode/package.json").read_text("utf-8"))["contributes"]
PAGES = "".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))


def source(folder: str, kind: str) -> str:
    return "".join(path.read_text("utf-8") for path in sorted((EDITORS / folder).rglob(f"*.{kind}")))


def test_vs_codes_commands_are_those_that_its_code_registers() -> None:
    registered = set(re.findall(r"'(foretype\.\w+)': (?:async )?\(", source("vscode/src", "ts")))
    for_keys = {one["command"] for one in MANIFEST["keybindings"] if one["command"].startswith("foretype.")}
    assert {one["command"] for one in MANIFEST["commands"]} | for_keys == registered


def test_vs_codes_settings_are_those_that_its_code_reads() -> None:
    code = source("vscode/src", "ts")
    [shared] = re.findall(r"const SHARED = \[(.*?)\]", code, re.DOTALL)
    read = set(re.findall(r"'(\w+)'", shared)) | set(re.findall(r"\.get(?:<[^>]+>)?\('([\w.]+)'", code))
    assert {name.removeprefix("foretype.") for name in MANIFEST["configuration"]["properties"]} == read


@pytest.mark.parametrize(
    ("told", "offered"),
    [
        pytest.param(r"\*Foretype: ([^*]+)\*", [one["title"] for one in MANIFEST["commands"]], id="vscode commands"),
        pytest.param(
            r"`foretype\.((?:server|python)\.\w+|nextEdit\.(?:enabled|eagerness))`",
            [name.removeprefix("foretype.") for name in MANIFEST["configuration"]["properties"]],
            id="vscode settings",
        ),
        pytest.param(
            r"`:(Foretype\w+)",
            re.findall(r"(?m)(?:user_command\('|^  )(Foretype\w+)(?:',| = )", source("nvim/lua", "lua")),
            id="neovim",
        ),
        pytest.param(
            r"M-x (foretype-[\w-]+)", re.findall(r"\(defun (\S+)", source("emacs", "el")), id="emacs commands"
        ),
        pytest.param(
            r"`(foretype-(?:delay|modes|command|options))`",
            re.findall(r"\(defcustom (\S+)", source("emacs", "el")),
            id="emacs settings",
        ),
    ],
)
def test_what_the_pages_tell_users_to_do_is_there(told: str, offered: list[str]) -> None:
    named = set(re.findall(told, PAGES))
    assert len(named) > 1 and named <= set(offered)
