import re
from collections import Counter

import pytest
from foretype_retrieval.terms import count_identifiers, count_terms, identifiers, import_names, subwords
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("parseHTTPHeader_v2", ("parse", "http", "header")),
        ("snake_case_name", ("snake", "case", "name")),
        ("größe", ("gr", "öß")),
        ("self", ()),
        ("XMLHttpRequest", ("xml", "http", "request")),
    ],
)
def test_identifiers_split_at_case_and_underscores(identifier: str, words: tuple[str, ...]) -> None:
    assert subwords(identifier) == words


def test_data_is_no_identifier() -> None:
    assert identifiers("ok " + "A" * 5_000) == ["ok"]


def test_counts_add_up_over_identifiers() -> None:
    assert count_terms(["readFile", "read_line", "readFile"]) == {"read": 3, "file": 2, "line": 1}


@pytest.mark.parametrize(
    "line",
    [
        "from shop.cart import Basket",
        "import { Basket } from './cart'",
        "const { Basket } = require('./cart')",
        "use shop::cart::Basket;",
        "using Shop.Cart.Basket;",
        '#include "cart/Basket.h"',
    ],
)
def test_import_lines_of_many_languages_name_what_they_import(line: str) -> None:
    names, modules = import_names([line, "x = Other()"])
    assert "Basket" in names and "Other" not in names and "cart" in modules


def test_an_import_in_brackets_reaches_over_lines() -> None:
    names, _ = import_names(["from shop import (", "    Basket,", "    Item,", ")", "x = Other"])
    assert {"Basket", "Item"} <= names and "Other" not in names


def test_an_import_line_behind_another_bracket_counts_too() -> None:
    names, _ = import_names(
        ["    from a import (x1,", "      y1)", "value = (", "\timport later", "", "  # include <no>", "importer()"]
    )
    assert names == {"x1", "y1", "later", "no"}


pieces = st.lists(
    st.sampled_from(["a", "Bar", "HTTP", "_", "1", "23", "0x1F", "é", "ß", "٣", "(", ".", " ", "\n", "\x0c", "x" * 79]),
    max_size=12,
).map("".join)


@given(pieces)
def test_identifiers_are_those_of_their_pattern_also_behind_digits(text: str) -> None:
    expected = [found for found in re.findall(r"[^\W\d]\w+", text) if len(found) <= 80]
    assert identifiers(text) == expected
    assert count_identifiers(text) == Counter(expected)


@given(st.lists(pieces.filter(bool), max_size=5))
def test_terms_are_the_sub_words_of_each_identifier(found: list[str]) -> None:
    names = [name for text in found for name in identifiers(text)]
    assert count_terms(names) == Counter(word for name in names for word in subwords(name))
