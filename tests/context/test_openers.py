"""Headers of blocks with and without a comment, as the gateway, the client and what is shown of an answer tell them."""

import pytest
from foretype_context.prompt.profile import Opened
from foretype_context.syntax.languages import language_spec

HEADERS = [
    ("python", "def f():"),
    ("python", "def f():  # noqa"),
    ("python", "class A:  # it's one: of two"),
    ("python", 'if x == "a # b":  # c'),
    ("javascript", "function f() { // c"),
    ("javascript", 'if (x == "http://a") {  // c'),
    ("typescript", "class A { /* c */"),
    ("rust", "fn f<'a>(x: &'a str) -> &'a str { // c"),
    ("ruby", "list.each do |one| # c"),
    ("shellscript", "while [ $# -gt 0 ]; do # c"),
    ("lua", "while x do -- c"),
    ("plaintext", "steps:  # all"),
]
OTHERS = [
    ("python", "x = 1  # see: that"),
    ("python", 'x = "color: #fff"'),
    ("python", "x = 'a:  # b'"),
    ("javascript", "f({}) // {}"),
    ("javascript", "f(`{`); // c"),
    ("javascript", "x = { /* c */ a: 1 }"),
    ("shellscript", "echo ${#a[@]}"),
    ("shellscript", "sudo # c"),
    ("shellscript", "sudo"),
]


@pytest.mark.parametrize(
    ("language", "line", "opens"), [(*one, True) for one in HEADERS] + [(*one, False) for one in OTHERS]
)
def test_a_line_opens_a_block_whatever_comment_stands_behind_it(language: str, line: str, opens: bool) -> None:
    spec = language_spec(language)
    opened = Opened(endings=list(spec.opens_block), comments=list(spec.comment_marks), max_lines=9, max_tokens=9)
    assert [opened.by(line), opened.by(line + " \r")] == [opens] * 2
