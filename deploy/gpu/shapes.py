"""Models to measure with where no weights are at hand: the shape of a 7B code model, its draft, and a toy for CPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def _llama(width: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


SHAPES = {
    "70b": _llama(8192, 28672, 80, 64, 8, 128_256),
    "32b": _llama(5120, 27648, 64, 40, 8, 152_064),
    "30b-a3b": {
        **_llama(2048, 6144, 48, 32, 4, 151_936),
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "1.5b": _llama(1536, 8960, 28, 12, 2, 152_064),
    "7b": _llama(3584, 18944, 28, 28, 4, 152_064),
    "0.5b": _llama(896, 4864, 24, 14, 2, 152_064),
    "toy": _llama(256, 512, 4, 4, 2, 16_384),
    "toy-draft": _llama(128, 256, 2, 2, 1, 16_384),
}

_INT8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
    "ignore": ["lm_head"],
}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
_INT4 = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "lm_head": False}


def quantized(kind: str) -> dict[str, Any] | None:
    """What a checkpoint of this kind says of itself in `config.json`; None where weights are quantised when loaded."""
    return {"int8": _INT8, "int4": _INT4, "awq": _AWQ}.get(kind)


def write_shape(name: str, folder: Path, *, quantization: str = "") -> Path:
    """A folder with `config.json` alone, for `load_format="dummy"`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = dict(SHAPES[name])
    extra = quantized(quantization)
    if extra is not None:
        config["quantization_config"] = extra
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder
