"""Embedders: texts to unit vectors.

The default is a static model: one row per token of the shipped tokenizer, averaged and normalised. That is a table look-up, so
it needs numpy and tiktoken and no torch. Any sentence-transformers model can be named instead: the indexing process loads it
itself, everybody else has it in a process of its own. A missing or unusable embedder costs the vectors alone: search goes on
by words.
"""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from foretype_context.errors import TokenizerError
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_models.artifacts import FOLDER, locate_embedder
from foretype_models.errors import ArtifactError
from numpy.typing import NDArray

from foretype_retrieval.embedder import EMBEDDED_CHARS, Embedder
from foretype_retrieval.errors import EmbedderError

_FORMAT: Final = 1


class StaticEmbedder:
    """Mean of token rows, normalised.

    Args:
        table: one int8 row per token id.
        scales: what each row is multiplied with; frequent tokens may have small ones.
    """

    def __init__(self, table: NDArray[np.int8], scales: NDArray[np.float32], tokenizer: Tokenizer, digest: str) -> None:
        self._table = np.ascontiguousarray(table)
        self._scales = scales.astype(np.float32)
        self._tokenizer = tokenizer
        self.digest = digest
        self.dimensions = int(table.shape[1])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        result = np.zeros((len(texts), self.dimensions), np.float32)
        for at, text in enumerate(texts):
            ids = np.array(self._tokenizer.encode(text[:EMBEDDED_CHARS]), np.int64)
            if len(ids):
                # The mean's divisor falls out in the normalisation.
                result[at] = self._scales.take(ids) @ self._table.take(ids, axis=0).astype(np.float32)
        lengths = np.linalg.norm(result, axis=1, keepdims=True)
        np.divide(result, lengths, out=result, where=lengths > 0)
        return result

    def question(self, text: str) -> NDArray[np.float32]:
        return self.embed([text])[0]


def load_static(path: Path, tokenizer_path: Path) -> StaticEmbedder:
    """Reads a table: an `.npz` with `format`, `table` (int8), `scales` (float16) and `tokenizer_digest`.

    Raises:
        EmbedderError: absent, damaged, of another format, or made for another tokenizer.
    """
    remedy = "search goes on by words alone; reinstall foretype to have it back"
    try:
        tokenizer = load_tokenizer(tokenizer_path)
        raw = path.read_bytes()
        with np.load(io.BytesIO(raw), allow_pickle=False) as data:
            stored: dict[str, Any] = {name: data[name] for name in data.files}
        table, scales = stored["table"], stored["scales"]
        wanted, version = str(stored["tokenizer_digest"]), int(stored["format"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, TokenizerError) as error:
        raise EmbedderError(f"embedder {path} cannot be read ({error}); {remedy}") from error
    if version != _FORMAT:
        raise EmbedderError(f"embedder {path} has format {version} instead of {_FORMAT}; {remedy}")
    if wanted != tokenizer.digest:
        raise EmbedderError(
            f"embedder {path} was made for tokenizer {wanted[:12]}, not {tokenizer.digest[:12]}; {remedy}"
        )
    if (
        table.dtype != np.int8
        or table.ndim != 2
        or table.shape[0] < tokenizer.vocabulary_tokens
        or len(scales) != len(table)
    ):
        raise EmbedderError(f"embedder {path} holds a table of shape {table.shape}, {table.dtype}; {remedy}")
    if not np.isfinite(scales).all():
        raise EmbedderError(f"embedder {path} holds scales that are not finite; {remedy}")
    return StaticEmbedder(table, scales, tokenizer, hashlib.blake2b(raw, digest_size=16).hexdigest())


def default_embedder(
    path: Path | None = None, *, complain: Callable[[str], None] = lambda reason: None, apart: bool = False
) -> Embedder | None:
    """The embedder to use, or None with one complaint where there is none.

    Args:
        path: a table (`.npz`), or the folder or name of a sentence-transformers model; the shipped table where None.
        apart: such a model goes into a process of its own; for everybody but the indexing process.
    """
    try:
        if path is not None and path.suffix != ".npz":
            # Imported here, for they import this module, and the first of them torch.
            if apart:
                from foretype_retrieval.embedder_process import ProcessEmbedder

                return ProcessEmbedder(path.as_posix())
            from foretype_retrieval.transformer import load_transformer

            return load_transformer(path.as_posix())
        if path is not None:
            # A table says itself which tokenizer it was made for.
            return load_static(path, FOLDER / "tokenizer.json")
        shipped = locate_embedder()
        return load_static(shipped.path, shipped.tokenizer_path)
    except EmbedderError as error:
        complain(str(error))
    except ArtifactError as error:
        complain(f"{error}; until then search goes by words alone")
    return None


class LazyEmbedder:
    """Loads the embedder once, when it is first asked for, and complains once if there is none. Never loads torch."""

    def __init__(self, path: Path | None = None, *, complain: Callable[[str], None] = lambda reason: None) -> None:
        self._path = path
        self._complain = complain
        self._lock = threading.Lock()
        self._loaded: tuple[Embedder | None] | None = None

    def __call__(self) -> Embedder | None:
        if self._loaded is None:
            with self._lock:
                if self._loaded is None:
                    self._loaded = (default_embedder(self._path, complain=self._complain, apart=True),)
        return self._loaded[0]
