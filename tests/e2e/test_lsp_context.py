"""Other files in a completion: the real language server over real folders, and a gateway that keeps the prompts it is sent."""

import asyncio
import shutil
from contextlib import asynccontextmanager
from hashlib import blake2b

import psutil
import pytest
from client.wire_server import Peer, WireServer
from context.tiny import raw
from e2e.lsp_support import DEADLINE_S, RawEditor, editor, server_command
from foretype_context.prompt.templates import grammar
from foretype_wire.messages import Delta, Done, Finish, Hello, Profile
from foretype_wire.segment_cache import SegmentCache
from lsprotocol import types
from waiting import until

pytestmark = pytest.mark.slow  # whole processes

TOKENIZER = raw("qwen2", grammar("foretype-1").controls())
PROFILE = Profile(model="kept", grammar="foretype-1", tokenizer_digest=blake2b(TOKENIZER, digest_size=16).hexdigest())
CART = "class Basket:\n    def grand_total(self):\n        return 1\n"
PAY = "from shop.cart import Basket\n\nbasket = Basket()\ntotal = basket\n"


class Kept:
    """Everything that prompts have held so far, as text; a segment travels as text when it is new."""

    def __init__(self):
        self.url = ""
        self.texts = []
        self.requests = 0
        self.received = []

    def roots(self):
        """The folders that the last `hello` names."""
        return [one.root for one in next(one for one in reversed(self.received) if isinstance(one, Hello)).workspaces]

    async def behave(self, peer: Peer, message):
        self.requests += 1
        self.texts += [segment.text for segment in message.segments if segment.text]
        await peer.send(Delta(id=message.id, text=".kept()", tokens=2))
        await peer.send(Done(id=message.id, finish=Finish.END_OF_MIDDLE))

    def has(self, text):
        return any(text in one for one in self.texts)


@asynccontextmanager
async def keeping():
    kept = Kept()
    async with WireServer(kept.behave, profile=PROFILE) as server:
        server.tokenizer = TOKENIZER
        kept.url, kept.received = server.url, server.received
        yield kept


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "project"
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "cart.py").write_text(CART)
    (folder / "pay.py").write_text(PAY)
    return folder


def options(tmp_path, **more):
    return {"debounceMs": 0, "index": {"cacheDir": str(tmp_path / "cache"), **more}}


@asynccontextmanager
async def working(tmp_path, root, **more):
    """A gateway that keeps prompts, and an editor with this folder open."""
    async with (
        keeping() as kept,
        editor(tmp_path, "--gateway", kept.url, options=options(tmp_path), folders=[root], **more) as it,
    ):
        yield kept, it


def large(tmp_path, files, text):
    """A folder of many files; `{number}` in their text is the file's."""
    root = tmp_path / "large"
    root.mkdir()
    for number in range(files):
        (root / f"m{number}.py").write_text(text.replace("{number}", str(number)))
    return root


async def indexed(it, text="ready"):
    await it.until_index(lambda said: text in said)


class Typist:
    """Types one more character into a line of a file and asks, until a prompt holds what is looked for."""

    def __init__(self, it, uri, line, column):
        self.it, self.uri, self.line, self.column = it, uri, line, column

    async def key(self):
        self.it.insert(self.line, self.column, "s", uri=self.uri)
        self.column += 1
        return await self.it.suggestion(self.line, self.column, uri=self.uri)

    async def until_seen(self, kept, text):
        async def seen():
            await self.key()
            return kept.has(text)

        await until(seen)


async def test_what_another_file_defines_is_in_the_prompt_and_so_is_what_was_never_saved(root, tmp_path):
    pay, cart = (root / "pay.py").as_uri(), (root / "shop" / "cart.py").as_uri()
    async with working(tmp_path, root) as (kept, it):
        await indexed(it)
        it.open(PAY, uri=pay)
        typist = Typist(it, pay, 3, 14)
        await typist.until_seen(kept, "def grand_total")
        assert not kept.has("never_saved")
        it.open(CART.replace("grand_total", "never_saved"), uri=cart)
        await typist.until_seen(kept, "def never_saved")
        it.insert(1, 8, "really_", uri=cart)
        await typist.until_seen(kept, "def really_never_saved")
    assert "grand_total" in (root / "shop" / "cart.py").read_text()


