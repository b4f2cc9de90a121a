"""Which sources there are: those of this package, and those that packages register under `foretype.sources`.

An entry point names a function that takes the workspace folders and, by keyword, `cache_dir`, `globs` and `on_progress`, and
returns a source (:class:`foretype_client.sources.threaded.ThreadedSource` says what one can do).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from foretype_context.prompt.sources import SnippetSource

from foretype_client.ports import Clock
from foretype_client.sources.all_sources import Sources
from foretype_client.sources.threaded import ThreadedSource

if TYPE_CHECKING:
    from foretype_client.sources.committed import CommittedSource
    from foretype_client.sources.own import OwnSource

GROUP: Final = "foretype.sources"

OnProgress = Callable[[Path, int, int], None]
"""A folder, files done and files in all (0: not known yet); -1 done at the end. Called from any thread."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What of other files may be used.

    Attributes:
        retrieval: use the registered sources, which index the folders.
        dependencies: also show signatures of installed packages that the imports at the cursor name.
        globs: what is neither indexed nor shown, in the form of `.gitignore`.
        cache_dir: where indexes are kept; None is the user's cache directory.
    """

    retrieval: bool = True
    dependencies: bool = False
    globs: tuple[str, ...] = ()
    cache_dir: Path | None = None


def registered() -> list[EntryPoint]:
    """Sources of installed packages, by name; the first of a name."""
    return sorted({point.name: point for point in entry_points(group=GROUP)}.values(), key=lambda point: point.name)


def open_sources(
    roots: Sequence[Path],
    options: SourceOptions,
    *,
    call_soon: Callable[[Callable[[], object]], object],
    clock: Clock,
    on_progress: OnProgress | None = None,
) -> Sources:
    """Sources over these folders. Reads the list of installed packages; what a source imports is imported in its thread."""
    roots = tuple(roots)

    def own() -> OwnSource:
        from foretype_client.sources.own import OwnSource

        return OwnSource(roots, dependencies=options.dependencies, clock=clock, globs=options.globs)

    def committed() -> CommittedSource:
        from foretype_client.sources.committed import CommittedSource

        return CommittedSource(globs=options.globs, clock=clock)

    hosted = [ThreadedSource("repository", committed, clock=clock), ThreadedSource("workspace", own, clock=clock)]
    if options.retrieval:
        for point in registered():
            make = partial(_opened, point, roots, options, on_progress)
            hosted.append(ThreadedSource(point.name, make, clock=clock))
    for source in hosted:
        source.start()
    return Sources(hosted, call_soon)


def host(
    sources: Sequence[SnippetSource], *, call_soon: Callable[[Callable[[], object]], object], clock: Clock
) -> Sources:
    """Sources that somebody has made, each in a thread of its own."""
    hosted = [ThreadedSource(source.name, partial(_same, source), clock=clock) for source in sources]
    for source in hosted:
        source.start()
    return Sources(hosted, call_soon)


def _same(source: SnippetSource) -> SnippetSource:
    return source


def _opened(point: EntryPoint, roots: Sequence[Path], options: SourceOptions, on_progress: OnProgress | None) -> Any:
    factory: Callable[..., Any] = point.load()
    return factory(roots, cache_dir=options.cache_dir, globs=options.globs, on_progress=on_progress)
