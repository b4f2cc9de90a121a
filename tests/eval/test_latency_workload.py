from itertools import islice
from pathlib import Path

import pytest
from foretype_eval.errors import EvalError
from foretype_eval.latency.workload import sites

LINE = "    result = compute(first, second)\n"


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_bytes(text.encode())


def test_typing_a_site_gives_the_file_back(tmp_path: Path) -> None:
    source = "def f(first, second):\n" + LINE * 400
    write(tmp_path, "a.py", source)
    site = next(sites(1, chars_above=3_000, chars_below=1_000, root=tmp_path))
    assert site.text[: site.offset] + site.typed + site.text[site.offset :] == source
    assert site.text[site.offset - 1] == "\n"
    assert site.text[site.offset] == "\n", "a hole is a whole line"
    assert 3_000 <= site.offset <= len(source) - 1_000


def test_files_that_would_not_fill_a_prompt_or_need_another_encoding_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "short.py", LINE * 10)
    write(tmp_path, "umlaut.py", "# ä\n" + LINE * 400)
    write(tmp_path, "windows.py", LINE.replace("\n", "\r\n") * 400)
    write(tmp_path, "notes.txt", LINE * 400)
    with pytest.raises(EvalError, match="no Python file"):
        next(sites(1, chars_above=3_000, chars_below=1_000, root=tmp_path))


def test_sites_depend_on_the_seed_alone_and_lie_in_different_files() -> None:
    first = list(islice(sites(5, chars_above=6_000, chars_below=2_000), 12))
    assert first == list(islice(sites(5, chars_above=6_000, chars_below=2_000), 12))
    assert first != list(islice(sites(6, chars_above=6_000, chars_below=2_000), 12))
    assert len({site.path for site in first}) == 12
