"""What `foretype doctor` says about the index and the embedder; the entry point `foretype.checks` names it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from foretype_retrieval.static_embedder import default_embedder
from foretype_retrieval.watch import default_cache_dir


def checks(cache_dir: Path | None = None, table: Path | None = None) -> Iterator[tuple[str, bool, str, str]]:
    """Name, whether it is as it should be, detail, and what to do if not.

    Args:
        cache_dir: where indexes are kept; None is the user's cache directory.
        table: embedding table; None is the shipped one.
    """
    reasons: list[str] = []
    embedder = default_embedder(table, complain=reasons.append)
    if embedder is None:
        reason = "; ".join(reasons) or "no embedder"
        remedy = (
            "other files are found by words alone until then; reinstall foretype (`foretype index` and `foretype search` take another "
            "table with --embedder FILE)"
        )
        yield "embedder", False, reason, remedy
    else:
        yield "embedder", True, f"{embedder.dimensions} dimensions, {embedder.digest[:12]}", ""
    folder = (cache_dir or default_cache_dir()) / "index"
    try:
        stored = [one.stat().st_size for one in folder.glob("*/*") if one.is_file()] if folder.is_dir() else []
        indexes = sum(1 for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else 0
    except OSError as error:
        yield "index", False, f"{folder}: {error}", f"make {folder} readable for you"
        return
    if folder.is_dir() and not os.access(folder, os.W_OK):
        yield (
            "index",
            False,
            f"{folder} cannot be written: indexes live in memory alone",
            f"make {folder} writable for you",
        )
        return
    said = f"{indexes} folder{'s' * (indexes != 1)} indexed, {sum(stored) / 1e6:.1f} MB in {folder}"
    yield (
        "index",
        True,
        said if indexes else f"no folder is indexed yet; an editor does it, or foretype index ({folder})",
        "",
    )
