"""What keeps a model from being used."""

from __future__ import annotations

from foretype_context.errors import ForetypeError

__all__ = ["UseError"]


class UseError(ForetypeError):
    """A model cannot be used: one sentence that says why and what to do. What served before still does."""
