"""`fleet.toml`: the pools of a fleet, and the Ray cluster that runs them. Typed and checked; Ray is not asked.

Its keys stand in docs/reference/fleet.md, which is made from the classes below.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from foretype_wire.credentials import without_credentials

from foretype_backend.config.load import convert, is_loopback, read_token
from foretype_backend.errors import ConfigError
from foretype_backend.fleet.rollout.machine import RolloutOptions
from foretype_backend.fleet.scaling.options import ScalingOptions

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_LEASE_S: Final = 5.0
"""A lease of two seconds flapped on a busy machine."""
_FOLDER_CHARS: Final = 60
"""Ray's sockets lie 40 characters below it, and the system takes 107."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Ray that runs the replicas.

    Attributes:
        url: Ray's dashboard, of a cluster that somebody else runs (KubeRay). Unset: `up` starts a head on this machine.
        token_file: file with that cluster's token.
        host: address of the head's dashboard.
        port: of the head; nodes join it.
        dashboard_port: what the commands and `serve deploy` talk to.
        nodes: nodes, the head among them, that `up` waits for before it places anything.
        cpus: processors that the head gives away. Unset: all of them.
        gpus: GPUs that the head gives away. Unset: all of them.
        resources: further resources of the head, by name.
        folder: where Ray keeps its sockets and logs; a path of at most 60 characters. Unset: Ray's own.
    """

    url: str | None = None
    token_file: str | None = None
    host: str = "127.0.0.1"
    port: int = 6379
    dashboard_port: int = 8265
    nodes: int = 1
    cpus: float | None = None
    gpus: float | None = None
    resources: dict[str, float] = {}
    folder: str | None = None


class DirectoryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The directory of replicas, which gateways poll.

    Attributes:
        host: address that it listens on.
        port: port that it listens on.
        token_file: file with the bearer token that it asks for; needed where it does not listen on loopback.
        lease_s: seconds without a heartbeat after which a replica is gone; 5 at least.
    """

    host: str = "127.0.0.1"
    port: int = 8100
    token_file: str | None = None
    lease_s: float = _LEASE_S


class Revision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model as replicas serve it.

    Attributes:
        model: name that the replicas serve it under.
        grammar: how its prompts are written; `foretype models families` lists them.
        profile: file with flags of `vllm serve`, as in `deploy/profiles`.
        block_size: tokens in a block of the prefix cache. Unset: the profile's, or 16.
        tokenizer: compared between revisions, where it is on this machine. Unset: `tokenizer.json` in the model's folder.
    """

    model: str
    grammar: str
    profile: str | None = None
    block_size: int | None = None
    tokenizer: str | None = None


class Pool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replicas of one model in one region.

    Attributes:
        name: as gateways call it: `fast`, `quality`.
        revision: which of `pool.revisions` is served.
        revisions: the models that it can serve, by name; a table each, below.
        region: where its replicas are.
        zone: a label for Prometheus, which reads the directory's list too; gateways ignore it.
        role: `prefill` or `decode` where they are apart.
        weight: share of the load that a replica takes beside others of the pool, as one on a smaller card.
        min_replicas: fewest replicas.
        max_replicas: most replicas. Unset: as many as the fewest.
        scaling: scales it between its bounds: the options of docs/reference/settings.md, "Scaling of a pool", without the bounds.
        history_file: where the scaling keeps the week that it learned; on the head's node.
        host: address that its engines listen on; `127.0.0.1` where the gateway is on the same machine. Unset: that of its node.
        cpus: processors that a replica needs of a node.
        gpus: GPUs that a replica needs of a node.
        resources: further resources that a replica needs of a node, by name.
        labels: labels that its node must have.
        command: what is spawned; `--config FILE --host HOST --port PORT --served-model-name NAME` is added.
        environment: variables of that process.
        rollout: how a revision is rolled out; a table, below.
        start_s: seconds that a start may take.
        drain_s: seconds that a replica's last requests may take.
    """

    name: str
    revision: str
    revisions: dict[str, Revision]
    region: str = "local"
    zone: str = ""
    role: Literal["both", "prefill", "decode"] = "both"
    weight: float = 1.0
    min_replicas: int = 1
    max_replicas: int | None = None
    scaling: dict[str, Any] | None = None
    history_file: str | None = None
    host: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    command: tuple[str, ...] = ("vllm", "serve")
    environment: dict[str, str] = {}
    rollout: dict[str, Any] = {}
    start_s: float = 900.0
    drain_s: float = 60.0

    @property
    def most(self) -> int:
        """Replicas that it may have."""
        return self.min_replicas if self.max_replicas is None else self.max_replicas

    @property
    def rolled(self) -> RolloutOptions:
        """Raises msgspec.ValidationError."""
        return msgspec.convert(self.rollout, RolloutOptions)

    @property
    def scaled(self) -> ScalingOptions | None:
        """None where nobody scales it. Raises msgspec.ValidationError."""
        if self.scaling is None:
            return None
        bounds = {"min_replicas": self.min_replicas, "max_replicas": self.most}
        return msgspec.convert({**self.scaling, **bounds}, ScalingOptions)


