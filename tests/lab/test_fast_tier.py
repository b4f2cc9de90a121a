"""What the parts of `bench engine` compute from what they saw, and what the command refuses."""

from pathlib import Path

import pytest
import typer
from foretype_lab.corpus.store import build_store
from foretype_lab.fast_tier.asking import IDS, ClaimOptions
from foretype_lab.fast_tier.authors import Sent, shares
from foretype_lab.fast_tier.cancel import verdict
from foretype_lab.fast_tier.command import engine
from foretype_lab.fast_tier.exact import Written, compared, first_line, places_of
from foretype_lab.fast_tier.isolation import apart
from foretype_lab.fast_tier.tiers import models, summary
from foretype_models.artifacts import FOLDER

REFERENCE = [Written((1, 2, 3), (5.0, 4.0, 0.1)), Written((4, 5), (1.0, 2.0)), Written((7, 8), (3.0, 0.2))]


def test_where_answers_part_the_reference_says_how_near_the_second_best_was() -> None:
    other = [Written((1, 2, 9)), Written((4, 5)), Written((7, 8))]
    assert compared(other, REFERENCE, REFERENCE) == {
        "equal": 2,
        "parted_p50": 2,
        "ahead_p50": 0.1,
        "ahead_most": 0.1,
    }


def test_an_answer_that_ends_sooner_parts_at_its_end() -> None:
    told = compared([Written((1,)), *REFERENCE[1:]], REFERENCE, REFERENCE)
    assert (told["equal"], told["parted_p50"], told["ahead_p50"]) == (2, 1, 4.0)


def test_of_two_that_the_reference_had_left_before_nothing_is_known() -> None:
    told = compared([Written((9, 1))] * 3, [Written((9, 2))] * 3, REFERENCE)
    assert (told["equal"], told["parted_p50"], told["ahead_p50"]) == (0, 1, None)


def test_a_line_is_what_stands_before_the_first_line_break() -> None:
    assert first_line("return x  \n    y", "") == "return x" and first_line("", "") == ""
    assert first_line(" return x", " ") == "return x"  # the prompt left a space out


def test_waits_are_held_against_a_step_of_the_median() -> None:
    assert verdict([10.0, 64.9], [60.0, 60.0, 200.0])["met"]
    assert not verdict([10.0, 65.1], [60.0, 60.0, 200.0])["met"]


def test_a_leak_is_told_and_none_is_not() -> None:
    nobodys = [100.0 + at % 7 for at in range(200)]
    even = apart([value + (1 if at % 2 else -1) for at, value in enumerate(nobodys)], nobodys)
    assert even["guesses"][0] < 0.5 < even["guesses"][1] and even["p"] > 0.05
    leak = apart([value - 5 - at % 3 for at, value in enumerate(nobodys)], nobodys)
    assert leak["faster"] == 1.0 and leak["p"] < 1e-3 and leak["difference_ms"]["high"] < -5


def test_too_few_places_and_an_unknown_part_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_store(iter([{"repo": "a/b", "path": "a.py", "text": "x = 1\n"}]), tmp_path / "store")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/tokenizer.json").write_bytes((FOLDER / "tokenizer.json").read_bytes())
    options = ClaimOptions(
        model=tmp_path / "model",
        gguf=tmp_path / "model.gguf",
        store=tmp_path / "store",
        samples=4,
        batched_tokens=(64,),
        blocks=(32,),
        repositories=(),
        redis_url="",
        python=Path("python"),
    )
    with pytest.raises(ValueError, match=r"the store has 0 places in python, .*; 16 are needed"):
        places_of(options)
    with pytest.raises(typer.Exit):
        engine(tmp_path, tmp_path, parts="magic")
    assert "there is no part magic; there are exact, isolation" in capsys.readouterr().err


def test_what_a_tier_takes_beside_computing_is_what_stands_above_the_devices_time() -> None:
    times = {"computed": [2148.0], "device": [100.0], "host": [90.0, 110.0, 110.24]}
    told = summary(times, {}, {}, bytes_per_token=1000)
    assert told["prefill_tokens_per_s"] == 500.0
    assert told["bytes_per_s"] == {"host": 1000 * 1024 * 1000 // 10}
    assert summary(times | {"host": [99.0]}, {}, {}, bytes_per_token=1000)["bytes_per_s"] == {}


def test_authors_find_their_stable_part_on_the_host_where_the_device_is_too_small() -> None:
    sent = [Sent(author, "r", "d", [author] * 64, 32) for _ in range(2) for author in range(3)]
    small = shares(sent, 32, 128, salt_of="repository")
    assert (small["host"], small["device"], small["computed"]) == (round(96 / 384, 4), 0.0, round(288 / 384, 4))
    assert shares(sent, 32, 1024, salt_of="repository")["device"] == round(
        189 / 384, 4
    )  # one of each is computed again


def test_a_salt_of_each_author_parts_what_they_share() -> None:
    sent = [Sent(author, "r", "d", [7] * 33, 32) for author in range(2)]
    shared, apart_ = (shares(sent, 32, 1024, salt_of=salt)["device"] for salt in ("repository", "author"))
    assert (shared, apart_) == (round(32 / 66, 4), 0.0)
    edited = [*sent[:1], sent[0]._replace(ids=[8] * 33)]
    assert shares(edited, 32, 1024, salt_of="repository")["retired_blocks"] == 1


def test_a_larger_model_computes_slower_than_its_keys_grow() -> None:
    shipped, middle, large = models({"prefill_tokens_per_s": 500.0, "bytes_per_s": {"host": 1_000_000_000}})
    assert shipped["compute_s"] == 2.0 and shipped["load_s"]["host"] == pytest.approx(0.023, abs=1e-3)
    assert shipped["breaks_even_bytes_per_s"] > middle["breaks_even_bytes_per_s"] > large["breaks_even_bytes_per_s"]


def test_prompts_that_are_drawn_hold_no_control() -> None:
    assert min(IDS) >= 1000
