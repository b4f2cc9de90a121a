"""Checkpoint → GGUF Q8_0 (what ships) and → a Hugging Face folder (what vLLM and transformers load).

The GGUF is readable by llama.cpp, OpenVINO GenAI and transformers: architecture ``llama``, tokenizer ``gpt2`` with the
pre-tokeniser ``qwen2``. Rows of the query and key matrices are permuted, because llama.cpp rotates neighbouring pairs
where Hugging Face rotates halves. Everything is written beside its target and renamed, so that an interrupted export or
a full disk leaves the model before it usable.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from foretype_context.errors import UnknownLayoutError
from foretype_context.grammars.grammar import grammar
from foretype_models.artifacts import digest_file
from foretype_models.pull.write import permute

from foretype_lab.errors import ExportError
from foretype_lab.training.fim import GRAMMAR
from foretype_lab.training.tokenizer import FIRST_SPECIAL, SPECIAL_IDS, SPECIAL_TOKENS, VOCABULARY, check_monotone

LICENCE = "Apache-2.0"

Matrix = npt.NDArray[np.float32]
Weights = Mapping[str, Matrix]


@dataclass(frozen=True)
class Checkpoint:
    """What export and evaluation need of a training checkpoint.

    Attributes:
        weights: by Hugging Face name, fp32.
        config: fields of :class:`foretype_lab.training.model.ModelConfig`.
        train: fields of :class:`foretype_lab.training.train.TrainConfig`.
        progress: fields of :class:`foretype_lab.training.train.Progress`.
        rate_share: of its peak rate at which the training was; None where the checkpoint does not say.
    """

    weights: dict[str, Matrix]
    config: dict[str, Any]
    train: dict[str, Any]
    progress: dict[str, Any]
    rate_share: float | None = None


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads a training checkpoint.

    Raises:
        ExportError: no such file, or it is not a checkpoint of this trainer.
    """
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        weights = {name: tensor.float().numpy() for name, tensor in state["model"].items()}
        group = next((group for one in state.get("optimizers", ()) for group in one["param_groups"]), {})
        rate_share = round(float(group["lr"] / group["peak"]), 4) if "peak" in group else None
        return Checkpoint(weights, dict(state["config"]), dict(state["train"]), dict(state["progress"]), rate_share)
    except FileNotFoundError as error:
        raise ExportError(f"{path} does not exist; train first, or name another checkpoint") from error
    except Exception as error:  # torch raises half a dozen types for a broken archive, none of them documented
        raise ExportError(f"{path} is no readable checkpoint ({error}); use the one before, or train again") from error


def gguf_names(layers: int) -> dict[str, str]:
    """Names of our weights in a GGUF file, by Hugging Face name."""
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    parts = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for layer in range(layers):
        for ours, theirs in parts.items():
            names[f"model.layers.{layer}.{ours}.weight"] = f"blk.{layer}.{theirs}.weight"
    return names


def _read_tokenizer(path: Path, vocabulary: int) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
        check_monotone(data)
    except (OSError, ValueError, KeyError) as error:
        raise ExportError(f"{path} is not the tokenizer of this model: {error}") from error
    if vocabulary != VOCABULARY:
        raise ExportError(
            f"{path} has {VOCABULARY} entries, the checkpoint {vocabulary}; export with its own tokenizer"
        )
    return data


