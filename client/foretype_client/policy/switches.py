"""Which parts of the client's policy are on. Each is one boolean, so that a replay can say what it is worth."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from foretype_context.prompt.profile import MinMeanLogprob, Profile


class Switches(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Parts of the client's policy, each a boolean; a replay with and without each justified its default.

    Attributes:
        adaptive_debounce: the user's own rejections lengthen the debounce, acceptances shorten it.
        skip_deletions: a change that only deletes is no reason to ask the gateway.
        skip_unlikely: where the model's last answer on a line became too unlikely to be shown, it is asked again when another token begins
            and two characters were typed.
        remember_rejections: what the user refused at a place is not offered there again.
        speculative: what comes after a suggestion is asked for while it is still looked at.
        preload: the prompt of a place where the cursor rests is computed before anybody types there. It takes two to three times the
            processor time, and one rest in five is typed at.
        drop_broken: what would add an error of syntax to the file is cut back to what does not, or not shown.
        learn_showing: from when on the local candidate is shown is learned from what the user takes, by language, on this machine.
        spare: with a gateway on this machine, typing asks nothing while a battery saver is on or other programs take all processors.
        unsure: what the model says is shown even where it is less sure than its profile asks for.
    """

    adaptive_debounce: bool = True
    skip_deletions: bool = True
    skip_unlikely: bool = True
    remember_rejections: bool = True
    speculative: bool = False
    preload: bool = False
    drop_broken: bool = True
    learn_showing: bool = True
    spare: bool = True
    unsure: bool = False

    def least(self, profile: Profile | None) -> MinMeanLogprob | None:
        """How sure the model must be to be shown unasked; None where whatever it says is wanted."""
        if profile is None or self.unsure or profile.min_mean_logprob.shows_everything:
            return None
        return profile.min_mean_logprob

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return cls.__struct_fields__

    def switched(self, *, on: Iterable[str] = (), off: Iterable[str] = ()) -> Switches:
        """These switched on and those off. Raises ValueError for what is no switch."""
        chosen = {_field(name): value for names, value in ((on, True), (off, False)) for name in names}
        if unknown := sorted(chosen.keys() - set(self.names())):
            raise ValueError(f"{', '.join(unknown)}: the switches are {', '.join(self.names())}")
        return msgspec.structs.replace(self, **chosen)


def _field(name: str) -> str:
    return name.strip().replace("-", "_")
