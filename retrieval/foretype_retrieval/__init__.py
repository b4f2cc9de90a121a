"""Repository index: chunks along syntax, words and vectors, hybrid search, and a snippet source for completions.

This module imports nothing, so that naming a sub-module costs that sub-module alone.
"""
