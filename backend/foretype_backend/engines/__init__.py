"""Adapters behind the engine port."""
