"""A real gateway process and a real language server process, as an editor and an administrator would start them."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import urllib.request
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import psutil
from foretype_lsp.transport.framing import Framing, frame
from lsprotocol import types
from pytest_lsp import LanguageClient
from pytest_lsp.client import make_test_lsp_client

URI = "file:///w/a.py"
SOURCE = "def f(a):\n    x = 1\n    return x\n"
DEADLINE_S = 300.0
STATUS, DID_CHANGE_STATUS = "foretype/status", "foretype/didChangeStatus"
INLINE = "textDocument/inlineCompletion"
ACCEPT = "foretype.didAcceptCompletionItem"

SCRIPTED = """
[engine]
name = "scripted"
[engine.options]
decode_s_per_token = {decode_s}
prefill_s_per_token = {prefill_s}
"""
EMBEDDED = """
[engine]
name = "embedded"

# What the network of the tests says is wanted here, however unsure, and no code.
[model]
drop_broken = false

[model.stop]
least_chance = 0

[model.min_mean_logprob]
mid_line = -100
line = -100
block = -100
"""

NOTHING_UNASKED = """
[model.min_mean_logprob]
mid_line = 0.0
line = 0.0
block = 0.0
"""


def server_command(*arguments, log=None):
    """The language server as a command, with a detailed log if there is a file for it."""
    logged = () if log is None else ("--log-file", str(log), "--log-level", "debug")
    return sys.executable, "-m", "foretype_lsp", *map(str, arguments), *logged


class GatewayProcess:
    """A gateway on a port of its own; `ready` when the constructor returns.

    `engine` is `scripted`, `embedded`, or "" where `more` says all.
    """

    def __init__(self, folder: Path, *, engine="scripted", decode_s=0.0, prefill_s=0.0, port=0, options=(), more=""):
        profile = folder / "gateway.toml"
        text = {"scripted": SCRIPTED.format(decode_s=decode_s, prefill_s=prefill_s), "embedded": EMBEDDED}.get(
            engine, ""
        )
        profile.write_text(text + more)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "foretype_backend", "serve", "--profile", profile, "--port", str(port), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("ready "):
                break
        else:
            raise RuntimeError(f"the gateway ended with {self.process.wait()}:\n{''.join(self.lines)}")
        self.port = int(line.rsplit(":", 1)[1])
        self._drain = threading.Thread(target=lambda: self.lines.extend(self.process.stdout))
        self._drain.start()

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    @property
    def model(self):
        """What the gateway calls its model."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/models")
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)["data"][0]["id"]

    def children(self):
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self):
        """As the system does it: no goodbye."""
        for process in [*self.children(), self.process]:
            process.kill()
        self._ended()

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
        self._ended()

    def _ended(self):
        self.process.wait(DEADLINE_S)
        self._drain.join(DEADLINE_S)
        self.process.stdout.close()


@contextmanager
def gateway(folder: Path, **options):
    with closing(GatewayProcess(folder, **options)) as running:
        yield running


class Editor:
    """What an editor does, through a pytest-lsp client."""

    def __init__(self, client: LanguageClient):
        self.client = client
        self.version = 0
        self.capabilities = None
        self.statuses: list[dict] = []
        self.arrived = asyncio.Event()
        client.protocol.fm.features[DID_CHANGE_STATUS] = self._on_status

    @property
    def pid(self):
        return self.client._server.pid

    def _on_status(self, params):
        self.statuses.append(params._asdict())
        self.arrived.set()

    async def until(self, state):
        """Wait until the server has told of this state, from here on."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.statuses or self.statuses[-1]["state"] != state:
                self.arrived.clear()
                await self.arrived.wait()
        return self.statuses[-1]

    def open(self, text, uri=URI, language="python"):
        self.version += 1
        document = types.TextDocumentItem(uri, language, self.version, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))

    def insert(self, line, character, text, uri=URI):
        at = types.Position(line, character)
        self.replace(types.Range(at, at), text, uri)

    def replace(self, place, text, uri=URI):
        self.version += 1
        change = types.TextDocumentContentChangePartial(range=place, text=text)
        identifier = types.VersionedTextDocumentIdentifier(self.version, uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change]))

    def ask(self, line, character, uri=URI, kind=2, id=None, selected=None):
        """Ask for a suggestion; the future's result is the answer."""
        context = types.InlineCompletionContext(types.InlineCompletionTriggerKind(kind), selected)
        params = types.InlineCompletionParams(
            context, types.TextDocumentIdentifier(uri), types.Position(line, character)
        )
        return self.send(INLINE, params, id=id)

    def send(self, method, params=None, id=None):
        """Send a request now; pytest-lsp's own way sends it when it is awaited."""
        return asyncio.wrap_future(self.client.protocol.send_request(method, params, msg_id=id))

    async def suggestion(self, line, character, **options):
        """The one item that a request is answered with, or None."""
        async with asyncio.timeout(DEADLINE_S):
            result = await self.ask(line, character, **options)
        return result.items[0] if result and result.items else None

    def configure(self, **settings):
        self.client.workspace_did_change_configuration(types.DidChangeConfigurationParams({"foretype": settings}))

    async def execute(self, command, *arguments):
        return await self.client.workspace_execute_command_async(types.ExecuteCommandParams(command, list(arguments)))

    async def taken(self, item):
        """Run the command of a suggestion or a next edit."""
        return await self.execute(item.command.command, *item.command.arguments)

    def saved(self, uri):
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))

    def file_changed(self, uri, how=types.FileChangeType.Changed):
        event = types.FileEvent(uri, how)
        self.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))

    async def until_index(self, says):
        """Wait until what the status says of the index satisfies `says`."""
        async with asyncio.timeout(DEADLINE_S):
            while not says((await self.status())["index"]):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)

    def cancel(self, id):
        self.client.cancel_request(types.CancelParams(id))

    async def until_requests(self, number):
        """Wait until so many requests of the flow have gone to the gateway."""
        async with asyncio.timeout(DEADLINE_S):
            while (await self.status())["counts"]["requests"] < number:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)

    async def status(self):
        """The status, asked for; figures under `counts`."""
        async with asyncio.timeout(DEADLINE_S):
            result = await self.send(STATUS)
        return {**result._asdict(), "counts": result.counts._asdict()}


