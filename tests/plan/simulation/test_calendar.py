"""Virtual time goes on by what is entered, and of two things at once the first that was entered comes first."""

from foretype_plan.simulation.calendar import Calendar


def test_things_happen_in_their_order():
    time, seen = Calendar(), []
    time.at(2.0, lambda: seen.append(("b", time.now)))
    time.at(1.0, lambda: seen.append(("a", time.now)))
    time.at(2.0, lambda: seen.append(("c", time.now)))
    time.at(-5.0, lambda: seen.append(("now", time.now)))
    time.until(3.0)
    assert seen == [("now", 0.0), ("a", 1.0), ("b", 2.0), ("c", 2.0)] and time.now == 3.0


def test_what_comes_again_and_again_comes_until_the_end():
    time, seen = Calendar(), []
    time.every(0.5, lambda: seen.append(time.now))
    time.until(1.75)
    assert seen == [0.5, 1.0, 1.5]
