"""The commands `foretype index` and `foretype search`."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from foretype_context.syntax.document import Document
from foretype_context.terminal import console, one_line, say, say_json
from foretype_context.text.pasted import shell_line

from foretype_retrieval.embedder import Embedder
from foretype_retrieval.errors import BusyIndexError, IndexingCancelledError, UnusableIndexError, WorkspaceGoneError
from foretype_retrieval.indexing import IndexingProgress, open_index, update_workspace
from foretype_retrieval.scan import MAX_CODE_BYTES
from foretype_retrieval.search import SearchHit, query_at, query_of_words, search
from foretype_retrieval.static_embedder import default_embedder
from foretype_retrieval.store import folder_of
from foretype_retrieval.watch import default_cache_dir

_PLACE: Final = re.compile(r"^(?P<file>.+?):(?P<line>\d+)$")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache-dir", metavar="DIR", help="Where indexes are kept. Default: your cache directory."),
]
TableOption = Annotated[
    Path | None,
    typer.Option(
        "--embedder",
        metavar="NAME_OR_PATH",
        help="Embedding table (.npz), or a sentence-transformers model: its folder, or its name in the local cache. "
        "Default: the shipped table.",
    ),
]


@contextmanager
def _told() -> Generator[None]:
    """Failures that a user can mend are told in one line, with status 1; a cancelled run has status 130."""
    try:
        yield
    except (WorkspaceGoneError, BusyIndexError, UnusableIndexError) as error:
        say(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    except (IndexingCancelledError, KeyboardInterrupt) as error:
        say("cancelled; the index is as it was", err=True)
        raise typer.Exit(130) from error


def _embedder(table: Path | None) -> Embedder | None:
    return default_embedder(table, complain=lambda reason: say(f"note: {reason}", err=True))


def index(
    path: Annotated[Path, typer.Argument(help="Folder to index.")],
    as_json: JsonOption = False,
    cache_dir: CacheOption = None,
    embedder: TableOption = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="GLOB", help="Leave out, in the form of .gitignore; repeatable."),
    ] = None,
) -> None:
    """Index a repository, or bring its index up to date. Ctrl-C keeps the old one."""
    errors = console(stderr=True)
    started = time.perf_counter()
    with _told(), errors.status(f"indexing {path}") as status:

        def show(progress: IndexingProgress) -> None:
            status.update(f"{progress.files_done:,} of {progress.files_total:,} files, {progress.chunks:,} definitions")

        root = path.resolve()
        _, report = update_workspace(
            root,
            folder_of(cache_dir or default_cache_dir(), root),
            _embedder(embedder),
            globs=exclude or (),
            progress=show,
        )
    seconds = time.perf_counter() - started
    if as_json:
        say_json(asdict(report) | {"root": str(root), "seconds": round(seconds, 3)})
    else:
        say(
            f"{report.files:,} files, {report.chunks:,} definitions; {report.indexed:,} files read and {report.removed:,} "
            f"forgotten in {seconds:.1f} s"
        )
    if report.problem:
        say(f"error: {report.problem}", err=True)
        raise typer.Exit(1)


def search_command(
    query: Annotated[
        str, typer.Argument(metavar="QUERY|FILE:LINE", help="Words, or a place in a file (lines from 1).")
    ],
    as_json: JsonOption = False,
    root: Annotated[
        Path | None, typer.Option("--root", metavar="DIR", help="Indexed folder. Default: the nearest one above.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="Results at most.")] = 8,
    cache_dir: CacheOption = None,
    embedder: TableOption = None,
) -> None:
    """Search an index for words, or for what a place in a file calls for."""
    place = _PLACE.match(query)
    file = Path(place["file"]).resolve() if place is not None and Path(place["file"]).is_file() else None
    cache = cache_dir or default_cache_dir()
    with _told():
        used = _embedder(embedder)
        found_root = _root(cache, root, file or Path.cwd() / "-")
        opened = open_index(folder_of(cache, found_root), used)
        if place is not None and file is not None:
            with file.open("rb") as stream:
                text = stream.read(MAX_CODE_BYTES).decode("utf-8", "replace")
            snapshot = Document(file.as_uri(), text, path=str(file), language="plaintext").snapshot()
            line = min(max(int(place["line"]) - 1, 0), snapshot.line_count - 1)
            lines = text[: snapshot.line_start(line)].splitlines()
            own = file.relative_to(found_root).as_posix() if file.is_relative_to(found_root) else ""
            asked = query_at(lines, "", own)
        else:
            asked = query_of_words(query)
        started = time.perf_counter()
        hits = search(opened, asked, used, limit=limit)
        milliseconds = (time.perf_counter() - started) * 1e3
    if as_json:
        say_json({"root": str(found_root), "ms": round(milliseconds, 3), "results": [_shown(hit) for hit in hits]})
        return
    for hit in hits:
        found = hit.found
        first = next((line.strip() for line in found.text.splitlines() if line.strip()), "")
        say(f"{one_line(found.path)}:{found.line + 1}  {found.name or '-'}  [{hit.source_name}]  {first[:100]}")
    if not hits:
        say("nothing found", err=True)


def _root(cache: Path, root: Path | None, place: Path) -> Path:
    folders = place.resolve().parents if root is None else [root.resolve()]
    for folder in folders:
        if (folder_of(cache, folder) / "index.ftx").is_file():
            return folder
    if root is not None:
        raise UnusableIndexError(f"{folders[0]} is not indexed; run `{shell_line('foretype', 'index', folders[0])}`")
    raise UnusableIndexError(
        f"neither {place.parent} nor a folder above it is indexed; run `foretype index PATH`, or name it with --root"
    )


def _shown(hit: SearchHit) -> dict[str, Any]:
    found = hit.found
    return {
        "path": found.path,
        "line": found.line + 1,
        "name": found.name,
        "kind": found.kind.name.lower(),
        "score": found.score,
        "source": hit.source_name,
        "text": found.text,
    }
