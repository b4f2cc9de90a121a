"""Questions whose right answers are known, and what guesses from the prompt are worth on them."""

from __future__ import annotations

import random

from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_lab.engine_bench.edit_prompts import EditCase, edit_cases, guessed_steps
from foretype_models.artifacts import locate

TEXT = "def area(width, height):\n    print(width)\n    return width * height\n" * 9


def test_the_right_answer_is_the_window_with_all_that_was_renamed_once() -> None:
    tokenizer = load_tokenizer(locate().tokenizer_path)
    (case,) = edit_cases([TEXT], tokenizer, random.Random(0))
    prompt, answer = (tokenizer.decode(ids).decode() for ids in case)
    (new,) = {word for word in answer.replace("(", " ").replace(")", " ").split() if word.startswith("new_")} or {""}
    assert new and answer.replace(new, new.removeprefix("new_")) in TEXT
    current = prompt.rpartition("current/a.py\n")[2].rpartition("updated/")[0]
    assert current.count(new) == 1 and answer.count(new) > 1
    assert list(edit_cases(["x = 1\n"], tokenizer, random.Random(0))) == []


def test_guesses_are_what_followed_the_longest_same_tokens_first() -> None:
    def steps(prompt: list[int], answer: list[int], tokens: int = 4) -> int:
        return guessed_steps(EditCase(prompt, answer), tokens=tokens, lookup_min=2, lookup_max=3)

    assert steps([7, 8, 9], [1, 2, 3]) == 3  # nothing to guess from
    assert steps([1, 2, 3, 4, 5, 6, 1, 2], [3, 4, 5, 6, 9]) == 1  # four guessed, and what the model itself says
    assert steps([1, 2, 3, 4, 5, 6, 1, 2], [3, 9, 5, 6]) == 3  # one of four
    assert steps([1, 2, 3, 0, 9, 1, 2, 4, 0, 9, 1, 2], [4, 0, 5]) == 1, "three tokens say more than two"
    assert steps([1, 2, 3, 4, 5, 6, 1, 2], [3, 4, 5, 6, 9], tokens=1) == 3
