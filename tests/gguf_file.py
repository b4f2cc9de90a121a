"""How every GGUF file of the tests ends, and the vocabulary of those that have a real one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf


def add_vocabulary(writer: gguf.GGUFWriter, values: Mapping[str, Any]) -> None:
    """Metadata below `tokenizer.ggml`; a list's entries decide its type."""
    for name, value in values.items():
        if isinstance(value, list):
            writer.add_array(f"tokenizer.ggml.{name}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"tokenizer.ggml.{name}", value)
        else:
            writer.add_string(f"tokenizer.ggml.{name}", value)


def written(writer: gguf.GGUFWriter, path: Path, *, tensors: bool = True) -> Path:
    """Close what was given this path; without `tensors` it is a header alone."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    if tensors:
        writer.write_tensors_to_file()
    writer.close()
    return path