async def test_a_save_by_somebody_else_is_seen_when_the_editor_tells_of_it(root, tmp_path):
    pay = (root / "pay.py").as_uri()
    async with working(tmp_path, root) as (kept, it):
        await indexed(it)
        it.open(PAY, uri=pay)
        (root / "shop" / "cart.py").write_text(CART.replace("grand_total", "pulled_total"))
        it.file_changed((root / "shop" / "cart.py").as_uri())
        await Typist(it, pay, 3, 14).until_seen(kept, "def pulled_total")


async def test_folders_come_and_go_and_one_is_deleted(root, tmp_path):
    other = tmp_path / "other"
    (other / "lib").mkdir(parents=True)
    (other / "lib" / "far.py").write_text("class Far:\n    def away(self): ...\n")
    async with working(tmp_path, root) as (kept, it):
        await indexed(it)
        added = types.WorkspaceFoldersChangeEvent([types.WorkspaceFolder(other.as_uri(), "other")], [])
        it.client.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(added))
        await indexed(it, "other: 2 definitions, ready")
        await until(lambda: kept.roots() == [str(root), str(other)])
        uri = (other / "use.py").as_uri()
        it.open("from lib.far import Far\nfar = Far\n", uri=uri)
        typist = Typist(it, uri, 1, 9)
        await typist.until_seen(kept, "def away")
        shutil.rmtree(other)
        assert await typist.key() is not None
        removed = types.WorkspaceFoldersChangeEvent([], [types.WorkspaceFolder(other.as_uri(), "other")])
        it.client.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(removed))
        shutil.rmtree(root)
        await until(typist.key)  # the connection that tells the folders begins
        await it.until_index(lambda said: "other" not in said)
        await until(lambda: kept.roots() == [str(root)])
    assert "ERROR" not in (tmp_path / "lsp.log").read_text()


async def test_a_large_first_index_shows_progress_and_keeps_nobody_waiting(tmp_path):
    root = large(tmp_path, 2000, "def made{number}(a, b):\n    return a + b + {number}\n" * 3)
    async with working(tmp_path, root, progress=True) as (_, it):
        it.open("x = a\n", uri=(root / "m1.py").as_uri())
        assert (await it.suggestion(0, 5, uri=(root / "m1.py").as_uri())) is not None
        await indexed(it, "definitions, ready")
        assert "0 definitions" not in (await it.status())["index"].replace("000 definitions", "")
        (reports,) = it.client.progress_reports.values()
        kinds = [report.kind for report in reports]
        assert kinds[0] == "begin" and kinds[-1] == "end" and set(kinds[1:-1]) <= {"report"}
        assert reports[0].cancellable and all(0 <= report.percentage <= 100 for report in reports[1:-1])


async def test_a_first_index_can_be_cancelled(tmp_path):
    root = large(tmp_path, 2000, "def made(a, b):\n    return a + b\n" * 50)
    async with working(tmp_path, root, progress=True) as (_, it):
        await until(lambda: it.client.progress_reports)
        (token,) = it.client.progress_reports
        it.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
        await indexed(it, "indexing was cancelled")
        it.open("x = a\n", uri=(root / "m1.py").as_uri())
        assert (await it.suggestion(0, 5, uri=(root / "m1.py").as_uri())) is not None


async def test_a_damaged_index_is_made_anew_with_one_line_in_the_log(root, tmp_path):
    for number in range(60):
        (root / f"m{number}.py").write_text(f"def made{number}(): ...\n")
    async with keeping() as kept:
        for damaged in (False, True):
            if damaged:
                (stored,) = [one for one in (tmp_path / "cache").rglob("*") if one.is_file() and one.name != "lock"]
                stored.write_bytes(stored.read_bytes()[:-100])
                (tmp_path / "lsp.log").write_text("")
            async with editor(tmp_path, "--gateway", kept.url, options=options(tmp_path), folders=[root]) as it:
                await indexed(it, "definitions, ready")
    log = (tmp_path / "lsp.log").read_text()
    assert log.count("anew") == 1 and "ERROR" not in log


async def test_without_retrieval_no_folder_is_read(root, tmp_path):
    async with (
        keeping() as kept,
        editor(tmp_path, "--gateway", kept.url, "--no-retrieval", options=options(tmp_path), folders=[root]) as it,
    ):
        it.open(PAY, uri=(root / "pay.py").as_uri())
        assert await Typist(it, (root / "pay.py").as_uri(), 3, 14).key() is not None
        assert (await it.status())["index"] == "switched off"
        assert not kept.has("def grand_total") and not (tmp_path / "cache").exists()


