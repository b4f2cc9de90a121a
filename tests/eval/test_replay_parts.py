"""The pure parts of the keystroke replay: commits, typist, accept rules, virtual time."""

import asyncio
import subprocess
from collections import Counter
from pathlib import Path
from random import Random
from statistics import median

import pytest
from foretype_eval.errors import RepositoryError
from foretype_eval.replay.accept import Accepted, Rule, decide
from foretype_eval.replay.commits import commits_of, files_before, load_commit
from foretype_eval.replay.developer import slices_of
from foretype_eval.replay.typist import gap_s, keys_of, next_key
from foretype_eval.replay.virtual import VirtualLoop
from git_repo import git
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def commit(repo: Path, **files: str | bytes | None) -> str:
    for name, text in files.items():
        path = repo / name.replace("__", ".")
        if text is None:
            path.unlink()
        else:
            path.write_bytes(text.encode() if isinstance(text, str) else text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "change", "--allow-empty")
    return git(repo, "rev-parse", "HEAD")


def replayed(repo: Path, old: str, id: str) -> str:
    """The file after the last stretch was typed."""
    last = load_commit(repo, id, suffixes=[".py"]).stretches[-1]
    return last.before + last.target + last.after


LINES = st.lists(st.sampled_from(["a = 1\n", "b = 2\n", "\n", "def f():\n", "    return é\n", "x\r\n"]), max_size=12)


@pytest.fixture(scope="module")
def one_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = tmp_path_factory.mktemp("repo")
    git(repo, "init", "-q")
    return repo


def imported(repo: Path, *texts: str) -> None:
    """A branch of commits that hold `m.py` so, made by one process."""
    stream = "reset refs/heads/main\n"
    for number, text in enumerate(texts):
        stream += f"commit refs/heads/main\ncommitter t <t@example.org> {number} +0000\ndata 1\nc\n"
        stream += f"M 644 inline m.py\ndata {len(text.encode())}\n{text}\n"
    subprocess.run(["git", "-C", repo, "fast-import", "--quiet", "--force"], input=stream.encode(), check=True)


@settings(deadline=None, max_examples=40)
@given(old=LINES, new=LINES)
def test_typing_every_stretch_of_an_edit_gives_the_new_file_line_by_line(
    one_repo: Path, old: list[str], new: list[str]
) -> None:
    imported(one_repo, "".join(old), "".join(new))
    loaded = load_commit(one_repo, git(one_repo, "rev-parse", "refs/heads/main"), suffixes=[".py"])
    text_new = "".join(new)
    for stretch in loaded.stretches:
        assert text_new.startswith(stretch.before)
        assert text_new.startswith(stretch.before + stretch.target)


def test_a_new_file_is_typed_whole_and_its_last_line_end_is_already_there(repo: Path) -> None:
    id = commit(repo, m__py="a = 1\nb = 2\n")
    (stretch,) = load_commit(repo, id, suffixes=[".py"]).stretches
    assert (stretch.before, stretch.target, stretch.after) == ("", "a = 1\nb = 2", "\n")


def test_a_change_in_the_middle_keeps_what_is_below(repo: Path) -> None:
    commit(repo, m__py="a\nb\nc\n")
    id = commit(repo, m__py="a\nB\nc\n")
    (stretch,) = load_commit(repo, id, suffixes=[".py"]).stretches
    assert (stretch.before, stretch.target, stretch.after) == ("a\n", "B", "\nc\n")


def test_neighbours_are_what_was_changed_lately_before_the_commit_and_the_latest_comes_last(repo: Path) -> None:
    commit(repo, a__py="a = 1\n", b__py="b = 1\n", c__py="c = 1\n", notes="x\n", latin__py="é".encode("latin-1"))
    commit(repo, b__py="b = 2\n")
    commit(repo, a__py="a = 2\n")
    id = commit(repo, a__py="a = 3\n", new__py="n = 1\n")
    commit(repo, c__py="c = 2\n")

    def before(**bounds: int) -> list[tuple[str, str]]:
        return list(files_before(repo, id, suffixes=[".py"], **bounds).items())

    # The commit's own texts and later ones are not known; files of one age by their names, as the client sorts them.
    assert before() == [("c.py", "c = 1\n"), ("b.py", "b = 2\n"), ("a.py", "a = 2\n")]
    assert before(files_max=2) == before(bytes_max=17) == [("b.py", "b = 2\n"), ("a.py", "a = 2\n")]
    assert files_before(repo, git(repo, "rev-list", "--max-parents=0", "HEAD"), suffixes=[".py"]) == {}


