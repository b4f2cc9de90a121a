"""The language server - the editor's side of everything."""
