"""What a user takes decides, by language and on this machine, from when on the local candidate is shown."""

import asyncio
import json
from pathlib import Path

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk
from foretype_client.adaptive.candidates import CopyLine
from foretype_client.adaptive.habits import Habit, Habits
from foretype_client.adaptive.habits_file import HABITS_NAME, kept_in, load
from foretype_client.adaptive.threshold import SHOW_RULE
from foretype_client.client import ClientOptions, open_client
from foretype_client.commands.privacy import app
from foretype_client.feedback.events import (
    Accepted,
    AcceptKind,
    DisplaySource,
    Ended,
    EndReason,
    PartiallyAccepted,
    Taken,
)
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import PolicyOptions
from foretype_context.syntax.document import Document
from typer.testing import CliRunner

SEEN = "first = compute(one)\nsecond = compute(two)\nc|"


def taken(id: str, how: Taken = Taken.REPORTED) -> Accepted:
    return Accepted(
        id=id, session=id, served_from="local", at_s=0, visible_ms=200, characters=10, lines=1,
        display_source=DisplaySource.EDITOR, how=how, added_characters=10, added_lines=1,
    )  # fmt: skip


def gone(id: str, visible_ms: float = 900, reason: EndReason = EndReason.DIVERGED) -> Ended:
    return Ended(
        id=id, session=id, served_from="local", at_s=0, visible_ms=visible_ms, characters=10, lines=1,
        display_source=DisplaySource.EDITOR, reason=reason, rejected=True, typed_characters=0,
    )  # fmt: skip


def part(id: str, characters: int) -> PartiallyAccepted:
    return PartiallyAccepted(
        id=id, session=id, served_from="local", at_s=0, kind=AcceptKind.WORD, added_characters=characters, added_lines=1,
        accepted_characters=characters, characters=10, inferred=False,
    )  # fmt: skip


