"""A model as OpenVINO made it out of its GGUF file, kept so that the next start opens that.

Its weights are then pages of a file, which needs a third less memory, and it opens in two fifths of the time: of a GGUF file the library
also makes a tokenizer, of which only the vocabulary is needed here (an answer that has to begin with a text is held to it).
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import openvino as ov
from foretype_models.kept import discard, keep, name_of

from foretype_backend.errors import PipelineError

_logger = logging.getLogger("foretype.engine")

FOLDER: Final = "openvino"
_FORMAT: Final = "1"
_DETOKENIZER: Final = "openvino_detokenizer.xml"  # a name that the library looks for
_MADV_DONTNEED: Final = 4


class Open(Protocol):
    """Opens a GGUF file or a folder of what was made of one. Raises PipelineError."""

    def __call__(self, path: Path, **properties: object) -> Any: ...


def open_model(model: Path, prepared_dir: Path | None, open_path: Open) -> Any:
    """What `open_path` makes of a GGUF file, or of what is kept of it; that is made where it is missing and there is room.

    Raises:
        PipelineError: the file cannot be opened; nothing about the keeping, without which all is as well, but slower.
    """
    if prepared_dir is not None:
        opened: list[Any] = []

        def make(folder: Path) -> None:
            folder.mkdir()
            with _writable(model, folder) as file:
                opened.append(open_path(file, enable_save_ov_model=True))
            try:
                _write_vocabulary(opened[0].get_tokenizer().get_vocab(), folder)
            except RuntimeError as error:
                raise OSError(f"its vocabulary: {error}") from error

        kept = None
        try:
            name = name_of(model, f"{_FORMAT} {ov.get_version()}")
            kept = keep(prepared_dir / FOLDER / name, 2 * model.stat().st_size, make, patient=False)
        except OSError as error:
            _logger.info("%s is not kept as OpenVINO reads it in %s: %s", model, prepared_dir, error)
        if opened:
            return opened[0]
        if kept is not None:
            try:
                return open_path(kept)
            except PipelineError as error:
                _logger.warning("%s is damaged and made again with the next start: %s", kept, error)
                discard(kept)
    if os.access(model, os.W_OK):
        return open_path(model)
    try:
        with tempfile.TemporaryDirectory(prefix="foretype-engine-") as folder, _writable(model, Path(folder)) as file:
            return open_path(file)
    except OSError as error:
        raise PipelineError(
            f"it is read-only, and no room for a copy in {tempfile.gettempdir()}: {error.strerror}"
        ) from error


@contextmanager
def _writable(model: Path, folder: Path) -> Generator[Path]:
    """The file as one of a folder while it is loaded: the library opens it for writing, though it writes nothing. Raises OSError."""
    file = folder / "model.gguf"
    if os.access(model, os.W_OK):
        file.symlink_to(model.absolute())
    else:
        shutil.copyfile(model, file)
    yield file
    file.unlink()


def _write_vocabulary(vocabulary: dict[bytes, int], folder: Path) -> None:
    """The one part of a tokenizer that is needed, as the library reads it."""
    steps: Any = import_module("openvino_tokenizers.tokenizer_pipeline")
    utils: Any = import_module("openvino_tokenizers.utils")
    texts = [b""] * (max(vocabulary.values()) + 1)
    for text, token in vocabulary.items():
        texts[token] = text
    pipeline = steps.TokenizerPipeline()
    pipeline.add_steps([steps.VocabDecoderStep(vocab=texts, skip_tokens=[0]), steps.FuseStep()])
    model = utils.change_inputs_type(pipeline.get_detokenizer_ov_subgraph(), ov.Type.i64)
    ov.save_model(model, folder / _DETOKENIZER, compress_to_fp16=False)


def leave_pages() -> None:
    """Leave the pages of weights, which the first step packed anew; a look at one of them brings it back. Linux alone."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        place, access, *_ = line.split(maxsplit=2)
        if line.endswith("/openvino_model.bin") and access[1] == "-":  # of a file that is only read nothing is lost
            first, end = (int(edge, 16) for edge in place.split("-"))
            libc.madvise(first, end - first, _MADV_DONTNEED)
