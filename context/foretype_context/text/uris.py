"""Files as editors name them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


def path_of_uri(uri: str) -> Path | None:
    """The file of a `file:` URI; None for anything else."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # an unclosed bracket in the host
        return None
    if parts.scheme != "file" or not parts.path:
        return None
    share = f"//{parts.netloc}" if parts.netloc not in ("", "localhost") else ""
    return Path(url2pathname(share + parts.path))  # which unquotes, once
