from pathlib import Path

import pytest
from foretype_lab.corpus.store import Store, build_store, without_licence_header


def source(name: str, count: int) -> str:
    return "\n".join(f"def {name}_{n}(value):\n    total = value + {n}\n    return total\n" for n in range(count))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    files = [("one", f"one/m{n}.py", source(f"a{n}", 30 + 10 * n)) for n in range(8)]
    files += [("two", f"two/m{n}.py", source(f"é{n}", 25)) for n in range(4)]
    build_store(({"repo": repo, "path": path, "text": text} for repo, path, text in files), tmp_path)
    return Store(tmp_path)


def test_the_store_gives_back_files_and_whole_lines_of_them(store: Store) -> None:
    assert len(store) == 12
    assert store.text(8) == source("é0", 25)
    assert store.repository_range == {"one": (0, 8), "two": (8, 12)}
    for start in range(1, 60):
        piece = store.slice(8, start, 120)
        assert piece in store.text(8)
        assert piece.endswith("\n")
        assert store.text(8)[: store.text(8).index(piece)][-1:] in ("", "\n")


def test_licence_headers_go_and_other_comments_stay() -> None:
    code = "import os\n"
    assert without_licence_header("#!/usr/bin/env python\n# Copyright 2020\n# Licensed MIT\n\n" + code) == code
    assert without_licence_header("# How this works\n\n" + code).startswith("# How")
    assert without_licence_header(code + "# license\n") == code + "# license\n"