@asynccontextmanager
async def editor(
    folder: Path, *arguments, options=None, encodings=None, ready=True, folders=(), progress=False, workspace=None
):
    """A language server with an initialized client; with `ready`, its gateway has been reached.

    `folders` are open as workspace folders; with `progress` the client shows work-done progress; `workspace` are further
    capabilities of it.
    """
    client = make_test_lsp_client()
    await client.start_io(*server_command(*arguments, log=folder / "lsp.log"))
    it = Editor(client)
    try:
        result = await client.initialize_session(
            types.InitializeParams(
                capabilities=types.ClientCapabilities(
                    general=types.GeneralClientCapabilities(position_encodings=encodings),
                    workspace=workspace,
                    window=types.WindowClientCapabilities(work_done_progress=True) if progress else None,
                ),
                workspace_folders=[types.WorkspaceFolder(one.as_uri(), one.name) for one in folders] or None,
                initialization_options=options,
                process_id=os.getpid(),
            )
        )
        it.capabilities = result.capabilities
        if ready:
            await it.until("ready")
        yield it
        async with asyncio.timeout(DEADLINE_S):
            await client.shutdown_session()
    finally:
        if client._server.returncode is None:  # a test that failed: pytest-lsp would wait for ever
            client._server.kill()
        await client.stop()


class RawEditor:
    """Bytes to the server's input and messages from its output, for what no client library would send."""

    def __init__(self, process):
        self.process = process
        self.messages = []
        self._framing = Framing()
        self._came = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self):
        while data := await self.process.stdout.read(1 << 16):
            self.messages += map(json.loads, self._framing.feed(data))
            self._came.set()

    def send(self, **message):
        self.process.stdin.write(frame(json.dumps({"jsonrpc": "2.0", **message}).encode()))

    def open(self, text, uri=URI, version=1):
        document = {"uri": uri, "languageId": "python", "version": version, "text": text}
        self.send(method="textDocument/didOpen", params={"textDocument": document})

    def answers(self, id):
        return [message for message in self.messages if "method" not in message and message.get("id") == id]

    async def answer(self, id):
        async with asyncio.timeout(DEADLINE_S):
            while not self.answers(id):
                self._came.clear()
                await self._came.wait()
        return self.answers(id)[0]

    async def until_ready(self):
        async with asyncio.timeout(DEADLINE_S):
            while not self._is_ready():
                self._came.clear()
                await self._came.wait()

    def _is_ready(self):
        statuses = [message["params"] for message in self.messages if message.get("method") == DID_CHANGE_STATUS]
        return bool(statuses) and statuses[-1]["state"] == "ready"

    async def ended(self):
        """The exit code, once the server has ended by itself and said all it had to say."""
        async with asyncio.timeout(DEADLINE_S):
            code = await self.process.wait()
            await self._reader
        return code


@asynccontextmanager
async def raw_editor(folder: Path, *arguments, initialize=True, process_id=None, options=None):
    process = await asyncio.create_subprocess_exec(
        *server_command(*arguments, log=folder / "lsp.log"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    it = RawEditor(process)
    try:
        if initialize:
            params = {"processId": process_id, "capabilities": {}, "initializationOptions": options}
            it.send(id=0, method="initialize", params=params)
            await it.answer(0)
            it.send(method="initialized", params={})
        yield it
    finally:
        if process.returncode is None:
            process.stdin.close()
            await it.ended()
