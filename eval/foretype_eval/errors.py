"""What can go wrong in a measurement, in one tree. Commands tell it and end with status 2.

* `EvalError`
    * `GateInputError`: by the quality gate, for sides that cannot be compared
    * `BenchmarkDataError`: by the reader of benchmarks
    * `SandboxError`: by the sandbox, never for what a program did
    * `RepositoryError`: by the readers of commits
    * `RecordingError`: by the reader of recorded edits
    * `LatencyTraceError`: by the reader of latencies that a replay repeats
    * `RunFileError`: by the reader of runs that are joined or reported
    * `PlotsUnavailableError`: by the plots of a report; told with what to install
    * `WorkloadError`: by the makers of what is typed
    * `LspAnswerError`: by the bench's language client
    * `LspGoneError`: by the bench's language client

What is wrong with an experiment's rows is `foretype_backend.errors.ExperimentInputError`: a live one is judged where it runs.
"""

from __future__ import annotations

from foretype_context.errors import ForetypeError


class EvalError(ForetypeError):
    """Anything that this package raises."""


class GateInputError(EvalError):
    """The gate was asked something that it cannot decide; the message names the option, and the remedy."""


class BenchmarkDataError(EvalError):
    """A data file cannot be read as a benchmark; the message names file, line, field and remedy."""


class SandboxError(EvalError):
    """The sandbox itself does not work here; the message says what failed. Never raised for what a program did."""


class RepositoryError(EvalError):
    """The folder is not a git repository, or a commit range is unknown. The message says what to do."""


class RecordingError(EvalError):
    """A recording cannot be read. The message names the file, the line or entry, the field, and what was expected."""


class LatencyTraceError(EvalError):
    """A latency trace cannot be read; the message names the file, the line and the field."""


class RunFileError(EvalError):
    """A run cannot be read or joined; the message names file and line, and the remedy."""


class PlotsUnavailableError(EvalError):
    """matplotlib is not installed."""


class WorkloadError(EvalError):
    """There is not enough code on this machine to type; the message says what was looked for."""


class LspAnswerError(EvalError):
    """The server answered a request with an error."""


class LspGoneError(EvalError):
    """The server ended; the message carries the end of its log."""
