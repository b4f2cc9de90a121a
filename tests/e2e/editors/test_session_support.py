"""The judge of the sessions is fair to an editor that is busy, and not to one that drops or adds a key."""

import random

import pytest
from e2e.editors.session_support import Session


class Busy:
    """An editor that takes its keys only when it is waited for. Tab is a tab, or what `tab` says."""

    own_indentation = False

    def __init__(self, text, tab="\t"):
        self._text, self._tab, self._keys = text, tab, []

    def press(self, key):
        self._keys.append(self._tab if key == "Tab" else key)

    def type(self, text):
        self._keys += text

    def caught_up(self):
        self._text += "".join(self._keys)
        self._keys.clear()

    def buffer(self):
        return self._text


class Accepted:
    """What the server gave: one item, which is the line already."""

    encoding = "utf-8"

    def items(self):
        yield {"range": {"start": {"line": 0, "character": 0}}, "insertText": "value = 1"}


class Tabs(random.Random):
    """Every key is a Tab."""

    def random(self):
        return 0.0

    def choice(self, options):
        return options[0]


def play(editor):
    session = Session(editor, Accepted(), Tabs(), left="value = 1")
    session.play(2)
    return session.text


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("e2e.editors.session_support.PATIENCE_S", 0.1)


def test_tabs_that_a_busy_editor_has_not_done_yet_are_not_taken_for_accepted_items():
    assert play(Busy("value = 1")) == "value = 1\t\tx"


@pytest.mark.parametrize("tab", ["", "\t\t", "other"])
def test_a_tab_that_does_something_else_is_found(tab):
    with pytest.raises(AssertionError, match="Tab after"):
        play(Busy("value = 1", tab))
