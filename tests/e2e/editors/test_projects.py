"""Neovim and Emacs in a repository that somebody else made: nothing in it is run, and it configures nothing of ours."""

import json

import pytest
from e2e.editors.emacs_support import Emacs
from e2e.editors.neovim_support import Neovim, OldNeovim
from e2e.editors.test_vscode import launcher
from e2e.lsp_support import SOURCE

pytestmark = pytest.mark.timeout(300)

ELSEWHERE = "ws://127.0.0.1:9/v1/stream"
LOCAL = """((nil . ((foretype-command . ("{program}"))
         (foretype-options . (:gatewayUrl "{elsewhere}" :token "theirs" :model "theirs.gguf"))
         (exec-path . ("{work}")))))
"""
TRUSTING = "(setq enable-local-variables :all)"  # a user who takes whatever a project says


def hostile(folder):
    """What a repository could hold; each leaves its name in `marker`."""
    work, marker = folder / "work", folder / "marker"
    work.mkdir()
    program = f"#!/bin/sh\necho $0 >>{marker}\nexit 3\n"
    module = f"open({str(marker)!r}, 'a').write(__file__)\n"
    lua = f"vim.fn.writefile({{'lua'}}, '{marker}', 'a')\n"
    vim = f"call writefile(['vim'], '{marker}', 'a')\n"
    files = {
        "foretype": program,
        "foretype_lsp/__init__.py": module,
        "foretype_client/__init__.py": module,
        "foretype_context/__init__.py": module,
        "sitecustomize.py": module,
        ".nvim.lua": lua,
        ".exrc": vim,
        ".nvimrc": vim,
        "lua/foretype/init.lua": lua,
        "lsp/foretype.lua": lua,
        "foretype.lua": lua,
        "foretype.el": f'(write-region "el" nil "{marker}" t)\n',
        ".dir-locals.el": LOCAL.format(program=work / "foretype", elsewhere=ELSEWHERE, work=work),
        ".lsp.json": json.dumps({"foretype": {"gatewayUrl": ELSEWHERE}}),
    }
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
        (work / name).chmod(0o755)
    return marker


@pytest.mark.parametrize(
    ("editor", "config"), [(Neovim, ""), (OldNeovim, ""), (Emacs, TRUSTING)], ids=["neovim", "neovim_old", "emacs"]
)
def test_a_repository_runs_nothing_and_configures_nothing(editor, config, served, tmp_path):
    if missing := editor.missing():
        pytest.skip(missing)
    marker = hostile(tmp_path)
    ours = tmp_path / "bin"
    ours.mkdir()
    launcher(tmp_path, served.url)
    (tmp_path / "foretype").rename(ours / "foretype")
    work = tmp_path / "work"
    path = f".::{work}:{ours}:/usr/local/bin:/usr/bin:/bin"  # the repository's programs stand first
    with editor(tmp_path, SOURCE, ("foretype", "lsp"), config=config, env={"PATH": path}) as it:
        it.until_ready()
        it.offered()
        entries = map(json.loads, (tmp_path / "tap.jsonl").read_text().splitlines())
        (told,) = [one["message"]["params"] for one in entries if one["message"].get("method") == "initialize"]
        assert set(told["initializationOptions"]) == {"suggestionGrew", "askEarly", "debounceMs"}
        assert not marker.exists() or marker.read_text() == ""
