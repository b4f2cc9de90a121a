"""Held-out measurements of the adaptive model, and the fitting of its weights."""
