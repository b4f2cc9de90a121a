"""What `foretype doctor` says of the chosen model: its server or its file, and what to do about either."""

from dataclasses import replace
from pathlib import Path

import pytest
from backend.tiny_gguf import write_tiny_gguf
from foretype_context.grammars.grammar import grammar
from foretype_models import artifacts
from foretype_models.use.check import check_choice
from foretype_models.use.profile import Choice, keep
from models.model_server import ModelServer, llama_cpp, ollama, serving


def chosen(tmp_path: Path, name: str, engine: str, model: str, licence: str = "not known") -> None:
    keep(Choice(asked="x", name=name, engine=engine, model=model, licence=licence), tmp_path)


def test_without_a_choice_the_shipped_model_is_named(tmp_path: Path) -> None:
    shipped = artifacts.available()[0]
    _, well, detail, _ = check_choice(tmp_path)
    assert well and f"the shipped one, {shipped.name} {shipped.version}: base, raw, Apache-2.0" in detail


def test_a_shipped_model_that_is_not_made_yet_is_told_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmade = replace(artifacts.available()[0], sha256="", adapter=tmp_path / "a.gguf")
    monkeypatch.setattr(artifacts, "available", lambda: [unmade])
    _, well, detail, remedy = check_choice(tmp_path)
    assert (well, remedy) == (False, "foretype models fetch")
    assert "is not made on this machine yet" in detail


def test_a_server_is_told_with_how_it_is_asked_slots_and_context(tmp_path: Path) -> None:
    with serving(ModelServer(llama_cpp("qwen2.5-coder-1.5b.gguf"))) as running:
        chosen(tmp_path, "qwen2.5-coder-1.5b", "llama-cpp", f"{running.root}/v1", "Apache-2.0")
        _, good, detail, _ = check_choice(tmp_path)
        assert good
        for fact in (
            "licence Apache-2.0",
            "base, by its name",
            "token ids, raw",
            "32,768 tokens of context",
            "4 slots",
            "cached tokens counted",
        ):
            assert fact in detail
        running.says |= llama_cpp("starcoder2-3b.gguf")
        _, good, detail, remedy = check_choice(tmp_path)
        assert not good and "it has starcoder2-3b.gguf now" in detail and "foretype use" in remedy
    _, good, detail, remedy = check_choice(tmp_path)
    assert not good and "no server of models answers" in detail and remedy.startswith("start it, or choose another")


def test_residency_and_a_chat_model_are_told(tmp_path: Path) -> None:
    says = ollama("coder:7b-instruct") | {"/api/ps": {"models": []}}
    with serving(ModelServer(says)) as running:
        chosen(tmp_path, "coder:7b-instruct", "ollama", running.root)
        _, good, detail, remedy = check_choice(tmp_path)
    assert not good and remedy == "take the base model"
    assert "trained to chat, by its name" in detail and "raw text" in detail and "not in memory" in detail


def test_a_file_is_told_with_its_family_and_whether_that_is_proven(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "seed.gguf", controls=tuple(sorted(grammar("seed-coder").controls())))
    chosen(tmp_path, "seed", "embedded", str(file), "MIT")
    _, good, detail, _ = check_choice(tmp_path)
    assert good and "licence MIT" in detail and "family seed-coder (unproven), raw" in detail
    file.unlink()
    _, good, detail, remedy = check_choice(tmp_path)
    assert not good and "no such file" in detail and "foretype use" in remedy


def test_a_profile_of_another_hand_is_told(tmp_path: Path) -> None:
    (tmp_path / "private.toml").write_text("[engine]\n")
    assert not check_choice(tmp_path)[1]
