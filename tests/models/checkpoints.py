"""Tiny Hugging Face checkpoints, made here: random weights, a small tokenizer of the family's kind, its control tokens."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROLS = {
    "qwen2.5-coder": (
        *("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
        *("<|repo_name|>", "<|file_sep|>"),
    ),
    "starcoder2": (
        "<|endoftext|>",
        "<fim_prefix>",
        "<fim_middle>",
        "<fim_suffix>",
        "<fim_pad>",
        "<repo_name>",
        "<file_sep>",
    ),
    "deepseek-coder": (
        *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"),
        "<|EOT|>",
    ),
    "codellama": ("<s>", "</s>", "▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"),
    "codestral": ("<s>", "</s>", "[PREFIX]", "[SUFFIX]", "[MIDDLE]"),
}
TEXT = [
    "def f(x):\n    return x + 1\n",
    "class A:\n    value = 12\n\n    def g(self):\n        return self.value\n",
] * 20


def byte_level(controls: tuple[str, ...]) -> Tokenizer:
    """A byte-level BPE like Qwen2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in controls])
    return tokenizer


def sentence_pieces(controls: tuple[str, ...]) -> Tokenizer:
    """A BPE with byte fall-back like Llama 2's."""
    vocabulary = {"<unk>": 0, **{f"<0x{byte:02X}>": 1 + byte for byte in range(256)}}
    for token in ("▁", *"abcdefghijklmnopqrstuvwxyz", "d", "de", "def", "▁def", "re", "ret"):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [("d", "e"), ("de", "f"), ("▁", "def"), ("r", "e"), ("re", "t")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in controls])
    return tokenizer


def config(architecture: str = "Qwen2ForCausalLM", **changes: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": {"Llama": "llama", "Qwen2": "qwen2", "Qwen3": "qwen3"}.get(architecture.split("For")[0], "other"),
        "vocab_size": 320,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 96,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        **changes,
    }


def weights(settings: dict[str, Any]) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    from foretype_models.pull.shapes import read_shape

    draw = np.random.default_rng(3)
    shape = read_shape(settings, "config.json")
    found = {name: draw.normal(0, 0.2, shape.expected(name)).astype(np.float32) for name in shape.names()}
    return {name: value + 1 if "norm" in name else value for name, value in found.items()}


def save_safetensors(path: Path, tensors: dict[str, np.ndarray[Any, Any]], kind: str = "F32") -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    at = 0
    for name, value in tensors.items():
        if kind == "BF16":
            raw = (value.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            raw = value.astype(np.float16 if kind == "F16" else np.float32).tobytes()
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        parts.append(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def make(
    folder: Path,
    architecture: str = "Qwen2ForCausalLM",
    family: str = "qwen2.5-coder",
    *,
    kind: str = "BF16",
    shards: int = 1,
    **changes: Any,
) -> Path:
    """Writes a checkpoint into a folder and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = config(architecture, **changes)
    (folder / "config.json").write_text(json.dumps(settings))
    maker = sentence_pieces if family in ("codellama", "codestral") else byte_level
    maker(CONTROLS[family]).save(str(folder / "tokenizer.json"))
    tensors = weights(settings)
    if shards == 1:
        save_safetensors(folder / "model.safetensors", tensors, kind)
    else:
        names = list(tensors)
        files = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
        where = {name: files[at % shards] for at, name in enumerate(names)}
        for file in files:
            save_safetensors(folder / file, {name: tensors[name] for name in names if where[name] == file}, kind)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\n")
    return folder
