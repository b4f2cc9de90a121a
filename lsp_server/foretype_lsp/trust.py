"""What an editor's word on trust means: of the open folders nothing is read unless they are trusted.

The option is `trusted`; the command line's `--untrusted` wins over it, and what is no boolean counts as no (:mod:`foretype_lsp.options`). An
untrusted folder has no index, no file of it is opened for a next edit, no git runs in it, and the client is told of no
workspace. The client's half is `foretype_client.client.ClientOptions.trusted`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from foretype_lsp.options import Options


def why_unread(options: Options) -> str | None:
    """Why nothing but the open documents is read, or None where other files may be."""
    if not options.trusted:
        return "nothing is read: the folder is not trusted"
    return None if options.index.enable else "switched off"


def trusted_roots(options: Options, roots: Iterable[Path]) -> list[Path]:
    """Of the open folders those that anybody may be told of: all or none."""
    return list(roots) if options.trusted else []
