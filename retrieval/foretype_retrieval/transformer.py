"""A sentence-transformers model as embedder: torch, so for the indexing process and for `foretype_retrieval.embedder_process` alone.

Nothing is downloaded: a name must be in the local cache already.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from foretype_context.text.strings import well_formed
from numpy.typing import NDArray

from foretype_retrieval.embedder import EMBEDDED_CHARS
from foretype_retrieval.errors import EmbedderError

_BATCH: Final = 32


class TransformerEmbedder:
    """Vectors of a sentence-transformers model, with its own prompts for questions and documents where it has them."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.dimensions = int(self.embed(["x"]).shape[1])
        self.digest = _digest(model)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        encode = getattr(self._model, "encode_document", self._model.encode)
        return self._rows(encode, texts)

    def question(self, text: str) -> NDArray[np.float32]:
        encode = getattr(self._model, "encode_query", self._model.encode)
        return self._rows(encode, [text])[0]

    def _rows(self, encode: Any, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        rows = encode(
            [well_formed(text[:EMBEDDED_CHARS]) for text in texts],
            batch_size=_BATCH,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return np.ascontiguousarray(np.nan_to_num(rows), dtype=np.float32)


def load_transformer(name: str) -> TransformerEmbedder:
    """Loads a model by its folder, or by a name that lies in the local cache.

    Raises:
        EmbedderError: not installed, not there, or no such model.
    """
    remedy = "search goes on by words alone; name a folder with a sentence-transformers model, or leave --embedder out"
    # No request leaves this process, whatever the libraries below would like to look up, and no bar is drawn over our own.
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        library = importlib.import_module("sentence_transformers")
    except Exception as error:
        raise EmbedderError(
            f"embedder {name} needs sentence-transformers, which cannot be imported ({error}); "
            "pip install 'foretype[transformer]', or leave --embedder out"
        ) from error
    try:
        return TransformerEmbedder(library.SentenceTransformer(name, device="cpu", local_files_only=True))
    except Exception as error:  # what a foreign model raises is not ours to list
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise EmbedderError(f"embedder {name} cannot be loaded ({said[0]}); {remedy}") from error


def _digest(model: Any) -> str:
    """Of everything that vectors depend on: weights, tokenizer, and the order of the model's parts."""
    hashed = hashlib.blake2b(repr(model).encode(), digest_size=16)
    for name, values in sorted(model.state_dict().items()):
        hashed.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        hashed.update(values.detach().cpu().contiguous().flatten().float().numpy().tobytes())
    tokenizer = getattr(model.tokenizer, "backend_tokenizer", model.tokenizer)
    if hasattr(tokenizer, "to_str"):
        hashed.update(tokenizer.to_str().encode())
    return hashed.hexdigest()
