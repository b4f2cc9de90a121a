import gzip
import json
from pathlib import Path

import pytest
from foretype_lab.commands import bench, evaluate
from foretype_lab.errors import LabError
from foretype_lab.retrieval.repositories import File, Repository, load_repositories
from foretype_lab.retrieval.sites import sites
from typer.testing import CliRunner

runner = CliRunner()

SHOP = {
    "shop/money.py": "def format_price(amount, currency):\n    return f'{amount} {currency}'\n\n\ndef parse_price(text):\n    return text\n",
    "shop/cart.py": "class Basket:\n    def grand_total(self):\n        return sum(self.prices)\n",
    "web/view.py": (
        "from shop.money import format_price\nfrom shop.cart import Basket\n\n\ndef show(request):\n    basket = Basket()\n"
        "    return format_price(basket.grand_total(), 'EUR')\n"
    ),
}


def repository(name: str = "shop", files: dict[str, str] = SHOP) -> Repository:
    return Repository(name, [File(path, text) for path, text in sorted(files.items())])


def written(root: Path, name: str) -> Path:
    for path, text in SHOP.items():
        target = root / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


def test_a_place_needs_a_definition_that_one_other_file_has() -> None:
    found = list(sites(repository().files))
    assert [(site.line, site.name, site.target_path) for site in found] == [
        (5, "Basket", "shop/cart.py"),
        (6, "format_price", "shop/money.py"),
    ]
    assert all(site.imported and not site.unseen for site in found)


def test_a_name_that_two_files_define_is_no_place() -> None:
    doubled = SHOP | {"other.py": "def format_price(x):\n    return x\n\n\nclass Basket:\n    pass\n"}
    assert [site.name for site in sites(repository(files=doubled).files)] == ["grand_total"]


def test_sources_are_repositories_folders_of_them_and_shards(tmp_path: Path) -> None:
    root = written(written(tmp_path / "r", "one"), "two")
    assert [one.name for one in load_repositories([root])] == ["one", "two"]
    assert [one.name for one in load_repositories([root / "one" / "shop"])] == ["shop"]
    shard = tmp_path / "s.jsonl.gz"
    with gzip.open(shard, "wt") as stream:
        for path, text in SHOP.items():
            stream.write(json.dumps({"repo": "three", "path": path, "text": text}) + "\n")
    (only,) = load_repositories([shard])
    assert only.name == "three" and [file.path for file in only.files] == sorted(SHOP)


@pytest.mark.parametrize("content", [b"", b"no gzip"])
def test_what_is_no_source_is_told(tmp_path: Path, content: bytes) -> None:
    for name in ("missing.jsonl.gz", "file.txt", "bad.jsonl.gz"):
        if name != "missing.jsonl.gz":
            (tmp_path / name).write_bytes(content)
    with pytest.raises(LabError):
        list(load_repositories([tmp_path / "missing.jsonl.gz"]))
    with pytest.raises(LabError, match="expected a repository"):
        list(load_repositories([tmp_path / "file.txt"]))
    if content:
        with pytest.raises(LabError, match="no shard"):
            list(load_repositories([tmp_path / "bad.jsonl.gz"]))


def test_eval_retrieval_finds_the_definitions_and_compares(tmp_path: Path) -> None:
    root = written(written(tmp_path / "r", "one"), "two")
    ran = runner.invoke(evaluate, ["retrieval", str(root), "--json"])
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout)
    assert report["places"] == 4 and report["repositories"] == 2
    assert report["rankers"]["fused"]["recall@5"]["estimate"] == 1.0
    assert set(report["fused_minus"]) == set(report["rankers"]) - {"fused"}


def test_eval_retrieval_of_nothing_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    ran = runner.invoke(evaluate, ["retrieval", str(tmp_path)])
    assert ran.exit_code == 2 and "several files" in ran.output


def test_bench_index_measures_every_aim(tmp_path: Path) -> None:
    root = written(tmp_path / "r", "one")
    ran = runner.invoke(bench, ["index", str(root), "--questions", "12", "--saves", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout)
    assert report["files"] == 3 and report["chunks"] == 5
    assert all(row["value"] is not None and isinstance(row["met"], bool) for row in report["figures"].values())
