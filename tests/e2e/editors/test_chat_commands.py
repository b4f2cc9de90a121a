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


@pytest.mark.parametrize("opened", [Neovim, OldNeovim, Emacs], indirect=True)
def test_a_function_is_explained_documented_and_completed(opened, chat):
    opened.to_start()
    chat.again("It scales", " a vector.")
    opened.command("explain-code")
    opened.until("It scales a vector.")
    chat.again("Scale a vector.")
    opened.command("document-code")
    opened.until(lambda _: opened.buffer().rstrip("\n") == DOCUMENTED.rstrip("\n"))
    opened.command("complete-function")
    opened.until(lambda _: "return None" in opened.buffer())
    assert opened.buffer().startswith(DOCUMENTED.removesuffix("    pass\n").rstrip("\n"))
    assert "pass" not in opened.buffer()
    opened.command("document-code")
    opened.until("scale is documented already")
