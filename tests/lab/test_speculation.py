"""What the table of speculation computes from runs, and what its command refuses."""

from pathlib import Path

import pytest
import typer
from foretype_lab.corpus.store import build_store
from foretype_lab.speculation.bench import Run, SpeculationOptions, added, prompts_of, row
from foretype_lab.speculation.command import speculation
from foretype_models.artifacts import FOLDER

PLAIN = Run([(1, 2, 3, 4), (5, 6, 7, 8)], 4.0, 8, 0, 0)
GUESSED = Run([(1, 2, 3, 4), (5, 6, 7, 9)], 2.4, 4, 8, 4)


def test_a_method_is_compared_with_the_same_requests_without_it():
    told = row("ngram", 1, "go", PLAIN, GUESSED)
    assert told.tokens_per_s == pytest.approx(8 / 2.4) and told.gain == pytest.approx(4 / 2.4)
    assert (told.accepted_share, told.tokens_per_step, told.equal, told.requests) == (0.5, 2.0, 1, 2)
    assert told.step_ratio == pytest.approx(0.6 / 0.5)


def test_at_the_share_that_breaks_even_a_token_takes_as_long_as_without_guesses():
    told = row("ngram", 1, "go", PLAIN, GUESSED)
    accepted = told.breaks_even * GUESSED.made
    assert (GUESSED.steps + accepted) / GUESSED.seconds == pytest.approx(PLAIN.tokens / PLAIN.seconds)


def test_where_nothing_was_guessed_no_share_is_told():
    told = row("ngram", 1, "go", PLAIN, GUESSED._replace(made=0, accepted=0))
    assert (told.accepted_share, told.breaks_even) == (0.0, 0.0)


def test_all_languages_together_are_their_sum():
    both = added([GUESSED, GUESSED])
    assert both == Run(GUESSED.answers * 2, 4.8, 8, 16, 8)


def test_too_few_places_and_an_unknown_method_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    build_store(iter([{"repo": "a/b", "path": "a.py", "text": "x = 1\n"}]), tmp_path / "store")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/tokenizer.json").write_bytes((FOLDER / "tokenizer.json").read_bytes())
    options = SpeculationOptions(
        model=tmp_path / "model",
        store=tmp_path / "store",
        languages=("go",),
        methods=("ngram",),
        at_once=(1,),
        samples=2,
        guesses=4,
    )
    with pytest.raises(ValueError, match="the store has 0 places in go; 2 are needed"):
        prompts_of(options)
    with pytest.raises(typer.Exit):
        speculation(tmp_path, tmp_path, methods="magic")
    assert "there is no method magic; there are ngram, suffix, draft_model" in capsys.readouterr().err
    with pytest.raises(typer.Exit):
        speculation(tmp_path, tmp_path, methods="draft_model")
    assert "--draft-layers: the method draft_model needs a number" in capsys.readouterr().err
