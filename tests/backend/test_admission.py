from foretype_backend.admission.outcomes import Reason
from foretype_backend.admission.scheduler import (
    PRIORITY,
    Arrive,
    Cancel,
    Disconnect,
    Effect,
    Event,
    Leave,
    Limits,
    Refuse,
    Start,
    State,
    Stop,
    Tick,
    Ticket,
    step,
)
from foretype_client.wire import RequestClass
from hypothesis import given
from hypothesis import strategies as st


def ticket(
    key: str,
    *,
    session: str = "s",
    document: str = "",
    class_: RequestClass = RequestClass.BLOCK,
    deadline: float = 100.0,
    predicted_ttft_s: float = 0.0,
) -> Ticket:
    return Ticket(
        key=key,
        session=session,
        document=document,
        class_=class_,
        deadline=deadline,
        predicted_ttft_s=predicted_ttft_s,
    )


ROOMY = Limits()


def play(events: list[Event], *, limits: Limits = ROOMY, now: float = 0.0) -> tuple[State, list[Effect]]:
    state, effects = State(limits=limits), []
    for event in events:
        state, new = step(state, event, now)
        effects += new
    return state, effects


ONE = Limits(max_running=1, max_waiting=2)


def test_a_request_starts_at_once_when_there_is_room() -> None:
    state, effects = play([Arrive(ticket("a"))])
    assert effects == [Start("a")]
    assert repr(state) == "<State: 1 running (0 stopping), 0 waiting>"


def test_step_leaves_the_former_state_as_it_was() -> None:
    before, _ = play([Arrive(ticket("a"))])
    step(before, Arrive(ticket("b")), 0.0)
    assert list(before.running) == ["a"]


def test_supersede_stops_the_named_request_and_no_other() -> None:
    _, effects = play([Arrive(ticket("a")), Arrive(ticket("b")), Arrive(ticket("c"), supersedes="a")])
    assert effects == [Start("a"), Start("b"), Stop("a", Reason.SUPERSEDED), Start("c")]


def test_supersede_cannot_reach_another_session() -> None:
    _, effects = play([Arrive(ticket("a", session="s")), Arrive(ticket("b", session="t"), supersedes="a")])
    assert effects == [Start("a"), Start("b")]


def test_a_third_interactive_request_for_a_document_ends_the_oldest() -> None:
    of = {"document": "d", "class_": RequestClass.INTERACTIVE}
    events: list[Event] = [Arrive(ticket(key, **of)) for key in "abc"]  # type: ignore[arg-type]
    _, effects = play(events)
    assert effects == [Start("a"), Start("b"), Stop("a", Reason.DOCUMENT_LIMIT), Start("c")]


def test_other_documents_and_classes_do_not_count_as_the_same_document() -> None:
    events: list[Event] = [
        Arrive(ticket("a", document="d", class_=RequestClass.INTERACTIVE)),
        Arrive(ticket("b", document="e", class_=RequestClass.INTERACTIVE)),
        Arrive(ticket("c", document="d", class_=RequestClass.SPECULATIVE)),
        Arrive(ticket("e", document="d", class_=RequestClass.INTERACTIVE)),
    ]
    assert play(events)[1] == [Start(key) for key in "abce"]


def test_a_higher_class_waits_less() -> None:
    events: list[Event] = [
        Arrive(ticket("running")),
        Arrive(ticket("warm", class_=RequestClass.WARM)),
        Arrive(ticket("typing", class_=RequestClass.INTERACTIVE)),
        Leave("running"),
    ]
    assert play(events, limits=ONE)[1][-1] == Start("typing")


def test_within_a_session_the_newest_goes_first_and_sessions_take_turns_by_age() -> None:
    limits = Limits(max_running=1, max_waiting=10)
    events: list[Event] = [
        Arrive(ticket("x")),
        Arrive(ticket("old", session="s")),
        Arrive(ticket("other", session="t")),
        Arrive(ticket("new", session="s")),
        Leave("x"),
        Leave("new"),
        Leave("old"),
    ]
    assert [e.key for e in play(events, limits=limits)[1] if isinstance(e, Start)] == ["x", "new", "old", "other"]


