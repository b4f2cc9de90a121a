import pytest
from foretype_lsp.globs import first_match, matches
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("*.env", "/w/a/.env"),
        ("**/secret/**", "/w/secret/x/y.py"),
        ("**/secret/**", "secret/y.py"),
        ("vendor/", "/w/vendor/a/b.py"),
        ("/w/**/*.py", "/w/a.py"),
        ("src/*.{ts,tsx}", "src/a.tsx"),
        ("a?.py", "ab.py"),
        ("[!b]*.py", "abc.py"),
        ("**/a.py", "C:\\w\\a.py"),
    ],
)
def test_matches(glob, path):
    assert matches(glob, path)


@pytest.mark.parametrize(
    ("glob", "path"),
    [("*.env", "/w/env.py"), ("src/*.py", "src/a/b.py"), ("secret/**", "/w/secret/a.py"), ("[!a]*.py", "a.py")],
)
def test_does_not_match(glob, path):
    assert not matches(glob, path)


def test_the_first_glob_that_matches_is_named():
    assert first_match(("*.go", "**/p/**", "*.py"), ("/w/p/a.py", "p/a.py")) == "**/p/**"
    assert first_match((), ("a.py",)) is None


@given(st.text(alphabet="*?[]{}!^-,/ab\\.", max_size=12), st.text(alphabet="ab/.", max_size=8))
def test_any_glob_at_all_gives_an_answer(glob, path):
    assert matches(glob, path) in (True, False)
