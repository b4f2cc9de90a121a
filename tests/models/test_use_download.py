"""A download over networks that break, lie, and show login pages: nothing wrong ever gets the file's name."""

import errno
import hashlib
import socket
import threading
from pathlib import Path
from typing import Any

import filelock
import pytest
from foretype_models.errors import UseError
from foretype_models.use.download import Wanted, download
from models.file_server import FileServer, serving

BODY = b"GGUF" + bytes(range(256)) * 4000
SHA256 = hashlib.sha256(BODY).hexdigest()


def fetch(served: FileServer, folder: Path, **options: Any) -> Path:
    wanted = Wanted(served.url, options.pop("sha256", SHA256), options.pop("size", len(BODY)))
    return download(wanted, folder / "file.gguf", sleep=lambda seconds: None, **options)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".file.gguf.lock"}


def test_a_file_comes_whole_and_is_not_fetched_twice(tmp_path: Path) -> None:
    told: list[int] = []
    with serving(FileServer(BODY)) as served:
        path = fetch(served, tmp_path, report=lambda done, total: told.append(done))
        assert path.read_bytes() == BODY
        assert left(tmp_path) == {"file.gguf"}
        assert (
            told[-1] == len(BODY)
            and told == sorted(told[: told.index(len(BODY)) + 1]) + told[told.index(len(BODY)) + 1 :]
        )
        fetch(served, tmp_path)
        assert len(served.requests) == 1


def test_a_connection_that_breaks_goes_on_where_it_broke(tmp_path: Path) -> None:
    with serving(FileServer(BODY, breaks_after=[300_000, 200_000, 1])) as served:
        assert fetch(served, tmp_path).read_bytes() == BODY
    asked = [request.get("Range") for request in served.requests]
    assert asked == [None, "bytes=300000-", "bytes=500000-", "bytes=500001-"]
    assert {request.get("If-Range") for request in served.requests[1:]} == {'"v1"'}


def test_half_a_download_is_gone_on_with_by_the_next_command(tmp_path: Path) -> None:
    with serving(FileServer(BODY, breaks_after=[300_000] + [0] * 20)) as served:
        with pytest.raises(
            UseError, match=r"cannot be reached .* check the network.*stay, and the next attempt goes on"
        ):
            fetch(served, tmp_path)
        assert "file.gguf" not in left(tmp_path)
        served.breaks_after.clear()
        served.requests.clear()
        assert fetch(served, tmp_path).read_bytes() == BODY
        assert served.requests[0]["Range"] == "bytes=300000-"


def test_a_file_that_changed_meanwhile_is_fetched_anew(tmp_path: Path) -> None:
    with serving(FileServer(BODY, breaks_after=[300_000] + [0] * 20)) as served:
        with pytest.raises(UseError):
            fetch(served, tmp_path)
        served.breaks_after.clear()
        served.etag = '"v2"'
        assert fetch(served, tmp_path).read_bytes() == BODY


def test_a_server_without_ranges_is_asked_for_the_whole_again(tmp_path: Path) -> None:
    with serving(FileServer(BODY, ranges=False, breaks_after=[500_000])) as served:
        assert fetch(served, tmp_path).read_bytes() == BODY
    with serving(FileServer(BODY, ranges=False, breaks_after=[500_000] * 50)) as served:
        with pytest.raises(UseError, match="cannot be reached"):
            fetch(served, tmp_path / "other")
        assert len(served.requests) < 20  # it gives up: nothing ever gets further


def test_a_server_without_a_version_of_its_file_goes_on_too(tmp_path: Path) -> None:
    with serving(FileServer(BODY, etag="", breaks_after=[500_000])) as served:
        assert fetch(served, tmp_path).read_bytes() == BODY
    assert "If-Range" not in served.requests[1] and served.requests[1]["Range"] == "bytes=500000-"


def test_a_wrong_digest_is_thrown_away(tmp_path: Path) -> None:
    with (
        serving(FileServer(BODY[:-1] + b"x")) as served,
        pytest.raises(UseError, match=r"sent another file than the catalogue knows .* thrown away"),
    ):
        fetch(served, tmp_path)
    assert left(tmp_path) == set()


def test_a_wrong_digest_that_the_server_states_is_refused_before_a_byte(tmp_path: Path) -> None:
    with serving(FileServer(BODY)) as target, serving(FileServer(b"", linked="0" * 64)) as hub:
        hub.redirects.append(target.url)
        with pytest.raises(UseError, match=r"has another file than the catalogue knows .* nothing was downloaded"):
            fetch(hub, tmp_path)
        hub.redirects.append(target.url)
        hub.linked = SHA256
        assert fetch(hub, tmp_path).read_bytes() == BODY


@pytest.mark.parametrize("announced", [len(BODY) - 1, len(BODY) + 1, 3])
def test_a_length_that_is_not_the_catalogues_is_refused(tmp_path: Path, announced: int) -> None:
    with (
        serving(FileServer(BODY, announces=announced)) as served,
        pytest.raises(UseError, match=rf"announces {announced:,} bytes and the catalogue says {len(BODY):,}"),
    ):
        fetch(served, tmp_path)
    assert "file.gguf" not in left(tmp_path)


