"""A model as OpenVINO made it out of its file: kept by the first start, opened by the next ones, and never needed."""

import mmap
from pathlib import Path

import pytest
from backend.tiny_gguf import as_byte_level, byte_level_tokens, write_tiny_gguf
from backend.world import closing
from foretype_backend.engines.embedded.engine import EmbeddedEngine
from foretype_backend.engines.embedded.openvino_model import FOLDER, leave_pages
from foretype_backend.engines.port import GenerationParams, GenerationRequest

PROMPT = [4 + i * 7 % 500 for i in range(300)]
TEXTS = byte_level_tokens(512)[0]


async def answers(model: Path, prepared: Path, **options: object) -> tuple[list[tuple[list[int], list[float]]], bool]:
    """Of an engine that was started anew: tokens and log-probabilities, free and with a beginning; and whether it reads what was kept."""
    engine = EmbeddedEngine.from_config(model=model, threads=1, library="openvino", prepared_dir=prepared, **options)
    await engine.start()
    found: list[tuple[list[int], list[float]]] = []
    async with closing(engine):
        for begins in ("", "_q(*", "\n"):
            params = GenerationParams(max_tokens=8, begins=begins)
            chunks = [one async for one in engine.generate(GenerationRequest(f"r{begins}", PROMPT, params))]
            ids = [token for one in chunks for token in one.token_ids]
            assert "".join(TEXTS[token] for token in ids).startswith(as_byte_level(begins))
            found.append((ids, [round(p, 3) for one in chunks for p in one.logprobs]))
        return found, maps_weights(engine.process_id)


def maps_weights(pid: int | None) -> bool:
    return "/openvino_model.bin" in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("lookup", [0, 3])
async def test_the_next_start_opens_what_was_kept_and_answers_the_same(tmp_path: Path, lookup: int) -> None:
    model, prepared = write_tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "prepared"
    first, kept = await answers(model, prepared, prompt_lookup_tokens=lookup)
    assert not kept
    (folder,) = (one for one in (prepared / FOLDER).iterdir() if one.is_dir())
    assert not (folder / "model.gguf").is_symlink()
    assert await answers(model, prepared, prompt_lookup_tokens=lookup) == (first, True)
    (folder / "openvino_model.xml").write_text("<net")
    assert await answers(model, prepared, prompt_lookup_tokens=lookup) == (first, False)
    assert not folder.exists()


async def test_where_nothing_can_be_kept_the_file_is_read(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "prepared").write_text("a file")
    _, kept = await answers(model, tmp_path / "prepared")
    assert not kept


def test_pages_of_weights_are_left_and_are_there_when_they_are_looked_at(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    for name in ("openvino_model.bin", "another.bin"):
        (tmp_path / name).write_bytes(content)
    with (tmp_path / "openvino_model.bin").open("rb") as weights, (tmp_path / "another.bin").open("rb") as other:
        maps = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in (weights, other)]
        assert [sum(one[:: mmap.PAGESIZE]) for one in maps] == [0, 0]
        before = resident_kib(tmp_path)
        leave_pages()
        after = resident_kib(tmp_path)
        assert before == {"openvino_model.bin": 1024, "another.bin": 1024}
        assert after == {"openvino_model.bin": 0, "another.bin": 1024}
        assert maps[0][:] == content
        for one in maps:
            one.close()


def resident_kib(folder: Path) -> dict[str, int]:
    """Of the mapped files of a folder, by name."""
    found: dict[str, int] = {}
    name = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if f" {folder}/" in line:
            name = Path(line.split(maxsplit=5)[5]).name
        elif name and line.startswith("Rss:"):
            found[name] = int(line.split()[1])
            name = ""
    return found
