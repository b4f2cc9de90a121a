"""The private gateway's model, chosen in real editors: the list, the choice, and that there is none good."""

from contextlib import closing

import pytest
from backend.tiny_gguf import write_tiny_gguf
from e2e.editors.emacs_support import Emacs
from e2e.editors.neovim_support import Neovim, OldNeovim
from e2e.editors.terminal_support import available
from e2e.editors.test_vscode import MISSING, QUIET
from e2e.editors.vscode_support import VsCode
from e2e.lsp_support import server_command
from e2e.test_lsp_models import state  # noqa: F401 - a fixture
from e2e.test_use import CONTROLS
from models.model_server import ModelServer, fills_holes, llama_cpp, serving

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def running(tmp_path):
    tiny = write_tiny_gguf(tmp_path / "tiny-coder.gguf", controls=CONTROLS)
    with serving(ModelServer(llama_cpp("tiny-coder.gguf", model_path=str(tiny)), fills_holes)) as it:
        yield it


@pytest.fixture
def opened(request, state, tmp_path):  # noqa: F811
    """An editor of the kind that the test names, with a private gateway whose model shows nothing by itself."""
    kind = available(request.param)
    with kind(
        tmp_path, "x = 1\n", server_command("--state-dir", state, "--no-retrieval", log=tmp_path / "lsp.log")
    ) as it:
        it.until_ready()
        yield it


@pytest.mark.parametrize("opened", [Neovim, OldNeovim], indirect=True)
def test_neovim_lists_models_and_takes_one(opened, running):
    opened.type(":ForetypeModel")
    opened.press("Enter")
    opened.until("qwen2.5-coder-0.5b")
    opened.press("Escape")
    opened.until(lambda screen: "qwen2.5-coder-0.5b" not in screen)  # what follows Escape too soon is taken for Alt
    opened.type(f":ForetypeModel {running.root}/v1")
    opened.press("Enter")
    opened.until(lambda _: opened.status()["model"] == "tiny-coder", deadline_s=120.0)


@pytest.mark.parametrize("opened", [Emacs], indirect=True)
def test_emacs_lists_models_takes_one_and_says_that_there_was_none_good(opened, running):
    opened.press("M-x")
    opened.type("foretype-show-status\n")
    opened.until("no good model is configured")
    opened.press("M-x")
    opened.type("foretype-choose-model\n")
    opened.until("Foretype: a model (now")
    opened.type("shipped")
    opened.press("C-g")
    opened.press("M-x")
    opened.type("foretype-use-model\n")
    opened.until("Model (a name")
    opened.type(f"{running.root}/v1\n")
    opened.until(lambda _: opened.ask("(cadr foretype-status)") == "tiny-coder", deadline_s=120.0)


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_vs_codes_menu_lists_models_takes_one_and_says_that_there_was_none_good(state, tmp_path):  # noqa: F811
    launcher = tmp_path / "foretype"
    command = " ".join(server_command("--state-dir", state, "--no-retrieval", log=tmp_path / "lsp.log"))
    launcher.write_text(f'#!/bin/sh\nshift\nexec {command} "$@"\n')
    launcher.chmod(0o755)
    with closing(VsCode(tmp_path, "x = 1\n", {**QUIET, "foretype.server.path": str(launcher)})) as vscode:
        vscode.do("focus")
        vscode.until(lambda: "Foretype ready" in status(vscode), "ready")
        vscode.until(lambda: "no good model is configured" in status(vscode), "there is none good")
        vscode.run("Foretype: Choose a Model")
        vscode.until(lambda: any("qwen2.5-coder-0.5b" in row for row in vscode.do("rows")), "the menu")
        assert not [row for row in vscode.do("rows") if "shipped" in row and "serves now" in row]
        vscode.type("shipped")
        vscode.do("picked", text="shipped")
        vscode.press("Enter")
        vscode.until(lambda: any("foretype-135m serves" in said for said in vscode.do("notifications")), "it serves")
        vscode.until(lambda: "model: foretype-135m" in tooltip(vscode), "the item names it")


def status(vscode):
    return vscode.do("status") or ""


def tooltip(vscode):
    """What the command that shows the status says, which is what the item says to who hovers over it."""
    vscode.run("Foretype: Show the Status")
    return "\n".join(vscode.do("notifications"))