def test_a_length_that_is_a_lie_is_seen_where_the_catalogue_knows_none(tmp_path: Path) -> None:
    with (
        serving(FileServer(BODY, announces=len(BODY) - 5)) as served,
        pytest.raises(UseError, match="another file than the catalogue knows"),
    ):  # it ends early, by its own count
        fetch(served, tmp_path, size=None)
    # It never sends what it announced; but what came is what was asked for, byte for byte.
    with serving(FileServer(BODY, announces=len(BODY) + 5, breaks_after=[len(BODY)])) as served:
        assert fetch(served, tmp_path / "more", size=None).read_bytes() == BODY
    with (
        serving(FileServer(BODY + b"x", announces=len(BODY) + 5, breaks_after=[len(BODY)] * 99)) as served,
        pytest.raises(UseError, match="another file than the catalogue knows"),
    ):
        fetch(served, tmp_path / "never", size=None, sha256="0" * 64)


def test_a_body_without_a_length_may_be_neither_short_nor_long(tmp_path: Path) -> None:
    with serving(FileServer(BODY, announces=None, breaks_after=[100_000])) as served:
        assert fetch(served, tmp_path).read_bytes() == BODY
    with (
        serving(FileServer(BODY + b"more", announces=None)) as served,
        pytest.raises(UseError, match=r"sends more than the .* bytes of file\.gguf; it was thrown away"),
    ):
        fetch(served, tmp_path / "long")
    assert left(tmp_path / "long") == set()


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/octet-stream"])
def test_a_login_page_is_told_and_not_stored(tmp_path: Path, content_type: str) -> None:
    page = b"<!doctype html><title>Log in</title>" + b" " * 1000
    with (
        serving(FileServer(page, content_type=content_type)) as served,
        pytest.raises(UseError, match=r"a web page came in place of the file.*log in with a browser"),
    ):
        fetch(served, tmp_path, size=None)
    assert b"html" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(tmp_path: Path) -> None:
    with serving(FileServer(BODY, refuses=[503, 429, 500])) as served:
        assert fetch(served, tmp_path).read_bytes() == BODY
    with serving(FileServer(BODY, refuses=[404] * 9)) as served:
        with pytest.raises(UseError, match=r"answered 404 for http.*take another model"):
            fetch(served, tmp_path / "none")
        assert len(served.requests) == 1


def test_redirects_without_an_end_are_one_sentence(tmp_path: Path) -> None:
    with serving(FileServer(BODY)) as served:
        served.redirects += [served.url] * 30
        with pytest.raises(UseError, match="from address to address without an end"):
            fetch(served, tmp_path)


def test_no_network_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        wanted = Wanted(f"http://127.0.0.1:{unused.getsockname()[1]}/file.gguf", SHA256, len(BODY))
        with pytest.raises(
            UseError, match=r"127\.0\.0\.1:\d+ cannot be reached \(.*\): check the network, or set HTTPS_PROXY"
        ):
            download(wanted, tmp_path / "file.gguf", sleep=lambda seconds: None)
    wanted = Wanted("https://no-such-host.invalid/file.gguf", SHA256, len(BODY))
    with pytest.raises(UseError, match=r"no-such-host\.invalid cannot be reached"):
        download(wanted, tmp_path / "file.gguf", sleep=lambda seconds: None)


def test_the_proxy_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(FileServer(BODY)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        wanted = Wanted("http://models.invalid/file.gguf", SHA256, len(BODY))
        assert download(wanted, tmp_path / "file.gguf").read_bytes() == BODY
        assert proxy.requests[0]["Host"] == "models.invalid"
        proxy.refuses.append(407)
        with pytest.raises(UseError, match="the proxy wants a login; set HTTPS_PROXY=http://user:password@host:port"):
            download(wanted, tmp_path / "other" / "file.gguf")


def test_a_disk_without_room_is_refused_before_a_byte(tmp_path: Path) -> None:
    with serving(FileServer(BODY)) as served:
        with pytest.raises(UseError, match=r"has 1 MB free and file\.gguf needs 68; make room, or give --folder"):
            fetch(served, tmp_path, free=lambda folder: 1_000_000)
        assert served.requests == []


def test_a_disk_that_fills_up_keeps_what_came(tmp_path: Path) -> None:
    room = 400_000

    def write(file: Any, data: bytes) -> None:
        if file.tell() + len(data) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        file.write(data)

    with serving(FileServer(BODY)) as served:
        with pytest.raises(UseError, match=r"the disk of .* is full; what came stays: make room and repeat"):
            fetch(served, tmp_path, write=write)
        kept = (tmp_path / ".file.gguf.part").stat().st_size
        assert 0 < kept <= room
        assert fetch(served, tmp_path).read_bytes() == BODY
        assert served.requests[-1]["Range"] == f"bytes={kept}-"


def test_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serving(FileServer(BODY)) as served:
        with pytest.raises(UseError, match=r"cannot be written to \(.*\); give --folder DIR"):
            fetch(served, tmp_path / "file" / "folder")
        assert served.requests == []


def test_two_downloads_of_one_file_do_not_write_into_each_other(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with filelock.FileLock(tmp_path / ".file.gguf.lock"):
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(60)
    try:
        with serving(FileServer(BODY)) as served, pytest.raises(UseError, match="being downloaded by another"):
            fetch(served, tmp_path)
    finally:
        leave.set()
        thread.join()


def test_a_part_of_another_file_is_not_gone_on_with(tmp_path: Path) -> None:
    other = b"GGUF" + b"other" * 100_000
    with serving(FileServer(other, breaks_after=[200_000] + [0] * 20)) as served, pytest.raises(UseError):
        fetch(served, tmp_path, sha256=hashlib.sha256(other).hexdigest(), size=len(other))
    with serving(FileServer(BODY)) as served:
        assert fetch(served, tmp_path).read_bytes() == BODY
        assert "Range" not in served.requests[0]
