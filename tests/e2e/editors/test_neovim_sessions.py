"""Sessions of a hundred keys in Neovim: whatever is typed, and whenever Tab comes, the buffer holds what it should."""

import os
import random
import sys
import time

import pytest
from e2e.editors.terminal_support import ROOT, Neovim, find, version_of
from e2e.lsp_support import gateway

NVIM = find("neovim", "FORETYPE_NVIM")
SESSIONS = int(os.environ.get("FORETYPE_SESSIONS", "2"))
KEYS = 100
pytestmark = [
    pytest.mark.skipif(
        NVIM is None or version_of(NVIM) < (0, 12),
        reason="needs Neovim 0.12: editors/install-neovim.sh (or FORETYPE_NVIM)",
    ),
    pytest.mark.timeout(300),
]

SOURCE = "import os\n\n\ndef total(values, start=0):\n    result = start\n\n\ndef last(items):\n    return items[-1]\n"
# Every item that an answer brings is written down, with the text it was made for: what Tab inserts must be one of them.
CONFIG = """
vim.opt.runtimepath:prepend('{root}/editors/nvim')
vim.cmd('filetype indent off')
vim.g.python_recommended_style = 0
vim.opt.autoindent = false
vim.opt.expandtab = false
vim.opt.showmode = false
_G.items, _G.unanswered = {{}}, 0
require('foretype').setup({{
  cmd = {{ '{python}', '-m', 'foretype_lsp', '--gateway', '{url}', '--log-file', '{log}', '--log-level', 'debug' }},
}})
vim.api.nvim_create_autocmd('LspAttach', {{ callback = function(event)
  local client = vim.lsp.get_client_by_id(event.data.client_id)
  local request = client.request
  client.request = function(self, method, params, handler, bufnr)
    if method ~= 'textDocument/inlineCompletion' then
      return request(self, method, params, handler, bufnr)
    end
    return request(self, method, params, function(err, result, ctx)
      for _, item in ipairs(result and result.items or {{}}) do table.insert(_G.items, item) end
      handler(err, result, ctx)
    end, bufnr)
  end
end }})
"""
TYPED = [
    "for value in values:\n\t",
    "result += value\n",
    "return result",
    "print(",
    "total = sum(x for x in items)\n",
    "if not items:\n\treturn None\n",
    "é = '😀'\n",
    "os.path.join(",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway"), decode_s=0.005, prefill_s=0.0005) as running:
        yield running


class Model:
    """What the buffer must be after keys that only edit."""

    def __init__(self, neovim):
        self._neovim = neovim
        self.read()

    def read(self):
        """Take the buffer as it is; the cursor as an offset of characters."""
        lines, (row, column) = self._neovim.ask(
            "{vim.api.nvim_buf_get_lines(0, 0, -1, false), vim.api.nvim_win_get_cursor(0)}"
        )
        before = [*lines[: row - 1], lines[row - 1].encode()[:column].decode()]
        text = "\n".join(lines)
        self.left = "\n".join(before)
        self.right = text[len(self.left) :]

    @property
    def text(self):
        return self.left + self.right

    def allowed_after_tab(self, items):
        """Every buffer that Tab may leave behind: a tab, or one item that answers this line, whole and alone."""
        yield self.left + "\t" + self.right
        above, newline, line = self.left.rpartition("\n")
        tail = self.right.partition("\n")[0]
        for item in items:
            start = item["range"]["start"]["character"]  # the server speaks UTF-8 with Neovim
            kept, typed = (
                line.encode()[:start].decode("utf-8", "replace"),
                line.encode()[start:].decode("utf-8", "replace"),
            )
            if item["range"]["start"]["line"] == self.left.count("\n") and item["insertText"].startswith(typed):
                for replaced in range(len(tail) + 1):
                    yield above + newline + kept + item["insertText"] + self.right[replaced:]


def play(neovim, rng, keys):
    """Press keys as a hasty user would, and check the buffer at every Tab. Returns how many suggestions were accepted."""
    model = Model(neovim)
    waiting, accepted = [], 0
    for _ in range(keys):
        if not waiting:
            waiting = list(rng.choice(TYPED))
        kind = rng.random()
        if kind < 0.1:
            model.press_tab = None
            time.sleep(rng.choice([0.0, 0.02, 0.25, 0.5]))
            items_before = None
            neovim.press("Tab")
            neovim.until(lambda _: neovim.buffer() != model.text)  # every Tab inserts something
            after = neovim.buffer()
            items = neovim.ask("_G.items")
            assert items_before is None
            assert after in set(model.allowed_after_tab(items or [])), (model.left, model.right, after)
            accepted += after != model.left + "\t" + model.right
            model.read()
            assert model.text == after
        elif kind < 0.17 and model.left and not model.left.endswith("\n"):
            neovim.press("BSpace")
            model.left = model.left[:-1]
        elif kind < 0.2 and model.right and not model.right.startswith("\n"):
            neovim.press("Right")
            model.left, model.right = model.left + model.right[0], model.right[1:]
        else:
            char = waiting.pop(0)
            if char == "\n":
                neovim.press("Enter")
            elif char == "\t":  # Tab is the key that accepts
                neovim.press("C-v", "Tab")
            else:
                neovim.type(char)
            model.left += char
        time.sleep(rng.choice([0.0, 0.0, 0.03, 0.08, 0.3]))
    neovim.until(lambda _: neovim.buffer() == model.text)
    return accepted


@pytest.mark.parametrize("seed", range(SESSIONS))
def test_a_hundred_keys_leave_what_was_typed_and_accepted_and_nothing_else(served, tmp_path, seed):
    config = CONFIG.format(root=ROOT, python=sys.executable, url=served.url, log=tmp_path / "lsp.log")
    neovim = Neovim(NVIM, tmp_path, SOURCE, config)
    try:
        neovim.until_ready()
        neovim.press("5", "G", "o")
        neovim.until(lambda _: neovim.ask("vim.fn.mode()") == "i")
        play(neovim, random.Random(seed), KEYS)
        neovim.until(lambda _: neovim.ask("vim.tbl_count(vim.lsp.get_clients()[1].requests)") == 0)
        status = neovim.status()
        assert status["state"] == "ready"
        assert neovim.complaints() == [""]
        assert "ERROR" not in (tmp_path / "lsp.log").read_text()
    finally:
        neovim.close()
