"""What two texts have in common, halves of characters, and files as editors name them."""

from pathlib import Path

import pytest
from foretype_context.text.strings import common_prefix, common_suffix, join_surrogates, well_formed
from foretype_context.text.uris import path_of_uri
from foretype_wire.codec import scrub
from hypothesis import given
from hypothesis import strategies as st

SHORT = st.text(alphabet="ab\n", max_size=12)
BROKEN = st.text(alphabet=st.sampled_from("a\u00e9\ud83d\ude00\ud800\udcff\U0001f600"), max_size=12)


@given(SHORT, SHORT)
def test_the_common_ends_are_those_of_a_loop(a: str, b: str) -> None:
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(a, b) == start
    room = min(len(a), len(b)) - start
    assert common_suffix(a, b, room) == min(room, common_prefix(a[::-1], b[::-1]))


@given(BROKEN)
def test_what_goes_over_the_wire_is_what_a_tokenizer_reads(text: str) -> None:
    assert scrub(text) == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert len(well_formed(text)) == len(text)
    assert join_surrogates(join_surrogates(text)) == join_surrogates(text)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b%20c.py", "/a/b c.py"),
        ("file:///a/100%2525.py", "/a/100%25.py"),  # a name that holds what looks like an escape
        ("file://localhost/a.py", "/a.py"),
        ("file://", None),
        ("/a/b.py", None),
        ("untitled:1", None),
        ("http://x/y", None),
        ("file://[broken/a.py", None),
    ],
)
def test_only_a_file_uri_has_a_file(uri: str, path: str | None) -> None:
    assert path_of_uri(uri) == (Path(path) if path is not None else None)
