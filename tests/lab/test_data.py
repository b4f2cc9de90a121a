import random
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from foretype_lab.training import data, fim
from foretype_lab.training.tokenizer import SPECIAL_IDS, SPECIAL_TOKENS

END = SPECIAL_IDS["<|end_of_middle|>"]
FILE = SPECIAL_IDS["<|file_sep|>"]


def source(name: str, count: int) -> str:
    return "\n".join(f"def {name}_{n}(value):\n    total = value + {n}\n    return total\n" for n in range(count))


@pytest.fixture
def store(tmp_path: Path) -> data.Store:
    files = [("one", f"one/m{n}.py", source(f"a{n}", 30 + 10 * n)) for n in range(8)]
    files += [("two", f"two/m{n}.py", source(f"é{n}", 25)) for n in range(4)]
    data.build_store(({"repo": repo, "path": path, "text": text} for repo, path, text in files), tmp_path)
    return data.Store(tmp_path)


def test_the_store_gives_back_files_and_whole_lines_of_them(store: data.Store) -> None:
    assert len(store) == 12
    assert store.text(8) == source("é0", 25)
    assert store.repository_range == {"one": (0, 8), "two": (8, 12)}
    for start in range(1, 60):
        piece = store.slice(8, start, 120)
        assert piece in store.text(8)
        assert piece.endswith("\n")
        assert store.text(8)[: store.text(8).index(piece)][-1:] in ("", "\n")


def test_rows_depend_on_seed_and_number_alone(store: data.Store, encoding: tiktoken.Encoding) -> None:
    first = data.Sampler(store, encoding, data.Shape(256), 1)
    again = data.Sampler(store, encoding, data.Shape(256), 1)
    backwards = [again.row(number) for number in reversed(range(30))][::-1]
    assert all(np.array_equal(first.row(number), row) for number, row in enumerate(backwards))
    other = data.Sampler(store, encoding, data.Shape(256), 2)
    assert not all(np.array_equal(first.row(number), other.row(number)) for number in range(30))


def test_an_epoch_visits_every_window_once(store: data.Store, encoding: tiktoken.Encoding) -> None:
    sampler = data.Sampler(store, encoding, data.Shape(128), 1)
    for epoch in range(2):
        numbers = range(epoch * len(sampler), (epoch + 1) * len(sampler))
        visited = [sampler._window(number) for number in numbers]  # pyright: ignore[reportPrivateUsage]
        assert len(set(visited)) == len(sampler)
        assert {file for file, _ in visited} == set(range(len(store)))


def test_rows_have_their_shape_and_every_middle_ends(store: data.Store, encoding: tiktoken.Encoding) -> None:
    sampler = data.Sampler(store, encoding, data.Shape(256), 3)
    middles = ends = 0
    for number in range(200):
        row = sampler.row(number)
        assert row.shape == (257,)
        assert row.dtype == np.uint16
        middles += int((row == SPECIAL_IDS["<|fim_middle|>"]).sum())
        ends += int((row == END).sum())
    assert middles > 100
    assert ends >= 0.97 * middles


def test_long_rows_put_other_files_of_the_same_repository_first(store: data.Store, encoding: tiktoken.Encoding) -> None:
    sampler = data.Sampler(store, encoding, data.Shape(2048, context_share=1.0), 3)
    row = sampler.row(0).tolist()
    text = encoding.decode(row[: row.index(data.PAD)] if data.PAD in row else row)
    assert text.startswith("<|repo_name|>")
    repo = text.partition("\n")[0].removeprefix("<|repo_name|>")
    first_sample = text.split("<|repo_name|>")[1]
    paths = [part.partition("\n")[0] for part in first_sample.split("<|file_sep|>")[1:]]
    assert len(paths) >= 2
    assert all(path.startswith(repo) for path in paths[:2])


@pytest.mark.parametrize("layout", sorted(fim.LAYOUT_WEIGHTS))
def test_cutting_to_a_budget_keeps_the_middle_whole_and_the_text_near_it(
    layout: str, encoding: tiktoken.Encoding
) -> None:
    text = source("f", 60)
    start = text.index("def f_30")
    hole = fim.Hole(start + 6, text.index("\n", start), "line")
    pieces = fim.lay_out(text, hole, layout, random.Random(1))
    ids = data.encode_pieces(pieces, encoding.encode_ordinary, 200)
    assert 0 < len(ids) <= 200
    assert ids[-1] == END
    shown = encoding.decode(ids)
    assert shown.endswith(text[hole.start : hole.end] + "<|end_of_middle|>")
    if layout == "psm_line_last":
        below, _, tail = shown.partition("<|fim_suffix|>")[2].partition("<|fim_middle|>")[0].partition("<|fim_tail|>")
        above = shown.partition("<|fim_prefix|>")[2].partition("<|fim_suffix|>")[0]
        assert len(above) > 150
        assert len(below) > 150
        assert text[: fim.line_start(text, hole.start)].endswith(above)
        # What is right of the cursor, in its order: the tail, a line end, and the lines below up to where the budget ends.
        assert text[hole.end :].startswith(f"{tail}\n{below}")


def test_a_middle_that_does_not_fit_is_given_up(encoding: tiktoken.Encoding) -> None:
    text = source("f", 60)
    pieces = fim.psm_line_last(text, fim.Hole(4, len(text) - 1, "long"))
    assert data.encode_pieces(pieces, encoding.encode_ordinary, 100) == []


def test_control_tokens_in_source_text_stay_text(encoding: tiktoken.Encoding) -> None:
    text = "x = '<|fim_middle|><|endoftext|>'\ny = 1\n"
    ids = data.encode_pieces(fim.psm_line_last(text, fim.Hole(38, 39, "line")), encoding.encode_ordinary, 500)
    specials = [token for token in ids if token >= min(SPECIAL_IDS.values())]
    assert [SPECIAL_TOKENS[token - min(SPECIAL_IDS.values())] for token in specials] == [
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        "<|end_of_middle|>",
    ]


def test_licence_headers_go_and_other_comments_stay() -> None:
    code = "import os\n"
    assert data.without_licence_header("#!/usr/bin/env python\n# Copyright 2020\n# Licensed MIT\n\n" + code) == code
    assert data.without_licence_header("# How this works\n\n" + code).startswith("# How")
    assert data.without_licence_header(code + "# license\n") == code + "# license\n"
