"""Explain, document and complete a function, by the commands of the real editors, with a chat server that follows a script.

VS Code's are in test_vscode.py, where an editor runs already.
"""

import sys

import pytest
from e2e.editors import test_neovim, test_neovim_old
from e2e.editors.emacs_support import Emacs, missing
from e2e.editors.terminal_support import ROOT, Neovim, OldNeovim, version_of

pytestmark = pytest.mark.timeout(300)

SOURCE = "def scale(v):\n    pass\n"
DOCUMENTED = 'def scale(v):\n    """Scale a vector."""\n    pass\n'


@pytest.fixture(params=["new", "old"])
def neovim(request, chatting, tmp_path):
    tests, editor, least, below = (
        (test_neovim, Neovim, (0, 12), (9,))
        if request.param == "new"
        else (test_neovim_old, OldNeovim, (0, 7), (0, 12))
    )
    if tests.NVIM is None or not least <= version_of(tests.NVIM) < below:
        pytest.skip(f"needs the Neovim of {tests.__name__}")
    config = tests.CONFIG.format(root=ROOT, python=sys.executable, url=chatting.url, log=tmp_path / "lsp.log")
    it = editor(tests.NVIM, tmp_path, SOURCE, config)
    try:
        it.until_ready()
        yield it
    finally:
        it.close()


def test_neovim_explains_documents_and_completes(neovim, chat):
    chat.again("It scales", " a vector.")
    neovim.type(":ForetypeExplainCode")
    neovim.press("Enter")
    neovim.until("It scales a vector.")
    chat.again("Scale a vector.")
    neovim.type(":ForetypeDocumentCode")
    neovim.press("Enter")
    neovim.until(lambda _: neovim.buffer() == DOCUMENTED.rstrip("\n"))
    neovim.type(":ForetypeCompleteFunction")
    neovim.press("Enter")
    neovim.until(lambda _: "return None" in neovim.buffer())
    assert (
        neovim.buffer().startswith(DOCUMENTED.removesuffix("    pass\n").rstrip("\n")) and "pass" not in neovim.buffer()
    )
    neovim.type(":ForetypeDocumentCode")
    neovim.press("Enter")
    neovim.until("scale is documented already")


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_emacs_explains_documents_and_completes(chatting, chat, tmp_path):
    command = (sys.executable, "-m", "foretype_lsp", "--gateway", chatting.url, "--log-file", tmp_path / "lsp.log")
    it = Emacs(tmp_path, SOURCE, command)
    try:
        it.until_ready()
        it.ask("(progn (goto-char (point-min)) t)")
        chat.again("It scales", " a vector.")
        it.press("M-x")
        it.type("foretype-explain-code\n")
        it.until("It scales a vector.")
        chat.again("Scale a vector.")
        it.press("M-x")
        it.type("foretype-document-code\n")
        it.until(lambda _: it.buffer() == DOCUMENTED)
        it.press("M-x")
        it.type("foretype-complete-function\n")
        it.until(lambda _: "return None" in it.buffer())
        assert "pass" not in it.buffer()
        it.press("M-x")
        it.type("foretype-document-code\n")
        it.until("scale is documented already")
    finally:
        it.close()
