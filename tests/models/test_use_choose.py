"""What somebody asks for, and what runs already: chosen, or refused in one sentence that says what to do."""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import gguf
import pytest
from backend.tiny_gguf import write_tiny_gguf
from foretype_context.grammars.grammar import grammar
from foretype_models import running_servers
from foretype_models.cli import app
from foretype_models.errors import NoServerError, UseError
from foretype_models.running_servers import look_at, probe
from foretype_models.use.catalogue import read_catalogue
from foretype_models.use.choose import ModelWish, choose
from foretype_models.use.listing import MachineFindings, list_choices
from foretype_models.use.machine import Gpu, Machine
from foretype_models.use.profile import Choice, chosen, keep, render
from models.model_server import CODER, ModelServer, llama_cpp, lm_studio, ollama, serving, vllm
from typer.testing import CliRunner

LAPTOP = Machine(
    system="Linux", architecture="x86_64", cores=8, memory_bytes=16_000_000_000, available_bytes=11_000_000_000
)
CATALOGUE = read_catalogue()


class Nobody:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def doing(self, text: str) -> None: ...

    def progress(self, done: int, total: int | None) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def asked(what: str, tmp_path: Path, **options: Any) -> ModelWish:
    return ModelWish(what=what, folder=tmp_path / "models", **{"machine": LAPTOP, "catalogue": CATALOGUE} | options)


def chosen_for(what: str, tmp_path: Path, **options: Any) -> Choice:
    return choose(asked(what, tmp_path, **options), Nobody())


def listing(found: list[running_servers.Server], tmp_path: Path) -> Any:
    return list_choices(MachineFindings(machine=LAPTOP, servers=found, catalogue=CATALOGUE), tmp_path, tmp_path)[0]


# Servers


def test_servers_are_known_by_what_they_answer_on_whatever_port(tmp_path: Path) -> None:
    with ExitStack() as stack:
        says = [
            ollama("qwen2.5-coder:1.5b-base", "llama3"),
            llama_cpp(),
            lm_studio("coder"),
            vllm(),
            {"/v1/models": {"data": [{"id": "x"}]}},
        ]
        running = [stack.enter_context(serving(ModelServer(one))) for one in says]
        found = probe(tuple(one.port for one in running), limit_s=30)
    assert [server.kind for server in found] == ["ollama", "llama.cpp", "lm-studio", "vllm", "openai"]
    assert found[0].names == ("qwen2.5-coder:1.5b-base", "llama3")
    assert [server.engine for server in found] == ["ollama", "llama-cpp", "lm-studio", "openai", "openai"]
    assert (found[1].slots, found[1].context_tokens) == (4, 32768)
    assert [server.good for server in found] == ["qwen2.5-coder:1.5b-base", f"{CODER}-q8_0.gguf", "coder", CODER, None]


def test_nothing_runs_is_an_empty_list_and_soon() -> None:
    assert probe((1, 2, 3)) == []


def test_ports_that_take_and_say_nothing_are_left_after_a_second() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert probe((silent.getsockname()[1],)) == []


def test_all_ports_are_asked_at_once() -> None:
    """Seven of which none says anything before all have been asked."""
    together = Barrier(7)

    def hold(listening: socket.socket) -> None:
        with listening:
            while not (taken := listening.accept()[0]).recv(1 << 12):  # only looks whether somebody listens
                taken.close()
        with taken:
            together.wait()

    with ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(together.parties)]
        pool = stack.enter_context(ThreadPoolExecutor(together.parties))
        stack.callback(together.abort)
        held = [pool.submit(hold, one) for one in listening]
        assert probe(tuple(one.getsockname()[1] for one in listening), limit_s=30) == []
        assert [one.exception(30) for one in held] == [None] * together.parties, "one was asked after another"


def test_a_server_that_loads_its_model_is_known_and_not_asked(tmp_path: Path) -> None:
    loading = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    with serving(ModelServer({"/props": loading, "/v1/models": loading}, status=503)) as running:
        rows = listing(probe((running.port,), limit_s=30), tmp_path).rows
        with pytest.raises(UseError, match="is still loading its model; wait until it is there"):
            chosen_for(f"{running.root}/v1", tmp_path)
    assert [(row.title, row.refused) for row in rows if row.asked == f"{running.root}/v1"] == [
        ("llama.cpp: no model", "it is still loading its model")
    ]


