"""Arguments under new parameters, over all small signatures: whatever comes out binds every value to the parameter it had."""

from context.typing_editor import parsed
from foretype_context.edits.arguments import NOT_KNOWN, fits, pairs_of, rewritten
from foretype_context.edits.parameters import Argument, Parameter, ParameterKind, arguments_of, parameters_in
from hypothesis import given
from hypothesis import strategies as st


def parameters(text: str) -> tuple[Parameter, ...]:
    found = parameters_in(text, 0, "python")
    assert found is not None
    return found


def arguments(text: str) -> list[Argument]:
    tree, source = parsed(f"f{text}\n", "python")
    call = tree.root_node.children[0].children[0].child_by_field_name("arguments")
    found = call and arguments_of(call, source)
    assert found is not None
    return found


_NAMES = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)


@st.composite
def _signature(draw: st.DrawFn) -> str:
    names = draw(_NAMES)
    defaults = draw(st.integers(0, len(names)))
    words = [name if index < len(names) - defaults else f"{name}=0" for index, name in enumerate(names)]
    if words and draw(st.booleans()):
        words.insert(draw(st.integers(0, len(words) - 1)), "*")
    return f"({', '.join(words)})"


@given(_signature(), _signature(), st.lists(st.integers(1, 9), max_size=4), _NAMES)
def test_a_value_goes_where_it_went(before: str, after: str, values: list[int], keywords: list[str]) -> None:
    said = ", ".join([*map(str, values), *(f"{name}='{name}'" for name in keywords)])
    old, new, given_ = parameters(before), parameters(after), arguments(f"({said})")
    pairs = pairs_of(old, new)
    result = rewritten(old, new, given_, lambda one: f"new_{one.name}", keywords=True)
    if result is None or result is NOT_KNOWN:
        return
    assert pairs is not None and fits(old, given_) and isinstance(result, list)
    text = f"({', '.join(one.text for one in result)})"
    was, became = _called(before, said), _called(after, text.strip("()"))
    for name, value in became.items():
        if name in pairs:
            assert value in (was[pairs[name]], f"new_{name}")  # the latter where it may not be left out any more
            assert value == was[pairs[name]] or was[pairs[name]] == 0
        else:
            assert value in (0, f"new_{name}")


def _called(signature: str, said: str) -> dict[str, object]:
    scope: dict[str, object] = {f"new_{name}": f"new_{name}" for name in "abcd"}
    exec(f"def f{signature}: return dict(locals())", scope)  # noqa: S102
    return eval(f"f({said})", scope)


def test_what_takes_the_rest_may_stand_for_what_went() -> None:
    assert pairs_of(parameters("(a, b)"), parameters("(b, *rest)")) is None
    assert pairs_of(parameters("(a, b)"), parameters("(b, c)")) is None
    assert pairs_of(parameters("(a: int, b)"), parameters("(c: str, b)")) is None
    assert pairs_of(parameters("(a: int, b)"), parameters("(c: int, b)")) == {"b": "b", "c": "a"}
    assert [one.kind for one in parameters("(a, /, b, *, c, **d)")] == [
        ParameterKind.POSITION,
        ParameterKind.EITHER,
        ParameterKind.KEYWORD,
        ParameterKind.KEYWORDS,
    ]


def test_lists_that_are_not_closed_or_hold_comments_are_not_read() -> None:
    assert parameters_in("(a, b", 0, "python") is None and parameters_in("(a, b)", 0, "ruby") is None
    assert parameters_in("(int, string)", 0, "go") is None and parameters_in("(a, a)", 0, "javascript") is None
    tree, source = parsed("f(1,  # one\n  2)\n", "python")
    call = tree.root_node.children[0].children[0].child_by_field_name("arguments")
    assert call is not None and arguments_of(call, source) is None
