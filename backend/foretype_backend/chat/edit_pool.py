"""A model for next edits on a server of its own."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from foretype_context.edit_models.format import edit_format
from foretype_context.edit_models.prompt import EditPrompts
from foretype_context.errors import TokenizerError, UnknownControlError
from foretype_context.tokens.tokenizer import load_tokenizer

from foretype_backend.config.config import Config
from foretype_backend.config.load import read_token
from foretype_backend.config.settings import NextEditConfig
from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.openai.events import OpenAIConfig
from foretype_backend.errors import ConfigError, EngineUnavailableError, SaltIgnoredError
from foretype_backend.identity.accounts import Accounts
from foretype_backend.prefix.salt import SaltBook
from foretype_backend.serving.next_edits import NextEditService
from foretype_backend.serving.service import CompletionService
from foretype_backend.serving.tracing import RequestTracer

if TYPE_CHECKING:
    from foretype_wire.tracing.spans import Tracing

_AGAIN_S: Final = 2.0
_log = logging.getLogger("foretype.gateway")


@dataclass(frozen=True, slots=True)
class EditParts:
    """What the pool is made of."""

    wire: OpenAIConfig
    prompts: EditPrompts


@dataclass(slots=True)
class EditPool:
    """A server that is away keeps no gateway from starting: until it is there, nobody gets an edit."""

    edits: NextEditService
    _coming: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises SaltIgnoredError: tenants reach the server, and it does not keep them apart."""
        try:
            await self.edits.service.engine.start()
        except SaltIgnoredError:
            raise
        except EngineUnavailableError as error:
            _log.warning("no next edits: %s", error)
            self._coming = asyncio.create_task(self._start_again(), name="model of next edits")

    async def _start_again(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN_S)
            try:
                await self.edits.service.engine.start()
            except EngineUnavailableError:
                continue
            return

    async def close(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.gather(self._coming, return_exceptions=True)
        await self.edits.service.engine.close()


def edit_parts(pool: NextEditConfig) -> EditParts:
    """Read the files of the pool.

    Raises:
        ConfigError: a file cannot be read, or tokenizer and format do not fit.
    """
    key = None
    if pool.api_key_file is not None:
        key = read_token(Path(pool.api_key_file), "pool.next_edit.api_key_file", min_chars=1)
    remedy = "name the tokenizer.json of the pool's model"
    try:
        tokenizer = load_tokenizer(Path(pool.tokenizer))
    except TokenizerError as error:
        raise ConfigError("pool.next_edit.tokenizer", f"{error}; {remedy}") from error
    try:
        prompts = EditPrompts(tokenizer, edit_format(pool.format))
    except UnknownControlError as error:
        told = f"{error.token!r} of {pool.format} is no token of it; {remedy}, or another format"
        raise ConfigError("pool.next_edit.tokenizer", told) from error
    options: dict[str, Any] = {
        "url": pool.url,
        "model": pool.model,
        "api_key": key,
        "context_limit_tokens": pool.context_limit_tokens,
        # Servers leave special tokens out of their text; an answer between markers is read by them.
        "extra_body": {"skip_special_tokens": False} if prompts.shown else {},
    }
    try:
        return EditParts(OpenAIConfig.of(**options), prompts)
    except TypeError as error:
        raise ConfigError("pool.next_edit.url", str(error)) from error


def open_edit_pool(
    config: Config,
    *,
    parts: EditParts | None = None,
    accounts: Accounts | None = None,
    salts: SaltBook | None = None,
    tracing: Tracing | None = None,
) -> EditPool | None:
    """The pool of a configuration, not started; None where there is none. Raises ConfigError, as :func:`edit_parts`.

    Args:
        parts: of this configuration; read now where they were not before.
        tracing: takes spans of every request; closed by the caller.
    """
    pool = config.pool.next_edit
    if pool is None:
        return None
    parts = parts or edit_parts(pool)
    limits = msgspec.structs.replace(
        config.limits,
        max_running=pool.max_running,
        max_waiting=pool.max_waiting,
        max_tokens=pool.context_limit_tokens,
    )
    admission = config.admission
    # Slots of the fast pool are none of this one's; what is away from the developer's machine is always shed.
    own = msgspec.structs.replace(admission, reserved=type(admission.reserved)(), shed=admission.shed is not False)
    service = CompletionService(
        OpenAIEngine(parts.wire, shared=config.identity.on),
        parts.prompts.tokenizer,
        end_token_ids=parts.prompts.end_token_ids,
        limits=limits,
        admission=own,
        accounts=accounts,
        salts=salts,
        tracer=None if tracing is None else RequestTracer(tracing, pool="next_edit"),
    )
    return EditPool(NextEditService(service, parts.prompts, context_limit_tokens=pool.context_limit_tokens))