def test_what_ollama_says_of_its_models_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    says = ollama("llama3:8b", "qwen2.5-coder:1.5b-base")
    says["/api/ps"] = {"models": [{"name": "qwen2.5-coder:1.5b-base"}]}
    says["/api/show"] |= {
        "capabilities": ["completion", "insert"],
        "model_info": {"general.architecture": "qwen2", "qwen2.context_length": 32768},
    }
    with serving(ModelServer(says)) as running:
        monkeypatch.setattr(running_servers, "probe", lambda: probe((running.port,), limit_s=30))
        done = CliRunner().invoke(app, ["servers"])
        said = json.loads(CliRunner().invoke(app, ["servers", "--json"]).output)
    assert said[0]["models"][0] == {
        "name": "qwen2.5-coder:1.5b-base",
        "code": True,
        "base": True,
        "inserts": True,
        "context_tokens": 32768,
        "loaded": True,
    }
    assert said[0]["models"][1]["name"] == "llama3:8b" and said[0]["models"][1]["loaded"] is False
    assert (said[0]["engine"], said[0]["good"]) == ("ollama", "qwen2.5-coder:1.5b-base")
    assert "asked by `--engine ollama`: raw text; cached tokens: not counted" in done.output
    assert "base, for code, by its name, loaded, 32,768 tokens of context, its template fills in" in done.output


@pytest.mark.parametrize(
    "says", [{}, {"/v1/models": []}, {"/v1/models": {"data": []}}, {"/v1/models": {"data": "x"}}, {"/props": {"a": 1}}]
)
def test_what_is_no_server_of_models_is_told(says: dict[str, Any]) -> None:
    with (
        serving(ModelServer(says)) as running,
        pytest.raises(NoServerError, match=r"no server of models answers at http.*start it, or name"),
    ):
        look_at(f"{running.root}/v1")


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://127.0.0.1:99999/v1"])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(NoServerError, match=r"is no address of a server|no server of models answers"):
        look_at(url)


def test_the_gateway_is_not_put_in_front_of_itself() -> None:
    with serving(ModelServer({"/healthz": {"grammar": "x", "authorized": False}, **llama_cpp()})) as running:
        with pytest.raises(NoServerError, match="is a gateway of Foretype"):
            look_at(f"{running.root}/v1")
        assert probe((running.port,), limit_s=30) == []


def test_one_good_server_is_proposed_before_any_download(tmp_path: Path) -> None:
    with serving(ModelServer(llama_cpp())) as running:
        rows = listing(probe((running.port,), limit_s=30), tmp_path).rows
    assert rows[0].proposed and rows[0].asked == f"{running.root}/v1"
    assert sum(row.proposed for row in rows) == 1


def test_two_good_servers_are_asked_about_and_never_guessed(tmp_path: Path) -> None:
    with serving(ModelServer(llama_cpp())) as one, serving(ModelServer(vllm())) as other:
        found = listing(probe((one.port, other.port), limit_s=30), tmp_path)
    assert not any(row.proposed for row in found.rows)
    assert any(
        "2 servers run that could serve" in note and one.root in note and other.root in note for note in found.notes
    )


def test_a_server_that_chats_is_not_proposed(tmp_path: Path) -> None:
    with serving(ModelServer(llama_cpp("qwen2.5-coder-7b-instruct-q4.gguf"))) as running:
        found = listing(probe((running.port,), limit_s=30), tmp_path)
        assert found.rows[0].asked == "qwen2.5-coder-1.5b"  # the catalogue's
        with pytest.raises(
            UseError, match=r"was trained to chat, by its name, and would answer in prose; serve its base model"
        ):
            chosen_for(f"{running.root}/v1", tmp_path)


def test_a_server_whose_file_lies_here_needs_no_tokenizer(tmp_path: Path) -> None:
    (file := tmp_path / "coder.gguf").write_bytes(b"GGUF")
    with serving(ModelServer(llama_cpp(model_path=str(file), context=1024))) as running:
        choice = chosen_for(f"{running.root}/v1", tmp_path)
    assert (choice.engine, choice.model, choice.name) == ("llama-cpp", f"{running.root}/v1", f"{CODER}-q8_0")
    assert choice.rules is not None and "tokenizer" not in choice.rules  # the engine reads what the server has then
    assert choice.rules["context_limit_tokens"] == 1024 and choice.rules["budgets"]["prompt_tokens"] == 768
    (folder := tmp_path / "checkpoint").mkdir()
    (folder / "tokenizer.json").write_text("{}")
    with serving(ModelServer(vllm(root=str(folder)))) as running:
        choice = chosen_for(f"{running.root}/v1", tmp_path)
    assert choice.rules is not None and choice.rules["tokenizer"] == str(folder / "tokenizer.json")