async def test_two_windows_on_one_workspace_share_its_index(root, tmp_path):
    for number in range(60):  # more than a window takes in by itself
        (root / f"m{number}.py").write_text(f"def made{number}(): ...\n")
    one_log, other_log = tmp_path / "one", tmp_path / "other"
    one_log.mkdir()
    other_log.mkdir()
    async with (
        keeping() as kept,
        editor(one_log, "--gateway", kept.url, options=options(tmp_path), folders=[root]) as one,
        editor(other_log, "--gateway", kept.url, options=options(tmp_path), folders=[root]) as other,
    ):
        for it in (one, other):
            # One of them writes; the other, told that it is being written, looks again a little later.
            await it.until_index(lambda said: "definitions, ready" in said and " 0 definitions" not in said)
            assert it.client.messages == []
        (stored,) = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.name != "lock"]
        assert stored.stat().st_size > 0
    assert "ERROR" not in (one_log / "lsp.log").read_text() + (other_log / "lsp.log").read_text()


async def test_a_window_that_is_killed_leaves_no_process_behind(tmp_path):
    root = large(tmp_path, 3000, "def made(a, b):\n    return a + b\n" * 50)
    process = await asyncio.create_subprocess_exec(
        *server_command(log=tmp_path / "lsp.log"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    it = RawEditor(process)
    folders = [{"uri": root.as_uri(), "name": "large"}]
    given = {**options(tmp_path), "gatewayUrl": "ws://127.0.0.1:9/v1/stream"}
    params = {"processId": None, "capabilities": {}, "workspaceFolders": folders, "initializationOptions": given}
    it.send(id=0, method="initialize", params=params)
    await it.answer(0)
    it.send(method="initialized", params={})
    workers = await until(lambda: psutil.Process(process.pid).children(recursive=True))
    process.kill()
    await it.ended()
    _, alive = await asyncio.to_thread(psutil.wait_procs, workers, DEADLINE_S)
    assert alive == []


class Whole(Kept):
    """The whole prompts, digests with their texts."""

    def __init__(self):
        super().__init__()
        self.cache = SegmentCache()
        self.prompts = []

    async def behave(self, peer: Peer, message):
        said = []
        for segment in message.segments:
            if segment.text is not None:
                self.cache.receive_text(segment.kind, segment.text)
            said.append(
                segment.text or (segment.digest and self.cache.receive_digest(segment.kind, segment.digest)) or ""
            )
        self.prompts.append("".join(said))
        await super().behave(peer, message)


def ignored(it, root):
    (root / "shop" / ".gitignore").write_text("cart.py\n")
    it.file_changed((root / "shop" / ".gitignore").as_uri(), types.FileChangeType.Created)


def ignored_and_saved(it, root):
    (root / ".gitignore").write_text("shop/\n")
    it.saved((root / ".gitignore").as_uri())


def excluded(it, root):
    it.configure(**options(root.parent), excludedGlobs=["**/cart.py"])


def holding_a_key(it, root):
    it.insert(0, 0, "-----BEGIN PRIVATE KEY-----\n", uri=(root / "shop" / "cart.py").as_uri())


@pytest.mark.parametrize("leave_out", [ignored, ignored_and_saved, excluded, holding_a_key])
async def test_from_the_moment_a_file_is_left_out_no_prompt_holds_a_line_of_it(root, tmp_path, leave_out):
    pay, cart = (root / "pay.py").as_uri(), (root / "shop" / "cart.py").as_uri()
    kept = Whole()
    async with WireServer(kept.behave, profile=PROFILE) as server:
        server.tokenizer, kept.url = TOKENIZER, server.url
        async with editor(tmp_path, "--gateway", kept.url, options=options(tmp_path), folders=[root]) as it:
            await indexed(it)
            it.open(PAY, uri=pay)
            if leave_out is holding_a_key:
                it.open(CART, uri=cart)
            typist = Typist(it, pay, 3, 14)
            await typist.until_seen(kept, "def grand_total")
            leave_out(it, root)
            before = len(kept.prompts)

            async def asked():
                await typist.key()
                return len(kept.prompts) >= before + 5

            await until(asked)
            assert not [prompt for prompt in kept.prompts[before:] if "grand_total" in prompt]
