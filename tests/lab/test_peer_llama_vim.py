"""The re-implementation asks for what the real plugin asked for, and keeps its rules where the recording does not reach."""

import heapq
import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from foretype_lab.peer.llama_vim import Buffer, LlamaVim, LlamaVimOptions, Sent
from lab.llama_vim_script import FILE, KEYS, answer_to

RECORDED = Path(__file__).with_name("llama_vim_requests.json")


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Desk:
    """A clock, a server that answers after 20 ms, and the little of Vim that a script of keys needs."""

    def __init__(self, text: str, answer: Callable[[dict[str, Any]], str | None], **options: int) -> None:
        self.now = 0.0
        self.sent: list[tuple[Sent, dict[str, Any]]] = []
        self._timers: list[tuple[float, int, Timer, Callable[[], None]]] = []
        self._numbers = count()
        self._answer = answer
        self.delay_s = 0.02
        self.lines = text.removesuffix("\n").split("\n")
        self.x, self.y = 0, 1
        self.vim = LlamaVim(
            clock=lambda: self.now,
            later=self.later,
            send=self.send,
            rng=Random(0),
            options=LlamaVimOptions(**options),
        )
        self.vim.start()

    def later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        timer = Timer()
        heapq.heappush(self._timers, (self.now + delay_s, next(self._numbers), timer, call))
        return timer

    def send(self, body: dict[str, Any], kind: Sent, answered: Callable[[str | None], None]) -> None:
        self.sent.append((kind, body))
        self.later(self.delay_s, lambda: answered(self._answer(body)))

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self.now, _, timer, call = heapq.heappop(self._timers)
            if not timer.cancelled:
                call()
        self.now = until

    @property
    def buffer(self) -> Buffer:
        return Buffer("shapes.py", tuple(self.lines), self.x, self.y)

    def press(self, keys: str) -> None:
        line = self.lines[self.y - 1]
        if keys == "7Go":
            self.lines.insert(7, "")
            self.x, self.y = 0, 8
        elif keys == "<C-o>:silent write<CR>":
            self.vim.saved()
            return
        elif keys == "<Left>":
            return  # at the beginning of a line there is nothing left of it
        elif keys == "<CR>":
            self.lines[self.y - 1 : self.y] = [line[: self.x], line[self.x :]]
            self.x, self.y = 0, self.y + 1
        elif keys == "<Tab>":
            hint = self.vim.hint
            assert hint is not None and hint.can_accept
            taken = [hint.before + hint.content[0], *hint.content[1:]]
            self.lines[self.y - 1 : self.y] = taken
            self.y += len(taken) - 1
            self.x = len(taken[-1]) - len(hint.tail)
        else:
            self.lines[self.y - 1] = line[: self.x] + keys + line[self.x :]
            self.x += len(keys)
        self.vim.moved(self.buffer)


def test_the_same_keys_make_the_same_requests_as_the_plugin_in_neovim() -> None:
    recorded: list[dict[str, Any]] = json.loads(RECORDED.read_text())
    assert len(recorded) == 14 and sum(body["n_predict"] == 0 for body in recorded) == 1
    desk = Desk(FILE, answer_to)
    for pause_s, keys in KEYS:
        desk.wait(pause_s)
        desk.press(keys)
    desk.wait(1.5)
    made = [body for _, body in desk.sent]
    for ours, theirs in zip(made, recorded, strict=True):
        # What is asked back, and the model's name, are no part of what is computed.
        assert set(theirs) - set(ours) <= {"model", "response_fields"}
        assert ours == {key: theirs[key] for key in ours}
    kinds = [kind for kind, _ in desk.sent]
    assert kinds.count(Sent.SPECULATIVE) == 4 and kinds.count(Sent.WARM_UP) == 1


def test_what_was_typed_of_a_cached_answer_is_still_shown_and_asked_for_again() -> None:
    desk = Desk("a = 1\n\n", lambda body: "total = a" if body["prompt"] == "" else "")
    desk.x, desk.y = 0, 2
    desk.vim.moved(desk.buffer)
    desk.wait(1)
    assert desk.vim.hint is not None and desk.vim.hint.text == "total = a"
    sent = len(desk.sent)
    desk.press("t")
    assert desk.vim.hint is not None and desk.vim.hint.text == "otal = a"
    desk.wait(1)
    assert [body["prompt"] for _, body in desk.sent[sent:]] == ["t"]


def test_a_running_request_is_not_overtaken_but_followed() -> None:
    desk = Desk("a = 1\n", lambda _: None)
    desk.delay_s = 0.25
    desk.x = 5
    for key in "23":
        desk.press(key)
        desk.wait(0.05)
    assert len(desk.sent) == 1
    desk.wait(1)
    assert [body["prompt"] for _, body in desk.sent] == ["a = 12", "a = 123"]


def test_nothing_is_asked_where_much_stands_right_of_the_caret() -> None:
    desk = Desk("call(argument_one, argument_two)\n", lambda _: "")
    desk.x = 4
    desk.press("x")
    desk.wait(1)
    assert desk.sent == []


def test_the_window_is_256_lines_above_and_64_below() -> None:
    desk = Desk("\n".join(f"line {number}" for number in range(1, 1001)) + "\n", lambda _: "")
    desk.x, desk.y = len("line 500"), 500
    desk.press("!")
    [(_, body)] = desk.sent
    assert body["input_prefix"].startswith("line 244\n") and body["input_prefix"].endswith("line 499\n")
    assert body["input_suffix"].startswith("\nline 501\n") and body["input_suffix"].endswith("line 564\n")


def test_a_survivor_of_scrolling_answers_from_the_cache() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 400)) + "\n"
    desk = Desk(text, lambda _: " and more", ring_n_chunks=0)
    desk.x, desk.y = len("line 300"), 300
    desk.press("!")
    desk.wait(1)
    sent = len(desk.sent)
    del desk.lines[43]  # the window's first line goes: the same text without its head is known
    desk.y -= 1
    desk.vim.moved(desk.buffer)
    assert len(desk.sent) == sent


def test_repeating_what_follows_is_no_suggestion() -> None:
    desk = Desk("\nreturn x\n", lambda body: "return x" if body["prompt"] == "" else "")
    desk.vim.moved(desk.buffer)
    desk.wait(1)
    assert desk.vim.hint is not None and not desk.vim.hint.can_accept


def test_the_cache_keeps_what_was_used_last() -> None:
    desk = Desk("a\n", lambda _: "", max_cache_keys=3, ring_n_chunks=0)

    def stand_on(line: str) -> int:
        desk.lines[0], desk.x = line, len(line)
        desk.vim.moved(desk.buffer)
        desk.wait(1)
        return len(desk.sent)

    assert [stand_on(line) for line in ("one", "two", "six", "one", "ten")] == [1, 2, 3, 3, 4]
    assert stand_on("one") == 4  # used again before the fourth came
    assert stand_on("two") == 5  # the oldest made room


@pytest.mark.parametrize("similar", [True, False])
def test_a_chunk_like_the_text_at_the_caret_leaves_the_ring(similar: bool) -> None:
    other = [f"name_{number} = {number}" for number in range(40)]
    desk = Desk("\n".join(other if similar else [f"word_{n}()" for n in range(40)]) + "\n", lambda _: "")
    desk.vim.entered(Buffer("other.py", tuple(other), 0, 20))
    desk.wait(5)
    assert [kind for kind, _ in desk.sent] == [Sent.WARM_UP]
    desk.y, desk.x = 20, len(desk.lines[19])
    desk.press("x")
    assert bool(desk.sent[-1][1]["input_extra"]) is not similar
