import tarfile
from pathlib import Path
from typing import Any

import pytest
from foretype_lab.corpus.store import Store, build_store
from loading import loaded

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pack() -> Any:
    return loaded(ROOT / "lab" / "gpu" / "pack.py", "gpu_pack")


def stores(folder: Path) -> None:
    for split, repos in (("train", 9), ("validation", 2)):
        rows = [(f"{split}{repo}", f"p{n}.py", f"x = {repo}\n" * 40) for repo in range(repos) for n in range(3)]
        build_store(({"repo": repo, "path": path, "text": text} for repo, path, text in rows), folder / split)


@pytest.mark.parametrize(("megabytes", "repositories"), [(1, 9), (0.0018, 3)])
def test_whole_repositories_arrive_up_to_the_size(
    pack: Any, tmp_path: Path, megabytes: float, repositories: int
) -> None:
    stores(tmp_path / "stores")
    pack.pack(tmp_path / "stores", tmp_path / "s.tar.xz", megabytes)
    with tarfile.open(tmp_path / "s.tar.xz") as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.2 of Debian 12 has none
        archive.extractall(tmp_path / "there", **safely)
    train, held = (Store(tmp_path / "there" / split) for split in ("train", "validation"))
    assert len(train.repository_range) == repositories and len(train) == 3 * repositories
    assert len(held) == 6
    whole = Store(tmp_path / "stores" / "train")
    texts = {(repo, path): whole.text(number) for number, (repo, path, _, _) in enumerate(whole.index)}
    assert all(train.text(number) == texts[repo, path] for number, (repo, path, _, _) in enumerate(train.index))
