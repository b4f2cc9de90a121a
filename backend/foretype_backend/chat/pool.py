"""The quality pool: chat, and `class: block`, each a service of its own on the same servers."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from foretype_context.errors import TokenizerError, UnknownControlError, UnknownGrammarError
from foretype_context.prompt.templates import grammar
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_wire.messages import RequestClass

from foretype_backend.chat.answer_pace import AnswerPace
from foretype_backend.chat.engine import ChatEngine, ChatReplica
from foretype_backend.config.config import Config
from foretype_backend.config.load import read_token
from foretype_backend.config.settings import QualityConfig
from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.openai.events import OpenAIConfig
from foretype_backend.engines.port import Engine
from foretype_backend.errors import ConfigError, EngineUnavailableError, SaltIgnoredError
from foretype_backend.fleet.build import make_pool
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.identity.accounts import Accounts
from foretype_backend.prefix.salt import SaltBook
from foretype_backend.serving.render import Renderer
from foretype_backend.serving.served_revision import BlockPool
from foretype_backend.serving.service import CompletionService
from foretype_backend.serving.tracing import RequestTracer

if TYPE_CHECKING:
    from foretype_wire.tracing.spans import Tracing

_AGAIN_S: Final = 2.0
_log = logging.getLogger("foretype.gateway")


@dataclass(slots=True)
class QualityPool:
    """`block` is None where no tokenizer is configured: the fast pool then serves that class too."""

    config: QualityConfig
    chat: CompletionService
    block: BlockPool | None
    pace: AnswerPace | None
    _coming: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])

    async def start(self) -> None:
        """Open clients; a server that is away is found out by requests, and comes into use when it is there.

        Raises:
            SaltIgnoredError: tenants reach the server, and it does not keep them apart.
            EngineUnavailableError: it is away, and blocks may go nowhere else.
        """
        await self._start(self.chat.engine, "chat is refused", fails_over=True)
        if self.block is not None:
            engine = self.block.service.engine
            await self._start(engine, "blocks go to the fast pool", fails_over=self.block.fails_over)

    async def _start(self, engine: Engine, meanwhile: str, *, fails_over: bool) -> None:
        try:
            await engine.start()
        except SaltIgnoredError:
            raise
        except EngineUnavailableError:
            if not fails_over:
                raise
            self._coming.append(asyncio.create_task(self._start_again(engine, meanwhile), name="quality pool"))

    async def _start_again(self, engine: Engine, meanwhile: str) -> None:
        told = ""
        while True:
            await asyncio.sleep(_AGAIN_S)
            try:
                await engine.start()
            except EngineUnavailableError as error:
                if str(error) != told:
                    told = str(error)
                    _log.warning("%s: %s", meanwhile, told)
            else:
                return

    async def close(self) -> None:
        for one in self._coming:
            one.cancel()
        await asyncio.gather(*self._coming, return_exceptions=True)
        await self.chat.engine.close()
        if self.block is not None:
            await self.block.service.engine.close()


@dataclass(frozen=True, slots=True)
class QualityParts:
    """What a quality pool is made of; `renderer` of whole blocks, where it has them."""

    wire: OpenAIConfig
    renderer: Renderer | None
    api_key: str | None = None

    def engines(self, quality: QualityConfig, *, shared: bool) -> tuple[Engine, Engine | None]:
        """For chat, and for whole blocks: one server, or a pool of replicas for each."""
        fleet = quality.fleet
        if fleet is None:
            chat = ChatEngine(self.wire, free_model=quality.free_model, shared=shared)
            return chat, None if self.renderer is None else OpenAIEngine(self.wire, shared=shared)
        common: dict[str, Any] = {"api_key": self.api_key, "shared": shared}
        common["context_limit_tokens"] = quality.context_limit_tokens
        try:
            chat_pool = make_pool(fleet, engine=ChatReplica, free_model=quality.free_model, **common)
            block_pool = None
            if self.renderer is not None:
                vocabulary, its = self.renderer.tokenizer.vocabulary_tokens, self.renderer.grammar.id
                block_pool = make_pool(fleet, vocabulary_tokens=vocabulary, grammar=its, **common)
        except (TypeError, ValueError) as error:
            raise ConfigError("pool.quality", str(error)) from error
        return chat_pool, block_pool


def quality_parts(config: Config) -> QualityParts | None:
    """Read the files of the pool; None where there is none.

    Raises:
        ConfigError: a file cannot be read, or tokenizer and grammar do not fit.
    """
    quality = config.pool.quality
    if quality is None:
        return None
    key = None
    if quality.api_key_file is not None:
        key = read_token(Path(quality.api_key_file), "pool.quality.api_key_file", min_chars=1)
    options: dict[str, Any] = {
        "url": quality.url or "http://127.0.0.1:1/v1",  # replicas have addresses of their own
        "model": quality.model,
        "api_key": key,
        "context_limit_tokens": quality.context_limit_tokens,
    }
    try:
        wire = OpenAIConfig.of(**options)
    except TypeError as error:
        raise ConfigError("pool.quality.url", str(error)) from error
    return QualityParts(wire, _renderer(quality), key)


def open_quality(
    config: Config,
    tokenizer: Tokenizer,
    *,
    parts: QualityParts | None = None,
    accounts: Accounts | None = None,
    salts: SaltBook | None = None,
    tracing: Tracing | None = None,
) -> QualityPool | None:
    """The pool of a configuration, not started; None where there is none.

    Args:
        tokenizer: counts what the server does not.
        parts: of this configuration; read now where they were not before.
        tracing: takes spans of every request, timed by `time.perf_counter`; closed by the caller.

    Raises:
        ConfigError: as :func:`quality_parts`.
    """
    quality, parts = config.pool.quality, parts or quality_parts(config)
    if quality is None or parts is None:
        return None
    renderer = parts.renderer
    admission = config.admission
    pace = None
    if admission.shed is not False:
        pace = AnswerPace(
            paid_s=admission.chat_tpot_paid_ms / 1000,
            free_s=admission.chat_tpot_free_ms / 1000,
            refuse_share=admission.refuse_share,
            resume_share=admission.resume_share,
        )
    made, shared = _Maker(config, quality, accounts, salts, tracing), config.identity.on
    engine, blocks = parts.engines(quality, shared=shared)
    for pool in (engine, blocks):
        if isinstance(pool, ReplicaPool) and quality.discovery is not None:
            pool.narrow(lambda _: True, awaited=False)  # they come when they come, as one server does
    chat = made.service(engine, tokenizer, frozenset(), RequestClass.CHAT)
    if renderer is None or blocks is None:
        return QualityPool(quality, chat, None, pace)
    service = made.service(blocks, renderer.tokenizer, renderer.end_token_ids, RequestClass.BLOCK)
    return QualityPool(quality, chat, BlockPool(service, renderer, quality.block_fails_over), pace)


@dataclass(frozen=True, slots=True)
class _Maker:
    config: Config
    quality: QualityConfig
    accounts: Accounts | None
    salts: SaltBook | None
    tracing: Tracing | None

    def service(
        self, engine: Engine, tokenizer: Tokenizer, end_token_ids: frozenset[int], class_: RequestClass
    ) -> CompletionService:
        name = "quality" if class_ is RequestClass.CHAT else "block"
        limits = msgspec.structs.replace(
            self.config.limits,
            max_running=self.quality.max_running,
            max_waiting=self.quality.max_waiting,
            max_tokens=self.quality.context_limit_tokens,
        )
        admission = self.config.admission
        objectives = admission.objectives_ms
        if class_ is RequestClass.CHAT:
            objectives = msgspec.structs.replace(objectives, chat=admission.chat_ttft_ms)
        # Slots of the fast pool are none of this one's; what is away from the developer's machine is always shed.
        own = msgspec.structs.replace(
            admission, reserved=type(admission.reserved)(), objectives_ms=objectives, shed=admission.shed is not False
        )
        return CompletionService(
            engine,
            tokenizer,
            end_token_ids=end_token_ids,
            limits=limits,
            admission=own,
            accounts=self.accounts,
            salts=self.salts,
            tracer=None if self.tracing is None else RequestTracer(self.tracing, pool=name),
        )


def _renderer(quality: QualityConfig) -> Renderer | None:
    remedy = "name the tokenizer.json of the pool's model"
    if quality.tokenizer is None:
        if quality.grammar is not None:
            raise ConfigError("pool.quality.tokenizer", f"is missing beside the grammar; {remedy}, or leave both out")
        return None
    path = Path(quality.tokenizer)
    try:
        tokenizer = load_tokenizer(path)
    except OSError as error:
        raise ConfigError("pool.quality.tokenizer", f"cannot read {path}: {error.strerror}; {remedy}") from error
    except TokenizerError as error:
        raise ConfigError("pool.quality.tokenizer", f"{error}; {remedy}") from error
    if quality.grammar is None:
        raise ConfigError("pool.quality.grammar", "belongs to the tokenizer; name the FIM grammar of the pool's model")
    try:
        return Renderer(tokenizer, grammar(quality.grammar), context_limit_tokens=quality.context_limit_tokens)
    except (UnknownGrammarError, UnknownControlError) as error:
        raise ConfigError("pool.quality.grammar", str(error)) from error
