"""What can go wrong in the laboratory, in one tree. Commands tell it and end with status 1 or 2.

* `LabError`
    * `CorpusSourceError`: by the readers of a corpus's sources
    * `TableBuildError`: by the adaptive model's table, as it is built
    * `ExportError`: by the writers and readers of model files; the files that were there are unchanged
    * `CardError`: by the model card
    * `LlamaServerError`: by llama.cpp's server, as we start it
    * `VllmError`: by vLLM in a process of its own
    * `BenchFailedError`: by `bench all`, for a bench that gave no figure
    * `RepositorySourceError`: by what retrieval is measured on
    * `CrossfileRowsError`: by the rows of an interrupted run
    * `PeerResultError`: by the page about peers
    * `FleetBenchError`: by the fleet of a bench, and what stands before it
    * `GatewayFailedError`: by the gateway that is killed, when it does not start
    * `UndocumentedError`: by the pages that are made of the code
    * `PostgresUnavailableError`: by a PostgreSQL server of one's own
    * `RedisUnavailableError`: by a Redis server of one's own
"""

from __future__ import annotations

from foretype_context.errors import ForetypeError

__all__ = [
    "BenchFailedError",
    "CardError",
    "CorpusSourceError",
    "CrossfileRowsError",
    "ExportError",
    "FleetBenchError",
    "GatewayFailedError",
    "LabError",
    "LlamaServerError",
    "PeerResultError",
    "PostgresUnavailableError",
    "RedisUnavailableError",
    "RepositorySourceError",
    "TableBuildError",
    "UndocumentedError",
    "VllmError",
]


class LabError(ForetypeError):
    """Anything that this package raises."""


class BenchFailedError(LabError):
    """A bench gave no figure; the message is the reason, as its rows tell it."""


class CorpusSourceError(LabError):
    """A source on disk cannot be read; the message names the file and the remedy."""


class TableBuildError(LabError):
    """The table cannot be built; the message says what to do."""


class ExportError(LabError):
    """A checkpoint or tokenizer cannot be exported; the message names the file and the remedy."""


class CardError(LabError):
    """A result file is missing or belongs to another model; the message says which command makes it."""


class LlamaServerError(LabError):
    """The server is not there, did not start, or refused a request; the message says what to do."""


class VllmError(LabError):
    """vLLM is not there, did not start, or failed; the message says what to do."""


class RepositorySourceError(LabError):
    """There is nothing to measure on; the message says what was expected."""


class CrossfileRowsError(LabError):
    """The rows of `--out` are of another run; the message names what differs."""


class PeerResultError(LabError):
    """A result file cannot be used; the message names the file and what is missing."""


class GatewayFailedError(LabError):
    """The gateway did not start; the message says what it said."""


class PostgresUnavailableError(LabError):
    """There is no PostgreSQL server here, or it does not start."""


class RedisUnavailableError(LabError):
    """There is no redis-server here, or it does not start."""


class FleetBenchError(LabError):
    """The fleet of a bench did not come up, or what stands before it; the message says what it said."""


class UndocumentedError(LabError):
    """Something of the code that a page shows is not described; the message names it and where to do so."""
