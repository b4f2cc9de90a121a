"""States that are kept while a text is edited are those of a text that is read from its beginning."""

import random

import pytest
from foretype_context.syntax.document import Document, Edit
from foretype_context.syntax.reading import Reading, start_state

PIECES = {
    "a.py": ['x = f"a{b(', ")\n", '"""', "\n", "y = [1,\n", "# (\n", "]", "'", "def f():\n    pass\n" * 20],
    "a.js": ["`a${", "}`", "\n", "/* ", "*/", "f(/[/)]/, {\n", "})", "// '\n", "const a = 1;\n" * 40],
    "a.sh": ["case $x in\n", "a) b ;;\n", "esac\n", "cat <<EOF\n$(a\n", "EOF\n", '"${x#', '}"', "echo $#\n" * 60],
}


@pytest.mark.parametrize("path", PIECES)
@pytest.mark.parametrize("seed", range(12))
def test_a_kept_state_is_that_of_a_fresh_reading(path: str, seed: int) -> None:
    rng = random.Random(seed)
    document = Document("u", "".join(rng.choices(PIECES[path], k=120)), path=path)
    for version in range(25):
        start = rng.randrange(len(document.text))
        end = min(len(document.text), start + rng.choice((0, 0, 1, 30, 1500)))
        document.apply([Edit(start, end, "".join(rng.choices(PIECES[path], k=rng.randrange(3))))], version)
        snapshot = document.snapshot()
        for _ in range(rng.randrange(3)):
            line = rng.randrange(snapshot.line_count)
            fresh = Reading(snapshot.language, start_state(snapshot.language))
            fresh.read(snapshot.text, 0, snapshot.line_start(line))
            assert snapshot.lexical_at(line) == fresh.state


def test_a_place_far_below_in_a_large_file_is_not_read_up_to() -> None:
    text = "def step():\n    return (1, '(')\n" * 10_000
    document = Document("u", "'''\n" + text, path="a.py")
    snapshot = document.snapshot()
    # The quotes at its beginning, which swallow the whole file, are too far away to be known of.
    assert snapshot.lexical_at(snapshot.line_count - 1).stack == ()
    assert snapshot.lexical_at(5).stack


def test_a_version_that_was_left_behind_keeps_what_it_was_asked() -> None:
    document = Document("u", "def step():\n    return (1, '(')\n" * 1_000, path="a.py")
    left = document.snapshot()
    asked = left.lexical_at(900)
    document.apply([Edit(0, 0, "'''\n")], 1)
    assert left.lexical_at(900) is asked
    # What it was not asked it reads by itself, and not from its beginning each time.
    assert left.lexical_at(901) is left.lexical_at(901)
    assert left.lexical_at(901).stack == () != document.snapshot().lexical_at(901).stack
