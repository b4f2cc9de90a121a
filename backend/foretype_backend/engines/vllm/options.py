"""What the in-process vLLM engine is told, and the checks that need no vLLM.

A profile that cannot work is refused in a sentence, before minutes are spent on loading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

GIB: Final = 1 << 30
CPU_CACHE_GIB: Final = 1.0
METHODS: Final = ("draft_model", "ngram", "suffix")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How tokens are guessed and verified together.

    Attributes:
        method: `draft_model` (a smaller model), `ngram` (what followed the same tokens earlier in the prompt), `suffix` (what
            followed them in the prompt or in earlier outputs; needs arctic-inference).
        tokens: guessed per step.
        model: folder of the draft.
        batch_max: with more requests than this in a step nothing is guessed: the step is full of real work; 0 guesses always.
        lookup_min, lookup_max: of `ngram`: shortest and longest run of tokens that must agree.
    """

    method: str
    tokens: int = 4
    model: Path | None = None
    batch_max: int = 0
    lookup_min: int = 2
    lookup_max: int = 4

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"speculation.method is {self.method!r}; choose one of {', '.join(METHODS)}")
        if self.tokens < 1:
            raise ValueError(f"speculation.tokens is {self.tokens}; at least 1 is needed, or leave speculation out")
        if self.batch_max < 0:
            raise ValueError(f"speculation.batch_max is {self.batch_max}; 0 guesses at every batch size")
        if (self.method == "draft_model") != (self.model is not None):
            raise ValueError("speculation.model names the folder of the draft, for method draft_model and no other")
        if not 1 <= self.lookup_min <= self.lookup_max:
            raise ValueError("speculation.lookup_min must be at least 1 and at most lookup_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """`[engine.options]` of a profile for `--engine vllm`.

    Attributes:
        model: a folder with `config.json` and safetensors; nothing is ever downloaded.
        context_tokens: prompt and output together. Unset: the model's own.
        block_tokens: of the prefix cache. Unset: 16 on GPUs, 32 on CPUs, which vLLM's build for them wants.
        dtype, quantization, kv_dtype: as vLLM names them.
        max_sequences: computed at once (the batch cap): a ninth request waits rather than slowing eight.
        batched_tokens: prefill tokens in one step; a cancel waits for at most one step.
        cache_gib: memory of the prefix cache. Unset: 1 on CPUs, what `gpu_memory_share` leaves on GPUs.
        gpu_memory_share: of a GPU's memory, for weights, cache and all else.
        tensor_parallel: GPUs that share one model.
        speculation: See below.
        eager: no CUDA graphs and no compilation: starts sooner, runs slower.
        shared: tenants that do not trust each other use this engine: a salt is demanded with each request, and speculation that
            learns across requests is refused.
        host_tier_gib: host memory for blocks that leave the GPU; 0 leaves the tier out.
        redis_url: the tier behind it.
        redis_tenants: tenants that opted in to it, and no others.
        redis_secret_file: what its entries are authenticated with: `identity.salt_file`, the same for the whole fleet.
        redis_ttl_s: how long an entry stays in it.
        prefill_tokens_per_s: what computing costs here, for the gate of the Redis tier; 0 leaves the gate open.
        host_copies: the host tier on a machine without a GPU, by plain copies: for tests of the tiers.
    """

    model: Path
    context_tokens: int | None = None
    block_tokens: int | None = None
    dtype: str = "auto"
    quantization: str | None = None
    kv_dtype: str = "auto"
    max_sequences: int = 8
    batched_tokens: int = 2048
    cache_gib: float | None = None
    gpu_memory_share: float = 0.9
    tensor_parallel: int = 1
    eager: bool = False
    speculation: Speculation | None = None
    shared: bool = False
    host_tier_gib: float = 0.0
    redis_url: str | None = None
    redis_tenants: tuple[str, ...] = ()
    redis_secret_file: str | None = None
    redis_ttl_s: int = 3600
    prefill_tokens_per_s: float = 0.0
    host_copies: bool = False

    def __post_init__(self) -> None:
        for name, least in (("max_sequences", 1), ("batched_tokens", 32), ("tensor_parallel", 1), ("redis_ttl_s", 1)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
        if self.batched_tokens < self.max_sequences:
            raise ValueError(
                f"batched_tokens is {self.batched_tokens}, fewer than the {self.max_sequences} of max_sequences: each sequence takes "
                "one in a step at least"
            )
        if not 0 < self.gpu_memory_share <= 1:
            raise ValueError(f"gpu_memory_share is {self.gpu_memory_share}; it is a share between 0 and 1")
        if self.redis_url is not None and not self.host_tier_gib > 0:
            raise ValueError("redis_url needs host_tier_gib: blocks reach Redis through host memory")
        if self.redis_url is not None and self.redis_secret_file is None:
            raise ValueError(
                "redis_url needs redis_secret_file, by which a server knows the chunks of its own fleet: name the file that "
                "identity.salt_file names, made by `foretype config new-secret FILE`"
            )
        if self.shared and self.speculation is not None and self.speculation.method == "suffix":
            raise ValueError(
                "speculation.method suffix learns from everybody's outputs, which one tenant can time; an engine that tenants "
                "share (shared = true) takes draft_model or ngram"
            )

    @classmethod
    def of(cls, **options: Any) -> VllmOptions:
        """From plain values. Raises TypeError that names an option which does not exist, ValueError for a bad value."""
        if not options.get("model"):
            raise TypeError("the vllm engine needs the option 'model': a folder with config.json and safetensors")
        values = dict(options, model=Path(options["model"]))
        if (speculation := values.get("speculation")) is not None:
            given = dict(speculation)
            if given.get("model"):
                given["model"] = Path(given["model"])
            values["speculation"] = _made(Speculation, given, "speculation")
        if "redis_tenants" in values:
            values["redis_tenants"] = tuple(values["redis_tenants"])
        return _made(cls, values, "the vllm engine")


class ModelShape(NamedTuple):
    """What is read from a model's `config.json`; `kv_bytes` are those of one token in a 16-bit cache."""

    vocabulary_tokens: int
    context_tokens: int
    kv_bytes: int


def read_shape(folder: Path, field: str = "model") -> ModelShape:
    """Read a model folder's shape.

    Raises:
        ValueError: it is no model folder, or has no weights; the message names the field and the remedy.
    """
    config = folder / "config.json"
    try:
        data: Any = json.loads(config.read_text("utf-8"))
        kept = int(data["num_hidden_layers"]) * _kept_values(data)
        shape = ModelShape(int(data["vocab_size"]), int(data["max_position_embeddings"]), 2 * kept)
    except OSError as error:
        raise ValueError(
            f"{field}: {config} cannot be read ({error.strerror}); name a folder with config.json and safetensors. "
            "`foretype models export FILE.gguf --to safetensors --out FOLDER` makes one of the shipped file"
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{field}: {config} describes no decoder-only model ({error!r})") from error
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"{field}: {folder} holds no safetensors file")
    return shape


def _kept_values(data: Mapping[str, Any]) -> int:
    """What a layer keeps of a token: keys and values of each head, or one compressed vector of all (DeepSeek's latent attention)."""
    if data.get("kv_lora_rank"):
        return int(data["kv_lora_rank"]) + int(data["qk_rope_head_dim"])
    heads = int(data["num_attention_heads"])
    width = int(data.get("head_dim") or int(data["hidden_size"]) // heads)
    return 2 * int(data.get("num_key_value_heads") or heads) * width


def check_profile(options: VllmOptions) -> ModelShape:
    """Refuse what cannot work; returns the model's shape with the context that will be served.

    Raises:
        ValueError: an unknown model, a context that model or memory cannot hold, a draft with another vocabulary.
    """
    shape = read_shape(options.model)
    context = options.context_tokens or shape.context_tokens
    if not 1 < context <= shape.context_tokens:
        raise ValueError(f"context_tokens is {context}; the model was made for {shape.context_tokens}")
    kv_bytes = shape.kv_bytes * (2 if options.dtype == "float32" else 1)
    if options.cache_gib is not None and context * kv_bytes > options.cache_gib * GIB:
        raise ValueError(
            f"cache_gib is {options.cache_gib:g}: too small for one prompt of {context:,} tokens, which takes "
            f"{context * kv_bytes / GIB:.2f} GiB; give it more, or lower context_tokens"
        )
    speculation = options.speculation
    if speculation is not None and speculation.model is not None:
        _check_draft(options.model, shape, speculation.model)
    return shape._replace(context_tokens=context)


def _smallest_block(*, cpu: bool) -> int:
    """Tokens; every block is a multiple of it."""
    return 32 if cpu else 16


def check_blocks(options: VllmOptions, *, cpu: bool) -> None:
    """Refuse blocks that vLLM's attention cannot read: it would load the model for half a minute first. Raises ValueError."""
    smallest = _smallest_block(cpu=cpu)
    if (given := options.block_tokens) is not None and (given < 1 or given % smallest):
        where = "a machine without a GPU" if cpu else "a GPU"
        raise ValueError(
            f"block_tokens is {given}; on {where} it is a multiple of {smallest}, or left out for {smallest}"
        )


def check_memory(options: VllmOptions, memory_bytes: int) -> None:
    """Refuse what a machine without a GPU cannot hold: weights, prefix cache and host tier. Raises ValueError."""
    weights = sum(path.stat().st_size for path in options.model.glob("*.safetensors"))
    cache_gib = CPU_CACHE_GIB if options.cache_gib is None else options.cache_gib
    needed = weights + (cache_gib + options.host_tier_gib) * GIB
    if needed > memory_bytes:
        raise ValueError(
            f"the model's {weights / GIB:.1f} GiB, cache_gib {cache_gib:g} and host_tier_gib {options.host_tier_gib:g} do not fit "
            f"into the {memory_bytes / GIB:.1f} GiB of this machine; lower cache_gib, or take a smaller model"
        )


def engine_arguments(options: VllmOptions, *, cpu: bool) -> dict[str, Any]:
    """Arguments of vLLM's `AsyncEngineArgs`."""
    cache_gib = options.cache_gib if options.cache_gib is not None else (CPU_CACHE_GIB if cpu else None)
    arguments: dict[str, Any] = {
        "model": str(options.model),
        "max_model_len": options.context_tokens,
        "block_size": options.block_tokens or _smallest_block(cpu=cpu),
        "dtype": options.dtype,
        "quantization": options.quantization,
        "kv_cache_dtype": options.kv_dtype,
        "max_num_seqs": options.max_sequences,
        "max_num_batched_tokens": options.batched_tokens,
        "kv_cache_memory_bytes": None if cache_gib is None else int(cache_gib * GIB),
        "gpu_memory_utilization": options.gpu_memory_share,
        "tensor_parallel_size": options.tensor_parallel,
        "enforce_eager": options.eager,
        "scheduling_policy": "priority",
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        # Else a prompt that has begun takes every step whole until it is computed, whoever waits, of whatever priority: what is wanted at once
        # shares a step evenly, and nobody's share is less than where all sequences are in use. Who is alone has all of it.
        "long_prefill_token_threshold": min(
            options.batched_tokens // options.max_sequences, options.context_tokens or options.batched_tokens
        ),
        "long_prefill_token_threshold_adaptive": True,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # never a sampling default out of the model's folder
        "seed": 0,
    }
    if options.speculation is not None:
        arguments["speculative_config"] = _speculative(options.speculation, options.max_sequences)
    if options.host_tier_gib > 0:
        arguments["kv_transfer_config"] = _tiers(options, cpu=cpu)
    return arguments


def _speculative(speculation: Speculation, max_sequences: int) -> dict[str, Any]:
    given: dict[str, Any] = {"method": speculation.method, "num_speculative_tokens": speculation.tokens}
    if speculation.model is not None:
        given["model"] = str(speculation.model)
    if 0 < speculation.batch_max < max_sequences:
        given["num_speculative_tokens_per_batch_size"] = [
            (1, speculation.batch_max, speculation.tokens),
            (speculation.batch_max + 1, max_sequences, 0),
        ]
    if speculation.method == "ngram":
        given |= {"prompt_lookup_min": speculation.lookup_min, "prompt_lookup_max": speculation.lookup_max}
    return given


def _tiers(options: VllmOptions, *, cpu: bool) -> dict[str, Any]:
    plugin = "foretype_backend.vllm_plugin"
    extra: dict[str, Any] = {
        "cpu_bytes_to_use": int(options.host_tier_gib * GIB),
        "eviction_policy": "RetiringCachePolicy",
        "cache_policy_module_path": f"{plugin}.policy",
        "spec_name": "HostCopyTieringSpec" if options.host_copies else "TieringOffloadingSpec",
        "secondary_tiers": [],
    }
    if options.host_copies:
        extra["spec_module_path"] = f"{plugin}.host_copies"
    if options.redis_url is not None:
        extra["secondary_tiers"] = [
            {
                "type": "RedisTier",
                "module_path": f"{plugin}.redis_tier",
                "url": options.redis_url,
                "secret_file": options.redis_secret_file,
                "ttl_s": options.redis_ttl_s,
                "chunk_tokens": options.block_tokens or (32 if cpu else 16),
                "prefill_tokens_per_s": options.prefill_tokens_per_s,
            }
        ]
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",  # a block that cannot be loaded is computed: never a failed completion
        "kv_connector_extra_config": extra,
    }


def _check_draft(model: Path, shape: ModelShape, draft: Path) -> None:
    drafts = read_shape(draft, "speculation.model")
    if drafts.vocabulary_tokens != shape.vocabulary_tokens:
        raise ValueError(
            f"speculation.model: the draft has a vocabulary of {drafts.vocabulary_tokens} tokens and the model one of "
            f"{shape.vocabulary_tokens}; a draft must be trained with the model's own tokenizer"
        )
    tokenizers = [folder / "tokenizer.json" for folder in (model, draft)]
    if all(path.is_file() for path in tokenizers):
        ours, theirs = (blake2b(path.read_bytes()).digest() for path in tokenizers)
        if ours != theirs:
            raise ValueError("speculation.model: the draft's tokenizer.json is not the model's; guesses would be noise")


def _made(type_: type[_T], values: dict[str, Any], owner: str) -> _T:
    known = {one.name for one in fields(type_)}  # pyright: ignore[reportArgumentType]
    for name in values:
        if name not in known:
            raise TypeError(f"{owner} has no option {name!r}; it has {', '.join(sorted(known))}")
    return type_(**values)
