"""Which of a server's models is asked, where nobody named one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from foretype_context.grammars.families import names_a_chat_model

from foretype_backend.errors import EngineUnavailableError


def pick_model(names: Sequence[str], named: str | None, url: str, *, get: str = "", only: bool = False) -> str:
    """The model that is asked for, else the first that was not trained to chat, by its name.

    Args:
        names: what the server has, in its order.
        get: what gets a model that it lacks: added to the message.
        only: with several, the configuration has to name one.

    Raises:
        EngineUnavailableError: it is not there, or none can be taken unasked.
    """
    remedy = "name one with `[model] name` in --profile FILE"
    if named:
        if names and named not in names:
            raise EngineUnavailableError(f"{url}: has no model {named!r}; it has {', '.join(names)}{get}")
        return named
    if not names:
        raise EngineUnavailableError(f"{url}: lists no model; {get.removeprefix('; ') or remedy}")
    fitting = [name for name in names if not names_a_chat_model(name)]
    if not fitting:
        shown = ", ".join(names)
        raise EngineUnavailableError(
            f"{url}: serves {shown}, trained to chat by its name, which answers in prose; serve its base model, or "
            "take it all the same: name it with `[model] name` in --profile FILE"
        )
    if only and len(fitting) > 1:
        raise EngineUnavailableError(f"{url}: has {len(fitting)} models ({', '.join(fitting)}); {remedy}")
    return fitting[0]
