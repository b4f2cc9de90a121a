from typing import Any

from foretype_client.listeners import Listeners
from foretype_context.syntax.document import Document, Edit


class Told:
    """Notes what it is told, in a list that several share."""

    def __init__(self, name: str, told: list[tuple[Any, ...]]) -> None:
        self._name, self._told = name, told

    def __getattr__(self, event: str) -> Any:
        return lambda *about: self._told.append((self._name, event, *about))


def test_the_sources_are_told_first_and_a_change_is_described_once() -> None:
    told: list[tuple[Any, ...]] = []
    document, sources, flow = Document("file:///a.py", "x = "), Told("sources", told), Told("flow", told)
    listeners: Listeners[Any] = Listeners(sources, None, lambda: 7.0)  # type: ignore[arg-type]
    listeners.opened(document)
    listeners.flow = flow
    document.apply([Edit(4, 4, "1")], 1)
    change = listeners.changed(document)
    listeners.closed(document)
    assert [(who, what) for who, what, *_ in told] == [
        ("sources", "opened"),
        ("sources", "changed"),
        ("flow", "document_changed"),
        ("sources", "closed"),
        ("flow", "document_closed"),
    ]
    assert told[2][2] is change and (change.before, change.after.text, change.at_s) == ("x = ", "x = 1", 7.0)