def write_gguf(
    weights: Weights, config: Mapping[str, Any], tokenizer: Path, name: str, version: str, target: Path
) -> None:
    """Writes the GGUF file of a checkpoint, with the grammar that rows are trained in: matrices Q8_0, norms fp32.

    Raises:
        ExportError: the tokenizer does not fit, or a weight is missing or not finite.
        OSError: the disk is full; the target is unchanged.
    """
    import gguf

    data = _read_tokenizer(tokenizer, int(config["vocabulary"]))
    names = gguf_names(int(config["layers"]))
    if missing := set(names) - set(weights):
        raise ExportError(f"the checkpoint lacks {sorted(missing)[:3]}; it is of another architecture")
    part = target.with_name(target.name + ".part")
    writer = gguf.GGUFWriter(part, "llama")
    _write_header(writer, config, data, name, version)
    for ours, theirs in names.items():
        matrix = np.ascontiguousarray(weights[ours], dtype=np.float32)
        if not np.isfinite(matrix).all():
            raise ExportError(f"{ours} holds values that are not finite; use an earlier checkpoint")
        if ours.endswith(("q_proj.weight", "k_proj.weight")):
            heads = int(config["heads" if ours.endswith("q_proj.weight") else "kv_heads"])
            matrix = np.ascontiguousarray(permute(matrix, heads))
        if matrix.ndim == 1:
            writer.add_tensor(theirs, matrix)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(theirs, gguf.quants.quantize(matrix, kind), raw_dtype=kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(part, target)
    finally:
        writer.close()
        part.unlink(missing_ok=True)


def _write_header(writer: Any, config: Mapping[str, Any], tokenizer: dict[str, Any], name: str, version: str) -> None:
    import gguf

    writer.add_name(name)
    writer.add_version(version)
    writer.add_license(LICENCE)
    writer.add_string("foretype.grammar", GRAMMAR)
    writer.add_context_length(int(config["max_position"]))
    writer.add_embedding_length(int(config["width"]))
    writer.add_block_count(int(config["layers"]))
    writer.add_feed_forward_length(int(config["feed_forward"]))
    writer.add_head_count(int(config["heads"]))
    writer.add_head_count_kv(int(config["kv_heads"]))
    writer.add_key_length(int(config["head_width"]))
    writer.add_value_length(int(config["head_width"]))
    writer.add_rope_dimension_count(int(config["head_width"]))
    writer.add_rope_freq_base(float(config["rope_base"]))
    writer.add_layer_norm_rms_eps(float(config["norm_epsilon"]))
    writer.add_vocab_size(int(config["vocabulary"]))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)

    ordinary = {number: token for token, number in tokenizer["model"]["vocab"].items()}
    tokens = [ordinary[number] for number in range(FIRST_SPECIAL)] + list(SPECIAL_TOKENS)
    control = [gguf.TokenType.NORMAL] * FIRST_SPECIAL + [gguf.TokenType.CONTROL] * len(SPECIAL_TOKENS)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(control)
    writer.add_token_merges(merges)
    end = SPECIAL_IDS["<|endoftext|>"]
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(SPECIAL_IDS["<|fim_pad|>"])
    writer.add_eot_token_id(SPECIAL_IDS["<|end_of_middle|>"])
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    for key, token in (
        ("fim_pre", "<|fim_prefix|>"),
        ("fim_suf", "<|fim_suffix|>"),
        ("fim_mid", "<|fim_middle|>"),
        ("fim_pad", "<|fim_pad|>"),
        ("fim_rep", "<|repo_name|>"),
        ("fim_sep", "<|file_sep|>"),
    ):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", SPECIAL_IDS[token])


def hugging_face_config(
    config: Mapping[str, Any], layout: str | None = None, *, grammar_id: str = GRAMMAR
) -> dict[str, Any]:
    """``config.json`` of a ``LlamaForCausalLM`` of this shape, with the grammar and the layout that a gateway reads there."""
    named = {} if layout is None else {"foretype_layout": layout}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config["vocabulary"],
        "hidden_size": config["width"],
        "num_hidden_layers": config["layers"],
        "num_attention_heads": config["heads"],
        "num_key_value_heads": config["kv_heads"],
        "head_dim": config["head_width"],
        "intermediate_size": config["feed_forward"],
        "max_position_embeddings": config["max_position"],
        "rope_theta": config["rope_base"],
        "rms_norm_eps": config["norm_epsilon"],
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
        "bos_token_id": SPECIAL_IDS["<|endoftext|>"],
        "eos_token_id": SPECIAL_IDS["<|endoftext|>"],
        "pad_token_id": SPECIAL_IDS["<|fim_pad|>"],
        "foretype_grammar": grammar_id,
        **named,
    }


