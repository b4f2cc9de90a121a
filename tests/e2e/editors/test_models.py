"""The private gateway's model, chosen in real editors: the list, the choice, and that there is none good.

VS Code's command asks the same of the server (tests/e2e/test_lsp_models.py); its menu is checked by the compiler.
"""

import pytest
from backend.tiny_gguf import write_tiny_gguf
from e2e.editors.emacs_support import Emacs
from e2e.editors.neovim_support import Neovim, OldNeovim
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
    kind = request.param
    if reason := kind.missing():
        pytest.skip(reason)
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
    opened.until(lambda _: opened.status()["model"] == "tiny-coder.gguf", deadline_s=120.0)


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
    opened.until(lambda _: opened.ask("(cadr foretype-status)") == "tiny-coder.gguf", deadline_s=120.0)
