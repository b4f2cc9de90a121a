"""What can go wrong in the laboratory, in one tree. Commands tell it and end with status 1 or 2.

* `LabError`
    * `CorpusSourceError`: by the readers of a corpus's sources
    * `TableBuildError`: by the adaptive model's table, as it is built
    * `ExportError`: by what puts an adapter among the shipped files; those that were there are unchanged
    * `LlamaServerError`: by llama.cpp's server, as we start it
    * `BenchFailedError`: by `bench all`, for a bench that gave no figure
    * `RepositorySourceError`: by what retrieval is measured on
    * `PeerResultError`: by the page about peers
    * `UndocumentedError`: by the pages that are made of the code
"""

from __future__ import annotations

from foretype_context.errors import ForetypeError


class LabError(ForetypeError):
    """Anything that this package raises."""


class BenchFailedError(LabError):
    """A bench gave no figure; the message is the reason, as its rows tell it."""


class CorpusSourceError(LabError):
    """A source on disk cannot be read; the message names the file and the remedy."""


class TableBuildError(LabError):
    """The table cannot be built; the message says what to do."""


class ExportError(LabError):
    """A model file cannot be exported; the message names the file and the remedy."""


class LlamaServerError(LabError):
    """The server is not there, did not start, or refused a request; the message says what to do."""


class RepositorySourceError(LabError):
    """There is nothing to measure on; the message says what was expected."""


class PeerResultError(LabError):
    """A result file cannot be used; the message names the file and what is missing."""


class UndocumentedError(LabError):
    """Something of the code that a page shows is not described; the message names it and where to do so."""
