from pathlib import Path

import numpy as np
import pytest
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models.artifacts import locate_embedder
from foretype_models.errors import TamperedArtifactError
from foretype_retrieval.errors import EmbedderError
from foretype_retrieval.static_embedder import LazyEmbedder, default_embedder, load_static


def write_table(path: Path, **changed: object) -> Path:
    tokenizer = load_tokenizer(locate_embedder().tokenizer_path)
    rng = np.random.default_rng(0)
    stored: dict[str, object] = {
        "format": np.int64(1),
        "table": rng.integers(-127, 127, (tokenizer.vocabulary_tokens, 16)).astype(np.int8),
        "scales": np.full(tokenizer.vocabulary_tokens, 0.01, np.float16),
        "tokenizer_digest": np.str_(tokenizer.digest),
    }
    np.savez(path, **{name: value for name, value in (stored | changed).items() if value is not None})  # type: ignore[arg-type]
    return path


def test_vectors_are_the_normalised_mean_of_token_rows(tmp_path: Path) -> None:
    path = write_table(tmp_path / "e.npz")
    embedder = load_static(path, locate_embedder().tokenizer_path)
    text = "def parse(x): return x"
    with np.load(path) as data:
        rows = data["table"].astype(np.float64) * data["scales"].astype(np.float64)[:, None]
    mean = rows[load_tokenizer(locate_embedder().tokenizer_path).encode(text)].mean(0)
    np.testing.assert_allclose(embedder.embed([text])[0], mean / np.linalg.norm(mean), atol=1e-5)


def test_an_empty_text_has_no_direction(tmp_path: Path) -> None:
    embedder = load_static(write_table(tmp_path / "e.npz"), locate_embedder().tokenizer_path)
    assert not embedder.embed([""]).any() and embedder.embed([]).shape == (0, 16)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"format": np.int64(2)}, "format 2"),
        ({"tokenizer_digest": np.str_("feed")}, "made for tokenizer"),
        ({"table": np.zeros((3, 16), np.int8)}, "shape"),
        ({"table": np.zeros((16384, 16), np.float32)}, "shape"),
        ({"scales": np.full(16384, np.nan, np.float16)}, "finite"),
        ({"scales": None}, "cannot be read"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_reason(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    with pytest.raises(EmbedderError, match=said):
        load_static(write_table(tmp_path / "e.npz", **changed), locate_embedder().tokenizer_path)


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut short", b"text"])
def test_an_unreadable_table_costs_the_vectors_alone_and_says_so_once(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "e.npz"
    if content is not None:
        path.write_bytes(content)
    said: list[str] = []
    embedder = LazyEmbedder(path, complain=said.append)
    assert embedder() is None and embedder() is None
    assert len(said) == 1 and "words alone" in said[0]


def test_a_usable_table_is_complained_about_by_nobody(tmp_path: Path) -> None:
    said: list[str] = []
    embedder = default_embedder(write_table(tmp_path / "e.npz"), complain=said.append)
    assert embedder is not None and embedder.dimensions == 16 and not said


def test_the_shipped_embedder_is_found_without_being_named() -> None:
    said: list[str] = []
    embedder = default_embedder(complain=said.append)
    assert embedder is not None and embedder.dimensions == 240 and not said
    parse, header, basket = embedder.embed(
        ["def parse_http_header(line):", "HTTP header parser", "class Basket: items"]
    )
    assert parse @ header > parse @ basket


def test_a_tampered_embedder_costs_the_vectors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def tampered() -> None:
        raise TamperedArtifactError("e.npz does not match its SHA-256")

    monkeypatch.setattr("foretype_retrieval.static_embedder.locate_embedder", tampered)
    said: list[str] = []
    assert default_embedder(complain=said.append) is None
    assert len(said) == 1 and "SHA-256" in said[0] and "words alone" in said[0]
