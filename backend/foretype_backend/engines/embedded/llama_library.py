"""llama.cpp's own C interface, `llama.h`, as the extension module of the wheel `xllamacpp` exports it (Linux and macOS).

What the wheel offers Python is llama.cpp's server: it listens on a port whoever asks, tells no more than the last token of a
character that two tokens make, sorts the whole vocabulary for each log-probability, and keeps one prompt for each slot. `llama.h` has
steps, sequences that share a prefix, and the logits. The structures are those of the build whose wheel is pinned; since a structure of
another build would be garbage, the defaults that the library fills in are compared before anything is made of them.
"""

from __future__ import annotations

import ctypes
import logging
import os
import weakref
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretype_backend.errors import LibraryError, PipelineError

_logger = logging.getLogger(__name__)

_PIECE_BYTES: Final = 512
_ERROR: Final = 4  # ggml_log_level
_NO_ROOM: Final = 1  # of llama_decode: the batch found no place in the cache, and nothing changed
_MANY: Final = 64

_Int32s = NDArray[np.int32]


class _ModelParams(ctypes.Structure):
    _fields_ = (
        ("devices", ctypes.c_void_p),
        ("tensor_buft_overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int32),
        ("load_mode", ctypes.c_int32),
        ("lazy_mode", ctypes.c_int32),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool),
        ("no_host", ctypes.c_bool),
        ("no_alloc", ctypes.c_bool),
        ("load_mtp", ctypes.c_bool),
        ("_rest", ctypes.c_uint8 * _MANY),  # the library writes its own size, which must not be more than ours
    )


class _ContextParams(ctypes.Structure):
    _fields_ = (
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32),
        ("n_rs_seq", ctypes.c_uint32),
        ("n_outputs_max", ctypes.c_uint32),
        ("n_outputs_max_per_seq", ctypes.c_uint32),
        ("n_threads", ctypes.c_int32),
        ("n_threads_batch", ctypes.c_int32),
        ("ctx_type", ctypes.c_int32),
        ("rope_scaling_type", ctypes.c_int32),
        ("pooling_type", ctypes.c_int32),
        ("attention_type", ctypes.c_int32),
        ("flash_attn_type", ctypes.c_int32),
        ("rope_and_yarn", ctypes.c_float * 6),
        ("yarn_orig_ctx", ctypes.c_uint32),
        ("defrag_thold", ctypes.c_float),
        ("cb_eval", ctypes.c_void_p * 2),
        ("type_k", ctypes.c_int32),
        ("type_v", ctypes.c_int32),
        ("_callbacks", ctypes.c_void_p * 3),  # all empty; not used here
        ("embeddings", ctypes.c_bool),
        ("offload_kqv", ctypes.c_bool),
        ("no_perf", ctypes.c_bool),
        ("op_offload", ctypes.c_bool),
        ("swa_full", ctypes.c_bool),
        ("kv_unified", ctypes.c_bool),
        ("_rest", ctypes.c_uint8 * _MANY),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.c_void_p),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.c_void_p),
        ("n_seq_id", ctypes.c_void_p),
        ("seq_id", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
    )


_MODEL_DEFAULTS: Final = {
    "n_gpu_layers": -1,
    "split_mode": 1,
    "main_gpu": 0,
    "vocab_only": False,
    "use_extra_bufts": True,
}
_CONTEXT_DEFAULTS: Final = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "flash_attn_type": -1,
    "defrag_thold": -1.0,
    "type_k": 1,  # f16
    "type_v": 1,
    "embeddings": False,
    "offload_kqv": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
}
_Log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _Errors:
    """What the library says when something fails, the cause first; all else that it says is thrown away."""

    def __init__(self) -> None:
        self.first = ""

    def forget(self) -> None:
        self.first = ""

    def hear(self, level: int, text: bytes, _data: int | None) -> None:
        if level == _ERROR and (line := text.decode("utf-8", "replace").strip()):
            self.first = self.first or line
            _logger.error("%s", line)


