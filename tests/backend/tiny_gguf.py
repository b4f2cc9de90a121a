"""A random Llama-shaped GGUF file for tests: real format, real engine, meaningless weights."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf_file import written

END_TOKEN = 0


CONTROLS = ("<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


_PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_SYMBOLS = dict(zip(_PRINTABLE, map(chr, _PRINTABLE), strict=True)) | {
    byte: chr(256 + at) for at, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))
}


def as_byte_level(text: str) -> str:
    """`text` in the symbols of a byte-level vocabulary."""
    return "".join(_SYMBOLS[byte] for byte in text.encode())


def byte_level_tokens(vocabulary_tokens: int, controls: Sequence[str] = CONTROLS) -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE: the 256 byte symbols, then pairs of them."""
    symbols = list(_SYMBOLS.values())
    tokens, merges = [*controls, *symbols], list[str]()
    for left in symbols:
        for right in symbols:
            if len(tokens) >= vocabulary_tokens:
                return tokens, merges
            tokens.append(left + right)
            merges.append(f"{left} {right}")
    return tokens, merges


def write_tiny_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    vocabulary_tokens: int = 512,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 2,
    feed_forward: int = 128,
    context_tokens: int = 4096,
    quantisation: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0,
    file_type: gguf.LlamaFileType = gguf.LlamaFileType.MOSTLY_Q8_0,
    pretokenizer: str = "qwen2",
    controls: Sequence[str] = CONTROLS,
    without: str = "",
    extra: Mapping[str, Any] | None = None,
    vectors: Sequence[str] = (),
    values: Mapping[str, np.ndarray] | None = None,
    blocks: Callable[[int, int], np.ndarray] | None = None,
    seed: int = 0,
) -> Path:
    """Write the file and return its path. Dimensions are multiples of 32 (a Q8_0 block); `without` leaves a tensor out.

    Args:
        extra: further metadata below the architecture's name.
        vectors: names of further tensors, each of `hidden` zeros.
        values: of matrices, by name, in place of random ones.
        blocks: the bytes of a matrix of so many rows and columns, for types that the library does not quantise.
    """
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_file_type(file_type)
    writer.add_context_length(context_tokens)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_vocab_size(vocabulary_tokens)
    tokens, merges = byte_level_tokens(vocabulary_tokens, controls)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pretokenizer)
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_token_types(
        [gguf.TokenType.CONTROL] * len(controls) + [gguf.TokenType.NORMAL] * (len(tokens) - len(controls))
    )
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(END_TOKEN)
    writer.add_add_bos_token(False)

    adding: dict[type, Any] = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
    for key, value in (extra or {}).items():
        adding[type(value)](f"{architecture}.{key}", value)

    def matrix(name: str, rows: int, columns: int, scale: float) -> None:
        random = (rng.standard_normal((rows, columns)) * scale).astype(np.float32)
        if name == without:
            return
        if blocks is not None:
            data = blocks(rows, columns)
        else:
            data = gguf.quants.quantize((values or {}).get(name, random), quantisation)
        writer.add_tensor(name, data, raw_dtype=quantisation)

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(hidden, dtype=np.float32))

    matrix("token_embd.weight", vocabulary_tokens, hidden, 1.0)
    for layer in range(layers):
        ones(f"blk.{layer}.attn_norm.weight")
        ones(f"blk.{layer}.ffn_norm.weight")
        for part in ("q", "k", "v", "output"):
            matrix(f"blk.{layer}.attn_{part}.weight", hidden, hidden, hidden**-0.5)
        matrix(f"blk.{layer}.ffn_gate.weight", feed_forward, hidden, hidden**-0.5)
        matrix(f"blk.{layer}.ffn_up.weight", feed_forward, hidden, hidden**-0.5)
        matrix(f"blk.{layer}.ffn_down.weight", hidden, feed_forward, feed_forward**-0.5)
    for name in vectors:
        writer.add_tensor(name, np.zeros(hidden, dtype=np.float32))
    ones("output_norm.weight")
    matrix("output.weight", vocabulary_tokens, hidden, hidden**-0.5)
    return written(writer, path)


def write_chain_gguf(
    path: Path, text: str, *, controls: Sequence[str], endless: bool = False, layers: int = 1, feed_forward: int = 128
) -> Path:
    """A model that answers every prompt with `text`, of which each character is another, and then ends or begins again.

    Its blocks add nothing, so what follows depends on the last token alone: one dimension says "begin", the others which character it was.
    They cost what they cost: `layers` and `feed_forward` make it slow.
    """
    hidden, vocabulary_tokens = 128, 700
    tokens, _ = byte_level_tokens(vocabulary_tokens, controls)
    chain = [tokens.index(one) for one in text.replace(" ", "Ġ")]
    rng = np.random.default_rng(1)
    embedding = rng.choice([-1.0, 1.0], (vocabulary_tokens, hidden)).astype(np.float32)
    embedding[:, 0] = 8.0
    embedding[chain, 0] = 0.0
    output = np.zeros((vocabulary_tokens, hidden), np.float32)
    output[chain[0], 0] = 30.0
    for one, following in zip(chain, [*chain[1:], chain[0] if endless else END_TOKEN], strict=True):
        output[following, 1:] += embedding[one, 1:]
    values = {f"blk.{n}.attn_output.weight": np.zeros((hidden, hidden), np.float32) for n in range(layers)}
    values |= {f"blk.{n}.ffn_down.weight": np.zeros((hidden, feed_forward), np.float32) for n in range(layers)}
    return write_tiny_gguf(
        path,
        vocabulary_tokens=vocabulary_tokens,
        controls=controls,
        hidden=hidden,
        feed_forward=feed_forward,
        layers=layers,
        values=values | {"token_embd.weight": embedding, "output.weight": output},
    )
