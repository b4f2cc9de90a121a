"""The matcher of globs says what git says, and takes time linear in a path whatever the pattern is."""

import itertools
import random
import re
import subprocess
from pathlib import Path

import pytest
from foretype_context.folder.globs import PATTERNS_MAX, STARS_MAX, Globs, matches
from foretype_context.folder.ignored import Ignored
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("a", "b", "ab", "a.b", "aab", "b-a", "[a]", "a b")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    root = tmp_path_factory.mktemp("tree")
    files: list[str] = []
    for depth in (1, 2, 3):
        for parts in itertools.product(NAMES[: 8 if depth < 3 else 4], repeat=depth):
            path = "/".join((*parts[:-1], "x" + parts[-1])) if depth < 3 else "/".join((*parts[:2], parts[2]))
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            if not (root / path).is_dir():
                (root / path).write_text("")
                files.append(path)
    subprocess.run(["git", "init", "-q", root], check=True)
    return root, files


def patterns(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    pieces = [
        "a",
        "b",
        "x",
        "ab",
        "*",
        "**",
        "?",
        "/",
        "/",
        ".",
        "[ab]",
        "[!a]",
        "[a-b]",
        "[[:alpha:]]",
        "\\",
        "-",
        " ",
        "[",
        "]",
    ]
    made: list[str] = []
    while len(made) < count:
        text = "".join(chance.choices(pieces, k=chance.randint(1, 7)))
        begin = chance.choice(["", "", "", "!", "/", "**/", "a**/", "/ab**/", "!a/b**/"])
        text = begin + text + chance.choice(["", "", "", "/", "/**", "*"])
        # Git lets a class of characters reach over a slash, and takes an escaped one for several things.
        if text.count("*") <= STARS_MAX and not re.search(r"\[[^\]]*/|\\/", text):
            made.append(text)
    return made


@pytest.mark.parametrize("seed", range(40))
def test_random_patterns_leave_out_what_git_leaves_out(tree: tuple[Path, list[str]], seed: int) -> None:
    root, files = tree
    lines = patterns(seed, 8)
    (root / ".gitignore").write_text("".join(f"{line}\n" for line in lines))
    command = ["git", "-C", root, "-c", "core.quotePath=false", "check-ignore", "-z", "--no-index", "--stdin"]
    told = subprocess.run(command, input="\0".join(files).encode(), capture_output=True, check=False)
    assert told.returncode in (0, 1), told.stderr
    theirs = set(filter(None, told.stdout.decode().split("\0")))
    ignored = Ignored(root)
    ours = {path for path in files if ignored(root / path)}
    assert ours == theirs, (lines, ours ^ theirs)


@pytest.mark.parametrize(
    ("line", "path", "said"),
    [
        ("foo/**/", "foo/a/", True),
        ("foo/**/", "foo/a", None),
        ("foo/**", "foo/", None),
        ("foo/**", "foo/a/b", True),
        ("\\!a", "!a", True),
        ("\\#a", "#a", True),
        ("#a", "#a", None),
        ("a\\ ", "a ", True),
        ("a  ", "a", True),
        ("a\r", "a", True),
        ("!a", "a", False),
        ("/", "a", None),
        ("a\\", "a\\", None),
        ("*ab*bc", "abc", None),
        ("*ab*bc", "abbc", True),
        ("[]a]", "]", True),
        ("a[!/]b", "a/b", None),
        ("build**/*.o", "build-x/deep/a.o", True),
        ("[b]uild**/*.o", "build-x/deep/a.o", None),
        ("a/b**", "a/bx/c/d", True),
    ],
)
def test_a_line(line: str, path: str, said: bool | None) -> None:
    assert Globs([line]).says(path) is said


def test_what_exceeds_the_bounds_is_left_out_and_counted() -> None:
    many = Globs([f"name{number}" for number in range(PATTERNS_MAX + 5)])
    assert (len(many), many.left_out) == (PATTERNS_MAX, 5)
    assert many.says(f"name{PATTERNS_MAX - 1}") is True and many.says(f"name{PATTERNS_MAX}") is None
    stars = Globs(["*a*a*a*", "*a*a*a*a*", "**/*/**/*a*/b", "x" * 2_000, "*" * 16_000, "**/a/**/b/**/*"])
    assert (len(stars), stars.left_out) == (2, 4)
    assert stars.says("xaaax") is True
    assert matches("{a,b}" * 40, "a") is False and matches("*" * 20 + "a", "ba") is True


def alike(number: int) -> str:
    return f"{'!' if number % 2 else ''}*a*aa*a{number % 7}*{'a' * (number % 6)}{number:03}"


WORST = {
    "stars": [f"*a*a*a*{number:03}b" for number in range(PATTERNS_MAX)],
    "signs": [alike(number) for number in range(PATTERNS_MAX)],
    "folders": [f"**/*a*{number:03}/**/b" for number in range(PATTERNS_MAX)],
    "classes": [f"*[ab]?*[!b]*a*{number:03}" for number in range(PATTERNS_MAX)],
}


@pytest.mark.parametrize("path", ["{0}" + "a" * 60, "src/{0}/" + "a" * 30 + "/" + "a" * 30])
@pytest.mark.parametrize("kind", WORST)
def test_a_thousand_paths_against_the_worst_file_end(kind: str, path: str) -> None:
    """A tenth of a second; by the seven stars of before it was hours."""
    globs = Globs(WORST[kind])
    assert (len(globs), globs.left_out) == (PATTERNS_MAX, 0)
    for number in range(1_000):
        globs.says(path.format(f"{number:05}"))


def test_the_automaton_is_bounded_too() -> None:
    large = Globs([f"*{'x' * 100}{number}" for number in range(PATTERNS_MAX)])
    assert 0 < len(large) < 200 and len(large) + large.left_out == PATTERNS_MAX
    assert len(Globs(["x" * 100 + str(number) for number in range(PATTERNS_MAX)])) == PATTERNS_MAX  # no wildcards


def test_a_pattern_tries_nothing_again() -> None:
    """With backtracking this would be a thousand steps for every pair of letters: days."""
    path = "a" * 16_000
    assert Globs(["*a*a*a*b"]).says(path) is None
    assert Globs(["*a*a*a*b"]).says(path + "b") is True


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
def test_a_glob_of_an_editor_matches(glob: str, path: str) -> None:
    assert matches(glob, path)


@pytest.mark.parametrize(
    ("glob", "path"),
    [("*.env", "/w/env.py"), ("src/*.py", "src/a/b.py"), ("secret/**", "/w/secret/a.py"), ("[!a]*.py", "a.py")],
)
def test_a_glob_of_an_editor_does_not_match(glob: str, path: str) -> None:
    assert not matches(glob, path)


@given(st.text(alphabet="*?[]{}!^-,/ab\\.", max_size=12), st.text(alphabet="ab/.", max_size=8))
def test_any_glob_at_all_gives_an_answer(glob: str, path: str) -> None:
    assert matches(glob, path) in (True, False)
