"""`foretype models identify` and `families`: what a file is, of every shape that a model comes in."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
from context.tiny import raw
from foretype_context.grammars.families import Family, families, unserved
from foretype_context.grammars.grammar import GRAMMARS
from foretype_models.cli import app
from foretype_models.family_table import markdown
from gguf_file import written
from typer.testing import CliRunner

from models import checkpoints

RUN = CliRunner()
FIM = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>")
_TWINS = {"starcoder", "refact"}
"""Granite-code has the vocabulary of the one and the pre-tokeniser of the other; its name tells it."""
KEYS = {"family", "grammar", "complete", "missing", "chat", "ambiguous"}


def write_gguf(
    path: Path, tokens: dict[str, int], *, pre: str = "qwen2", model: str = "gpt2", name: str = "m", grammar: str = ""
) -> Path:
    """A header with a vocabulary of control tokens at their ids, and nothing else; the rest of the rows is padding."""
    rows = [f"[PAD{at}]" for at in range(max(tokens.values()) + 1)]
    types = [5] * len(rows)
    for token, at in tokens.items():
        rows[at], types[at] = token, 3 if at % 2 else 4
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    if grammar:
        writer.add_string("foretype.grammar", grammar)
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(rows)
    writer.add_token_types(types)
    return written(writer, path, tensors=False)


def numbered(*tokens: str, first: int = 300) -> dict[str, int]:
    return {token: first + at for at, token in enumerate(tokens)}


def said(path: Path) -> dict[str, Any]:
    result = RUN.invoke(app, ["identify", str(path), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found.keys() >= KEYS
    return found


@pytest.mark.parametrize("grammar", [one for one in GRAMMARS if one.startswith("foretype-")])
def test_a_file_that_names_its_grammar_is_of_it_though_others_have_the_same_control_tokens(
    tmp_path: Path, grammar: str
) -> None:
    controls = numbered(*sorted(GRAMMARS[grammar].controls()))
    found = said(write_gguf(tmp_path / "a.gguf", controls, pre="smollm", grammar=grammar))
    assert (found["grammar"], found["certain"], found["proven"]) == (grammar, True, True)
    lacking = dict(list(controls.items())[1:])
    assert said(write_gguf(tmp_path / "b.gguf", lacking, grammar=grammar))["grammar"] != grammar


@pytest.mark.parametrize("family", [one for one in families() if one.ids], ids=lambda one: one.id)
def test_a_header_with_the_familys_ids_is_that_family_for_certain(tmp_path: Path, family: object) -> None:
    one = next(known for known in families() if known is family)
    wanted = sorted(GRAMMARS[one.grammar].controls() | set(one.marks))
    others = numbered(*(token for token in wanted if token not in one.ids), first=max(one.ids.values()) + 7)
    model = "llama" if one.pieces else "gpt2"
    path = write_gguf(tmp_path / "a.gguf", {**one.ids, **others}, pre=one.pre[0] if one.pre else "default", model=model)
    found = said(path)
    assert found["grammar"] == one.grammar
    assert found["family"] == one.id or found["family"] in _TWINS
    assert found["certain"] and found["complete"] and found["missing"] == []
    assert found["chat"] is one.chat


def test_families_of_one_vocabulary_go_by_the_name_of_the_file(tmp_path: Path) -> None:
    ids = next(dict(one.ids) for one in families() if one.id == "granite-code")
    assert said(write_gguf(tmp_path / "granite-3b-code.gguf", ids, pre="refact"))["family"] == "granite-code"
    assert said(write_gguf(tmp_path / "other.gguf", ids, pre="refact"))["family"] == "refact"


def test_a_tokenizer_and_a_folder_are_looked_at_like_a_file(tmp_path: Path) -> None:
    source = checkpoints.make(tmp_path / "source", family="starcoder2")
    for path in (source, source / "tokenizer.json"):
        found = said(path)
        assert (found["family"], found["complete"], found["missing"]) == ("starcoder2", True, [])
        assert found["architecture"] == "Qwen2ForCausalLM"
    (tmp_path / "one").mkdir()
    write_gguf(tmp_path / "one" / "m.gguf", numbered(*GRAMMARS["deepseek-coder"].controls()), pre="deepseek-coder")
    assert said(tmp_path / "one")["family"] == "deepseek-coder"


def test_a_vocabulary_with_one_control_missing_is_no_family_and_says_which(tmp_path: Path) -> None:
    tokens = GRAMMARS["qwen2.5-coder"].controls()
    (tmp_path / "tokenizer.json").write_bytes(raw("qwen2", tokens - {"<|fim_middle|>"}))
    found = said(tmp_path)
    assert (found["family"], found["grammar"], found["complete"]) == (None, None, False)
    assert found["missing"] == ["<|fim_middle|>"] and found["nearest"] == "qwen2.5-coder"
    result = RUN.invoke(app, ["identify", str(tmp_path)])
    assert "<|fim_middle|>" in result.stdout and "no family" in result.stdout
    (tmp_path / "tokenizer.json").write_bytes(raw("qwen2", tokens - {"<|im_end|>"}))
    found = said(tmp_path)
    assert (found["family"], found["complete"], found["missing"]) == ("qwen2.5-coder", False, ["<|im_end|>"])


@pytest.mark.parametrize("family", [one for one in families() if one.ids], ids=lambda one: one.id)
def test_ids_say_more_than_the_name_of_a_pre_tokeniser_that_many_share(tmp_path: Path, family: Family) -> None:
    """The tables of ids are those of real vocabularies; every one of these files says that it is split as StarCoder's."""
    path = tmp_path / "a.gguf"
    model = "llama" if family.pieces else "gpt2"
    ids = dict(family.ids) | numbered(*(GRAMMARS[family.grammar].needed() - family.ids.keys()), first=160_000)
    found = said(write_gguf(path, ids, pre="starcoder", model=model))
    assert (found["grammar"], found["certain"]) == (family.grammar, True)
    starcoders = ("<|endoftext|>", *FIM, "<filename>", "<reponame>", "<gh_stars>", "<file_sep>", "<repo_name>")
    if family.grammar in ("starcoder", "starcoder2"):  # and what a team added of the other's
        more = [token for token in starcoders if token not in ids]
        found = said(write_gguf(path, ids | numbered(*more, first=50_000), pre="starcoder"))
        assert (found["grammar"], found["certain"]) == (family.grammar, True)


