"""Tokenizers: exact counts of tokens, and where a text may be cut."""
