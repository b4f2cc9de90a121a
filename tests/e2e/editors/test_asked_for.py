"""A model that shows nothing unasked: typing shows none of it, and the editor's way of asking does."""

import time

import pytest
from e2e.editors.driven import EDITORS
from e2e.lsp_support import gateway, server_command

ASKING = {"neovim": ["M-\\"], "neovim_old": ["M-\\"], "emacs": ["M-x", "lsp-inline-completion-display", "Enter"]}
NOTHING_UNASKED = """
[model.min_mean_logprob]
mid_line = 0.0
line = 0.0
block = 0.0
"""
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("name", ASKING)
def test_what_typing_does_not_show_is_shown_to_who_asks(name, tmp_path):
    kind = EDITORS[name]
    if reason := kind.missing():
        pytest.skip(reason)
    with gateway(tmp_path, more=NOTHING_UNASKED) as served:
        editor = kind(tmp_path, server_command("--gateway", served.url))
        try:
            editor.type("zebra = 4711 + ")
            editor.caught_up()
            time.sleep(1.0)  # five times as long as any of them waits before it asks
            assert editor.it.ghost() == ""
            for keys in ASKING[name]:
                editor.type(keys) if keys.startswith("lsp") else editor.press(keys)
            editor.it.until(lambda _: editor.it.ghost() != "")
            shown = editor.it.ghost()
            editor.type(shown[:2])
            editor.it.until(lambda _: editor.it.ghost() == shown[2:])
            assert editor.complaints() == []
        finally:
            editor.close()
