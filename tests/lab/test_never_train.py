from pathlib import Path

import pytest
from foretype_lab.corpus import duplicates, sources
from foretype_lab.corpus.never_train import ContentCheck, NeverTrain

FOLDER = Path(__file__).parents[2] / "lab" / "corpus"
NEVER = NeverTrain.load(FOLDER / "never_train.toml")
COPIES = {
    "vendored": "pip/_vendor/requests/api.py a/vendor/x.py a/third_party/x.py a/extern/x.py a/externals/x.py a/Vendored/x.py",
    "never_train_path": "typer/_click/core.py textual/rich/console.py attr/_make.py bench/human_eval.py",
    None: "a/vendors.py a/requests.py pkg/core.py",
}
LISTED = """
click Click pluggy anyio httpcore httpx requests starlette websockets pygls llm jedi-language-server
jedi_language_server pydantic.ai rich trio flask attrs structlog tqdm vscode vscode-copilot-chat ky
llama.vscode twinny cody cobra llm-d anyhow lsp-ai tabby smg gson llm-d/llm-d-router psf/requests
llm-d-kv-cache
"""


@pytest.mark.parametrize("name", LISTED.split())
def test_every_project_of_the_list_is_refused(name: str) -> None:
    assert NEVER.refuses_project(name)


@pytest.mark.parametrize("name", ["clickhouse-driver", "requests-oauthlib", "richter", "django", "llmlite"])
def test_other_projects_are_not(name: str) -> None:
    assert not NEVER.refuses_project(name)


@pytest.mark.parametrize(
    ("path", "reason"), [(path, reason) for reason, paths in COPIES.items() for path in paths.split()]
)
def test_paths_of_copies_are_refused(path: str, reason: str | None) -> None:
    assert NEVER.refuses_path(path) == reason


def test_the_source_list_names_nothing_that_must_not_be_trained_on() -> None:
    plan = sources.Plan.load(FOLDER / "sources.toml")
    assert len(plan.projects) >= 200
    assert [name for name in plan.projects if NEVER.refuses_project(name)] == []
    projects = {sources.normalise(name) for name in plan.projects}
    others = sources.listed(plan) | {commit.name for commit in plan.commits}
    assert plan.validation <= projects | others
    assert len(plan.validation) >= 20
    assert not any(NEVER.refuses_project(item.name) for item in plan.commits)
    assert all(NEVER.refuses_project(item.name) for item in plan.never_train)


SECRET = "\n".join(
    f"def evaluate_{n}(value, other):\n    total = value * {n} + other\n    return total // {n + 1}\n"
    for n in range(12)
)


def match(check: ContentCheck, text: str) -> str | None:
    tokens = duplicates.lexical_tokens(text)
    return check.matches(tokens, duplicates.signature(tokens))


def unrelated(count: int) -> str:
    return "\n".join(f"class Thing{n}:\n    name_{n} = '{n * n}'\n    size_{n}: int = {n}\n" for n in range(count))


def test_a_copied_run_is_found_inside_an_otherwise_different_file() -> None:
    check = ContentCheck.build([("secret", SECRET, "python")])
    inside = unrelated(200) + "\n".join(SECRET.splitlines()[4:14]) + unrelated(50)
    assert match(check, inside) == "never_train_run"


def test_new_blanks_and_comments_do_not_hide_a_copy() -> None:
    check = ContentCheck.build([("secret", SECRET, "python")])
    disguised = "\n".join(f"    {line}   # note {n}" for n, line in enumerate(SECRET.splitlines()))
    assert match(check, disguised) == "never_train_run"


def test_a_short_copy_is_found_by_similarity() -> None:
    short = "def has_close(numbers, limit):\n    return any(abs(a - b) < limit for a in numbers for b in numbers)\n"
    assert len(duplicates.lexical_tokens(short)) < duplicates.RUN_TOKENS
    check = ContentCheck.build([("short", short, "python")])
    assert match(check, short) == "never_train_similar"


def test_fewer_than_fifty_shared_tokens_and_other_text_pass() -> None:
    check = ContentCheck.build([("secret", SECRET, "python")])
    assert match(check, unrelated(200)) is None
    assert match(check, unrelated(200) + "\n".join(SECRET.splitlines()[:5])) is None


def test_an_equal_licence_header_is_no_match() -> None:
    header = "".join(f"# word{n} of a licence that every file of the world carries at its top\n" for n in range(20))
    check = ContentCheck.build([("secret", header + SECRET, "python")])
    assert match(check, header + unrelated(60)) is None


def test_an_empty_check_matches_nothing() -> None:
    assert match(ContentCheck.build([]), SECRET) is None