def _stop_listening(listen: Callable[..., Any], listener: object) -> None:
    """As long as it may be called, `listener` must live: the argument keeps it."""
    listen(_Log(), None)


class LlamaInterface:
    """The functions. One in a process, since the library's log has one listener.

    Args:
        file: the extension module; by default that of the installed wheel.

    Raises:
        LibraryError: it does not export them, or its structures are not those that we know.
    """

    def __init__(self, file: Path | None = None) -> None:
        if file is None:
            found = find_spec("xllamacpp.xllamacpp")
            if found is None or found.origin is None:
                raise LibraryError(
                    "the package xllamacpp has no extension module; pip install 'foretype[embedded]' again"
                )
            file = Path(found.origin)
        os.environ["GGML_NO_BACKTRACE"] = "1"  # where it gives up it starts gdb, which stops the process for seconds
        self._library = ctypes.CDLL(str(file))
        self._errors = _Errors()
        listener = _Log(self._errors.hear)
        listen = self.of("llama_log_set", None, _Log, ctypes.c_void_p)
        listen(listener, None)
        weakref.finalize(self, _stop_listening, listen, listener)
        self._model_params = self.of("llama_model_default_params", _ModelParams)
        self._context_params = self.of("llama_context_default_params", _ContextParams)
        _check(self._model_params(), _MODEL_DEFAULTS)
        _check(self._context_params(), _CONTEXT_DEFAULTS)
        self.of("llama_backend_init", None)()

    def of(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """A function of the interface, with its types."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise LibraryError(f"the package xllamacpp does not export {name}; {_REMEDY}") from None
        function.restype, function.argtypes = result, arguments
        return function

    @property
    def has_gpu(self) -> bool:
        """Whether it was built to compute on a graphics processor (Metal in the wheels for macOS)."""
        return bool(self.of("llama_supports_gpu_offload", ctypes.c_bool)())

    def open(
        self, model: str, *, tokens: int, batch_tokens: int, sequences: int, threads: int, gpu: int | None
    ) -> LlamaContext:
        """Load a model, with a cache for `tokens` that up to `sequences` share.

        Args:
            batch_tokens: most tokens of one `compute`.
            gpu: which computes, from 0; None for the processor.

        Raises:
            PipelineError: what the library says.
        """
        params = self._model_params()
        nothing = (ctypes.c_void_p * 1)()
        if gpu is None:
            params.n_gpu_layers, params.devices = 0, ctypes.cast(nothing, ctypes.c_void_p)
        else:
            params.split_mode, params.main_gpu = 0, gpu
        self._errors.forget()
        free_model = self.of("llama_model_free", None, ctypes.c_void_p)
        load = self.of("llama_model_load_from_file", ctypes.c_void_p, ctypes.c_char_p, _ModelParams)
        handle = load(str(model).encode(), params)
        if not handle:
            raise PipelineError(self.error or "the model cannot be loaded")
        own = self._context_params()
        most = max(
            batch_tokens, sequences
        )  # it ends the process where fewer outputs fit into a batch than there are sequences
        own.n_ctx, own.n_batch, own.n_ubatch, own.n_seq_max = tokens, most, most, sequences
        own.n_threads = own.n_threads_batch = threads
        own.offload_kqv = own.op_offload = gpu is not None
        own.kv_unified = (
            True  # sequences share cells; else each has its own part of the cache, and a shared prefix is copied
        )
        context = self.of("llama_init_from_model", ctypes.c_void_p, ctypes.c_void_p, _ContextParams)(handle, own)
        if not context:
            free_model(handle)
            raise PipelineError(self.error or "not enough memory")
        return LlamaContext(self, handle, context, batch_tokens)

    @property
    def error(self) -> str:
        """The first since a model was opened."""
        return self._errors.first


class LlamaContext:
    """A model with its cache. Not safe for threads."""

    def __init__(self, interface: LlamaInterface, model: int, context: int, batch_tokens: int) -> None:
        self._interface = interface
        self._context = context
        free = interface.of("llama_free", None, ctypes.c_void_p)
        free_model = interface.of("llama_model_free", None, ctypes.c_void_p)
        weakref.finalize(self, _free, free, context, free_model, model, interface)
        vocabulary = interface.of("llama_model_get_vocab", ctypes.c_void_p, ctypes.c_void_p)(model)
        self._vocabulary_tokens = int(interface.of("llama_vocab_n_tokens", ctypes.c_int32, ctypes.c_void_p)(vocabulary))
        piece = interface.of(
            "llama_token_to_piece",
            ctypes.c_int32,
            *(ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_bool),
        )
        self._piece = partial(piece, vocabulary)
        self._memory = interface.of("llama_get_memory", ctypes.c_void_p, ctypes.c_void_p)(context)
        self._decode = interface.of("llama_decode", ctypes.c_int32, ctypes.c_void_p, _Batch)
        self._logits = interface.of(
            "llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_int32
        )
        place = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
        self._remove = interface.of("llama_memory_seq_rm", ctypes.c_bool, *place, ctypes.c_int32)
        self._copy = interface.of("llama_memory_seq_cp", None, *place, ctypes.c_int32, ctypes.c_int32)
        ones = np.ones(batch_tokens, np.int32)
        self._sequences = np.zeros(batch_tokens, np.int32)
        # each token has a list of sequences, all of length one here
        lists = self._sequences.ctypes.data + 4 * np.arange(batch_tokens, dtype=np.uintp)
        self._kept = (ones, lists)
        self._batch = _Batch(n_seq_id=ones.ctypes.data, seq_id=lists.ctypes.data)

    def compute(self, tokens: _Int32s, positions: _Int32s, sequences: _Int32s, wanted: NDArray[np.int8]) -> bool:
        """Compute tokens and keep them in the cache.

        Args:
            tokens: ids; the others are of the same length: `positions` from 0 without a gap in a sequence, `wanted` 1 where logits are.

        Returns:
            False where the cache has no room for them; nothing changed then.

        Raises:
            PipelineError: it failed.
        """
        self._sequences[: len(sequences)] = sequences
        self._batch.n_tokens = len(tokens)
        self._batch.token, self._batch.pos = tokens.ctypes.data, positions.ctypes.data
        self._batch.logits = wanted.ctypes.data
        code = int(self._decode(self._context, self._batch))
        if code not in (0, _NO_ROOM):
            raise PipelineError(self._interface.error or f"llama_decode returned {code}")
        return code == 0

    def logits(self, at: int) -> NDArray[np.float32]:
        """Of the token at that place of the last batch; valid until the next `compute`."""
        return np.ctypeslib.as_array(self._logits(self._context, at), (self._vocabulary_tokens,))

    def pieces(self) -> list[bytes]:
        """The texts of the vocabulary's tokens by id; those of control tokens are empty. Takes some hundredths of a second."""
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        lengths = (self._piece(at, buffer, _PIECE_BYTES, 0, False) for at in range(self._vocabulary_tokens))
        return [buffer.raw[: max(length, 0)] for length in lengths]

    def share(self, source: int, target: int, tokens: int) -> None:
        """Let a sequence begin with the first tokens of another. Costs no memory."""
        self._copy(self._memory, source, target, 0, tokens)

    def forget(self, sequence: int) -> None:
        self._remove(self._memory, sequence, 0, -1)


def _free(
    free: Callable[..., Any], context: int, free_model: Callable[..., Any], model: int, _interface: LlamaInterface
) -> None:
    """The interface lives as long: it hears what is said at the end."""
    free(context)
    free_model(model)


_REMEDY: Final = "pip install 'foretype[embedded]' brings the version that fits"


def _check(params: ctypes.Structure, expected: dict[str, Any]) -> None:
    other = {name: getattr(params, name) for name in expected if getattr(params, name) != expected[name]}
    if other:
        raise LibraryError(f"the package xllamacpp is another version than the one that is known ({other}); {_REMEDY}")
