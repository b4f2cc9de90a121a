"""What tenants, teams and users may be called, in a file and in the identity store."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def is_name(text: str) -> bool:
    """Names of tenants, teams and users: 1 to 64 letters, digits, and `. _ @ -` after the first."""
    return _NAME.fullmatch(text) is not None