def test_a_server_elsewhere_asks_for_its_tokenizer(tmp_path: Path) -> None:
    with serving(ModelServer(vllm())) as running:
        with pytest.raises(
            UseError, match=r"tokenizer of .*'s model is not on this machine; name it with --tokenizer FILE"
        ):
            chosen_for(f"{running.root}/v1", tmp_path)
        with pytest.raises(UseError, match=r"--tokenizer: there is no file"):
            chosen_for(f"{running.root}/v1", tmp_path, tokenizer=tmp_path / "none.json")


def test_a_server_with_several_models_is_asked_about(tmp_path: Path) -> None:
    says = vllm()
    says["/v1/models"]["data"] += [{"id": "starcoder2-3b"}, {"id": "llama-instruct"}]
    (file := tmp_path / "tokenizer.json").write_text("{}")
    with serving(ModelServer(says)) as running:
        with pytest.raises(UseError, match=r"has 3 models \(.*starcoder2-3b.*\); choose one with --model NAME"):
            chosen_for(f"{running.root}/v1", tmp_path, tokenizer=file)
        assert chosen_for(f"{running.root}/v1", tmp_path, tokenizer=file, model="starcoder2-3b").name == "starcoder2-3b"
        with pytest.raises(UseError, match=r"has no model nope; it has"):
            chosen_for(f"{running.root}/v1", tmp_path, tokenizer=file, model="nope")


def test_a_context_that_is_too_little_is_told(tmp_path: Path) -> None:
    (file := tmp_path / "coder.gguf").write_bytes(b"GGUF")
    with (
        serving(ModelServer(llama_cpp(model_path=str(file), context=300))) as running,
        pytest.raises(
            UseError, match=r"has a context of 300 tokens, which is too little; start it with at least 2,304"
        ),
    ):
        chosen_for(f"{running.root}/v1", tmp_path)


def test_a_relative_path_of_a_servers_model_is_told(tmp_path: Path) -> None:
    with (
        serving(ModelServer(llama_cpp(model_path="models/coder.gguf"))) as running,
        pytest.raises(UseError, match=r"is not on this machine; start the server with the whole path of its model, or"),
    ):
        chosen_for(f"{running.root}/v1", tmp_path)


def test_lm_studio_is_served_with_a_tokenizer_that_is_named(tmp_path: Path) -> None:
    (file := tmp_path / "tokenizer.json").write_text("{}")
    with serving(ModelServer(lm_studio("qwen2.5-coder-1.5b", "llama-instruct"))) as running:
        with pytest.raises(UseError, match="name it with --tokenizer FILE"):
            chosen_for(f"{running.root}/v1", tmp_path)
        choice = chosen_for(f"{running.root}/v1", tmp_path, tokenizer=file)
        row = next(
            row
            for row in listing(probe((running.port,), limit_s=30), tmp_path).rows
            if row.asked == f"{running.root}/v1"
        )
    assert (choice.engine, choice.name) == ("lm-studio", "qwen2.5-coder-1.5b")
    assert not row.proposed and row.refused == "it does not say its tokenizer: --tokenizer FILE"


# Ollama


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda running: monkeypatch.setenv("OLLAMA_HOST", running.root)


def test_ollama_is_asked_itself_by_name_and_by_address(tmp_path: Path, at: Any) -> None:
    name = "qwen2.5-coder:1.5b-base"
    with serving(ModelServer(ollama(name, "llama3:latest"))) as running:
        at(running)
        for what in (f"ollama:{name}", running.root, f"{running.root}/v1"):
            choice = chosen_for(what, tmp_path)
            assert (choice.engine, choice.model, choice.name) == ("ollama", running.root, name)
            assert choice.asked == f"ollama:{name}"
        rows = listing(probe((running.port,), limit_s=30), tmp_path).rows
    assert rows[0].proposed and rows[0].asked == f"ollama:{name}"


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::]:11500", "http://127.0.0.1:11500"),
        (":11500", "http://127.0.0.1:11500"),
        ("gpu-box", "http://gpu-box:11434"),
        ("gpu-box:11500/", "http://gpu-box:11500"),
        ("::1", "http://[::1]:11434"),
        ("[::1]:11500", "http://[::1]:11500"),
        ("http://gpu-box", "http://gpu-box"),
        ("https://gpu-box:8443/ollama", "https://gpu-box:8443/ollama"),
    ],
)
def test_ollama_is_where_its_own_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, asked: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    with pytest.raises(UseError, match=rf"^no Ollama answers at {re.escape(asked)};"):
        chosen_for("ollama:starcoder2", tmp_path, look_at=_absent)


