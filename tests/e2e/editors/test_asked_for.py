"""A model that is slow: all that it says is shown in the end. One that shows nothing unasked: the editor's way of asking does."""

import time
from contextlib import closing

import pytest
from e2e.editors.driven import EDITORS, PATIENCE_S
from e2e.editors.terminal_support import available
from e2e.lsp_support import NOTHING_UNASKED, gateway, server_command

ASKING = {
    "neovim": ["M-\\"],
    "neovim_old": ["M-\\"],
    "emacs": ["M-x", "foretype-suggest", "Enter"],
    "vscode": ["Alt+Backslash"],
}
pytestmark = pytest.mark.timeout(300)


def becomes(editor, wanted):
    end_s = time.monotonic() + PATIENCE_S
    while not wanted(editor.it.ghost() or ""):
        assert time.monotonic() < end_s, f"{editor.it.ghost()!r}"
        time.sleep(0.05)


@pytest.mark.parametrize("name", ASKING)
def test_what_typing_does_not_show_is_shown_to_who_asks(name, tmp_path):
    kind = available(EDITORS[name])
    with (
        gateway(tmp_path, decode_s=0.05, more=NOTHING_UNASKED) as served,
        closing(kind(tmp_path, server_command("--gateway", served.url))) as editor,
    ):
        editor.type("zebra = 4711 + ")
        editor.caught_up()
        time.sleep(1.0)  # five times as long as any of them waits before it asks
        assert not editor.it.ghost()
        for keys in ASKING[name]:
            editor.type(keys) if keys.startswith("foretype") else editor.it.press(keys)
        becomes(editor, lambda ghost: ghost.endswith("# scripted"))  # all of it, however slowly it comes
        shown = editor.it.ghost()
        editor.type(shown[:2])
        becomes(editor, lambda ghost: ghost == shown[2:])
        assert editor.complaints() == []


@pytest.mark.parametrize("name", ASKING)
def test_all_of_what_comes_slowly_is_shown_in_the_end(name, tmp_path):
    kind = available(EDITORS[name])
    with (
        gateway(tmp_path, decode_s=0.1) as served,
        closing(kind(tmp_path, server_command("--gateway", served.url))) as editor,
    ):
        editor.type("def nothing():\n    ")
        becomes(editor, lambda ghost: "# scripted" in ghost and "return None" in ghost)
        assert editor.complaints() == []
