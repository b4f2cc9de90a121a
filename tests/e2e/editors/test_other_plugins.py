"""Other people's plugins in Neovim 0.12, unchanged, against our gateway: llama.vim and minuet-ai.nvim.

FORETYPE_LLAMA_VIM and FORETYPE_MINUET name the folders of the plugins; without them there is nothing to try.
"""

import os

import pytest
from e2e.editors.neovim_support import Neovim
from e2e.lsp_support import SOURCE, gateway

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
    end_point = 'http://127.0.0.1:{port}/v1/completions', api_key = 'FORETYPE_KEY', name = 'Foretype', model = 'any',
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
