"""What can go wrong in a measurement, in one tree. Commands tell it and end with status 2.

* `EvalError`
    * `RepositoryError`: by the readers of commits, of which some go on without what is missing
    * `RecordingError`: by the reader of recorded edits

What is wrong with an experiment's rows is `foretype_backend.errors.ExperimentInputError`: a live one is judged where it runs.
"""

from __future__ import annotations

from foretype_context.errors import ForetypeError


class EvalError(ForetypeError):
    """Anything that this package raises; the message names option, file, line or field, and what to do."""


class RepositoryError(EvalError):
    """The folder is not a git repository, or a commit range is unknown. The message says what to do."""


class RecordingError(EvalError):
    """A recording cannot be read. The message names the file, the line or entry, the field, and what was expected."""
