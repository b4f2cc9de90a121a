"""A model of next edits all the way: its prompt from a real gateway, its answer as a drawing on an editor's screen, and Tab."""

import pytest
from e2e.edit_model_support import edit_model
from e2e.editors.next_edit_support import EDITORS, NEAR, QUESTION
from e2e.editors.terminal_support import available
from e2e.lsp_support import server_command

pytestmark = pytest.mark.timeout(400)

SOURCE = "limit = 1\nleast = 2\n\n\ndef fits(size):\n    return size < limit\n"
EXTENDED = SOURCE.replace("limit = 1", "limit = 10").replace("< limit", "< limit  # all")
WANTED = EXTENDED.replace("least = 2", "least = 20")


@pytest.fixture(scope="module")
def model():
    with edit_model(lambda window: window.replace("least = 2\n", "least = 20\n")) as it:
        yield it


@pytest.fixture(scope="module", params=EDITORS)
def editor(request, model, tmp_path_factory):
    kind = available(EDITORS[request.param])
    folder = tmp_path_factory.mktemp(request.param)
    with kind(folder, SOURCE, server_command("--gateway", model.url, log=folder / "lsp.log")) as it:
        it.command("eagerness", "high")
        yield it


def test_what_a_model_says_is_drawn_and_applied_where_the_rules_are_silent(editor, model):
    editor.afresh(SOURCE)
    before = len(model.asked)
    editor.appended(5, "  # all")
    editor.last_edits()
    assert model.asked[before:] == [], "of what was done before somebody asked for the first time nothing is known"
    editor.appended(0, "0")
    seen = editor.until_seen()
    (edits,) = [one["edits"] for one in editor.messages.answered()[-1:]]
    assert edits[0]["data"]["evidence"] == "model"
    assert seen.text == WANTED
    assert "limit = 10" in model.asked[-1]
    editor.press("Tab")
    editor.until_text(WANTED)
    editor.until(lambda: len(editor.messages.accepted()) == 1)
    editor.undo()
    editor.until_text(EXTENDED)


def test_the_rules_go_first_where_they_are_sure_and_the_model_is_not_asked(editor, model):
    editor.afresh(NEAR)
    before = len(model.asked)
    seen = editor.renamed("breadth", 0, 9)
    assert seen.text == NEAR.replace("width", "breadth", 2)
    assert [one["data"]["evidence"] for one in editor.last_edits()] == ["declaration"]
    assert len(editor.messages.told(QUESTION)) > 0
    assert model.asked[before:] == []
