"""Grammars against real vocabularies: the committed table always, whole prompts where the vocabularies are.

    make vocabularies && FORETYPE_VOCABULARIES=.vocabularies make test

compares, for each family that has a proof, 200 files cut into prompts with the ids of an encoder that is not ours.
"""

import hashlib
import re
from pathlib import Path

import pytest
from foretype_context.edit_models.format import edit_format
from foretype_context.edit_models.prompt import EditPrompts
from foretype_context.edit_models.question import EditQuestion, RecentEdit
from foretype_context.grammars.families import Family, ModelEvidence, detect, families
from foretype_context.grammars.grammar import GRAMMARS
from foretype_context.prompt.templates import Control, encode_prompt, render
from foretype_context.tokens.tokenizer import Tokenizer, tokenizer_from_bytes
from foretype_models.gguf_metadata import read_metadata
from foretype_models.gguf_tokenizer import tokenizer_of
from tokenizers import Tokenizer as Inner

from models import vocabularies

PROVEN = [one for one in families() if one.proof is not None]
VECTORS = [
    name for name, entry in vocabularies.table().items() if any(file["name"].endswith(".inp") for file in entry["file"])
]
SPLIT = "\n__ggml_vocab_test__\n"
IDS_OF = {"qwen2": "qwen2.5-coder", "mistral-v3": "codestral"}


def family(id: str) -> Family:
    return next(one for one in families() if one.id == id)


def folder() -> Path:
    if vocabularies.FOLDER is None:
        pytest.skip("FORETYPE_VOCABULARIES names no folder; make vocabularies fills one")
    return vocabularies.FOLDER.absolute()


def encoders() -> None:
    if not vocabularies.ENCODERS.exists():
        pytest.skip("no .venv-vocabularies; make vocabularies makes it")


def test_every_file_of_the_table_has_its_place_and_its_digest() -> None:
    names = [file["name"] for entry in vocabularies.table().values() for file in entry["file"]]
    assert len(names) == len(set(names)) > 8
    for entry in vocabularies.table().values():
        assert entry["kind"] in ("gguf", "bpe", "pieces") and entry["of"]
        for file in entry["file"]:
            assert re.fullmatch(r"[0-9a-f]{40}", file["commit"])
            assert re.fullmatch(r"[0-9a-f]{64}", file["sha256"])
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", file["repository"]) and file["bytes"] > 0
            assert not (Path(file["name"]).is_absolute() or "/" in file["name"])


def test_a_proof_is_of_a_vocabulary_of_the_table() -> None:
    assert {"qwen2.5-coder", "starcoder", "starcoder2", "refact", "deepseek-coder", "codestral"} == {
        one.id for one in PROVEN
    }
    for one in PROVEN:
        assert one.proof is not None
        entry = vocabularies.table()[one.proof.vocabulary]
        assert one.proof.digest == entry["file"][0]["sha256"]
        assert one.proven and one.proof.files == vocabularies.FILES
        assert one.ids, "what is proven has its ids committed"


def test_the_vocabularies_are_those_of_the_table() -> None:
    for entry in vocabularies.table().values():
        for file in entry["file"]:
            assert hashlib.sha256((folder() / file["name"]).read_bytes()).hexdigest() == file["sha256"], file["name"]


def opened(name: str, tmp_path: Path) -> tuple[Path, Tokenizer]:
    ids = family(IDS_OF[name]).ids if name in IDS_OF else {}
    header = vocabularies.header(name, folder(), tmp_path / f"{name}.gguf", ids)
    return header, tokenizer_from_bytes(tokenizer_of(header))


@pytest.mark.parametrize("name", VECTORS)
def test_texts_of_llama_cpp_get_its_ids(tmp_path: Path, name: str) -> None:
    stem = next(file["name"] for file in vocabularies.table()[name]["file"] if file["name"].endswith(".inp"))
    texts = (folder() / stem).read_bytes().decode().split(SPLIT)
    wanted = [
        [int(id) for id in line.split()] for line in (folder() / stem.replace(".inp", ".out")).read_text().split("\n")
    ]
    _, tokenizer = opened(name, tmp_path)
    begins = (
        " " if name in ("llama-spm", "phi-3") else ""
    )  # theirs are whole texts, which begin with SentencePiece's space
    assert len(texts) > 40
    for text, ids in zip(texts, wanted, strict=False):
        assert tokenizer.encode(begins * bool(text) + text) == ids, text