class Fleet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fleet itself.

    Attributes:
        name: stands in its state file and its metrics.
        gateways: base URLs of gateways: what they say scales pools, and judges roll-outs.
        gateway_token_file: file with a key that may read their figures.
    """

    name: str
    gateways: tuple[str, ...] = ()
    gateway_token_file: str | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fleet: Fleet
    cluster: Cluster = Cluster()
    directory: DirectoryOptions = DirectoryOptions()
    pool: tuple[Pool, ...] = ()


class FleetFile(msgspec.Struct, frozen=True, kw_only=True):
    """A checked file.

    Attributes:
        profiles: by path as the file has it, the flags in it.
        token: the directory's, None where it asks for none.
        cluster_token: of a cluster that somebody else runs.
    """

    name: str
    gateways: tuple[str, ...]
    gateway_token_file: str | None
    cluster: Cluster
    directory: DirectoryOptions
    pools: tuple[Pool, ...]
    profiles: Mapping[str, Mapping[str, Any]]
    token: str | None
    cluster_token: str | None

    def of(self, name: str) -> list[Pool]:
        """A pool in each of its regions. Raises ConfigError with the names that there are."""
        found = [one for one in self.pools if one.name == name]
        if not found:
            known = ", ".join(dict.fromkeys(one.name for one in self.pools))
            raise ConfigError("POOL", f"no pool is called {name!r}; the file has {known}")
        return found

    def flags(self, revision: Revision) -> Mapping[str, Any]:
        return self.profiles[revision.profile] if revision.profile is not None else {}

    def block_size(self, revision: Revision) -> int:
        return revision.block_size or int(self.flags(revision).get("block-size", 16))


def load_fleet(path: Path) -> FleetFile:
    """Read and check. Paths in the file are relative to it.

    Raises:
        ConfigError: names the field and the remedy.
    """
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            "--config", f"cannot read {path} ({error.strerror}); give the path of a fleet.toml"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("--config", f"{path} is no TOML: {error}; correct it there") from error
    file = convert(raw, _File, "", table="docs/reference/fleet.md")
    base = path.absolute().parent
    profiles = {
        one.profile: _profile(base / one.profile, f"pool.revisions.{name}.profile")
        for pool in file.pool
        for name, one in pool.revisions.items()
        if one.profile is not None
    }
    _check_cluster(file)
    for at, pool in enumerate(file.pool):
        _check_pool(pool, f"pool[{at}]", file.fleet.gateways)
    fleet = FleetFile(
        name=file.fleet.name,
        gateways=file.fleet.gateways,
        gateway_token_file=file.fleet.gateway_token_file,
        cluster=file.cluster,
        directory=file.directory,
        pools=file.pool,
        profiles=profiles,
        token=_token(file.directory.token_file, base, "directory.token_file"),
        cluster_token=_token(file.cluster.token_file, base, "cluster.token_file"),
    )
    _check_regions(fleet)
    _check_tokenizers(fleet, base)
    if fleet.token is None and not is_loopback(fleet.directory.host):
        raise ConfigError(
            "directory.token_file",
            f"without a token {fleet.directory.host} would tell the network where the replicas are; write one into a file "
            "(`openssl rand -hex 32`), or listen on 127.0.0.1",
        )
    return fleet


def _token(path: str | None, base: Path, field: str) -> str | None:
    return None if path is None else read_token(base / path, field)


def _profile(path: Path, field: str) -> Mapping[str, Any]:
    import yaml  # of the extra `fleet`

    try:
        flags: object = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(field, f"cannot read {path} ({error}); name a file as those in deploy/profiles") from error
    if not isinstance(flags, dict):
        raise ConfigError(field, f"{path} holds no flags of `vllm serve`; see those in deploy/profiles")
    return {str(key): value for key, value in flags.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _check_cluster(file: _File) -> None:
    cluster, directory = file.cluster, file.directory
    for at, url in enumerate(file.fleet.gateways):
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"fleet.gateways[{at}]", f"{without_credentials(url)!r} is no URL; write it as https://host:7878"
            )
    if not _NAME.fullmatch(file.fleet.name):
        raise ConfigError("fleet.name", f"{file.fleet.name!r}: small letters, digits and - are a name; at most 40")
    if not file.pool:
        raise ConfigError("pool", "a fleet without a pool serves nothing; write one as [[pool]]")
    ports = {"cluster.port": cluster.port, "cluster.dashboard_port": cluster.dashboard_port}
    ports = {"directory.port": directory.port} | (ports if cluster.url is None else {})
    for field, port in ports.items():
        if not 1 <= port <= 65535:
            raise ConfigError(field, f"{port} is no port; choose 1 to 65535")
        others = [name for name, other in ports.items() if other == port and name != field]
        if others:
            raise ConfigError(field, f"{port} is that of {others[0]} too; give each a port of its own")
    if cluster.url is not None and not cluster.url.startswith(("http://", "https://")):
        raise ConfigError("cluster.url", f"{cluster.url!r} is no URL of a dashboard; write it as http://host:8265")
    if cluster.folder is not None and len(cluster.folder) > _FOLDER_CHARS:
        raise ConfigError(
            "cluster.folder",
            f"has more than {_FOLDER_CHARS} characters, and Ray's sockets lie below it; choose a shorter one",
        )
    if directory.lease_s < _LEASE_S:
        raise ConfigError("directory.lease_s", f"a busy machine is late by seconds; give {_LEASE_S:g} or more")


def _check_pool(pool: Pool, field: str, gateways: tuple[str, ...]) -> None:
    for name in ("name", "region"):
        if not _NAME.fullmatch(getattr(pool, name)):
            raise ConfigError(
                f"{field}.{name}", f"{getattr(pool, name)!r}: small letters, digits and - are a name; at most 40"
            )
    for name, revision in pool.revisions.items():
        where = f"{field}.revisions.{name}"
        if not _REVISION.fullmatch(name):
            raise ConfigError(where, "letters, digits, - and _ are a revision's name; at most 40")
        if not revision.model or not revision.grammar:
            raise ConfigError(where, "names no model or no grammar, and a gateway could not ask it; write both")
        if revision.block_size is not None and revision.block_size < 1:
            raise ConfigError(f"{where}.block_size", "must be at least 1; leave it out for the profile's")
    if pool.revision not in pool.revisions:
        known = ", ".join(pool.revisions) or "none"
        raise ConfigError(
            f"{field}.revision", f"{pool.revision!r} is not among the revisions ({known}); write it there"
        )
    if not 0 <= pool.min_replicas <= pool.most or pool.most < 1:
        raise ConfigError(
            f"{field}.max_replicas",
            f"{pool.min_replicas} to {pool.most} replicas are no bounds; the second is at least 1",
        )
    try:
        _ = pool.rolled
    except msgspec.ValidationError as error:
        raise ConfigError(f"{field}.rollout", str(error)) from error
    try:
        scaled = pool.scaled
    except msgspec.ValidationError as error:
        raise ConfigError(f"{field}.scaling", str(error)) from error
    if scaled is not None and not gateways:
        raise ConfigError(f"{field}.scaling", "nobody would say how loaded it is; name the gateways in fleet.gateways")
    for name in ("start_s", "drain_s", "weight"):
        if getattr(pool, name) <= 0:
            raise ConfigError(f"{field}.{name}", "must be above zero; leave it out for the default")
    for name in ("cpus", "gpus"):
        if getattr(pool, name) < 0:
            raise ConfigError(f"{field}.{name}", "cannot be negative; leave it out for the default")
    if not pool.command:
        raise ConfigError(f"{field}.command", "nothing would be spawned; leave it out for `vllm serve`")


def _check_regions(fleet: FleetFile) -> None:
    """The same pool in several regions is the same model."""
    first: dict[str, Pool] = {}
    seen: set[tuple[str, str]] = set()
    for at, pool in enumerate(fleet.pools):
        if (pool.name, pool.region) in seen:
            raise ConfigError(
                f"pool[{at}].region", f"{pool.name} is in {pool.region} already; name another region, or pool"
            )
        seen.add((pool.name, pool.region))
        other = first.setdefault(pool.name, pool)
        if (pool.revision, pool.revisions) != (other.revision, other.revisions):
            raise ConfigError(
                f"pool[{at}].revisions",
                f"{pool.name} has other revisions in {pool.region} than in {other.region}; one pool is one model everywhere: give it the same",
            )


def _check_tokenizers(fleet: FleetFile, base: Path) -> None:
    """Clients count by a model's name: two tokenizers under one would cut prompts where the model does not."""
    seen: dict[str, tuple[str, str]] = {}
    for pool in fleet.pools:
        for name, revision in pool.revisions.items():
            found = _tokenizer(fleet, revision, base)
            if found is None:
                continue
            other, same = seen.setdefault(revision.model, (name, found))
            if same != found:
                raise ConfigError(
                    f"pool.revisions.{name}.model",
                    f"{name} and {other} are both called {revision.model!r} and have different tokenizers; give {name} a model "
                    "name of its own, so that clients count its tokens anew",
                )


def _tokenizer(fleet: FleetFile, revision: Revision, base: Path) -> str | None:
    """A digest; None where the file is not on this machine."""
    named = revision.tokenizer or f"{fleet.flags(revision).get('model', '')}/tokenizer.json"
    try:
        return hashlib.sha256((base / named).read_bytes()).hexdigest()
    except OSError as error:
        if revision.tokenizer is None:
            return None
        raise ConfigError("pool.revisions.tokenizer", f"cannot read {base / named} ({error.strerror})") from error
