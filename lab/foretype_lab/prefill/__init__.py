"""Prompt tokens that an exact-prefix cache has to compute, per layout, over one editing session."""
