"""What a comparison types, and through what."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from foretype_eval.replay.accept import Rule
from foretype_models.artifacts import locate


class PeerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to type, and through what.

    Attributes:
        source: a recording, or a repository whose `commits` are typed.
        gguf: the model of all systems; None for the shipped one.
        from_minute, minutes: the part of the recording that is typed; what stood before is read at its beginning.
        systems: of `llama_vim`; `llama_vscode` and `continue`, by the shape of their requests; `foretype` (the product) and
            `foretype_network` (the product without its local candidate).
        live: keys come at their own time on the clock on the wall, and not on a virtual one.
        layout: of our prompts, in place of what the gateway says.
        with_: parts of our client's policy that are switched on besides (`foretype_client.policy.switches`).
        threads_wanted: of llama.cpp; 0 for as many as the embedded engine takes by itself, half of the cores.
    """

    source: Path
    gguf: Path | None = None
    commits: int | str = 3
    suffixes: tuple[str, ...] = (".py",)
    from_minute: float = 0.0
    minutes: float | None = None
    systems: tuple[str, ...] = ("llama_vim", "foretype_network", "foretype")
    live: bool = False
    layout: str | None = None
    rule: Rule = Rule.LINE
    decide_ms: float = 200.0
    debounce_ms: float = 25.0
    with_: tuple[str, ...] = ()
    threads_wanted: int = 0
    seed: int = 0

    @property
    def model(self) -> Path:
        """Raises ArtifactError: the shipped one is not there."""
        return (self.gguf or locate().path).resolve()

    @property
    def threads(self) -> int:
        return self.threads_wanted or max(1, (os.cpu_count() or 1) // 2)