def test_a_request_that_cannot_make_its_deadline_is_refused_on_arrival() -> None:
    _, effects = play([Arrive(ticket("late", deadline=1.0, predicted_ttft_s=1.5))])
    assert effects == [Refuse("late", Reason.EXPIRED)]


def test_a_waiting_request_expires() -> None:
    state, _ = play([Arrive(ticket("a")), Arrive(ticket("b", deadline=5.0))], limits=ONE)
    state, effects = step(state, Tick(), 6.0)
    assert effects == [Refuse("b", Reason.EXPIRED)]
    assert state.statistics().waiting == 0


def test_an_expired_request_does_not_take_a_free_slot() -> None:
    events: list[Event] = [Arrive(ticket("a")), Arrive(ticket("c")), Arrive(ticket("b", deadline=5.0))]
    state, _ = play(events, limits=ONE)
    _, effects = step(state, Leave("a"), 6.0)
    assert effects == [Refuse("b", Reason.EXPIRED), Start("c")]


def test_a_full_queue_sheds_the_lowest_class() -> None:
    events: list[Event] = [
        Arrive(ticket("a")),
        Arrive(ticket("warm", class_=RequestClass.WARM)),
        Arrive(ticket("b")),
        Arrive(ticket("c", class_=RequestClass.INTERACTIVE)),
    ]
    assert play(events, limits=ONE)[1][-1] == Refuse("warm", Reason.OVERLOADED)


def test_a_full_queue_refuses_an_arrival_of_the_lowest_class() -> None:
    events: list[Event] = [Arrive(ticket(key)) for key in "abcd"]
    assert play(events, limits=ONE)[1][-1] == Refuse("d", Reason.OVERLOADED)


def test_a_stopped_request_keeps_its_slot_until_it_has_left() -> None:
    state, effects = play([Arrive(ticket("a")), Arrive(ticket("b")), Cancel("a")], limits=ONE)
    assert effects == [Start("a"), Stop("a", Reason.CANCELLED)]
    _, effects = step(state, Leave("a"), 0.0)
    assert effects == [Start("b")]


def test_a_second_cancel_changes_nothing() -> None:
    _, effects = play([Arrive(ticket("a")), Cancel("a"), Cancel("a"), Cancel("unknown")])
    assert effects == [Start("a"), Stop("a", Reason.CANCELLED)]


KEYS = st.integers(0, 30).map(str)
EVENTS = st.one_of(
    st.builds(
        lambda number, session, document, class_, deadline, supersedes: Arrive(
            ticket(str(number), session=session, document=document, class_=class_, deadline=deadline), supersedes
        ),
        st.integers(0, 30),
        st.sampled_from("st"),
        st.sampled_from(["", "d"]),
        st.sampled_from(list(RequestClass)),
        st.floats(0, 20),
        st.none() | KEYS,
    ),
    st.builds(Cancel, KEYS),
    st.builds(Leave, KEYS),
    st.builds(Disconnect, st.sampled_from("st")),
    st.just(Tick()),
)


@given(st.lists(EVENTS, max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_any_sequence_keeps_the_bounds_and_decides_every_request_once(
    events: list[Event], max_running: int, max_waiting: int
) -> None:
    state = State(limits=Limits(max_running=max_running, max_waiting=max_waiting))
    undecided: dict[str, bool] = {}
    running: set[str] = set()
    for now, event in enumerate(events):
        if isinstance(event, Arrive):
            if event.ticket.key in undecided or event.ticket.key in running:
                continue
            undecided[event.ticket.key] = True
        state, effects = step(state, event, now / 4)
        if isinstance(event, Leave):
            undecided.pop(event.key, None)
            running.discard(event.key)
        for effect in effects:
            if isinstance(effect, Start):
                assert undecided.pop(effect.key)
                running.add(effect.key)
            elif isinstance(effect, Refuse):
                assert undecided.pop(effect.key)
            else:
                assert effect.key in running
        assert set(state.waiting) == set(undecided)
        assert set(state.running) == running
        assert len(state.running) <= max_running
        assert len(state.waiting) <= max_waiting
        assert state.stopping <= set(state.running)
        assert not state.waiting or len(state.running) == max_running, "work waits although a slot is free"


def test_every_class_has_a_priority() -> None:
    assert [PRIORITY[class_] for class_ in RequestClass] == [0, 1, 2, 3, 4]