def write_safetensors(
    weights: Weights,
    config: Mapping[str, Any],
    tokenizer: Path,
    folder: Path,
    layout: str | None = None,
    *,
    grammar_id: str = GRAMMAR,
) -> None:
    """Writes a Hugging Face folder: ``model.safetensors`` (fp32), ``config.json``, the tokenizer.

    Args:
        grammar_id: that the weights were trained in; a GGUF file says it (:func:`gguf_file.read_grammar`).
    """
    from safetensors.numpy import save_file

    layout = _known(layout, grammar_id)
    _read_tokenizer(tokenizer, int(config["vocabulary"]))
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        save_file({name: np.ascontiguousarray(value) for name, value in weights.items()}, part / "model.safetensors")
        (part / "config.json").write_text(
            json.dumps(hugging_face_config(config, layout, grammar_id=grammar_id), indent=1) + "\n"
        )
        shutil.copyfile(tokenizer, part / "tokenizer.json")
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|endoftext|>",
            "pad_token": "<|fim_pad|>",
            "model_max_length": config["max_position"],
            "clean_up_tokenization_spaces": False,
        }
        (part / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_index(
    folder: Path,
    name: str,
    file: str,
    parameters: int,
    trained_tokens: int,
    version: str,
    role: str = "target",
    staged: Path | None = None,
    layout: str | None = None,
) -> None:
    """Puts one model into ``index.json``, with the ``tokenizer.json`` beside it.

    A model of the same role leaves, its file too: an old version goes when a new one comes. One of the other role stays.
    The default is the target. What else ships (the index's embedder, the corpus table) keeps its entry.

    Args:
        staged: the new weights under another name. They take the place of ``file`` when nothing can fill the disk any
            more: with old weights beside a new index, or the reverse, no model would open.
        layout: that these weights are served in; their grammar's first where None. Thresholds are of the weights that leave.
    """
    model, tokenizer = staged or folder / file, folder / "tokenizer.json"
    entry: dict[str, Any] = {
        "name": name,
        "role": role,
        "file": file,
        "sha256": digest_file(model),
        "bytes": model.stat().st_size,
        "grammar": GRAMMAR,
        "tokenizer": {"file": tokenizer.name, "sha256": digest_file(tokenizer), "bytes": tokenizer.stat().st_size},
        "parameters": parameters,
        "trained_tokens": trained_tokens,
        "version": version,
        "licence": LICENCE,
    }
    if layout is not None:
        entry["profile"] = {"layout": layout}
    try:
        known: dict[str, Any] = json.loads((folder / "index.json").read_text("utf-8"))
        before: list[dict[str, Any]] = list(known["models"])
    except (OSError, ValueError, KeyError):
        known, before = {}, []
    stays = [item for item in before if item.get("role", "target") != role and item["name"] != name]
    models = sorted([entry, *stays], key=lambda item: item.get("role", "target") != "target")
    index = {**known, "default": models[0]["name"], "models": models}
    part = folder / "index.json.part"
    try:
        part.write_text(json.dumps(index, indent=1) + "\n")
    except OSError:
        part.unlink(missing_ok=True)
        raise
    if staged is not None:
        os.replace(staged, folder / file)
    os.replace(part, folder / "index.json")
    kept = {item["file"] for item in models}
    for item in before:
        # The index names plain file names; anything else is no file of ours.
        if item["file"] not in kept and Path(item["file"]).name == item["file"]:
            (folder / item["file"]).unlink(missing_ok=True)


def _known(layout: str | None, grammar_id: str = GRAMMAR) -> str | None:
    try:
        return None if layout is None else grammar(grammar_id).known_layout(layout)
    except UnknownLayoutError as error:
        raise ExportError(f"--layout: {error}") from error


def export_shipped(
    checkpoint: Path,
    folder: Path,
    name: str,
    version: str,
    role: str = "target",
    trained_before: int = 0,
    layout: str | None = None,
) -> Path:
    """Exports a checkpoint into the artifacts folder, whose ``tokenizer.json`` it uses, and writes the index.

    Args:
        trained_before: tokens of the runs that this one continued (``train --from``).
        layout: see :func:`write_index`.

    Returns:
        The GGUF file.

    Raises:
        ExportError: the checkpoint cannot be read, or does not fit the tokenizer; the grammar does not have the layout.
        OSError: the disk is full; the model that was there is unchanged and opens.
    """
    layout = _known(layout)
    state = read_checkpoint(checkpoint)
    target = folder / f"{name}-q8_0.gguf"
    staged = target.with_name(target.name + ".new")
    parameters = sum(int(matrix.size) for matrix in state.weights.values())
    tokens = trained_before + int(state.progress["tokens"])
    try:
        write_gguf(state.weights, state.config, folder / "tokenizer.json", name, version, staged)
        write_index(folder, name, target.name, parameters, tokens, version, role, staged, layout)
    finally:
        staged.unlink(missing_ok=True)
    return target
