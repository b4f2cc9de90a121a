"""Other people's plugins in Neovim 0.12, unchanged: llama.vim and minuet-ai.nvim against our gateway, copilot-lsp and sidekick.nvim
against our language server.

FORETYPE_LLAMA_VIM, FORETYPE_MINUET, FORETYPE_COPILOT_LSP and FORETYPE_SIDEKICK name the folders of the plugins; without them there is
nothing to try.
"""

import os

import pytest
from e2e.editors.neovim_support import Neovim
from e2e.lsp_support import SOURCE, gateway, server_command

LLAMA = """
vim.g.llama_config = {{ endpoint_fim = 'http://127.0.0.1:{port}/infill', show_info = 0, ring_n_chunks = 0 }}
vim.opt.runtimepath:prepend('{folder}')
"""
MINUET = """
vim.opt.runtimepath:prepend('{folder}')
vim.env.FORETYPE_KEY = 'none'
require('minuet').setup({{
  provider = 'openai_fim_compatible', n_completions = 1, throttle = 0, debounce = 50,
  virtualtext = {{ auto_trigger_ft = {{ 'python' }}, keymap = {{ accept = '<M-a>' }} }},
  provider_options = {{ openai_fim_compatible = {{
    end_point = 'http://127.0.0.1:{port}/v1/completions', api_key = 'FORETYPE_KEY', name = 'Foretype', model = 'foretype',
    optional = {{ max_tokens = 56 }},
  }} }},
}})
"""
PLUGINS = {"llama.vim": ("FORETYPE_LLAMA_VIM", LLAMA, "Tab"), "minuet": ("FORETYPE_MINUET", MINUET, "M-a")}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_an_unchanged_plugin_shows_our_text_and_accepts_it(tmp_path, plugin):
    variable, config, accept = PLUGINS[plugin]
    folder = os.environ.get(variable)
    reason = Neovim.missing() or (None if folder else f"needs {variable}, the folder of the plugin")
    if reason is not None:
        pytest.skip(reason)
    with gateway(tmp_path) as served:
        its_config = config.format(folder=folder, port=served.port)
        with Neovim(tmp_path, SOURCE, config=its_config) as neovim:
            neovim.ask("1")
            neovim.press("G", "o")
            neovim.type("    value = ", pause_s=0.05)
            neovim.until("# scripted")
            assert "scripted" not in neovim.buffer()
            neovim.press(accept)
            neovim.until(lambda _: "# scripted" in neovim.buffer())
            assert neovim.buffer().startswith(SOURCE + "    value = ")


# As docs/editors.md says it.
NEXT_EDITS = """
vim.opt.runtimepath:prepend('{folder}')
vim.lsp.config('copilot_ls', {{
  cmd = {{ {command} }}, filetypes = {{ 'python' }}, settings = {{ foretype = {{}} }}, init_options = {{ nextEdit = {{ eagerness = 'medium' }} }},
  capabilities = {{ general = {{ positionEncodings = {{ 'utf-16' }} }} }},
}})
vim.lsp.enable('copilot_ls')
"""
COPILOT_LSP = """
vim.keymap.set('n', '<Tab>', function()
  local nes = require('copilot-lsp.nes')
  return nes.walk_cursor_start_edit() or nes.apply_pending_nes()
end)
"""
SIDEKICK = """
require('sidekick').setup({})
vim.keymap.set('n', '<Tab>', function() return require('sidekick').nes_jump_or_apply() end)
"""
DRAW_NEXT_EDITS = {
    "copilot-lsp": ("FORETYPE_COPILOT_LSP", COPILOT_LSP, "copilotlsp.nes"),
    "sidekick": ("FORETYPE_SIDEKICK", SIDEKICK, "sidekick.ui"),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("plugin", DRAW_NEXT_EDITS)
def test_an_unchanged_plugin_shows_our_next_edit_and_applies_it(tmp_path, plugin):
    variable, config, namespace = DRAW_NEXT_EDITS[plugin]
    folder = os.environ.get(variable)
    reason = Neovim.missing() or (None if folder else f"needs {variable}, the folder of the plugin")
    if reason is not None:
        pytest.skip(reason)
    text = "def area(ä, width):\n    size = 'ß😀', width\n    return size\n"
    command = ", ".join(f"'{word}'" for word in server_command("--untrusted", log=tmp_path / "lsp.log"))
    with Neovim(tmp_path, text, config=NEXT_EDITS.format(folder=folder, command=command) + config) as neovim:
        neovim.until(lambda _: neovim.ask("#vim.lsp.get_clients({bufnr = 0})") == 1)
        neovim.press("1", "G")
        neovim.type("fwciwbreadth")
        neovim.press("Escape")
        marks = f"#vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_create_namespace('{namespace}'), 0, -1, {{}})"
        neovim.until(lambda _: neovim.ask(marks) > 0)
        renamed = text.replace("width", "breadth")
        for _ in range(3):  # to it, then to its start, then it is taken
            neovim.press("Tab")
        neovim.until(lambda _: neovim.buffer() == renamed.rstrip("\n"))