def seen(looks: int, takes: int, chance: float = 0.5, language: str = "python") -> Habits:
    habits = Habits()
    for n in range(looks):
        habits.showed(str(n), language, chance)
        habits.told(taken(str(n)) if n * takes // looks != (n + 1) * takes // looks else gone(str(n)))
    return habits


def test_who_takes_what_the_chances_say_has_the_rule_for_all() -> None:
    assert Habits().rule("python") is SHOW_RULE
    assert seen(200, 100).rule("python") is SHOW_RULE
    assert seen(8, 8).rule("python") is SHOW_RULE, "eight are too few to know anybody by"
    assert seen(200, 50).rule("python") is SHOW_RULE, "who takes half as much would lose the half that he takes"
    assert seen(300, 15).rule("python") is SHOW_RULE, "so would who takes a tenth"


def test_who_takes_more_is_shown_more_in_that_language_alone() -> None:
    habits = seen(200, 180)
    rule = habits.rule("python")
    text, chance = "value = compute(two)", 0.2
    assert rule.allows(text, chance, 0.99) and not SHOW_RULE.allows(text, chance, 0.99)
    assert habits.of["python"].scale() <= 2
    assert habits.rule("go") is SHOW_RULE


def test_who_takes_nothing_is_shown_less_and_is_believed_again_when_that_changes() -> None:
    habits = seen(60, 0)
    text, chance = "value = compute(two)", 0.4
    assert SHOW_RULE.allows(text, chance, 0.99) and not habits.rule("python").allows(text, chance, 0.99)
    for n in range(20):
        habits.showed(f"later{n}", "python", 0.6)
        habits.told(taken(f"later{n}"))
    assert habits.rule("python") is SHOW_RULE


def test_what_nobody_looked_at_counts_for_nothing() -> None:
    habits = Habits()
    for id, event in {
        "quick": gone("quick", visible_ms=120),
        "ours": gone("ours", reason=EndReason.REPLACED),
        "closed": gone("closed", reason=EndReason.CLOSED),
        "typed": taken("typed", Taken.TYPED),
    }.items():
        habits.showed(id, "python", 0.5)
        habits.told(event)
    habits.told(gone("never shown"))
    assert habits.of == {} and habits.take() == []


def test_a_part_counts_as_its_share() -> None:
    habits = Habits()
    habits.showed("a", "python", 0.5)
    habits.told(part("a", 4))
    habits.told(gone("a", visible_ms=100))
    assert (habits.of["python"].looks, habits.of["python"].taken) == (1, 0.4)


@pytest.mark.virtual_time
async def test_a_flow_tells_what_became_of_its_local_candidates() -> None:
    habits = Habits()
    gateway = ScriptedGateway(Script([(9.0, "x")]))
    async with Desk(gateway, SEEN, local=CopyLine(), habits=habits, planner_for=lambda _: None) as desk:
        desk.type("ompute")
        desk.document.language = "python"
        desk.edit(0, 0, "")
        desk.cursor = len(desk.document.text)
        desk.edit(desk.cursor - 7, desk.cursor, "first")
        shown = await desk.ask()
        assert shown is not None and shown.source == "local"
        desk.accept(shown)
    (look,) = habits.take()
    assert (look.language, look.share) == ("python", 1.0) and look.chance == pytest.approx(0.3)


async def test_sessions_add_up_and_what_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "state" / HABITS_NAME
    async with kept_in(path) as first, kept_in(path) as second:
        for habits, id in ((first, "a"), (second, "b"), (second, "c")):
            habits.showed(id, "python", 0.5)
            habits.told(taken(id))
    assert load(path)["python"].looks == pytest.approx(3, rel=0.01)
    assert set(json.loads(path.read_text())["languages"]["python"]) == {"looks", "promised", "taken"}
    assert path.stat().st_mode & 0o077 == 0
    async with kept_in(path) as habits:
        assert habits.of["python"].taken == pytest.approx(3, rel=0.01)
        done = CliRunner().invoke(app, ["delete", "--user", "me", "--json", "--state-dir", str(path.parent)])
        assert done.exit_code == 0 and json.loads(done.stdout)["habits"] == 1
        habits.showed("d", "python", 0.5)
        habits.told(taken("d"))
    assert load(path)["python"].looks == 1


async def test_a_file_that_cannot_be_read_is_learned_anew_and_one_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / HABITS_NAME
    path.write_text('{"languages": {"python": 7}}')
    async with kept_in(path) as habits:
        assert habits.of == {}
    assert "learned anew" in caplog.text
    (tmp_path / "file").write_text("")
    async with kept_in(tmp_path / "file" / HABITS_NAME) as habits:
        habits.showed("a", "python", 0.5)
        habits.told(taken("a"))
    assert "not remembered" in caplog.text


def test_privacy_shows_the_file(tmp_path: Path) -> None:
    def places() -> set[str]:
        done = CliRunner().invoke(app, ["show", "--json", "--state-dir", str(tmp_path)])
        return {place["what"] for place in json.loads(done.stdout)["places"]}

    assert "habits" not in places()
    (tmp_path / HABITS_NAME).write_text('{"languages": {}}')
    assert "habits" in places()


@pytest.mark.parametrize("switched_on", [True, False])
async def test_a_client_remembers_only_where_it_is_switched_on(tmp_path: Path, switched_on: bool) -> None:
    checks = "".join(
        f"def check_{n}(runner):\n    result = runner.invoke(command_{n}, ['--help'])\n    assert result.exit_code == 0\n\n\n"
        for n in range(4)
    )
    begun = "def check_new(runner):\n    result = runner.invoke(command_new, ['--help'])\n    assert re"
    options = ClientOptions(
        gateway="ws://127.0.0.1:9/v1/stream",
        state_dir=tmp_path,
        cache_dir=tmp_path,
        learn=True,
        policy=PolicyOptions(switches=Switches(learn_showing=switched_on)),
    )
    async with open_client(options) as client:
        document = Document("file:///a.py", checks + begun, path="a.py", version=1)
        with client.edit(document) as it:
            offset = len(document.text)
            async with asyncio.timeout(60):
                while (shown := await it.suggest(offset)) is None:  # noqa: ASYNC110 - the search goes on with each call
                    await asyncio.sleep(0.01)
            it.accept(shown, offset)
    assert (tmp_path / HABITS_NAME).exists() is switched_on
    assert (load(tmp_path / HABITS_NAME).get("python", Habit()).looks == 1) is switched_on
