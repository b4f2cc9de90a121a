"""What of a text a newer one changes."""

from __future__ import annotations

from foretype_context.text.document import Edit
from foretype_context.text.strings import common_prefix, common_suffix


def difference(old: str, new: str) -> Edit:
    """The one edit between two texts: what is left without their common start and end."""
    start = common_prefix(old, new)
    end = common_suffix(old, new, min(len(old), len(new)) - start)
    return Edit(start, len(old) - end, new[start : len(new) - end])
