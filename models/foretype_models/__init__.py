"""Foretype's own completion model: corpus, tokenizer, training, export, and the shipped files."""
