"""What can go wrong in the laboratory, in one tree. Commands tell it and end with status 1 or 2.

* `LabError`
    * `LlamaServerError`: by llama.cpp's server, as we start it
    * `BenchFailedError`: by `bench all`, for a bench that gave no figure
    * `PeerResultError`: by the page about peers
"""

from __future__ import annotations

from foretype_context.errors import ForetypeError


class LabError(ForetypeError):
    """Anything that this package raises; the message names what is wrong, and the remedy."""


class BenchFailedError(LabError):
    """A bench gave no figure; the message is the reason, as its rows tell it."""


class LlamaServerError(LabError):
    """The server is not there, did not start, or refused a request; the message says what to do."""


class PeerResultError(LabError):
    """A result file cannot be used; the message names the file and what is missing."""