def test_binary_foreign_encodings_and_deletions_are_left_out_and_counted(repo: Path) -> None:
    commit(repo, gone__py="a\n")
    id = commit(repo, gone__py=None, raw__py=b"a\0b\n", latin__py="é".encode("latin-1"), good__py="x = 1\n")
    loaded = load_commit(repo, id, suffixes=[".py"])
    assert [s.path for s in loaded.stretches] == ["good.py"]
    assert loaded.skipped == Counter({"binary": 1, "not utf-8": 1})


def test_a_rename_types_only_what_changed(repo: Path) -> None:
    body = "".join(f"line_{i} = {i}\n" for i in range(30))
    commit(repo, old__py=body)
    git(repo, "mv", "old.py", "new.py")
    id = commit(repo, new__py=body + "added = 1\n")
    (stretch,) = load_commit(repo, id, suffixes=[".py"]).stretches
    assert stretch.target == "added = 1"


def test_not_a_repository_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="not a git repository"):
        commits_of(tmp_path, 3, suffixes=[".py"])


def test_commits_are_selected_by_number_or_range(repo: Path) -> None:
    ids = [commit(repo, m__py=f"a = {i}\n") for i in range(4)]
    assert commits_of(repo, 2, suffixes=[".py"]) == [ids[3], ids[2]]
    assert commits_of(repo, f"{ids[1]}..{ids[3]}", suffixes=[".py"]) == [ids[3], ids[2]]


@pytest.mark.parametrize(
    ("rule", "suggestion", "remaining", "expected"),
    [
        (Rule.LINE, "return x", "return x\nnext", Accepted(8)),
        (Rule.LINE, "return x  ", "return x\nnext", Accepted(8)),
        (Rule.LINE, "return xy", "return x\nnext", None),
        (Rule.LINE, "x)", "x)\n", None),
        (Rule.LINE, "\n    return x\n    junk", "\n    return x\nnext", Accepted(13)),
        (Rule.LINE, "\n    return x", "\n    return y", None),
        (Rule.LINE, "\n    return x", "\n\n    return x", None),
        (Rule.LINE, "\n    return x", " + 1\n    return x", None),
        (Rule.LINE, "return x\n    junk", "return x\nnext", Accepted(8)),
        (Rule.BLOCK, "a = 1\nb = 2\njunk", "a = 1\nb = 2\nc = 3", Accepted(11)),
        (Rule.BLOCK, "a = 1\nb = 2", "a = 1\nb = 2\nc = 3", Accepted(11)),
        (Rule.BLOCK, "x =", "x =\n", Accepted(3)),
        (Rule.BLOCK, "x)", "x)\n", None),
        (Rule.LINE, "ret", "ret\n", Accepted(3)),
        (Rule.PREFIX, "ret", "return x\n", Accepted(3)),
        (Rule.PREFIX, "re", "return x\n", None),
        (Rule.PREFIX, "return", "return x\n", Accepted(6)),
        (Rule.WORD, "items", "items\n", Accepted(5, keys=1)),
        (Rule.PREFIX, "return y", "return x\n", None),
        (Rule.WORD, "return foo(y)", "return foo(x)", Accepted(11, keys=3)),
        (Rule.WORD, "return_", "return_value", None),
        (Rule.WORD, "return item", "return items", Accepted(6, keys=1)),
        (Rule.WORD, "return item", "return item.name", Accepted(11, keys=2)),
        (Rule.WORD, "ab", "ab", None),
        (Rule.LONG, "x" * 20, "x" * 20 + "\n", Accepted(20)),
        (Rule.LONG, "x" * 19, "x" * 19 + "\n", None),
    ],
)
def test_accept_rules(rule: Rule, suggestion: str, remaining: str, expected: Accepted | None) -> None:
    assert decide(rule, suggestion, remaining, Random(0)) == expected


@given(
    st.text(alphabet="ab \n(_é", max_size=30), st.text(alphabet="ab \n(_é", max_size=30), st.sampled_from(list(Rule))
)
def test_what_is_accepted_is_what_was_really_written(suggestion: str, remaining: str, rule: Rule) -> None:
    taken = decide(rule, suggestion, remaining, Random(1))
    if taken is not None and not taken.wrong:
        assert 0 < taken.characters <= len(remaining)
        if rule in (Rule.PREFIX, Rule.WORD):
            assert suggestion[: taken.characters] == remaining[: taken.characters]


