"""Explain, document and complete a function, by the commands of the real editors, with a chat server that follows a script.

VS Code's are in test_vscode.py, where an editor runs already.
"""

import pytest
from e2e.editors.emacs_support import Emacs
from e2e.editors.neovim_support import Neovim, OldNeovim
from e2e.editors.terminal_support import available
from e2e.lsp_support import server_command

pytestmark = pytest.mark.timeout(300)

SOURCE = "def scale(v):\n    pass\n"
DOCUMENTED = 'def scale(v):\n    """Scale a vector."""\n    pass\n'


@pytest.fixture
def opened(request, chatting, tmp_path):
    """An editor of the kind that the test names."""
    kind = available(request.param)
    command = server_command("--gateway", chatting.url, log=tmp_path / "lsp.log")
    with kind(tmp_path, SOURCE, command) as it:
        it.until_ready()
        yield it


@pytest.mark.parametrize("opened", [Neovim, OldNeovim], indirect=True)
def test_neovim_explains_documents_and_completes(opened, chat):
    chat.again("It scales", " a vector.")
    opened.type(":ForetypeExplainCode")
    opened.press("Enter")
    opened.until("It scales a vector.")
    chat.again("Scale a vector.")
    opened.type(":ForetypeDocumentCode")
    opened.press("Enter")
    opened.until(lambda _: opened.buffer() == DOCUMENTED.rstrip("\n"))
    opened.type(":ForetypeCompleteFunction")
    opened.press("Enter")
    opened.until(lambda _: "return None" in opened.buffer())
    assert (
        opened.buffer().startswith(DOCUMENTED.removesuffix("    pass\n").rstrip("\n")) and "pass" not in opened.buffer()
    )
    opened.type(":ForetypeDocumentCode")
    opened.press("Enter")
    opened.until("scale is documented already")


@pytest.mark.parametrize("opened", [Emacs], indirect=True)
def test_emacs_explains_documents_and_completes(opened, chat):
    opened.ask("(progn (goto-char (point-min)) t)")
    chat.again("It scales", " a vector.")
    opened.press("M-x")
    opened.type("foretype-explain-code\n")
    opened.until("It scales a vector.")
    chat.again("Scale a vector.")
    opened.press("M-x")
    opened.type("foretype-document-code\n")
    opened.until(lambda _: opened.buffer() == DOCUMENTED)
    opened.press("M-x")
    opened.type("foretype-complete-function\n")
    opened.until(lambda _: "return None" in opened.buffer())
    assert "pass" not in opened.buffer()
    opened.press("M-x")
    opened.type("foretype-document-code\n")
    opened.until("scale is documented already")
