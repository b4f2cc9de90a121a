import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.templates import encode_prompt
from foretype_context.text.document import Document
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_lab.quality import behaviour, held_out_cuts, layouts
from foretype_lab.training import data, fim
from foretype_lab.training.tokenizer import SPECIAL_IDS
from foretype_models import artifacts

MIDDLE, END = SPECIAL_IDS["<|fim_middle|>"], SPECIAL_IDS["<|end_of_middle|>"]


@pytest.fixture
def store(tmp_path: Path) -> data.Store:
    documents = [
        {
            "repo": repo,
            "path": f"{repo}/m{n}.py",
            "text": "".join(f"def f_{k}(value):\n    return value + {k}{n}\n\n" for k in range(40)),
        }
        for repo in ("a", "b")
        for n in range(3)
    ]
    data.build_store(documents, tmp_path / "store")
    return data.Store(tmp_path / "store")


@pytest.fixture
def case(store: data.Store) -> held_out_cuts.HeldOutCut:
    return held_out_cuts.draw_cases(store, 1)[0]


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_every_layout_tells_the_same_file_and_never_the_answer(
    case: held_out_cuts.HeldOutCut, encoding: tiktoken.Encoding, layout: str
) -> None:
    ids = held_out_cuts.prompt(case, layout, encoding.encode_ordinary, 4000)
    text = encoding.decode(ids)
    behind = encoding.decode(ids[ids.index(MIDDLE) + 1 :])
    before, suffix = text.split("<|fim_suffix|>")
    assert before.startswith(f"<|file_sep|>{case.path}\n<|fim_prefix|>")
    above = before.split("<|fim_prefix|>")[1]
    assert case.text.startswith(above + behind)
    assert len(above + behind) == case.hole.start
    assert case.answer + suffix.split("<|fim_middle|>")[0] not in text
    assert (behind == "") == (layout == "psm_classic") or case.text[case.hole.start - 1] == "\n"
    if layout == "spm":
        assert (above, behind) == ("", case.text[: case.hole.start])
        return
    assert behind.count("\n") <= 20 and (behind.count("\n") >= 1) == (
        layout == "psm_growing" and "\n" in case.text[: case.hole.start]
    )


