"""Real vocabularies from a folder of the developer's, as GGUF headers for us and as tiny models for llama.cpp."""

import json
import os
import random
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
from foretype_context.grammars.families import Family
from foretype_context.grammars.grammar import GRAMMARS
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.profile import Budgets, Profile
from foretype_context.prompt.segments import Segment
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Document
from foretype_context.tokens.tokenizer import Tokenizer
from foretype_models.gguf_metadata import read_metadata
from gguf_file import add_vocabulary, written

ROOT: Final = Path(__file__).parents[2]
ENCODERS: Final = ROOT / ".venv-vocabularies" / "bin" / "python"
FOLDER: Final = Path(os.environ["FORETYPE_VOCABULARIES"]) if "FORETYPE_VOCABULARIES" in os.environ else None
FILES: Final = 200
_KEYS: Final = ("model", "pre", "tokens", "token_type", "merges", "scores", "unknown_token_id")
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5


@cache
def table() -> dict[str, dict[str, Any]]:
    """The committed table, by name."""
    found = tomllib.loads((ROOT / "requirements" / "vocabularies.toml").read_text("utf-8"))
    return {one["name"]: one for one in found["vocabulary"]}


def encoder(request: dict[str, Any]) -> dict[str, Any]:
    """Asks an encoder that is not ours."""
    command = [str(ENCODERS), str(Path(__file__).with_name("encoders.py"))]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def header(name: str, folder: Path, out: Path, ids: Mapping[str, int]) -> Path:
    """The vocabulary as a GGUF header; one that is not yet gets the control tokens of a family at their `ids`."""
    kind = table()[name]["kind"]
    file = folder / table()[name]["file"][0]["name"]
    if kind == "gguf":
        return file
    if kind == "pieces":
        values = encoder({"encoder": "pieces", "model": str(file)})
        tokens, types = values["tokens"], values["types"]
        for token, at in ids.items():
            assert tokens[at] == token
            types[at] = _CONTROL
        return _write(out, {"model": "llama", "tokens": tokens, "token_type": types, "scores": values["scores"]})
    vocabulary: dict[str, int] = json.loads(file.read_bytes())
    merges = (folder / table()[name]["file"][1]["name"]).read_text("utf-8").splitlines()[1:]
    by_id = {at: token for token, at in vocabulary.items()} | {at: token for token, at in ids.items()}
    tokens = [by_id.get(at, f"[PAD{at}]") for at in range(max(by_id) + 1)]
    types = [_CONTROL if token in ids else _NORMAL if token in vocabulary else _UNUSED for token in tokens]
    return _write(
        out, {"model": "gpt2", "pre": name, "tokens": tokens, "token_type": types, "merges": [m for m in merges if m]}
    )


def runnable(source: Path, out: Path) -> Path:
    """A model of one layer and no sense with that vocabulary, for a server that reads nothing less than a model."""
    found = {key.rpartition(".")[2]: value for key, value in read_metadata(source, _names()).items()}
    return _write(out, found, weights=True)


def _names() -> frozenset[str]:
    return frozenset(f"tokenizer.ggml.{key}" for key in _KEYS)


def _write(path: Path, values: Mapping[str, Any], *, weights: bool = False) -> Path:
    writer, width, rows = gguf.GGUFWriter(path, "llama"), 32, len(values["tokens"])
    add_vocabulary(writer, values)
    if weights:
        writer.add_context_length(64)
        writer.add_embedding_length(width)
        writer.add_block_count(1)
        writer.add_feed_forward_length(width)
        writer.add_head_count(1)
        writer.add_head_count_kv(1)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(rows)
        writer.add_rope_dimension_count(width)
        writer.add_tensor("token_embd.weight", np.zeros((rows, width), np.float16))
        for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
            writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            writer.add_tensor(f"blk.0.{name}.weight", np.zeros((width, width), np.float16))
    return written(writer, path, tensors=weights)


@dataclass(frozen=True, slots=True)
class Cut:
    """A source file, cut into a prompt at some place."""

    path: str
    segments: tuple[Segment, ...]


def cuts(one: Family, tokenizer: Tokenizer) -> Iterator[Cut]:
    """`FILES` prompts, in every layout of the family in turn: another file as context, the rest around a cursor."""
    grammar = GRAMMARS[one.grammar]
    texts = _sources(tokenizer)
    draw = random.Random(one.id)
    for number in range(FILES):
        path, text = next(texts)
        _, other = next(texts)
        profile = Profile(
            model="m",
            grammar=one.grammar,
            tokenizer_digest="",
            layout=grammar.layouts[number % len(grammar.layouts)],
            budgets=Budgets(prompt_tokens=3000, suffix_tokens=800, context_tokens=700, assembly_ms=1e6),
        )
        assembler = Assembler(tokenizer, profile, repository="shop")
        snapshot = Document(f"file:///{path}", text, path=path, language="python").snapshot()
        snippet = Snippet(path="lib/other.py", text="".join(other.splitlines(keepends=True)[:20]), score=1.0)
        plan, _ = assembler.plan(PlanState.empty(), snapshot, draw.randrange(len(text)), snippets=[snippet], now=0.0)
        yield Cut(path, tuple(placed.segment for placed in plan.segments))


def _sources(tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    """Installed Python files, in an order that mixes folders. What spells a control token is another test's."""
    folders = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")]
    files = sorted(
        {path for folder in folders for path in folder.rglob("*.py")}, key=lambda path: path.as_posix()[::-1]
    )
    controls = tokenizer.controls()
    for path in files:
        text = path.read_bytes()[:60_000].decode("utf-8", "ignore")
        if len(text) > 400 and not any(token in text for token in controls):
            yield f"src/{path.name}", text
