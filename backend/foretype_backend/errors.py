"""What can go wrong in the gateway, in one tree. Each message says what is wrong and what to do.

* `BackendError`
    * `ConfigError` (ValueError): a setting; raised by `config` and by the readers of its files, printed by commands (exit code 2)
    * `StoreError`: a store of tenants or events; raised by `database`, `identity` and `telemetry`, printed by commands (exit code 1)
        and by the gateway's start; a running gateway keeps what was to be stored
        * `StoreBusyError`: too much waits for the store; clients send again
        * `EntryError`: a tenant, team, user or key that does not exist, or exists already; printed by commands
    * `EngineError`
        * `EngineUnavailableError`: by every engine; the pool asks another replica, then `serving` answers `engine_unavailable`
            * `SaltIgnoredError`: a server that would mix tenants; ends the start, later no request is sent to it
        * `PromptRefusedError`: by every engine; `serving` answers `invalid_request`
        * `UnknownEngineError` (ValueError): by the table of engines; printed by commands
        * `ModelFileError` (ValueError): by the readers of GGUF; printed at the start
        * `EngineStartError`, `LibraryError`, `PipelineError`: by the embedded engine's process, caught on both sides of its pipe
        * `NoReplicaError`: by the router; the pool turns it into `EngineUnavailableError`
        * `DirectoryError`: by the reader of a fleet's directory; the pool goes on with the replicas that it knew, and shows the error
    * `PrefixError`
        * `EpochFileError` (ValueError): the file of salts' epochs; ends the start, or fails a purge
        * `PurgeError`: a purge that was not done; answered by its door
        * `PlacementError` (ValueError): by the reader of a request's spans; the plugin in vLLM then caches nothing of that request
        * `ChunkFormatError`: bytes of the shared tier that are no chunk; counted as absent
        * `CacheEventsError` (ValueError): a replica's message that cannot be read; logged, and the next is read
        * `TierUnavailableError`, `TierRefusedError`: by the shared tier; the tier waits, or stays off
    * `ExperimentError`: by `experiments`; printed by commands
        * `ExperimentInputError`: by the readers of an experiment's rows, and by the code that judges them
        * `VariantError` (ValueError): what a variant asks for cannot be; names the field
    * `FleetError`: Ray or its cluster cannot do what was asked; raised by `fleet.ray`, printed by its commands (exit code 1)
    * `RolloutError` (ValueError): a roll-out that cannot begin, go on or be read; printed by `foretype fleet`
    * `BudgetExceededError`: by `serving`, before anything was done; every door answers `rate_limited`

A client's request that will never be served as it is raises `foretype_wire.errors.InvalidRequestError`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from foretype_context.errors import ForetypeError


class BackendError(ForetypeError):
    """Base of everything that the gateway raises itself."""


class ConfigError(BackendError, ValueError):
    """A configuration that cannot be used; the message names the field and the remedy."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class StoreError(BackendError):
    """The store can be neither written nor read now; the message names what is wrong and what to do."""


class StoreBusyError(StoreError):
    """Too much waits for the store already; the sender keeps its batch and tries again."""


class EntryError(StoreError):
    """What a command named does not exist, or exists already; the message says which and what to do."""


class Fault(StrEnum):
    """What is wrong with an engine that cannot serve; also the metric's label."""

    LOST = "lost"  # not there: the connection cannot be made or broke, the process ended, it was never started
    CERTIFICATE = "certificate"  # its certificate does not prove that it is the right server
    SILENT = "silent"  # it took the request and says nothing
    GARBAGE = "garbage"  # its answer cannot be read
    ERROR = "error"  # it reports a failure of its own
    BUSY = "busy"  # it takes no more work now
    REGION = "region"  # every engine is outside of the regions that the tenant is bound to
    REPLACED = "replaced"  # it serves another model than the one that prompts are made for


