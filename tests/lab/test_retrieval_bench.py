import json
from pathlib import Path

import pytest
import typer
from foretype_eval.gateway import GatewayOptions
from foretype_lab.errors import CrossfileRowsError, RepositorySourceError
from foretype_lab.retrieval import crossfile
from foretype_lab.retrieval.commands import crossfile as crossfile_command
from foretype_lab.retrieval.commands import index, retrieval
from foretype_lab.retrieval.crossfile import Arm, CrossfileOptions, CrossfileRow, CutKind, choose_cuts, summarise
from foretype_lab.retrieval.repositories import File, Repository, load_repositories
from foretype_lab.retrieval.sites import sites
from typer.testing import CliRunner

runner = CliRunner()
app = typer.Typer()
app.command("index")(index)
app.command("retrieval")(retrieval)
app.command("crossfile")(crossfile_command)

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
    assert [(site.line, site.column, site.name, site.target_path) for site in found] == [
        (5, 13, "Basket", "shop/cart.py"),
        (6, 11, "format_price", "shop/money.py"),
    ]
    assert all(site.imported and not site.unseen for site in found)


def test_a_name_that_two_files_define_is_no_place() -> None:
    doubled = SHOP | {"other.py": "def format_price(x):\n    return x\n\n\nclass Basket:\n    pass\n"}
    assert [site.name for site in sites(repository(files=doubled).files)] == ["grand_total"]


def test_sources_are_repositories_folders_of_them_and_shards(tmp_path: Path) -> None:
    import gzip

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
    with pytest.raises(RepositorySourceError):
        list(load_repositories([tmp_path / "missing.jsonl.gz"]))
    with pytest.raises(RepositorySourceError, match="expected a repository"):
        list(load_repositories([tmp_path / "file.txt"]))
    if content:
        with pytest.raises(RepositorySourceError, match="no shard"):
            list(load_repositories([tmp_path / "bad.jsonl.gz"]))


def test_eval_retrieval_finds_the_definitions_and_compares(tmp_path: Path) -> None:
    root = written(written(tmp_path / "r", "one"), "two")
    ran = runner.invoke(app, ["retrieval", str(root), "--json"])
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout)
    assert report["places"] == 4 and report["repositories"] == 2
    assert report["rankers"]["fused"]["recall@5"]["estimate"] == 1.0
    assert set(report["fused_minus"]) == set(report["rankers"]) - {"fused"}


def test_eval_retrieval_of_nothing_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    ran = runner.invoke(app, ["retrieval", str(tmp_path)])
    assert ran.exit_code == 2 and "several files" in ran.output


def test_bench_index_measures_every_aim(tmp_path: Path) -> None:
    root = written(tmp_path / "r", "one")
    ran = runner.invoke(app, ["index", str(root), "--questions", "12", "--saves", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout)
    assert report["files"] == 3 and report["chunks"] == 5
    assert all(row["value"] is not None and isinstance(row["met"], bool) for row in report["figures"].values())


def test_cuts_take_the_rest_of_the_line_and_nothing_else() -> None:
    cuts = choose_cuts([repository()], 10, seed=1)
    assert len(cuts) == 4
    for cut in cuts:
        assert cut.prefix + cut.wanted + cut.suffix == SHOP["web/view.py"] and "\n" not in cut.wanted
        if cut.kind is CutKind.REST_OF_LINE:
            assert cut.wanted.startswith(cut.site.name)
        else:
            assert not cut.prefix.rsplit("\n", 1)[-1].strip()


def test_cuts_are_spread_over_repositories() -> None:
    chosen = choose_cuts([repository("a"), repository("b")], 4, seed=3)
    assert sorted(cut.repository for cut in chosen) == ["a", "a", "b", "b"]


def test_the_summary_pairs_by_cut() -> None:
    rows = [
        CrossfileRow(
            id=f"{at}", repository=f"r{at % 5}", kind=CutKind.NEXT_LINE, arm=arm, exact=arm is Arm.ON and at < 10
        )
        for at in range(20)
        for arm in (Arm.OFF, Arm.ON)
    ]
    report = summarise(
        [*rows, CrossfileRow(id="x", repository="r9", kind=CutKind.NEXT_LINE, arm=Arm.ON, error="overloaded")]
    )
    measured = report["measures"]["all_exact"]
    assert (report["cuts"], report["errors"]) == (20, 1)
    assert measured["off"]["estimate"] == 0 and measured["on"]["estimate"] == 0.5
    assert measured["on_minus_off"]["estimate"] == 0.5 and (measured["only_on"], measured["only_off"]) == (10, 0)


def test_rows_of_another_run_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    assert crossfile._resumed(out, {"model": "a", "seed": 1}) == {}
    row = CrossfileRow(id="c", repository="r", kind=CutKind.NEXT_LINE, arm=Arm.ON)
    crossfile._append(out, row)
    with out.open("ab") as stream:
        stream.write(b'{"id": "cut sho')
    assert crossfile._resumed(out, {"model": "a", "seed": 1}) == {("c", Arm.ON): row}
    with pytest.raises(CrossfileRowsError, match="another model"):
        crossfile._resumed(out, {"model": "b", "seed": 1})
    out.write_bytes(b"something else\n")
    with pytest.raises(CrossfileRowsError, match="no file of rows"):
        crossfile._resumed(out, {"model": "a"})


@pytest.mark.slow
async def test_crossfile_asks_both_arms_and_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = written(written(tmp_path / "r", "one"), "two")
    asked: list[Arm] = []
    real = crossfile._ask

    async def counted(*arguments: object) -> CrossfileRow:
        asked.append(arguments[6])  # type: ignore[arg-type]
        return await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(crossfile, "_ask", counted)
    options = CrossfileOptions(
        out=tmp_path / "rows.jsonl", with_definition=True, gateway=GatewayOptions(engine="scripted")
    )
    report = await crossfile.run_crossfile([root], None, options)
    assert report["cuts"] == 8 and report["errors"] == 0 and len(asked) == 24
    assert report["definition_shown"] > 0.5 and report["snippets_shown_mean"] >= 1
    lines = options.out.read_bytes().splitlines(keepends=True)
    options.out.write_bytes(b"".join(lines[:-2]))
    asked.clear()
    again = await crossfile.run_crossfile([root], None, options)
    assert len(asked) == 2 and again["measures"] == report["measures"]
