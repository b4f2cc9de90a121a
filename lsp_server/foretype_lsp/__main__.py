"""`python -m foretype_lsp`: the language server without the command line around it, for the shortest start."""

from foretype_lsp.cli import app

app(prog_name="foretype lsp")
