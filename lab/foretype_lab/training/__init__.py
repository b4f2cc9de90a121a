"""Rows out of the text store, the model, and its training."""
