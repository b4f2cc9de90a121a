"""What the index's embedder is made and judged with, each as its command line is given."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from foretype_lab.embedder import pairs, search_weights
from foretype_models.artifacts import locate_embedder

MONEY = (
    "def format_price(amount, currency):\n"
    '    """The price as a customer reads it, with the currency behind it."""\n'
    "    whole, cents = divmod(amount, 100)\n"
    "    return f'{whole},{cents:02d} {currency}'  # as it stands on an invoice\n"
)
VIEW = (
    "from shop.money import format_price\n\n\ndef show(request):\n    basket = request.basket\n"
    "    return format_price(basket.total, 'EUR')\n"
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl.gz"
    rows = [
        {"repo": repo, "path": path, "text": text.replace("price", word)}
        for repo, word in (("one", "price"), ("two", "weight"))
        for path, text in (("shop/money.py", MONEY), ("web/view.py", VIEW))
    ]
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def test_pairs_are_uses_with_definitions_and_documentation_with_bodies(corpus: Path, tmp_path: Path) -> None:
    pairs.main([str(tmp_path / "pairs.npz"), str(corpus)])
    stored = np.load(tmp_path / "pairs.npz")
    found = list(zip(stored["repositories"].tolist(), stored["kinds"].tolist(), strict=True))
    assert found == [(0, pairs.USE), (0, pairs.DOCUMENTATION), (1, pairs.USE), (1, pairs.DOCUMENTATION)]
    for side in ("left", "right"):
        assert len(stored[f"{side}_sizes"]) == 4 and stored[f"{side}_sizes"].sum() == len(stored[side])


def test_weights_of_search_are_fitted_to_places_whose_definition_is_a_candidate(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search_weights.main(str(locate_embedder().path), str(corpus))
    said = capsys.readouterr().out
    assert said.startswith("2 places, 2 among the candidates, 1.000 of those in the first five\nFeatures(")
