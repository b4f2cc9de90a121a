"""What a directory says of replicas: Prometheus' HTTP service discovery, read entry by entry. Pure.

One entry that cannot be read is refused with its reason and takes no other with it. An answer that is no list of entries, or an empty
one, is no answer: a directory that has just begun knows nobody, and the replicas in service go on.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from foretype_backend.errors import DirectoryError

_LABEL: Final = re.compile(r"[\w.+@:/~-]{1,128}", re.ASCII)
_TEXT: Final = re.compile(r"[\x20-\x7e]{0,200}")


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Role(StrEnum):
    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


class RefusalReason(StrEnum):
    """Why an announced replica is not asked; also the metric's label."""

    UNREADABLE = "unreadable"  # its entry is not what an entry is
    STRANGER = "stranger"  # outside of the networks that the settings allow
    OURSELVES = "ourselves"  # the gateway's own address
    TWICE = "twice"  # its name, or its address, is announced for another one in the same answer
    ROLE = "role"  # it does not generate
    MISFIT = "misfit"  # another grammar, tokenizer, model or block size than the profile and the revision have
    SILENT = "silent"  # it does not answer, or not as it should; asked again soon
    FULL = "full"  # more are announced than a pool may have


class Announced(NamedTuple):
    """One replica as it is announced.

    Attributes:
        name: stays with the replica, and names it in metrics.
        address: `host:port`; the host is an IP address.
        grammar, block_tokens: "" and 0 where they are not said.
        weight: its share of requests beside the others; 0 takes none.
    """

    name: str
    address: str
    state: ReplicaState = ReplicaState.READY
    model: str = ""
    revision: str = ""
    grammar: str = ""
    block_tokens: int = 0
    region: str = ""
    role: Role = Role.BOTH
    weight: float = 1.0


class RefusedEntry(NamedTuple):
    """`name` is the replica's, or where in the answer the entry stands."""

    name: str
    why: RefusalReason
    reason: str


class DirectoryAnswer(NamedTuple):
    """The replicas of one pool that a directory lists; `others` counts those of other pools."""

    replicas: tuple[Announced, ...]
    refused: tuple[RefusedEntry, ...] = ()
    others: int = 0


class _Group(msgspec.Struct):
    targets: list[str]
    labels: dict[str, str] = {}


class AnnouncedRollout(msgspec.Struct, frozen=True):
    """Which revisions of a pool are asked: the stable one, and a canary by so large a share of developers.

    Attributes:
        number: of the roll-out: another one draws other developers.
    """

    stable: str = ""
    canary: str | None = None
    share: float = 0.0
    number: int = 0


def read_replicas(body: bytes, pool: str) -> DirectoryAnswer:
    """The replicas of one pool. Raises DirectoryError where this is no answer at all."""
    try:
        groups = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DirectoryError(f"its answer is no list of targets ({error})") from error
    found: list[Announced] = []
    refused: list[RefusedEntry] = []
    others = 0
    for at, raw in enumerate(groups):
        try:
            group = msgspec.json.decode(raw, type=_Group)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            refused.append(RefusedEntry(f"entry {at}", RefusalReason.UNREADABLE, str(error)))
            continue
        if group.labels.get("pool", pool) != pool:
            others += len(group.targets)
            continue
        for target in group.targets:
            try:
                found.append(_announced(target, group.labels, alone=len(group.targets) == 1))
            except ValueError as error:
                refused.append(
                    RefusedEntry(
                        _shown(group.labels.get("replica", f"entry {at}")), RefusalReason.UNREADABLE, str(error)
                    )
                )
    if not found and not refused:
        raise DirectoryError("it names no replica of this pool; whoever serves goes on")
    return DirectoryAnswer(tuple(found), tuple(refused), others)


def read_rollouts(body: bytes, pool: str) -> AnnouncedRollout | None:
    """Of one pool; None where there is none. Raises DirectoryError where the answer cannot be meant."""
    try:
        rollouts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        raw = rollouts.get(pool)
        found = None if raw is None else msgspec.json.decode(raw, type=AnnouncedRollout | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DirectoryError(f"its roll-outs cannot be read ({error})") from error
    if found is not None and not 0 <= found.share <= 1:
        raise DirectoryError(f"a roll-out to {found.share} of the developers cannot be; a share is between 0 and 1")
    return found


def address_of(target: str) -> str:
    """`target` in one spelling. Raises ValueError: it is no IP address with a port."""
    host, colon, port = target.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"the target {_shown(target)!r} is no host:port")
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise ValueError(f"the target {_shown(target)!r} is no IP address; a directory announces addresses") from None
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    ip = mapped or ip
    return f"[{ip}]:{int(port)}" if ip.version == 6 else f"{ip}:{int(port)}"


def _announced(target: str, labels: dict[str, str], *, alone: bool) -> Announced:
    """Raises ValueError."""
    address = address_of(target)
    name = labels.get("replica") or address
    if not alone:  # one name for several targets names none of them
        name = address
    if not _LABEL.fullmatch(name):
        raise ValueError("`replica` is no name: letters, digits and . _ + @ : / - alone, at most 128")
    for key in ("model", "revision", "grammar", "region"):
        if not _TEXT.fullmatch(labels.get(key, "")):
            raise ValueError(f"`{key}` is too long, or holds what no name does")
    return Announced(
        name,
        address,
        state=_one(ReplicaState, labels, "state", ReplicaState.READY),
        model=labels.get("model", ""),
        revision=labels.get("revision", ""),
        grammar=labels.get("grammar", ""),
        block_tokens=_number(labels, "block_size", int, 0),
        region=labels.get("region", ""),
        role=_one(Role, labels, "role", Role.BOTH),
        weight=_number(labels, "weight", float, 1.0),
    )


def _one(kind: Callable[[str], Any], labels: dict[str, str], key: str, default: Any) -> Any:
    try:
        return kind(labels[key]) if key in labels else default
    except ValueError:
        raise ValueError(f"`{key}` is {_shown(labels[key])!r}, which nobody knows") from None


def _number(labels: dict[str, str], key: str, kind: Callable[[str], Any], default: float) -> Any:
    try:
        found = kind(labels[key]) if key in labels else default
    except ValueError:
        found = -1
    if not 0 <= found <= 1_000_000:
        raise ValueError(f"`{key}` is {_shown(labels[key])!r}; a number from 0 on is meant")
    return found


def _shown(text: str) -> str:
    """Of what a stranger sent, what a log may hold."""
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text[:64])