@pytest.mark.parametrize("layout", ["psm_classic", "psm_line_last", "spm"])
@pytest.mark.parametrize("cut", ["", "    ", "    ret", "def f_", "    return value + "])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_prompt_has_the_ids_that_the_assembler_sends(
    encoding: tiktoken.Encoding, layout: str, cut: str, ends: str
) -> None:
    text = ends.join(f"def f_{k}(value):{ends}    return value + {k}{ends}" for k in range(12))
    start = text.index(ends + cut, len(text) // 2) + len(ends + cut)
    stop = text.index(ends, start)
    case = held_out_cuts.HeldOutCut("line_fill", "r", "pkg/a.py", text, fim.Hole(start, stop, "line"))
    ours = held_out_cuts.prompt(case, layout, encoding.encode_ordinary, 2000)

    tokenizer = load_tokenizer(artifacts.FOLDER / "tokenizer.json")
    profile = Profile(model="m", grammar=fim.GRAMMAR, tokenizer_digest=tokenizer.digest, layout=layout)
    one = Assembler(tokenizer, profile)
    snapshot = Document("file:///a.py", text[:start] + text[stop:], language="python", path="pkg/a.py").snapshot()
    plan, _ = one.plan(PlanState.empty(), snapshot, start, now=0.0)
    sent = encode_prompt(tokenizer, one.grammar, [placed.segment for placed in plan.segments]).ids
    assert encoding.decode(ours) == encoding.decode(sent.tolist())
    assert ours == sent.tolist()


def test_a_prompt_keeps_its_budget(
    case: held_out_cuts.HeldOutCut, encoding: tiktoken.Encoding, store: data.Store
) -> None:
    encode = encoding.encode_ordinary
    context = layouts.context_of(case, store, encode, 100)
    assert 32 < len(context) <= 100
    assert case.path not in encoding.decode(context)
    for layout in layouts.LAYOUTS:
        assert len(held_out_cuts.prompt(case, layout, encode, 200)) <= 200
        assert len(held_out_cuts.prompt(case, layout, encode, 300, context)) <= 300


class Told:
    """A model that is right on every second cut, whatever the layout."""

    def __init__(self) -> None:
        self.asked = 0


def test_an_interrupted_measurement_goes_on(
    store: data.Store, encoding: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()

    def exact(model: Told, ids: Any, answer: Any) -> bool:
        model.asked += 1
        assert answer[-1] == END
        return len(ids) % 2 == 0

    monkeypatch.setattr(layouts, "exact", exact)
    out = tmp_path / "out.jsonl"
    measured = ("psm_classic", "psm_line_last", "psm_line_last+context")
    for done in layouts.run({"q8_0": told}, store, encoding.encode_ordinary, 10, out, measured, 256):
        if done == 4:
            break
    with out.open("a") as stream:
        stream.write('{"repo": "a", "half')
    rest = layouts.run({"q8_0": told}, store, encoding.encode_ordinary, 10, out, measured, 256)
    assert list(rest) == [5, 6, 7, 8, 9, 10]
    assert told.asked == 10 * len(measured)
    more = layouts.variants("spm")
    assert list(layouts.run({"q8_0": told}, store, encoding.encode_ordinary, 10, out, more, 256)) == [*range(1, 11)]
    assert told.asked == 10 * len({*measured, *more}), "what was there is not measured again"
    found_lines = layouts.read(out)
    assert len({json.dumps(line) for line in found_lines}) == len(found_lines) == 10
    half = {key: value for key, value in found_lines[0].items() if "spm" not in key}
    found = layouts.summarise([half, *found_lines[1:]], ["q8_0"], "spm")
    assert (found["cuts"], found["repositories"], found["layout"]) == (10, 2, "spm")
    assert (
        found["rates"]["q8_0/spm"]["cuts"] == found["against_classic"]["spm"]["cuts"] == found["context"]["cuts"] == 9
    )
    assert found["against_classic"]["psm_growing"]["cuts"] == 10
    assert set(found["against_classic"]) == {"psm_line_last", "psm_growing", "spm"}
    assert set(found["served_against"]) == {"psm_line_last", "psm_growing"}
    with pytest.raises(ValueError, match=r"no cut was measured in both q8_0/psm_growing\+context and"):
        layouts.summarise(found_lines, ["q8_0"], "psm_growing")


def lines(pairs: dict[str, list[tuple[bool, bool]]]) -> list[dict[str, Any]]:
    return [{"repo": repo, "x/a": one, "x/b": other} for repo, cuts in pairs.items() for one, other in cuts]


def test_the_bound_knows_that_cuts_of_one_repository_are_alike() -> None:
    alike = {f"r{n}": [(n % 2 == 0, n % 2 == 1)] * 50 for n in range(10)}
    found = layouts.compare(lines(alike), "x/a", "x/b")
    assert found["difference"] == 0
    assert found["low_95"] < -0.4, "ten repositories are ten draws, not five hundred"
    same = layouts.compare(lines({"r": [(True, True)] * 9, "s": [(False, False)]}), "x/a", "x/b")
    assert (same["difference"], same["low_95"], same["high_95"]) == (0, 0, 0)
    with pytest.raises(ValueError, match="in one repository only"):
        layouts.compare(lines({"r": [(True, True)] * 9}), "x/a", "x/b")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], False),
        ([1] * 7, False),
        ([1] * 8, True),
        ([9, 1, 2, 1, 2, 1, 2, 1, 2], True),
        ([1, 2, 3] * 3, False),
        ([1, 2, 3] * 4, True),
        (list(range(48)), False),
    ],
)
def test_loops(ids: list[int], expected: bool) -> None:
    assert behaviour.loops(ids) == expected


def test_harm_is_an_error_that_was_not_there() -> None:
    count = behaviour.error_counter()
    assert not behaviour.harms("x = ", "1", "\n", count)
    assert behaviour.harms("x = 1\n", "def (", "\ny = 2\n", count)
    assert not behaviour.harms("x = (", "1)", "\n", count), "an unfinished line is no harm of the suggestion's"


def test_exact_is_what_greedy_decoding_would_write() -> None:
    torch = pytest.importorskip("torch")
    from foretype_lab.training.model import LanguageModel, ModelConfig

    torch.manual_seed(1)
    model = LanguageModel(ModelConfig(width=64, layers=2, heads=2, head_width=32, feed_forward=96, max_position=64))
    prompt, written = [5, 6, 7, 8], list[int]()
    for _ in range(4):
        with torch.no_grad():
            written.append(int(model(torch.tensor([[*prompt, *written]]))[0, -1].argmax()))
    assert layouts.exact(model, prompt, written)
    for place in range(4):
        other = [token + (at == place) for at, token in enumerate(written)]
        assert not layouts.exact(model, prompt, other)


def test_a_layout_that_cases_do_not_know_is_refused(case: held_out_cuts.HeldOutCut) -> None:
    with pytest.raises(ValueError, match="no cases in layout copilot; there are psm_line_last, "):
        held_out_cuts.prompt(case, "copilot", lambda _: [], 64)
