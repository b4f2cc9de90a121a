"""What a gateway may change about this client: an experiment that needs more leaves it out, and so does one about what the user chose."""

from __future__ import annotations

from foretype_context.prompt.layouts import LAYOUTS
from foretype_context.prompt.profile import KNOBS

from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import PolicyOptions


def known_knobs(policy: PolicyOptions, *, telemetry: bool) -> list[str]:
    """Args: `telemetry`, whether this client tells what became of suggestions; else no experiment can learn from it."""
    own = Switches()
    chosen = {
        "arms": not telemetry,
        "debounce": policy.debounce_ms != PolicyOptions().debounce_ms,
        "speculation": policy.switches.speculative != own.speculative,
        "thresholds": policy.switches.unsure != own.unsure,
    }
    return [name for name in KNOBS if not chosen.get(name)] + [f"layout.{name}" for name in LAYOUTS]
