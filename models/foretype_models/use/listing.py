"""What there is to choose from: what serves now, what is proposed, and every other choice; for people and for editors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from foretype_models import artifacts
from foretype_models.errors import ArtifactError, UseError
from foretype_models.running_servers import Server
from foretype_models.use.catalogue import Catalogue, Entry
from foretype_models.use.choose import file_of
from foretype_models.use.machine import Machine
from foretype_models.use.profile import chosen
from foretype_models.use.proposal import Proposal, expected, propose


class ListedChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model that can be chosen.

    Attributes:
        asked: what `foretype use` takes.
        detail: size, licence, and what else decides.
        current: it serves now.
        proposed: it suits this machine best.
        here: nothing has to be downloaded.
        refused: why it would be refused as it is; empty where it would not.
    """

    asked: str
    title: str
    detail: str
    current: bool = False
    proposed: bool = False
    here: bool = False
    refused: str = ""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `foretype use` without a name knows.

    Attributes:
        current: what was asked for when the present choice was made.
        good: whether that is a model whose suggestions are shown by themselves.
        why: of the proposal.
    """

    current: str
    good: bool
    machine: str
    rows: list[ListedChoice]
    why: str
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFindings:
    """What is on this machine to choose from, looked at once."""

    machine: Machine
    servers: list[Server]
    catalogue: Catalogue


def list_choices(found: MachineFindings, folder: Path, state_dir: Path) -> tuple[Listing, Proposal]:
    """The choices on this machine, the proposed one first. Raises UseError where the shipped files are damaged."""
    current, shipped = chosen(state_dir), _shipped()
    proposal = propose(found.machine, found.catalogue)
    notes = list(proposal.notes)
    rows = [_server_row(server, current) for server in found.servers]
    good = [row for row in rows if row.proposed]
    if len(good) > 1:
        named = ", ".join(row.asked for row in good)
        notes.append(f"{len(good)} servers run that could serve ({named}); name the one that is meant")
        rows = [msgspec.structs.replace(row, proposed=False) for row in rows]
    why = proposal.why
    if len(good) == 1:
        why = "it runs already, with a base model for code"
    taken = bool(good)
    rows += [
        _row(entry, found, folder, current, proposed=not taken and entry == proposal.entry)
        for entry in found.catalogue.models
    ]
    rows.append(_shipped_row(shipped, current))
    if not any(row.current for row in rows):
        rows.append(ListedChoice(asked=current, title="what you chose", detail="serves now", current=True, here=True))
    rows.sort(key=lambda row: not row.proposed)
    listing = Listing(
        current=current,
        good=current != "shipped" or (shipped.shown and shipped.made),
        machine=str(found.machine),
        rows=rows,
        why=why,
        notes=notes,
    )
    return listing, proposal


def _shipped_row(shipped: artifacts.Artifact, current: str) -> ListedChoice:
    detail = f"{shipped.size_bytes / 1e6:,.0f} MB, {shipped.licence}"
    if not shipped.made:
        detail = f"{shipped.licence}; its base is fetched by pip, once"
    if not shipped.shown:
        detail += "; what it says is shown only when you ask"
    return ListedChoice(
        asked="shipped",
        title=f"{shipped.name}, the model that comes with Foretype",
        detail=detail,
        current=current == "shipped",
        here=shipped.made,
    )


def _shipped() -> artifacts.Artifact:
    try:
        return artifacts.available()[0]
    except ArtifactError as error:
        raise UseError(str(error)) from error


def _server_row(server: Server, current: str) -> ListedChoice:
    asked = f"ollama:{server.good}" if server.kind == "ollama" and server.good else server.url
    said = next((one for one in server.models if one.name == server.good), None)
    context = server.context_tokens or (said.context_tokens if said is not None else None)
    facts = [
        "runs already" if said is None or said.loaded is not False else "loads it when it is asked",
        server.asked,
        f"{context:,} tokens of context" if context else "",
        f"{server.slots} slots" if server.slots else "",
    ]
    refused = "" if server.good else "it has no base model for code"
    if server.loading:
        refused = "it is still loading its model"
    elif server.kind == "ollama" and not server.good:
        refused += ": `ollama pull qwen2.5-coder:1.5b-base`"
    elif server.kind == "lm-studio" and server.good:
        refused = "it does not say its tokenizer: --tokenizer FILE"
    return ListedChoice(
        asked=asked,
        title=f"{server.kind}: {', '.join(server.names[:3]) or 'no model'}",
        detail=", ".join(fact for fact in facts if fact),
        current=current == asked,
        proposed=not refused,
        here=True,
        refused=refused,
    )


def _row(entry: Entry, found: MachineFindings, folder: Path, current: str, *, proposed: bool) -> ListedChoice:
    size = "size not known" if entry.bytes is None else f"{entry.bytes / 1e6:,.0f} MB"
    speed = expected(entry, found.machine, found.catalogue) if entry.serve == "embedded" else None
    speed_text = f", about {speed.decode_tokens_s:.0f} tokens/s" if speed is not None else ""
    refused = ""
    if entry.serve != "embedded":
        refused = "the embedded engine does not open it; llama-server does"
    elif entry.sha256 is None:
        refused = "its SHA-256 is not known here: --accept-digest"
    noncommercial = "" if entry.commercial else " (not for commercial use)"
    return ListedChoice(
        asked=entry.name,
        title=entry.title,
        detail=f"{size}, {entry.licence.removeprefix('LicenseRef-')}{noncommercial}{speed_text}",
        current=current == entry.name,
        proposed=proposed,
        here=file_of(entry, folder).is_file(),
        refused=refused,
    )