def _absent(url: str) -> running_servers.Server:
    raise NoServerError(f"nothing is at {url}")


def test_an_ollama_without_the_model_says_which_it_has(tmp_path: Path, at: Any) -> None:
    with serving(ModelServer(ollama("llama3:latest", "qwen2.5-coder:7b-instruct"))) as running:
        at(running)
        with pytest.raises(
            UseError,
            match=r"has no model starcoder2 \(it has llama3:latest, .*\); get it with `ollama pull starcoder2`",
        ):
            chosen_for("ollama:starcoder2", tmp_path)
        with pytest.raises(UseError, match=r"7b-instruct was trained to chat"):
            chosen_for("ollama:qwen2.5-coder:7b-instruct", tmp_path)


def test_no_ollama_and_another_server_in_its_place_are_told(
    tmp_path: Path, at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(ModelServer(vllm())) as running:
        at(running)
        with pytest.raises(UseError, match="is no Ollama but vllm"):
            chosen_for("ollama:x", tmp_path)
    with pytest.raises(UseError, match=r"no Ollama answers at .*; start it with `ollama serve`"):
        chosen_for("ollama:x", tmp_path)


# Files and names


def test_a_name_that_nobody_knows_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(
        UseError, match=r"'qwen' is no model that is known; name one of qwen2\.5-coder-0\.5b, .* or shipped"
    ):
        chosen_for("qwen", tmp_path)


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "is no GGUF file"), (b"<html>", "is no GGUF file"), (None, "cannot be read")]
)
def test_a_file_that_is_none_of_weights_is_told(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "coder.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UseError, match=f"coder.gguf {said}"):
        chosen_for(str(path), tmp_path)


def test_a_file_is_identified_before_anything_is_started(tmp_path: Path) -> None:
    both = write_tiny_gguf(tmp_path / "both.gguf", pretokenizer="gpt-2", controls=("<|endoftext|>", "<fim_prefix>"))
    with pytest.raises(UseError, match=r"both.gguf: its control tokens fit no known grammar.*--grammar ID"):
        chosen_for(str(both), tmp_path)
    with pytest.raises(
        UseError, match=r"both.gguf: --grammar mellum needs <filename>, <fim_middle>, .*, which it lacks$"
    ):
        chosen_for(str(both), tmp_path, grammar="mellum")
    with pytest.raises(UseError, match=r"--grammar: no grammar 'latin'"):
        chosen_for(str(both), tmp_path, grammar="latin")
    assert chosen_for(str(both), tmp_path, grammar="left-to-right").rules["grammar"] == "left-to-right"  # type: ignore[index]
    coder = write_tiny_gguf(tmp_path / "c.gguf", controls=tuple(sorted(grammar("seed-coder").controls())))
    watching = Nobody()
    choose(asked(str(coder), tmp_path), watching)
    assert "c.gguf is of the family seed-coder (unproven)" in watching.notes


def test_a_file_without_hole_tokens_is_taken_at_once_and_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    for name, talks in (("plain", False), ("plain-instruct", True)):
        path = write_tiny_gguf(
            tmp_path / f"{name}.gguf", pretokenizer="smollm", controls=("<|endoftext|>", "<|im_start|>")
        )
        watching = Nobody()
        choice = choose(asked(str(path), tmp_path), watching)
        assert choice.model == str(path) and "grammar" not in (choice.rules or {})
        (said,) = watching.notes
        assert "sees nothing below it" in said and ("trained to chat, by its name" in said) is talks
    with pytest.raises(UseError, match=r"needs .*, which it lacks; without --grammar it is asked in left-to-right$"):
        chosen_for(str(path), tmp_path, grammar="qwen2.5-coder")


def test_a_file_that_the_engine_would_read_as_another_model_is_kept_as_it_is_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_tiny_gguf(
        tmp_path / "coder.gguf",
        controls=tuple(sorted(grammar("seed-coder").controls())),
        quantisation=gguf.GGMLQuantizationType.Q4_1,
    )
    for _ in range(2):
        watching = Nobody()
        choose(asked(str(path), tmp_path), watching)
        assert any("Q4_1 would be read as another model" in note and "MB, about" in note for note in watching.notes)
    assert len(list((tmp_path / "cache/foretype/engine/exact").glob("*.gguf"))) == 1


def test_a_folder_and_a_chat_model_are_told(tmp_path: Path) -> None:
    with pytest.raises(UseError, match=r"is a folder; name the \.gguf file in it, or prepare a checkpoint"):
        chosen_for(f"{tmp_path}/", tmp_path)
    (path := tmp_path / "coder-instruct.gguf").write_bytes(b"GGUF")
    with pytest.raises(UseError, match=r"trained to chat"):
        chosen_for(str(path), tmp_path)
    assert chosen_for(str(path), tmp_path, anyway=True).model == str(path)


def test_a_model_that_does_not_fit_is_not_downloaded(tmp_path: Path) -> None:
    small = replace(LAPTOP, memory_bytes=4_000_000_000, available_bytes=3_000_000_000)
    with pytest.raises(
        UseError, match=r"qwen2\.5-coder-7b needs 8\.9 GB and this machine has 4\.0; take a smaller one"
    ):
        chosen_for("qwen2.5-coder-7b", tmp_path, machine=small)


def test_a_model_without_a_known_digest_wants_one(tmp_path: Path) -> None:
    with pytest.raises(
        UseError,
        match=r"SHA-256 of .* is not known here, so it is not downloaded; read it at https://hugg.*--accept-digest",
    ):
        chosen_for("qwen2.5-coder-3b", tmp_path)
    with pytest.raises(UseError, match="64 hexadecimal digits"):
        chosen_for("qwen2.5-coder-3b", tmp_path, accept_digest="latest")
    with pytest.raises(UseError, match="names another digest than the catalogue has"):
        chosen_for("qwen2.5-coder-1.5b", tmp_path, accept_digest="0" * 64)


def test_a_model_that_the_engine_does_not_open_leads_to_the_server_that_does(tmp_path: Path) -> None:
    with pytest.raises(
        UseError, match=r"start `llama-server -hf JetBrains/Mellum-4b-base-gguf --port 8012`, then `foretype use http"
    ):
        chosen_for("mellum-4b", tmp_path)
    mac = replace(LAPTOP, system="Darwin", architecture="arm64", embedded=False)
    with pytest.raises(UseError, match="not expected to run on this processor; start `llama-server"):
        chosen_for("qwen2.5-coder-1.5b", tmp_path, machine=mac)


def test_graphics_that_openvino_names_compute_and_prompts_may_be_long(tmp_path: Path) -> None:
    from foretype_backend.engines.embedded.config import EmbeddedConfig

    (path := tmp_path / "coder.gguf").write_bytes(b"GGUF")
    arc = replace(LAPTOP, gpus=(Gpu("intel", "Intel Arc Graphics", "GPU.0"),))
    choice = chosen_for(str(path), tmp_path, machine=arc)
    assert choice.options == {"device": "GPU.0"}
    assert EmbeddedConfig.of(model=choice.model, **choice.options).device == "GPU.0"  # the engine takes what is written
    plain = chosen_for(str(path), tmp_path)
    assert plain.options == {} and plain.rules is not None and choice.rules is not None
    assert choice.rules["budgets"]["prompt_tokens"] > plain.rules["budgets"]["prompt_tokens"]


# What lasts


def test_a_choice_lasts_and_is_undone(tmp_path: Path) -> None:
    assert chosen(tmp_path) == "shipped"
    choice = Choice(
        asked='it\'s "quoted"',
        name="n",
        model='/a "b"\\c.gguf',
        options={"cache_bytes": 5},
        rules={"budgets": {"prompt_tokens": 9}},
    )
    keep(choice, tmp_path)
    assert chosen(tmp_path) == choice.asked
    current = [row for row in listing([], tmp_path).rows if row.current]
    assert [row.asked for row in current] == [choice.asked]
    keep(Choice(asked="shipped", name="x"), tmp_path)
    assert chosen(tmp_path) == "shipped" and list(tmp_path.iterdir()) == []


def test_a_profile_is_what_the_gateway_reads(tmp_path: Path) -> None:
    from foretype_backend.config.load import load_config

    choice = Choice(
        asked="a\nb",
        name='we"ird',
        model="/x.gguf",
        options={"cache_bytes": 5},
        rules={"budgets": {"prompt_tokens": 900}},
    )
    (path := tmp_path / "private.toml").write_text(render(choice))
    config = load_config(profile=path)
    assert (config.engine.name, config.engine.model, config.engine.options) == (
        "embedded",
        "/x.gguf",
        {"cache_bytes": 5},
    )
    assert (config.model.name, config.model.budgets.prompt_tokens) == ('we"ird', 900)


def test_where_nothing_may_be_written_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "private.toml.d").mkdir()
    (file := tmp_path / "file").write_text("")
    with pytest.raises(UseError, match=r"private\.toml cannot be written .*the former model stays: give --state-dir"):
        keep(Choice(asked="x", name="x", model="/x"), file / "state")
