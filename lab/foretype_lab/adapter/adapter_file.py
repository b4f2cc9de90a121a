"""The adapter as it ships: a GGUF file in llama.cpp's form for low-rank additions, Q8_0, with our own keys.

``blk.N.NAME.weight.lora_a`` is (rank, in), ``.lora_b`` (out, rank); what they add is ``alpha / rank * b @ a``.
``token_embd.weight.rows`` replaces the rows of the control tokens. ``foretype_models`` merges it.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch

from foretype_lab.adapter.base import CONTROL
from foretype_lab.adapter.holes import GRAMMAR
from foretype_lab.adapter.network import MATRICES, LowRank, Network

NAME = "foretype-135m"


def write(network: Network, path: Path, *, layout: str, base_sha256: str, trained_tokens: int, version: str) -> None:
    """Writes the network's additions; the order of tensors and the bytes are the same for the same network."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(network.blocks[0].attn_q.a.shape[0]))
    writer.add_name(NAME)
    writer.add_version(version)
    writer.add_license("apache-2.0")
    writer.add_string("foretype.grammar", GRAMMAR)
    writer.add_string("foretype.layout", layout)
    writer.add_string("foretype.base_sha256", base_sha256)
    writer.add_uint64("foretype.trained_tokens", trained_tokens)
    writer.add_array("foretype.control.ids", list(CONTROL.values()))
    writer.add_array("foretype.control.tokens", list(CONTROL))
    q8 = gguf.GGMLQuantizationType.Q8_0
    for number, block in enumerate(network.blocks):
        for name in MATRICES:
            part: LowRank = getattr(block, name)
            for letter, values in (("a", part.a), ("b", part.b)):
                packed = gguf.quantize(values.detach().float().cpu().numpy(), q8)
                writer.add_tensor(f"blk.{number}.{name}.weight.lora_{letter}", packed, raw_dtype=q8)
    writer.add_tensor("token_embd.weight.rows", network.rows.detach().float().cpu().numpy().astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_into(network: Network, path: Path) -> int:
    """Takes an adapter's numbers as the beginning of another run.

    Returns:
        Tokens that it was trained on.
    """
    reader = gguf.GGUFReader(path)
    tensors = {item.name: gguf.dequantize(item.data, item.tensor_type) for item in reader.tensors}
    with torch.no_grad():
        for number, block in enumerate(network.blocks):
            for name in MATRICES:
                part: LowRank = getattr(block, name)
                for letter, values in (("a", part.a), ("b", part.b)):
                    found = np.array(tensors[f"blk.{number}.{name}.weight.lora_{letter}"], dtype=np.float32)
                    values.copy_(torch.from_numpy(found))
        network.rows.copy_(torch.from_numpy(np.array(tensors["token_embd.weight.rows"], dtype=np.float32)))
    return int(reader.fields["foretype.trained_tokens"].contents())
