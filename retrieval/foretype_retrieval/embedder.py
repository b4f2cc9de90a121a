"""The port of embedders, and what all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

EMBEDDED_CHARS: Final = 1_500
"""So much of a text is embedded."""


class Embedder(Protocol):
    """Texts to vectors. Implementations are immutable and may be shared between threads."""

    @property
    def dimensions(self) -> int: ...

    @property
    def digest(self) -> str:
        """Changes whenever vectors would: an index made with another digest is made anew."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text, of length 1 (of length 0 for a text with no known token)."""
        ...

    def question(self, text: str) -> NDArray[np.float32] | None:
        """The vector of a question, at once; None where it would have to be waited for."""
        ...
