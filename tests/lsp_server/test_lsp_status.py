import pytest
from foretype_lsp.status import Counts, State, StatusMachine


@pytest.fixture
def machine():
    return StatusMachine("1")


def test_it_starts_and_becomes_ready_with_the_model_named(machine):
    assert machine.connecting("ws://127.0.0.1:1/v1/stream").state is State.STARTING
    ready = machine.connected("foretype-30m")
    assert (ready.state, ready.model, ready.detail) == (State.READY, "foretype-30m", "")


def test_a_lost_gateway_says_why_and_coming_back_is_ready(machine):
    machine.connected("m")
    lost = machine.lost("connection refused; start it with foretype serve")
    assert lost.state is State.DEGRADED
    assert "foretype serve" in lost.detail
    assert machine.connected("m").state is State.READY


def test_off_wins_and_coming_back_on_shows_what_happened_meanwhile(machine):
    machine.connected("m")
    assert machine.switched(False).state is State.OFF
    assert machine.lost("gone").state is State.OFF
    assert machine.switched(True).state is State.DEGRADED


def test_the_same_event_again_is_no_change(machine):
    assert machine.connected("m") is not None
    assert machine.connected("m") is None
    assert machine.switched(True) is None


def test_figures_alone_are_no_change_but_are_in_the_next_one(machine):
    machine.connected("m")
    assert machine.counted(Counts(requests=3)).counts.requests == 3
    assert machine.connected("m") is None
    assert machine.lost("gone").counts.requests == 3


def test_problems_with_options_are_shown():
    assert StatusMachine("1").configured(("option x: unknown",)).problems == ("option x: unknown",)


def test_a_document_without_suggestions_is_told_once_and_forgotten_with_the_next(machine):
    machine.connected("m")
    told = machine.asked("none in large.py: larger than 5,000,000 bytes")
    assert (told.state, told.detail) == (State.READY, "none in large.py: larger than 5,000,000 bytes")
    assert machine.asked("none in large.py: larger than 5,000,000 bytes") is None
    assert machine.asked("").detail == ""
    assert machine.asked("") is None