def test_a_noisy_developer_errs_both_ways() -> None:
    rng = Random(7)
    right = [decide(Rule.NOISY, "return x", "return x", rng, miss=0.5) for _ in range(400)]
    wrong = [decide(Rule.NOISY, "return y", "return x", rng, false_accept=0.5) for _ in range(400)]
    assert 120 < sum(taken is None for taken in right) < 280
    assert 120 < sum(taken is not None and taken.wrong for taken in wrong) < 280
    assert decide(Rule.NOISY, "return y \nmore", "return x", rng, false_accept=1.0) == Accepted(8, wrong=True)
    assert decide(Rule.LINE, "return x", "return x\nmore\n", rng) == Accepted(8)
    usual = [decide(Rule.NOISY, "return x", "return x", rng) for _ in range(400)]
    assert 40 < sum(taken is None for taken in usual) < 120


@pytest.mark.parametrize(("suggestion", "rates"), [("return x", {"miss": 0.0}), ("return y", {"false_accept": 0.0})])
def test_a_rate_of_zero_is_never_whatever_is_drawn(suggestion: str, rates: dict[str, float]) -> None:
    class Lowest(Random):
        def random(self) -> float:
            return 0.0

    taken = decide(Rule.NOISY, suggestion, "return x", Lowest(), **rates)
    assert taken == (Accepted(8) if suggestion == "return x" else None)


def test_gaps_have_the_measured_medians() -> None:
    rng = Random(3)
    assert median(gap_s(rng, after_newline=False) for _ in range(20_000)) == pytest.approx(0.112, rel=0.05)
    assert median(gap_s(rng, after_newline=True) for _ in range(20_000)) == pytest.approx(0.223, rel=0.05)


@given(st.text(alphabet="ab \n\t", min_size=1, max_size=40))
def test_keys_spell_the_text(text: str) -> None:
    rest, keys = text, 0
    while rest:
        key = next_key(rest)
        assert key and rest.startswith(key)
        rest, keys = rest[len(key) :], keys + 1
    assert keys == keys_of(text) <= len(text)


def test_virtual_time_jumps_over_waits_and_stands_still_while_held() -> None:
    async def scenario() -> tuple[float, float, list[int]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        order: list[int] = []

        async def wait(i: int) -> None:
            await asyncio.sleep(i * 1000)
            order.append(i)

        await asyncio.gather(*(wait(i) for i in (3, 1, 2)))
        before = loop.time()
        with loop.held():
            process = await asyncio.create_subprocess_exec("sleep", "0.05")
            await process.wait()
        return before, loop.time(), order

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        before, after, order = runner.run(scenario())
    assert order == [1, 2, 3]
    assert before == after == 3000


def test_merges_are_nobodys_typing_and_huge_and_missing_files_are_counted(repo: Path) -> None:
    first = commit(repo, m__py="a = 1\n")
    git(repo, "checkout", "-qb", "side")
    side = commit(repo, n__py="b = 2\n")
    git(repo, "checkout", "-q", "main")
    trunk = commit(repo, m__py="a = 3\n")
    git(repo, "merge", "-q", "--no-edit", "side")
    last = commit(repo, huge__py="x = 1\n" * 200_000, lost__py="gone = 1\n", kept__py="k = 1\n")
    assert set(commits_of(repo, 9, suffixes=[".py"])) == {first, side, trunk, last}
    blob = git(repo, "rev-parse", f"{last}:lost.py")
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    loaded = load_commit(repo, last, suffixes=[".py"])
    assert [s.path for s in loaded.stretches] == ["kept.py"]
    assert loaded.skipped == Counter({"huge": 1, "missing": 1})


def test_a_commit_that_deletes_the_file_being_typed_types_nothing_of_it(repo: Path) -> None:
    commit(repo, m__py="a = 1\nb = 2\n", other__py="x = 1\n")
    id = commit(repo, m__py=None, other__py="x = 1\ny = 2\n")
    assert [s.path for s in load_commit(repo, id, suffixes=[".py"]).stretches] == ["other.py"]
    emptied = commit(repo, other__py="")
    assert load_commit(repo, emptied, suffixes=[".py"]).stretches == ()


def test_latin_1_names_and_files_without_a_last_line_end_are_typed(repo: Path) -> None:
    (repo / "é ü.py").write_text("a = 1")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "odd name")
    loaded = load_commit(repo, git(repo, "rev-parse", "HEAD"), suffixes=[".py"])
    assert [(s.path, s.target) for s in loaded.stretches] == [("é ü.py", "a = 1")]


def test_slices_name_language_place_length_and_whether_it_parses() -> None:
    unsaid = ["within:code", "parses:unknown"]
    first = ["language:python", "position:line start", "length:up to 25"]
    assert slices_of("return value", "python", "    ") == first + unsaid
    assert slices_of("x" * 51 + "\nmore", "", "foo(")[1:3] == ["position:after a separator", "length:over 50"]
    assert slices_of("lue", "go", "va")[1] == "position:in a word"
    assert slices_of("lue", "go", "va", "string", False)[3:] == ["within:string", "parses:no"]
