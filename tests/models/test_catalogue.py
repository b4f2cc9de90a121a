"""The catalogue signs itself off: licences, sizes, digests, sources; and what is proposed follows from it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from foretype_context.grammars.grammar import GRAMMARS
from foretype_models.errors import UseError
from foretype_models.use.catalogue import CATALOGUE, Catalogue, read_catalogue
from foretype_models.use.machine import Gpu, Machine, look
from foretype_models.use.proposal import check_memory, expected, propose

FREE = {"Apache-2.0", "MIT"}
LAPTOP = Machine(
    system="Linux", architecture="x86_64", cores=8, memory_bytes=16_000_000_000, available_bytes=11_000_000_000
)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return read_catalogue()


def test_nobody_is_proposed_a_model_with_strings(catalogue: Catalogue) -> None:
    proposable = [entry for entry in catalogue.models if entry.proposable]
    assert len(proposable) >= 3
    for entry in proposable:
        assert entry.licence in FREE, f"{entry.name}: {entry.licence} is not for a menu; if it is fine, say why here"
        assert entry.base and "instruct" not in (entry.repository + entry.file).lower()
        assert entry.bytes is not None and entry.sha256 is not None
        assert entry.revision not in ("main", "master"), f"{entry.name}: a branch moves, and the digest with it"
        assert entry.grammar in GRAMMARS, f"{entry.name}: the gateway does not know {entry.grammar}"


def test_the_known_trap_is_marked(catalogue: Catalogue) -> None:
    """Qwen2.5-Coder is Apache-2.0 in every size but 3B."""
    entry = catalogue.get("qwen2.5-coder-3b")
    assert entry is not None and not entry.commercial and not entry.proposable


def test_figures_have_the_shape_of_what_they_are(catalogue: Catalogue) -> None:
    for entry in catalogue.models:
        assert entry.sha256_from, entry.name
        assert (entry.sha256 is None) == (entry.sha256_from == "not known"), entry.name
        assert len(entry.sha256 or "0" * 64) == 64
        if entry.bytes is not None:  # 8.5 bits per weight for Q8_0, and a vocabulary
            assert 0.5 <= entry.bytes / entry.parameters <= 1.3, entry.name
        assert entry.source({}).startswith("https://huggingface.co/")
        assert entry.source({"HF_ENDPOINT": "https://mirror.example/"}).startswith(
            f"https://mirror.example/{entry.repository}/"
        )
    digests = [entry.sha256 for entry in catalogue.models if entry.sha256]
    assert len(set(digests)) == len(digests)
    for speed in catalogue.speed:
        assert speed.source and 1 <= speed.decode_tokens_s <= 1000


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "mellum-4b"', 'name = "qwen2.5-coder-7b"', "two models have the name"),
        ("bytes = 531_068_128", "bytes = -1", "bytes"),
        ('sha256 = "d0f8', 'sha256 = "D0F8', "sha256"),
        ('file = "mellum-4b-base.Q8_0.gguf"', 'file = "../evil.gguf"', "file"),
        ('repository = "JetBrains/Mellum-4b-base-gguf"', 'repository = "a/b/c"', "repository"),
        ("commercial = false", "comercial = false", "comercial|commercial"),
        ("[[model]]", "[[model", "wrong"),
    ],
)
def test_a_wrong_catalogue_is_refused_by_field(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = CATALOGUE.read_text("utf-8")
    assert old in text
    (path := tmp_path / "own.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(UseError, match=f"own.toml: .*(?:{said})"):
        read_catalogue(path)


def test_a_catalogue_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UseError, match=r"cannot be read.*name another with --catalogue"):
        read_catalogue(tmp_path / "none.toml")


def name(machine: Machine, catalogue: Catalogue) -> str | None:
    entry = propose(machine, catalogue).entry
    return None if entry is None else entry.name


def test_what_is_proposed_follows_cores_memory_and_graphics(catalogue: Catalogue) -> None:
    assert name(LAPTOP, catalogue) == "qwen2.5-coder-1.5b"
    assert name(replace(LAPTOP, cores=4), catalogue) == "qwen2.5-coder-0.5b"
    assert (
        name(replace(LAPTOP, memory_bytes=4_000_000_000, available_bytes=3_000_000_000), catalogue)
        == "qwen2.5-coder-0.5b"
    )
    assert name(replace(LAPTOP, memory_bytes=2_000_000_000, available_bytes=900_000_000), catalogue) is None
    graphics = (Gpu("intel", "Intel Arc Graphics", "GPU"),)
    proposal = propose(replace(LAPTOP, cores=4, gpus=graphics), catalogue)
    assert proposal.entry is not None and proposal.entry.name == "qwen2.5-coder-1.5b" and proposal.device == "GPU"
    assert (
        proposal.prompt_tokens
        > propose(LAPTOP, catalogue).prompt_tokens
        > propose(replace(LAPTOP, cores=2), catalogue).prompt_tokens
    )


def test_whatever_the_machine_is_nothing_with_strings_is_proposed(catalogue: Catalogue) -> None:
    for cores in (1, 2, 4, 6, 8, 16, 64, 256):
        for gigabytes in (1, 2, 4, 8, 16, 64, 512):
            memory = gigabytes * 1_000_000_000
            machine = replace(LAPTOP, cores=cores, memory_bytes=memory, available_bytes=memory * 3 // 4)
            proposal = propose(machine, catalogue)
            if proposal.entry is not None:
                assert proposal.entry.licence in FREE and proposal.entry.base
                assert (proposal.entry.bytes or 0) < memory / 2


def test_apple_silicon_gets_a_model_and_is_told_that_nobody_tried(catalogue: Catalogue) -> None:
    mac = replace(LAPTOP, system="Darwin", architecture="arm64", gpus=(Gpu("apple", "Apple graphics"),))
    proposal = propose(mac, catalogue)
    assert proposal.entry is not None and proposal.device == "CPU"
    assert any("nobody has tried Foretype on macOS" in note for note in proposal.notes)


def test_windows_on_arm_is_led_to_a_server_and_told_that_nobody_tried(catalogue: Catalogue) -> None:
    proposal = propose(replace(LAPTOP, system="Windows", architecture="arm64", embedded=False), catalogue)
    assert proposal.entry is None
    assert (
        "llama-server -hf ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF" in proposal.why and "foretype use http" in proposal.why
    )
    assert any("nobody has tried Foretype on Windows" in note for note in proposal.notes)


def test_an_nvidia_gpu_is_not_kept_quiet_about(catalogue: Catalogue) -> None:
    notes = propose(replace(LAPTOP, gpus=(Gpu("nvidia", "RTX 4090"),)), catalogue).notes
    assert any("does not use the RTX 4090:" in note for note in notes)


def test_a_model_larger_than_memory_is_one_sentence(catalogue: Catalogue) -> None:
    with pytest.raises(UseError, match=r"big needs 20\.\d GB and this machine has 16\.0; take a smaller one"):
        check_memory(LAPTOP, 20_000_000_000, "big")
    with pytest.raises(UseError, match=r"big needs 12\.\d GB and 11\.0 are free; close something"):
        check_memory(LAPTOP, 12_000_000_000, "big")
    check_memory(LAPTOP, 1_600_000_000, "small")


def test_what_is_expected_falls_with_size_and_rises_with_cores(catalogue: Catalogue) -> None:
    half, one, seven = (catalogue.get(f"qwen2.5-coder-{size}") for size in ("0.5b", "1.5b", "7b"))
    assert half and one and seven
    figures = [expected(entry, LAPTOP, catalogue) for entry in (half, one, seven)]
    speeds = [figure.decode_tokens_s for figure in figures if figure is not None]
    assert len(speeds) == 3 and speeds == sorted(speeds, reverse=True)
    slow, fast = expected(one, replace(LAPTOP, cores=2), catalogue), expected(one, replace(LAPTOP, cores=16), catalogue)
    assert slow is not None and fast is not None and slow.line_ms > fast.line_ms
    assert expected(msgspec.structs.replace(one, bytes=None), LAPTOP, catalogue) is None


def test_this_machine_can_be_looked_at() -> None:
    here = look()
    assert here.cores >= 1 and here.memory_bytes >= here.available_bytes > 0 and here.system and str(here)


def test_looking_at_this_machine_begins_no_thread_that_reports_to_others() -> None:
    script = (
        "import sys, threading; from foretype_models.use.machine import look; look(); "
        "print('openvino_telemetry' in sys.modules, threading.active_count())"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "1"]