@pytest.mark.parametrize(
    ("tokens", "grammars"),
    [
        (("<filename>", "<reponame>"), ["mellum", "starcoder"]),
        (("<filename>", "<reponame>", "<gh_stars>", "<file_sep>", "<repo_name>"), ["starcoder", "starcoder2"]),
    ],
)
def test_what_is_split_as_starcoder_and_has_other_ids_is_asked_about(
    tmp_path: Path, tokens: tuple[str, ...], grammars: list[str]
) -> None:
    path = write_gguf(tmp_path / "a.gguf", numbered("<|endoftext|>", *FIM, *tokens, first=1000), pre="starcoder")
    found = said(path)
    assert (found["grammar"], found["certain"], found["ambiguous"]) == (None, False, grammars)
    assert "say which" in found["problem"]


def test_chat_models_are_told(tmp_path: Path) -> None:
    ids = next(dict(one.ids) for one in families() if one.id == "qwen2.5-coder")
    base = write_gguf(tmp_path / "base.gguf", ids, name="Qwen2.5 Coder 1.5B")
    talks = write_gguf(tmp_path / "talks.gguf", ids, name="Qwen2.5 Coder 1.5B Instruct")
    assert not said(base)["chat"]
    found = said(talks)
    assert found["chat"] and found["family"] == "qwen2.5-coder" and "never learned" in found["warning"]
    assert "never learned" in RUN.invoke(app, ["identify", str(talks)]).stdout
    tekken = numbered("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]")
    found = said(write_gguf(tmp_path / "devstral.gguf", tekken, pre="tekken"))
    assert found["family"] is None and found["chat"]


def test_what_cannot_be_looked_at_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.gguf").write_bytes(b"GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff" + b"\xff" * 40)
    (tmp_path / "no.gguf").write_bytes(b"")
    (tmp_path / "text.gguf").write_text("hello there")
    (tmp_path / "tokenizer.json").write_text("[]")
    (tmp_path / "two").mkdir()
    for name in "ab":
        write_gguf(tmp_path / "two" / f"{name}.gguf", numbered("<s>"))
    for name in ("empty", "bad.gguf", "no.gguf", "text.gguf", "tokenizer.json", "two", "absent"):
        result = RUN.invoke(app, ["identify", str(tmp_path / name)])
        assert result.exit_code == 1, name
        assert result.exception is None or isinstance(result.exception, SystemExit), name
        assert len(result.stderr.strip().splitlines()) == 1 and name in result.stderr


def test_the_table_of_families_says_what_is_proven_and_what_is_not() -> None:
    rows = json.loads(RUN.invoke(app, ["families", "--json"]).stdout)
    assert len(rows) == len(families()) + len(unserved())
    for row in rows:
        assert row["source"] and row["models"]
        if row["grammar"] is None:
            assert row["reason"]
        else:
            assert row["grammar"] in GRAMMARS
            assert row["proven"] is (row["files"] > 0 and row["equal"] == row["files"])
            assert bool(row["digest"]) is bool(row["vocabulary"]) is (row["files"] > 0)
    shown = RUN.invoke(app, ["families"]).stdout
    assert "unproven" in shown and "aiXcoder-7B" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for row in rows:
        assert row["family"] in shown


def test_the_documentation_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    assert page.endswith(markdown()), "write it anew: python -c 'from foretype_models.family_table import markdown'"
