from itertools import product

import msgspec
import pytest
from foretype_backend.serving.stops import StopScanner
from foretype_context.prompt.profile import Opened, Stop
from foretype_context.syntax.blocks import indent_columns
from hypothesis import example, given
from hypothesis import strategies as st


def ends(line: str, ending: str) -> bool:
    word = ending.isalpha() and line.removesuffix(ending)[-1:].isalpha()
    return line.endswith(ending) and not word


def oracle(text: str, stop: Stop) -> tuple[str, bool]:
    """The rules by brute force: look at every prefix of the text, ask every rule of the whole prefix."""
    first, newline, _ = text.partition("\n")
    if stop.opened is not None and newline and any(ends(first.rstrip(), one) for one in stop.opened.endings):
        stop = Stop(strings=stop.strings, max_lines=stop.opened.max_lines, min_indent=stop.opened.min_indent)
    for end in range(1, len(text) + 1):
        seen = text[:end]
        cuts = [seen.find(s) for s in stop.strings if s in seen]
        lines = seen.split("\n")
        if stop.max_lines is not None and len(lines) > stop.max_lines:
            kept = "\n".join(lines[: stop.max_lines])
            cuts.append(len(kept) - kept.endswith("\r"))
        if stop.min_indent is not None:
            for index in range(1, len(lines)):
                body = lines[index].lstrip(" \t\r")
                if body and indent_columns(lines[index].replace("\r", "")) < stop.min_indent:
                    kept_lines = lines[:index]
                    while len(kept_lines) > 1 and not kept_lines[-1].strip(" \t\r"):
                        kept_lines.pop()
                    kept = "\n".join(kept_lines)
                    cuts.append(len(kept) - kept.endswith("\r"))
                    break
        if cuts:
            return text[: min(cuts)], True
    return text, False


def scan(chunks: list[str], stop: Stop) -> tuple[str, bool]:
    scanner = StopScanner(stop)
    delivered = "".join(scanner.feed(chunk) for chunk in chunks) + scanner.flush()
    return delivered, scanner.stopped


ALPHABET = st.sampled_from("ab\n \t\r#")
STOPS = st.builds(
    lambda strings, max_lines, min_indent, opened: Stop(
        strings=strings, max_lines=max_lines, min_indent=min_indent, opened=opened
    ),
    st.lists(st.text(ALPHABET, min_size=1, max_size=5), max_size=3),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(0, 9),
    st.none()
    | st.builds(
        Opened,
        endings=st.lists(st.sampled_from(["a", "b#", "#"]), max_size=2),
        max_lines=st.integers(1, 5),
        max_tokens=st.just(9),
        min_indent=st.none() | st.integers(0, 9),
    ),
)


@given(st.lists(st.text(ALPHABET, max_size=8), max_size=12), STOPS)
@example(["aab"], Stop(strings=["ab", "aab"]))
@example(["abc#", "#", "#def"], Stop(strings=["###"]))
@example(["    a = 1\n\n", "\ndef g():"], Stop(min_indent=4))
@example(["x\n    y"], Stop(min_indent=4))
@example(["one\r\ntwo\r\nthree", "four"], Stop(max_lines=2))
@example(["a\r", "\n", "b"], Stop(max_lines=1))
@example(["a", "\n\n", "\n b"], Stop(min_indent=2))
@example(["x\n \ty"], Stop(min_indent=5))
@example(["x\n  \ty"], Stop(min_indent=4))
@example(["a \r", "\n  b\nb"], Stop(max_lines=1, opened=Opened(endings=["a"], max_lines=9, max_tokens=9, min_indent=1)))
def test_scanner_equals_brute_force_whatever_the_chunks(chunks: list[str], stop: Stop) -> None:
    assert scan(chunks, stop) == oracle("".join(chunks), stop)


@given(st.lists(st.text(ALPHABET, max_size=6), max_size=10), STOPS)
@example(["#\r", "\n"], Stop(max_lines=2, opened=Opened(endings=["#"], max_lines=1, max_tokens=9, min_indent=None)))
def test_what_was_delivered_is_never_taken_back(chunks: list[str], stop: Stop) -> None:
    scanner = StopScanner(stop)
    expected, _ = oracle("".join(chunks), stop)
    delivered = ""
    for chunk in chunks:
        delivered += scanner.feed(chunk)
        assert expected.startswith(delivered)


@given(
    st.lists(st.text(ALPHABET, max_size=8), max_size=6),
    STOPS,
    st.sampled_from(["\n", "\n\n", " a", "ab"]),
    st.integers(1, 4),
)
def test_what_a_text_repeats_first_is_delivered_and_counts_for_no_rule(
    chunks: list[str], stop: Stop, repeats: str, size: int
) -> None:
    # Behind it comes what cannot belong to it.
    new = "x" + "".join(chunks)
    whole = repeats + new
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    text, stopped = oracle(new, stop)
    assert scan(pieces, msgspec.structs.replace(stop, repeats=repeats)) == (repeats + text, stopped)


def test_a_text_that_does_not_repeat_what_it_must_is_over_at_once() -> None:
    scanner = StopScanner(Stop(max_lines=1, repeats=" retu"))
    assert [scanner.feed(one) for one in (" re", "sult = 1")] == [" re", "sult = 1"]
    assert scanner.stopped


def test_only_what_could_become_a_stop_is_held_back() -> None:
    scanner = StopScanner(Stop(strings=["</end>"]))
    assert scanner.feed("value </en") == "value "
    assert scanner.feed("try>") == "</entry>"


@pytest.mark.parametrize("stop", [Stop(max_lines=1), Stop(max_lines=2), Stop(min_indent=2), Stop(strings=["END"])])
def test_text_that_can_be_no_stop_is_delivered_at_once(stop: Stop) -> None:
    scanner = StopScanner(stop)
    assert [scanner.feed(chunk) for chunk in ("return", " x", "[0]")] == ["return", " x", "[0]"]


def test_a_carriage_return_waits_only_where_its_line_may_be_the_last() -> None:
    assert [StopScanner(Stop(max_lines=lines)).feed("a\r") for lines in (1, 2)] == ["a", "a\r"]
    assert StopScanner(Stop(min_indent=1)).feed("a\r") == "a"


def test_nothing_is_held_back_without_rules() -> None:
    scanner = StopScanner(Stop())
    assert scanner.feed("a\r\n   ") == "a\r\n   "


def test_cost_is_linear_in_the_text() -> None:
    """Each character is looked at once per string: counted, not timed."""
    scanner = StopScanner(Stop(strings=["aaaaaaab"], min_indent=1))
    looked_at = 0
    original = scanner._advance

    def counting(character: str) -> int | None:
        nonlocal looked_at
        looked_at += 1
        return original(character)

    scanner._advance = counting  # type: ignore[method-assign]
    for _ in range(5000):
        scanner.feed("a")
    assert looked_at == 5000


def test_a_stop_string_that_begins_again_inside_itself_is_found_where_it_is() -> None:
    texts = ["".join(text) for text in product("ab", repeat=9)]
    for pattern in ("aab", "abab", "aabaa", "abaab", "aabaab", "abaabb"):
        stop = Stop(strings=[pattern])
        assert [scan([text], stop) for text in texts] == [oracle(text, stop) for text in texts]
