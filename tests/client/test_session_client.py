"""`open_client`: session, flow and assembler wired together, against a real WebSocket server."""

import asyncio
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest
from client.wire_server import WireServer
from context.tiny import raw
from foretype_client.client import ClientOptions, open_client
from foretype_client.errors import GatewayStartError, TokenizerFetchError
from foretype_client.policy.trigger import Trigger
from foretype_client.session.session import Session
from foretype_context.errors import UnknownGrammarError
from foretype_context.prompt.templates import grammar
from foretype_context.syntax.document import Document
from foretype_wire.errors import GatewayGoneError
from foretype_wire.messages import Complete, Hello, Profile
from foretype_wire.workspace import workspace_of
from git_repo import git
from waiting import until

TOKENIZER = raw("qwen2", grammar("foretype-1").controls())
PROFILE = Profile(model="test", grammar="foretype-1", tokenizer_digest=blake2b(TOKENIZER, digest_size=16).hexdigest())


def server_with_tokenizer(profile: Profile = PROFILE) -> WireServer:
    server = WireServer(profile=profile)
    server.tokenizer = TOKENIZER
    return server


async def test_a_suggestion_comes_through_the_flow(tmp_path: Path) -> None:
    async with server_with_tokenizer() as server:
        async with open_client(ClientOptions(gateway=server.url, cache_dir=tmp_path)) as client:
            assert await client.ready() is client.assembler
            snapshot = Document("file:///a.py", "def add(a, b):\n    ", path="a.py").snapshot()
            client.flow.document_opened(snapshot)
            suggestion = await client.flow.suggest(snapshot, len(snapshot.text), trigger=Trigger.INVOKED)
            assert suggestion.text == "return a + b"
        (asked,) = await server.wait_for(Complete)
        assert isinstance(asked, Complete)
        assert asked.document == "file:///a.py"


async def test_a_folder_that_is_opened_later_is_told_and_read(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("def add_to_basket(basket, item):\n    return basket.added(item)\n" * 3)
    async with server_with_tokenizer() as server:
        options = ClientOptions(gateway=server.url, cache_dir=tmp_path)
        async with open_client(options) as client:
            await client.ready()
            learned: list[str] = []
            client.flow.learn = lambda uri, text: learned.append(uri)
            client.open_folders([workspace_of(tmp_path)])
            await server.wait_for(Hello, 2)
            await until(lambda: learned == [(tmp_path / "new.py").as_uri()])


async def test_a_new_profile_brings_a_new_assembler_without_another_download(tmp_path: Path) -> None:
    async with server_with_tokenizer() as server:
        async with open_client(ClientOptions(gateway=server.url, cache_dir=tmp_path)) as client:
            first = await client.ready()
            newer = msgspec.structs.replace(PROFILE, layout="psm_classic")
            await server.peers[0].send(newer)
            await until(lambda: client.assembler not in (first, None))
            assert client.session.profile == newer
        assert sum(path.startswith("/v1/tokenizers/") for path in server.requests) == 1


async def test_a_profile_that_comes_while_the_last_one_is_prepared_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokenizer was loaded in place of the last one's, and with that all who waited were cancelled."""
    begun, newer = asyncio.Event(), msgspec.structs.replace(PROFILE, layout="psm_classic")
    json_of = Session.tokenizer_json

    async def slowly(session: Session, profile: Profile) -> bytes:
        if profile == PROFILE:
            begun.set()
            await asyncio.Event().wait()
        return await json_of(session, profile)

    monkeypatch.setattr(Session, "tokenizer_json", slowly)
    async with (
        server_with_tokenizer() as server,
        open_client(ClientOptions(gateway=server.url, cache_dir=tmp_path)) as client,
        asyncio.timeout(60),
    ):
        waiting = asyncio.create_task(client.ready())
        await begun.wait()
        await asyncio.sleep(0)
        await server.peers[0].send(newer)
        assert await waiting is client.assembler
        assert client.session.profile == newer


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"tokenizer_digest": "0" * 32}, TokenizerFetchError),
        ({"grammar": "no-such-grammar"}, UnknownGrammarError),
    ],
)
async def test_what_keeps_prompts_from_being_made_is_told_and_kept(
    changes: dict[str, str], error: type[Exception], tmp_path: Path
) -> None:
    async with (
        server_with_tokenizer(msgspec.structs.replace(PROFILE, **changes)) as server,
        open_client(ClientOptions(gateway=server.url, cache_dir=tmp_path)) as client,
    ):
        with pytest.raises(error):
            await client.ready()
        assert client.assembler is None
        assert client.assemblers.error


def downloading() -> bool:
    return any(task.get_name() == "foretype tokenizer" for task in asyncio.all_tasks())


async def test_a_failed_download_is_not_repeated_at_every_key(tmp_path: Path) -> None:
    now = 0.0
    async with server_with_tokenizer(msgspec.structs.replace(PROFILE, tokenizer_digest="0" * 32)) as server:
        options = ClientOptions(gateway=server.url, cache_dir=tmp_path)
        async with open_client(options, clock=lambda: now) as client:
            with pytest.raises(TokenizerFetchError):
                await client.ready()
            downloads = len(server.requests)
            for at in (0.0, 1.0, 4.9):
                now = at
                assert client.assembler is None
                assert not downloading()
            now = 60.0
            assert client.assembler is None
            assert downloading()
            await until(lambda: len(server.requests) > downloads)


async def test_no_gateway_is_told_by_ready_and_opening_never_waits(tmp_path: Path) -> None:
    options = ClientOptions(gateway="ws://127.0.0.1:9/v1/stream", cache_dir=tmp_path)
    async with open_client(options) as client:
        assert not client.session.connected
        with pytest.raises(GatewayGoneError):
            await client.ready()
    (tmp_path / "file").write_text("")
    async with open_client(ClientOptions(state_dir=tmp_path / "file" / "state")) as client:
        with pytest.raises(GatewayGoneError, match="state directory"):
            await client.ready()
    assert issubclass(GatewayStartError, GatewayGoneError)


def test_the_token_is_not_in_the_options_text() -> None:
    assert "secret" not in repr(ClientOptions(gateway="ws://h/v1/stream", token="secret"))


def test_clones_of_a_repository_share_its_id_and_a_bare_folder_has_its_own(tmp_path: Path) -> None:
    original, folder = tmp_path / "original", tmp_path / "folder"
    original.mkdir()
    folder.mkdir()
    git(original, "init")
    unborn = workspace_of(original)
    git(original, "commit", "--allow-empty", "-m", "root")
    git(tmp_path, "clone", str(original), "clone")
    first = workspace_of(original)
    git(original, "commit", "--allow-empty", "-m", "next")
    assert workspace_of(original).repository == first.repository == workspace_of(tmp_path / "clone").repository
    assert first.root == str(original)
    assert len({first.repository, unborn.repository, workspace_of(folder).repository}) == 3
    assert workspace_of(tmp_path / "missing").repository
