import random

import pytest
from foretype_lab.quality import draft_worth


@pytest.mark.parametrize(
    ("agrees", "k", "expected"),
    [
        ("", 4, 0.0),
        ("ffff", 4, 1.0),
        ("ttttt", 4, 5.0),
        ("tttttttttt", 4, 5.0),
        ("tftf", 4, 2.0),
        ("ttttfffff", 1, 9 / 7),
    ],
)
def test_tokens_per_step(agrees: str, k: int, expected: float) -> None:
    assert draft_worth.tokens_per_step([one == "t" for one in agrees], k) == pytest.approx(expected)


def simulate(target: list[int], draft: list[int], k: int) -> float:
    """Speculative decoding as it is run: the draft guesses after what is known, the target takes what is right."""
    at = steps = 0
    while at < len(target):
        taken = 0
        while taken < k and at + taken < len(target) and draft[at + taken] == target[at + taken]:
            taken += 1
        at, steps = at + taken + 1, steps + 1
    return len(target) / steps


def test_one_pass_over_the_targets_text_is_enough() -> None:
    draw = random.Random(4)
    for _ in range(200):
        target = [draw.randrange(3) for _ in range(draw.randint(1, 40))]
        draft = [draw.randrange(3) for _ in target]
        agrees = [one == other for one, other in zip(draft, target, strict=True)]
        k = draw.randint(1, 6)
        assert draft_worth.tokens_per_step(agrees, k) == pytest.approx(simulate(target, draft, k))


def test_prompt_lookup_copies_what_stood_there_before() -> None:
    prompt = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    assert draft_worth.lookup_agrees(prompt, [4, 5, 6, 7], 3, 4) == [True] * 4
    assert draft_worth.lookup_agrees(prompt, [9, 9, 8], 3, 4) == [False, False, False]
    assert draft_worth.lookup_agrees([1], [], 3, 4) == []
