"""Subscriptions: nobody who subscribes is in another's way."""

from foretype_wire.subscriptions import Subscribers


def test_all_are_told_in_their_order() -> None:
    told: list[tuple[str, int]] = []
    news: Subscribers[int] = Subscribers()
    news.add(lambda number: told.append(("first", number)))
    news.add(lambda number: told.append(("second", number)))
    news.tell(7)
    assert told == [("first", 7), ("second", 7)]


def test_who_leaves_is_told_no_more_and_the_others_are() -> None:
    told: list[str] = []
    news: Subscribers[[]] = Subscribers()

    def subscriber() -> None:
        told.append("told")

    leave = news.add(subscriber)
    news.add(subscriber)  # the same function for somebody else
    leave()
    leave()
    news.tell()
    assert told == ["told"] and len(news) == 1


def test_who_comes_or_leaves_while_all_are_told_does_so_from_the_next_time_on() -> None:
    told: list[str] = []
    news: Subscribers[[]] = Subscribers()

    def late() -> None:
        told.append("late")

    def first() -> None:
        told.append("first")
        leave_second()
        news.add(late)

    news.add(first)
    leave_second = news.add(lambda: told.append("second"))
    news.tell()
    assert told == ["first", "second"]
    news.tell()
    assert told == ["first", "second", "first", "late"]
