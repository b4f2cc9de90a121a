from pathlib import PurePosixPath

from foretype_context.folder.path_parts import parts_of, suffix_of
from hypothesis import given
from hypothesis import strategies as st


@given(st.text(alphabet="ab./\\ é", max_size=14))
def test_parts_and_suffix_are_those_of_pathlib(path: str) -> None:
    pure = PurePosixPath(path.replace("\\", "/"))
    assert parts_of(path) == [part for part in pure.parts if part.strip("/")]
    assert (parts_of(path) or [""])[-1] == pure.name
    assert suffix_of(pure.name) == pure.suffix