def test_prompts_of_next_edits_get_the_ids_of_a_tokenizer_that_reads_the_whole_text(tmp_path: Path) -> None:
    """In Qwen's own vocabulary, with the four tokens that NEP adds to it, over fifty files of ours."""
    added = ("<|original_code|>", "<|edits_diff|>", "<|current_version|>", "<|next_version|>")
    known = dict(family("qwen2.5-coder").ids)
    ids = known | {token: max(known.values()) + 1 + at for at, token in enumerate(added)}
    file = tokenizer_of(vocabularies.header("qwen2", folder(), tmp_path / "qwen2.gguf", ids))
    ours, theirs = tokenizer_from_bytes(file), Inner.from_str(file.decode())
    for name in ("sweep-next-edit", "nep-qwen2.5-coder"):
        prompts = EditPrompts(ours, edit_format(name))
        assert prompts.end_token_ids <= set(ids.values()) and ids["<|endoftext|>"] in prompts.end_token_ids
        asked = 0
        for path in sorted((vocabularies.ROOT / "context").rglob("*.py"))[:50]:
            text = path.read_text("utf-8")
            window = "".join(text.splitlines(keepends=True)[20:41])
            if not window or prompts.format.owns(window):
                continue
            edit = RecentEdit(path=path.name, old="x\n", new=window[:200] + "\n", line=7)
            question = EditQuestion(
                path=path.name, window=window, cursor=0, before=window[: len(window) // 2], edits=[edit]
            )
            made = prompts.encode(question, most_tokens=20_000)
            read = theirs.encode(
                made.text, add_special_tokens=False
            )  # it numbers added tokens without the gaps between them
            wanted = [ids.get(token, id) for id, token in zip(read.ids, read.tokens, strict=True)]
            assert made.ids.tolist() == wanted, path
            asked += 1
        assert asked > 20


@pytest.mark.slow
@pytest.mark.parametrize("one", PROVEN, ids=lambda one: one.id)
def test_two_hundred_files_get_the_ids_of_an_encoder_that_is_not_ours(tmp_path: Path, one: Family) -> None:
    assert one.proof is not None
    where = folder()
    encoders()
    header, tokenizer = opened(one.proof.vocabulary, tmp_path)
    for token, id in one.ids.items():
        assert tokenizer.control(token) == id
    said = read_metadata(header, {"tokenizer.ggml.pre"}).get("tokenizer.ggml.pre", "")
    assert detect(ModelEvidence(controls=one.ids, pre=said)).grammar == one.grammar
    grammar = GRAMMARS[one.grammar]
    cuts = list(vocabularies.cuts(one, tokenizer))
    ours = [encode_prompt(tokenizer, grammar, cut.segments).ids.tolist() for cut in cuts]
    texts = [
        "".join(piece.token if isinstance(piece, Control) else piece.text for piece in render(grammar, cut.segments))
        for cut in cuts
    ]
    if table_kind(one) == "pieces":
        file = where / vocabularies.table()[one.proof.vocabulary]["file"][0]["name"]
        halves = [text.removeprefix("<s>[SUFFIX]").split("[PREFIX]", 1) for text in texts]
        request = {
            "encoder": "mistral-common",
            "model": str(file),
            "pairs": [(prefix, suffix) for suffix, prefix in halves],
        }
    else:
        model = vocabularies.runnable(header, tmp_path / "runnable.gguf")
        request = {"encoder": "llama.cpp", "model": str(model), "texts": texts}
    theirs = vocabularies.encoder(request)
    equal = sum(own == their for own, their in zip(ours, theirs["ids"], strict=True))
    first = next((cut.path for cut, own, their in zip(cuts, ours, theirs["ids"], strict=True) if own != their), "")
    assert equal == len(cuts) == one.proof.files, f"first other: {first}"
    assert theirs["version"] == one.proof.encoder


def table_kind(one: Family) -> str:
    assert one.proof is not None
    return vocabularies.table()[one.proof.vocabulary]["kind"]
