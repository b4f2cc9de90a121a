import gzip
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from foretype_lab.training import data

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pack() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_pack", ROOT / "lab" / "gpu" / "pack.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shards(folder: Path, split: str, repos: int) -> list[dict[str, str]]:
    folder.mkdir(exist_ok=True)
    lines = [
        {
            "repo": f'o/"{split}{repo}", "path',
            "path": f"p{n}.py",
            "language": "python",
            "text": f"x = {repo}\n" * (n + 1),
        }
        for repo in range(repos)
        for n in range(3)
    ]
    for number in range(2):
        with gzip.open(folder / f"{split}-{number:03}.jsonl.gz", "wt") as stream:
            # A project that goes on in the next shard is one project.
            for line in lines[number * 4 : None if number else 4]:
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    return lines


def test_a_corpus_arrives_whole_and_by_repository(pack: Any, tmp_path: Path) -> None:
    train, held = shards(tmp_path / "c", "train", 5), shards(tmp_path / "c", "validation", 2)
    pack.corpus(tmp_path / "c", tmp_path / "p", 0, 1000)
    assert len(list((tmp_path / "p").glob("train-*.xz"))) == 5, "a piece ends after the repository that fills it"
    pack.store(tmp_path / "p", tmp_path / "s")
    for split, lines in (("train", train), ("validation", held)):
        store = data.Store(tmp_path / "s" / split)
        assert sorted((repo, path) for repo, path, _, _ in store.index) == sorted(
            (one["repo"], one["path"]) for one in lines
        )
        assert len(store.repository_range) == len({one["repo"] for one in lines})
        assert {store.text(number) for number in range(len(store))} == {one["text"] for one in lines}


def test_the_first_pieces_are_a_sample(pack: Any, tmp_path: Path) -> None:
    shards(tmp_path / "c", "train", 9)
    shards(tmp_path / "c", "validation", 1)
    pack.corpus(tmp_path / "c", tmp_path / "p", 45, 0.0003)
    found = {line["repo"] for line in pack.read_pieces(tmp_path / "p", "train")}
    assert 1 <= len(found) < 9


def test_weights_come_home_in_pieces(pack: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {
        "model": {"w": torch.arange(5000.0)},
        "optimizers": [1],
        "config": {},
        "train": {},
        "progress": {"step": 3},
    }
    torch.save(state, tmp_path / "last.pt")
    pack.split(tmp_path / "last.pt", tmp_path / "home", 0.004)
    parts = sorted((tmp_path / "home").glob("*.part"))
    assert len(parts) > 1
    pack.join(tmp_path / "home", tmp_path / "back.pt")
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    assert back["progress"] == {"step": 3} and "optimizers" not in back
    assert torch.allclose(back["model"]["w"].float(), state["model"]["w"], rtol=1e-3)
    parts[0].unlink()
    with pytest.raises(ValueError, match="not whole"):
        pack.join(tmp_path / "home", tmp_path / "again.pt")
