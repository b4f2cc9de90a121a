"""`python -m foretype_lsp`: the language server without the command line around it, for the shortest start."""

from foretype_wire.garbage_collection import spare_start_and_end

spare_start_and_end()

from foretype_lsp.cli import app

app(prog_name="foretype lsp")
