"""A client, wired together: what the language server and the command line both use."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from foretype_context.errors import ProfileError, TokenizerError, UnknownGrammarError
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.sources import Snippet, SnippetSource
from foretype_context.syntax.document import Document, Snapshot
from foretype_context.tokens.tokenizer import Tokenizer, tokenizer_from_bytes
from foretype_wire.errors import GatewayGoneError
from foretype_wire.messages import Profile, Workspace
from foretype_wire.subscriptions import Subscribers
from foretype_wire.tasks import end_tasks

from foretype_client.adaptive.habits import Habits
from foretype_client.adaptive.habits_file import HABITS_NAME, kept_in
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.neighbours import learn_neighbours
from foretype_client.adaptive.table import shipped_table
from foretype_client.adaptive.threshold import SHOW_RULE
from foretype_client.asking import plan_at, stream
from foretype_client.errors import TokenizerFetchError
from foretype_client.feedback.feedback import Feedback
from foretype_client.flow.cache import CompletionCache
from foretype_client.flow.flow import CompletionFlow, FlowOptions
from foretype_client.flow.suggestion import FlowState, FlowStatus, Suggestion
from foretype_client.flow.tracing import FlowTracer, TracedGateway
from foretype_client.open_document import OpenDocument
from foretype_client.policy.knobs import known_knobs
from foretype_client.policy.machine import Machine
from foretype_client.policy.trigger import Policy, PolicyOptions
from foretype_client.ports import Clock, Endpoint, Gateway
from foretype_client.private_gateway.finding import default_state_dir
from foretype_client.private_gateway.starting import START_TIMEOUT_S, ensure_gateway
from foretype_client.session.connecting import gateways_in
from foretype_client.session.regions import Regions
from foretype_client.session.session import Session
from foretype_client.sources.all_sources import Sources
from foretype_client.sources.loading import host
from foretype_client.telemetry.feeling import Feeling
from foretype_client.telemetry.next_edits import NextEditLog
from foretype_client.telemetry.recorder import Recorder
from foretype_client.telemetry.sender import Telemetry, head_of
from foretype_client.telemetry.spool import Spool, user_of

if TYPE_CHECKING:
    from foretype_wire.tracing.spans import Tracing

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
_NO_PROMPTS: Final = (GatewayGoneError, TokenizerFetchError, TokenizerError, UnknownGrammarError, ProfileError)
"""What may be wrong between a gateway and us; told in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Everything about a client that its user can choose.

    Attributes:
        gateway: `ws://` or `wss://` URL of `/v1/stream`; None for the user's private gateway, started when needed. Of several, between
            spaces, the nearest that is healthy is used.
        token: bearer token for `gateway`.
        token_in_clear: send it over `ws://` to another machine too, for everybody on the way to read.
        state_dir: where the private gateway is registered; None is the user's state directory.
        cache_dir: where tokenizers are kept; None is the user's cache directory.
        model: model file for a private gateway that has to be started.
        start_timeout_s: how long a private gateway may take to get ready.
        begun: a private gateway that is found or started already; waited for in place of the first look.
        client_name: name and version of the program, for the gateway's logs.
        editor: what the editor calls itself, for telemetry.
        workspaces: open folders.
        policy, flow: their own defaults.
        sources: of snippets from other files; the caller closes them.
        local: whether to suggest, without any model, what this file and its neighbours say; reads files of `workspaces`.
        telemetry: whether to tell the gateway what became of suggestions (ids, times, lengths; see docs/telemetry.md).
            Off by default: benchmarks and one-off commands are no developer at work.
        learn: whether what the user takes decides, from session to session, what is shown (switch `learn_showing`); off by default
            as telemetry is.
        trusted: whether anything may be read in the folders around open documents; if not, they are all that is known.
    """

    gateway: str | None = None
    token: str | None = field(default=None, repr=False)
    token_in_clear: bool = False
    state_dir: Path | None = None
    cache_dir: Path | None = None
    model: Path | None = None
    start_timeout_s: float = START_TIMEOUT_S
    begun: Awaitable[Endpoint] | None = field(default=None, repr=False)
    client_name: str = "foretype"
    editor: str = ""
    workspaces: Sequence[Workspace] = ()
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    flow: FlowOptions = field(default_factory=FlowOptions)
    sources: Sources | None = None
    local: bool = True
    telemetry: bool = False
    learn: bool = False
    trusted: bool = True


class Assemblers:
    """The assembler of the current profile, once its tokenizer is here; download and loading stay off the event loop.

    Calling it is what the flow does: it answers at once, with None while the tokenizer is on its way. A failure is
    logged, kept in `error`, and tried again `_RETRY_S` later. `settled` is told when a load has ended, either way.
    """

    def __init__(self, session: Session, clock: Clock) -> None:
        self.error = ""
        self.settled: Subscribers[[]] = Subscribers()
        self._session = session
        self._clock = clock
        self._tokenizer: Tokenizer | None = None
        self._current: tuple[Profile, Assembler] | None = None
        self._loading: tuple[Profile, asyncio.Task[Assembler]] | None = None
        self._retry_at_s = 0.0

    def __call__(self, profile: Profile) -> Assembler | None:
        if (made := self._made(profile)) is not None:
            return made
        if self._clock() >= self._retry_at_s:
            self.begin(profile)
        return None

    def follow(self, profile: Profile) -> None:
        """Another profile is in use from now on."""
        if self._made(profile) is None:
            self.begin(profile)

    def begin(self, profile: Profile) -> asyncio.Task[Assembler]:
        """Load what `profile` needs, unless that is under way."""
        if self._loading is not None:
            if self._loading[0] == profile and not self._loading[1].done():
                return self._loading[1]
            self._loading[1].cancel()
        task = asyncio.get_running_loop().create_task(self._load(profile), name="foretype tokenizer")
        task.add_done_callback(self._ended)
        self._loading = (profile, task)
        return task

    async def ready(self, timeout_s: float) -> Assembler:
        """Wait for a profile and for its assembler.

        Raises:
            GatewayGoneError: no profile came.
            TokenizerFetchError, TokenizerError, UnknownGrammarError, ProfileError: no assembler can be made for it.
        """
        while True:
            profile = await self._session.ready(timeout_s)
            if (made := self(profile)) is not None:
                return made
            loading = self.begin(profile)
            await asyncio.wait([loading])
            if self._loading == (profile, loading):
                return loading.result()  # else a newer profile has ended it, and nobody who waits

    async def close(self) -> None:
        if self._loading is not None:
            await end_tasks(self._loading[1])

    def _made(self, profile: Profile) -> Assembler | None:
        """What is here already and makes the prompts of `profile`."""
        if self._current is None:
            return None
        known, assembler = self._current
        if known is not profile and known != profile:
            if not _same_prompts(known, profile):
                return None
            self._current = profile, assembler
        return assembler

    async def _load(self, profile: Profile) -> Assembler:
        tokenizer = self._tokenizer
        if tokenizer is None or tokenizer.digest != profile.tokenizer_digest:
            json = await self._session.tokenizer_json(profile)
            tokenizer = await asyncio.to_thread(tokenizer_from_bytes, json)
        assembler = Assembler(tokenizer, profile)
        self._tokenizer, self._current, self.error = tokenizer, (profile, assembler), ""
        return assembler

    def _ended(self, task: asyncio.Task[Assembler]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)
        self.settled.tell()

    def _failed(self, error: BaseException) -> None:
        self.error: str = str(error)
        self._retry_at_s = self._clock() + _RETRY_S
        expected = isinstance(error, _NO_PROMPTS)
        # As text: whoever keeps the record would keep the traceback, and with it all that prompts are made with.
        _logger.warning("no prompts can be made: %s", self.error, exc_info=None if expected else error)


def _same_prompts(one: Profile, other: Profile) -> bool:
    """Whether an assembler of the one is as good for the other: the block of an experiment changes every hour, and most often only that."""
    names = {"experiment": "", "variant": "", "block": 0, "debounce_ms": None, "speculative": None}
    return msgspec.structs.replace(one, **names) == msgspec.structs.replace(other, **names)


@dataclass(frozen=True, slots=True)
class Client:
    """A session, a flow, and what makes prompts for them.

    `feeling` and `next_edits` are there with telemetry alone, `regions` with several gateways, and `reading` where files of folders
    may be read.
    """

    session: Session
    flow: CompletionFlow
    assemblers: Assemblers
    sources: Sources
    feeling: Feeling | None = None
    next_edits: NextEditLog | None = None
    regions: Regions | None = None
    reading: list[asyncio.Task[None]] | None = None

    def open_folders(self, workspaces: Sequence[Workspace]) -> None:
        """Other folders are open: the gateway is told, and what is new is read."""
        new = [one for one in workspaces if one not in self.session.workspaces]
        self.session.open_folders(workspaces)
        if self.reading is not None and new:
            self.reading.append(_reading(new, self.flow))

    @property
    def assembler(self) -> Assembler | None:
        """Of the current profile; None while its tokenizer is not here yet."""
        profile = self.session.profile
        return None if profile is None else self.assemblers(profile)

    async def ready(self, timeout_s: float = 60.0) -> Assembler:
        """Wait until completions can be asked for. Raises as `Assemblers.ready`."""
        return await self.assemblers.ready(timeout_s)

    def edit(self, document: Document) -> OpenDocument:
        """The document of somebody who types, in a `with` block; `document` is changed through what comes back alone."""
        return OpenDocument(self.flow, self.sources, document)

    def status(self) -> FlowStatus:
        """What this client has asked for and got; `detail` names the last failure, and while there is no gateway why."""
        found = self.flow.status()
        if found.state is FlowState.CLOSED:
            return found
        session = self.session
        why = self.assemblers.error if session.connected else session.statistics().last_error
        return found._replace(detail=why) if why else found

    def explain(self, suggestion: Suggestion) -> dict[str, Any]:
        """What a suggestion was made from, as `foretype explain --json` has it; empty where it is too long ago."""
        return self.flow.explain(suggestion.id) or {}

    async def stream(
        self, snapshot: Snapshot, offset: int, *, snippets: Sequence[Snippet] = (), max_tokens: int | None = None
    ) -> AsyncGenerator[str]:
        """One completion at character `offset`: the whole suggestion so far, each time it grew.

        Nothing is remembered and nothing is held back, unlike in a document that is edited. Closing the iterator stops the model.

        Args:
            snippets: pieces of other files for the prompt.
            max_tokens: at most so many; None for the model's own bound.

        Raises:
            GatewayGoneError, TokenizerFetchError: the gateway cannot be reached, or does not get ready.
            RequestRefusedError: it said why there is no answer.
        """
        plan, _ = plan_at(await self.ready(), snapshot, offset, snippets)
        async with aclosing(stream(self.session, plan, snapshot, offset, max_tokens=max_tokens)) as texts:
            async for text in texts:
                yield text


@asynccontextmanager
async def open_client(
    options: ClientOptions | None = None,
    *,
    sources: Sequence[SnippetSource] = (),
    clock: Clock = time.monotonic,
    rng: random.Random | None = None,
    tracing: Tracing | None = None,
) -> AsyncGenerator[Client]:
    """A client that connects in the background and stays connected until the block ends.

    Args:
        options: without them, the user's private gateway.
        sources: of snippets from other files, beside those of `options`; each is asked in a thread of its own. They may have
            more methods than `SnippetSource` (:class:`foretype_client.sources.threaded.ThreadedSource`), and are closed in the end.
        clock: monotonic seconds, the same that the event loop counts.
        rng: spreads reconnects and makes request ids; its own by default.
        tracing: takes spans of every suggestion, timed by `clock`; the caller closes it.

    Raises:
        ValueError: `options.gateway` is not a WebSocket URL.
    """
    options = options or ClientOptions()
    rng = rng or random.Random()
    state_dir = options.state_dir or default_state_dir()
    telemetry_dir = state_dir / "telemetry"

    gateways = () if options.gateway is None else gateways_in(options.gateway)
    regions = None
    if len(gateways) > 1:
        regions = Regions(gateways, options.token, options.token_in_clear, clock=clock)

    begun = options.begun

    async def locate() -> Endpoint:
        nonlocal begun
        if regions is not None:
            return await regions.locate()
        if begun is not None:
            first, begun = begun, None
            return await first
        return await ensure_gateway(
            options.state_dir, model=options.model, clock=clock, timeout_s=options.start_timeout_s
        )

    policy = options.policy
    session = Session(
        gateways[0] if gateways else "",
        token=options.token,
        token_in_clear=options.token_in_clear,
        client_name=options.client_name,
        user=await asyncio.to_thread(user_of, telemetry_dir) if options.telemetry else "",
        knobs=known_knobs(policy, telemetry=options.telemetry),
        workspaces=options.workspaces,
        clock=clock,
        rng=rng,
        locate=locate if len(gateways) != 1 else None,
        cache_dir=options.cache_dir,
    )
    assemblers = Assemblers(session, clock)
    session.profiles.add(assemblers.follow)
    feedback = Feedback.of(policy.switches)
    telemetry: Telemetry | None = None
    feeling: Feeling | None = None
    if options.telemetry:
        telemetry = _telemetry_of(options, session, feedback, telemetry_dir, clock)
        feeling = Feeling(telemetry.recorder, telemetry_dir, clock=clock, wall_s=lambda: _wall_ms() / 1000)
    gateway: Gateway = session
    tracer = None if tracing is None else FlowTracer(tracing, clock=clock)
    if tracer is not None:
        gateway = TracedGateway(session, tracer)
    learning = AsyncExitStack()
    habits: Habits | None = None
    if options.learn and options.local and policy.switches.learn_showing:
        habits = await learning.enter_async_context(kept_in(state_dir / HABITS_NAME))
    added = host(sources, call_soon=asyncio.get_running_loop().call_soon_threadsafe, clock=clock)
    asked = added if options.sources is None else options.sources.beside(added)
    flow = CompletionFlow(
        gateway,
        assemblers,
        clock=clock,
        policy=Policy(policy, Machine(lambda: session.endpoint.process).spared),
        cache=CompletionCache(),
        local=AdaptiveModel(shipped_table(), show=habits.rule if habits else SHOW_RULE) if options.local else None,
        habits=habits,
        rng=rng,
        options=options.flow,
        feedback=feedback,
        sources=asked,
    )
    if telemetry is not None:
        telemetry.recorder.follow(flow)
    if tracer is not None:
        tracer.follow(flow.events)
    await session.start()
    reads = options.local and options.trusted
    background = [_reading(options.workspaces if reads else (), flow)]
    if regions is not None:
        background.append(asyncio.create_task(regions.watch(session), name="foretype regions"))
    if telemetry is not None:
        background.append(asyncio.create_task(telemetry.run(), name="foretype telemetry"))
        background[-1].add_done_callback(_telemetry_ended)
    try:
        log = None if telemetry is None else telemetry.recorder.next_edits
        yield Client(session, flow, assemblers, asked, feeling, log, regions, background if reads else None)
    finally:
        await end_tasks(*background)
        await flow.close()
        await learning.aclose()
        if telemetry is not None:
            await telemetry.close()
        await assemblers.close()
        await session.close()
        await asyncio.to_thread(added.close)


def _reading(workspaces: Sequence[Workspace], flow: CompletionFlow) -> asyncio.Task[None]:
    roots = [Path(workspace.root) for workspace in workspaces]
    return asyncio.create_task(learn_neighbours(roots, flow.learn), name="foretype neighbours")


def _wall_ms() -> int:
    """Unix milliseconds; only telemetry says on which day something was."""
    return time.time_ns() // 1_000_000


def _telemetry_of(
    options: ClientOptions, session: Session, feedback: Feedback, folder: Path, clock: Clock
) -> Telemetry:
    """Not yet running; told of the session's connections and acknowledgements."""
    woken = asyncio.Event()
    recorder = Recorder(
        secrets.token_hex(12),  # unique across users and restarts; the client's `rng` may be seeded, and then is not
        feedback,
        clock=clock,
        wall_ms=_wall_ms(),
        editor=options.editor,
        stirred=woken.set,
    )
    made = Telemetry(
        recorder,
        session,
        Spool(folder / "spool"),
        clock=clock,
        wall_ms=_wall_ms,
        head_of=head_of if options.trusted else lambda uri: "",
        woken=woken,
    )
    session.connections.add(lambda connected: woken.set())
    session.acknowledged.add(made.acknowledged)
    return made


def _telemetry_ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.error("telemetry ended", exc_info=error)
