import pytest
from foretype_retrieval.terms import count_terms, identifiers, import_names, subwords


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
