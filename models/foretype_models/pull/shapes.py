"""Which architectures the embedded engine runs, and what a configuration must not ask for.

The engine's reader of GGUF files knows the shapes ``llama``, ``qwen2`` and ``qwen3``; what it does not know it does not
report: a rope scaling, a window or a bias is ignored in silence, and the model then writes nonsense. So each of them is
refused here, or its effect is kept out by a shorter context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from foretype_models.errors import PullError

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_ELSEWHERE = "serve it with vLLM or llama.cpp and `foretype serve --engine openai` instead"
_PARTS = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_EXTRA = {
    "llama": {},
    "qwen2": {f"self_attn.{part}_proj.bias": f"attn_{part}.bias" for part in "qkv"},
    "qwen3": {f"self_attn.{part}_norm.weight": f"attn_{part}_norm.weight" for part in "qk"},
}


@dataclass(frozen=True)
class Shape:
    """A model's shape, checked.

    Attributes:
        architecture: ``llama``, ``qwen2`` or ``qwen3``.
        context: longest context that is right without any rope scaling.
        tied: whether the output matrix is the embedding.
        notes: what was given up, for people.
    """

    architecture: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int
    rope_base: float
    norm_epsilon: float
    context: int
    tied: bool
    notes: tuple[str, ...] = ()

    def names(self) -> dict[str, str]:
        """GGUF name of every weight, by Hugging Face name."""
        names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
        if not self.tied:
            names["lm_head.weight"] = "output.weight"
        for layer in range(self.layers):
            for theirs, ours in {**_PARTS, **_EXTRA[self.architecture]}.items():
                names[f"model.layers.{layer}.{theirs}"] = f"blk.{layer}.{ours}"
        return names

    def expected(self, name: str) -> tuple[int, ...]:
        """Shape of the weight with this Hugging Face name."""
        query, kv = self.heads * self.head_width, self.kv_heads * self.head_width
        sizes = {
            "embed_tokens.weight": (self.vocabulary, self.width),
            "lm_head.weight": (self.vocabulary, self.width),
            "q_proj.weight": (query, self.width),
            "k_proj.weight": (kv, self.width),
            "v_proj.weight": (kv, self.width),
            "o_proj.weight": (self.width, query),
            "q_proj.bias": (query,),
            "k_proj.bias": (kv,),
            "v_proj.bias": (kv,),
            "q_norm.weight": (self.head_width,),
            "k_norm.weight": (self.head_width,),
            "gate_proj.weight": (self.feed_forward, self.width),
            "up_proj.weight": (self.feed_forward, self.width),
            "down_proj.weight": (self.width, self.feed_forward),
        }
        return sizes.get(".".join(name.split(".")[-2:]), (self.width,))


def read_shape(config: Mapping[str, Any], where: str) -> Shape:
    """Reads ``config.json``.

    Raises:
        PullError: another architecture, a missing field, or something the engine would ignore.
    """
    names = config.get("architectures") or [config.get("model_type")]
    architecture = ARCHITECTURES.get(str(names[0]))
    if architecture is None:
        known = ", ".join(ARCHITECTURES)
        raise PullError(
            f"{where}: architecture {names[0]} is none that the embedded engine runs ({known}); {_ELSEWHERE}"
        )
    try:
        width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        base, context, note = _rope(config, where)
        shape = Shape(
            architecture=architecture,
            vocabulary=int(config["vocab_size"]),
            width=width,
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_width=int(config.get("head_dim") or (128 if architecture == "qwen3" else width // heads)),
            feed_forward=int(config["intermediate_size"]),
            rope_base=base,
            norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
            context=context,
            tied=bool(config.get("tie_word_embeddings", False)),
            notes=(note,) if note else (),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PullError(f"{where}: {type(error).__name__}: {error}; fetch the model's own config.json again") from error
    _refuse_what_is_ignored(config, shape, where)
    return shape


def _rope(config: Mapping[str, Any], where: str) -> tuple[float, int, str]:
    """Base, the context that needs no scaling, and a note. Both spellings: ``rope_parameters`` is the newer one."""
    rope = cast("Mapping[str, Any]", config.get("rope_parameters") or config.get("rope_scaling") or {})
    base = float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    context = int(config["max_position_embeddings"])
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    if kind == "default":
        return base, context, ""
    if kind in ("yarn", "dynamic"):
        original = int(rope.get("original_max_position_embeddings") or context)
        return base, min(original, context), f"rope scaling {kind} left out: the context is {min(original, context)}"
    raise PullError(f"{where}: rope scaling {kind!r} is in use at every length and the engine ignores it; {_ELSEWHERE}")


def _refuse_what_is_ignored(config: Mapping[str, Any], shape: Shape, where: str) -> None:
    reasons = {
        "a sliding window": config.get("use_sliding_window", shape.architecture == "llama")
        and config.get("sliding_window"),
        "biases in the attention": shape.architecture != "qwen2" and config.get("attention_bias"),
        "biases in the feed-forward part": config.get("mlp_bias"),
        f"the activation {config.get('hidden_act')}": config.get("hidden_act", "silu") != "silu",
        "quantised weights": config.get("quantization_config"),
        "a partial rotary embedding": config.get("partial_rotary_factor", 1.0) != 1.0,
        "heads that do not fill the width": shape.architecture == "llama"
        and shape.heads * shape.head_width != shape.width,
        "heads that its key heads do not divide": shape.heads % max(shape.kv_heads, 1),
    }
    for reason, present in reasons.items():
        if present:
            raise PullError(f"{where}: it has {reason}, which the embedded engine cannot run; {_ELSEWHERE}")
    for name in ("width", "feed_forward", "head_width"):
        if getattr(shape, name) % 32:
            raise PullError(
                f"{where}: {name} is {getattr(shape, name)}, no multiple of 32, as Q8_0 needs; {_ELSEWHERE}"
            )
