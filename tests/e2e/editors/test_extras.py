"""What plugins add to suggestions: the prompt behind one is explained, and the server is told where the cursor rests.

VS Code's are in test_vscode.py, where an editor runs already.
"""

from contextlib import closing

import pytest
from e2e.editors.driven import EDITORS
from e2e.editors.session_support import DID_CHANGE, Tapped, tapping
from e2e.editors.terminal_support import available
from e2e.lsp_support import gateway, server_command

IN_TERMINALS = [name for name in EDITORS if name != "vscode"]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=IN_TERMINALS)
def editor(request, tmp_path_factory):
    kind = available(EDITORS[request.param])
    folder = tmp_path_factory.mktemp(request.param)
    with gateway(folder) as served:
        tap = folder / "tap.jsonl"
        with closing(kind(folder, tapping(tap, server_command("--gateway", served.url)))) as it:
            it.name, it.tapped = request.param, Tapped(tap)
            yield it


def test_where_the_cursor_rests_is_told_and_where_it_types_is_not(editor):
    editor.type("total = ")
    editor.it.until(lambda _: editor.it.ghost() != "")
    assert editor.tapped.rested() == []
    editor.press("Left")
    editor.it.until(lambda _: editor.tapped.rested())
    (place,) = editor.tapped.rested()
    changes = [message for message in editor.tapped.messages("editor") if message.get("method") == DID_CHANGE]
    last = changes[-1]["params"]["contentChanges"][-1]
    assert place["line"] == last["range"]["start"]["line"]
    assert place["character"] == len("total = ") - 1


def test_the_prompt_behind_a_suggestion_is_explained(editor):
    editor.press("Right")
    editor.type("start")
    editor.it.until(lambda _: editor.it.ghost() != "")
    if editor.name == "emacs":
        editor.press("M-x")
        editor.type("foretype-explain")
    else:
        editor.press("Escape")
        editor.type(":ForetypeExplain")
    editor.press("Enter")
    screen = editor.it.until("layout psm_line_last")
    assert "prompt: " in screen and "prefill" in screen and "middle" in screen
    assert editor.complaints() == []