FAULT_MESSAGES: Final = {
    Fault.LOST: "the engine cannot be reached; retry",
    Fault.CERTIFICATE: "the engine's certificate cannot be trusted; tell who runs this gateway",
    Fault.SILENT: "the engine says nothing; retry",
    Fault.GARBAGE: "the engine's answer makes no sense; retry",
    Fault.ERROR: "the engine failed; retry",
    Fault.BUSY: "the engine is overloaded; retry later",
    Fault.REGION: "no engine in the regions of this tenant is in service, and others may not be asked; retry later",
    Fault.REPLACED: "the server has another model now; start the former one again, or choose this one with `foretype use`",
}
"""Messages for clients. The server's own messages, and ours for the operator, are not sent to clients, because they name hosts."""


class EngineError(BackendError):
    """Base of the errors of engines and their models."""


class EngineUnavailableError(EngineError):
    """The engine died, hangs, or is not started; the request may be retried elsewhere before its first token."""

    def __init__(self, message: str = "", *, fault: Fault = Fault.LOST) -> None:
        super().__init__(message)
        self.fault = fault


class SaltIgnoredError(EngineUnavailableError):
    """No tenant's prompt must reach this server. The message says what was seen, and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(message, fault=Fault.ERROR)


class PromptRefusedError(EngineError):
    """The engine will never accept this prompt (too long, invalid token ids). The message names the limit.

    `client_message` is the message without the engine's address, which only the operator may see.
    """

    def __init__(self, message: str = "", *, client_message: str | None = None) -> None:
        super().__init__(message)
        self.client_message = message if client_message is None else client_message


class UnknownEngineError(EngineError, ValueError):
    """There is no engine of that name; the message lists those that exist."""


class ModelFileError(EngineError, ValueError):
    """The file cannot be run; the message names the file, the reason and the remedy."""


class EngineStartError(EngineError):
    """The process did not come up; the message names the file and the remedy."""


class LibraryError(EngineError):
    """The library that computes in the embedded engine's process is not installed, or has another version than the one that our code fits."""


class PipelineError(EngineError):
    """The pipeline threw: nothing in it can be trusted any more, and every request in it is lost."""


class NoReplicaError(EngineError):
    """No replica is in service."""


class DirectoryError(EngineError):
    """The directory of replicas does not answer, or its answer cannot be read; the message says what is wrong."""


class PrefixError(BackendError):
    """Base of the errors of shared caches and their salts."""


class EpochFileError(PrefixError, ValueError):
    """The file is damaged. Without it, purged caches would be reachable again; the message says how to go on."""


class PurgeError(PrefixError):
    """Nothing was purged; the message says why. `field` names the wrong field of the request, None where the request was right."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class PlacementError(PrefixError, ValueError):
    """`kv_transfer_params["foretype"]` is not of the form that `prefix.spans` makes."""


class ChunkFormatError(PrefixError):
    """Not a chunk of this format or this deployment, of another name, truncated or damaged."""


class CacheEventsError(PrefixError, ValueError):
    """A frame that is no batch of vLLM's cache events."""


class TierUnavailableError(PrefixError):
    """The store does not answer in time, or answers with an error; it may come back."""


class TierRefusedError(PrefixError):
    """The store is there and must not be used. The message says what to change."""


class ExperimentError(BackendError):
    """Base of the errors of live experiments."""


class ExperimentInputError(ExperimentError):
    """Rows cannot be read or make no experiment; the message names file, line and field, and the remedy."""


class VariantError(ExperimentError, ValueError):
    """A variant that cannot be served; the message names the field, what is wrong and the remedy."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class FleetError(BackendError):
    """A fleet in a state that the command cannot work with; the message says what is wrong and what to do."""


class BudgetExceededError(BackendError):
    """A request that its sender's budget does not allow; nothing was done for it.

    Attributes:
        outcome: the `foretype_backend.serving.completion.CompletionOutcome` that answers the request.
    """

    def __init__(self, outcome: Any) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class RolloutError(BackendError, ValueError):
    """A roll-out that cannot begin, go on or be read; the message says why and what to do."""
