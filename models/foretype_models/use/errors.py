"""What keeps a model from being used."""

from __future__ import annotations

__all__ = ["UseError"]


class UseError(Exception):
    """A model cannot be used: one sentence that says why and what to do. What served before still does."""
