"""Prepares a Hugging Face causal code model for the embedded engine: ``foretype models pull``."""
