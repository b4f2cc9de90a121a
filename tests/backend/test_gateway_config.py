import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import gguf
import msgspec
import pytest
from context.tiny import raw
from foretype_backend.config.config import Config
from foretype_backend.config.load import is_loopback, load_config
from foretype_backend.config.settings import EngineName
from foretype_backend.doors.auth import Gatekeeper
from foretype_backend.engines.by_name import ENGINES
from foretype_backend.errors import ConfigError
from foretype_backend.start.prepare import prepare
from foretype_backend.start.profile import make_profile
from foretype_context.grammars.grammar import described
from foretype_context.prompt.assemble import Assembler
from foretype_models.artifacts import FOLDER
from gguf_file import written

LONG = "0123456789abcdef"


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_defaults_bind_loopback_without_a_token() -> None:
    config = load_config()
    assert (config.gateway.host, config.gateway.port, config.token) == ("127.0.0.1", 7878, None)
    assert config.engine.name == "embedded"


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    profile = write(
        tmp_path / "p.toml",
        '[gateway]\nport = 1234\nhosts = ["ide.example"]\n[engine]\nname = "openai"\nmodel = "http://x/v1"\n'
        '[model]\ntokenizer = "t.json"\n[model.budgets]\nprompt_tokens = 4000\n[limits]\nmax_running = 3\n',
    )
    config = load_config(profile=profile, port=99, engine="scripted")
    assert config.gateway.port == 99
    assert config.engine.name == "scripted"
    assert config.engine.model == "http://x/v1"
    assert config.gateway.hosts == ("ide.example",)
    assert config.model.budgets.prompt_tokens == 4000
    assert config.model.tokenizer == str(tmp_path / "t.json")
    assert config.limits.max_running == 3


TURNED = """
[admission]
chat_tpot_free_ms = 91.0
chat_tpot_paid_ms = 41.0
chat_ttft_ms = 901.0
refuse_share = 0.91
[limits]
segments_bytes = 1048577
[model.budgets]
assembly_ms = 11.0
[model.stop]
block_max_lines = 13
single_line_max_lines = 2
[model.min_mean_logprob]
mid_line = -0.5
line = -0.6
block = -0.7
[model.line_chance]
least = 0.41
bias = -0.1
log_odds = 0.9
log_characters = -0.2
went_on = 0.3
in_comment = -0.4
"""


def test_what_the_file_turns_is_turned(tmp_path: Path) -> None:
    config = load_config(profile=write(tmp_path / "p.toml", TURNED))
    said = tomllib.loads(TURNED)
    had = msgspec.to_builtins({name: getattr(config, name) for name in said})
    for table, fields in said.items():
        for name, value in fields.items():
            found = had[table][name]
            assert found | value == found if isinstance(value, dict) else found == value, f"{table}.{name}"


def test_an_engine_is_called_by_these_names() -> None:
    names = {"embedded", "llama-cpp", "lm-studio", "ollama", "openai", "scripted", "vllm", "vllm-server"}
    assert set(ENGINES) == set(get_args(EngineName)) == names


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[gateway]\nprot = 1\n", "gateway.prot"),
        ("[model.budgets]\nprompt_tokens = 1.5\n", "model.budgets.prompt_tokens"),
        ("[gateway]\nmax_connections = 0\n", "gateway.max_connections"),
        ("[model]\nblock_tokens = 0\n", "model.block_tokens"),
        ("[model.stop]\nleast_chance = 1.5\n", "model.stop.least_chance"),
        ("[model.stop]\nleast_chance = nan\n", "model.stop.least_chance"),
        ("[identity]\npoll_ms = 0\n", "identity.poll_ms"),
        ("[identity.oidc]\nissuer = 'https://i'\naudience = 'a'\nrefresh_s = -1\n", "identity.oidc.refresh_s"),
        ("[leases]\nslice_s = 0\n", "leases.slice_s"),
        ("[pool.quality]\nurl = 'http://x'\nmax_running = 0\n", "pool.quality.max_running"),
    ],
)
def test_a_bad_file_names_the_field(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(profile=write(tmp_path / "p.toml", text))
    assert caught.value.field == field


def test_binding_the_network_with_a_token_is_allowed(tmp_path: Path) -> None:
    config = load_config(host="0.0.0.0", token_file=write(tmp_path / "token", f"{LONG}\n"))
    assert config.token == LONG
    assert LONG not in repr(config)


@pytest.mark.parametrize("content", ["", "short", "ünïcode-is-no-good-in-a-header"])
def test_a_useless_token_file_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(ConfigError, match="openssl"):
        load_config(token_file=write(tmp_path / "token", content))


def test_private_mode_needs_a_state_directory_and_loopback(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--state-dir"):
        load_config(private=True, token=LONG)
    with pytest.raises(ConfigError, match="loopback"):
        load_config(private=True, token=LONG, state_dir=tmp_path, host="0.0.0.0")
    assert load_config(private=True, token=LONG, state_dir=tmp_path).gateway.port == 0


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("example.com", False),
        ("localhost.evil.example", False),
    ],
)
def test_what_counts_as_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_grammar_that_is_not_the_tokenizers_is_refused(tmp_path: Path) -> None:
    profile = write(tmp_path / "p.toml", '[engine]\nname = "scripted"\n[model]\ngrammar = "codestral"\n')
    with pytest.raises(ConfigError) as caught:
        prepare(load_config(profile=profile))
    assert caught.value.field == "model.grammar"


def scripted_with(folder: Path, controls: Iterable[str], more: str = "") -> Path:
    """A profile whose tokenizer has these control tokens."""
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_bytes(raw("gpt2", frozenset(controls)))
    text = f'[engine]\nname = "scripted"\n[model]\ntokenizer = "{tokenizer}"\n{more}'
    return write(folder / "p.toml", text)


PIPE_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>")
FIM = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>")


@pytest.mark.parametrize(
    ("controls", "grammar", "layout"),
    [
        ((*PIPE_FIM, "<|end_of_text|>"), "granite-4", "psm_line_last"),
        ((*PIPE_FIM, "<bos>", "<eos>", "<|file_separator|>"), "codegemma", "psm_line_last"),
        (("<|endoftext|>", *FIM, "<filename>", "<reponame>", "<system>", "<assistant>"), "mellum", "spm_plain"),
        (("<|endoftext|>", *FIM, "<filename>", "<reponame>", "<gh_stars>"), "starcoder", "psm_line_last"),
        (("<|begin_of_text|>", "<|start_header_id|>"), "left-to-right", "left_to_right"),
    ],
)
def test_a_family_is_served_in_its_own_grammar_and_clients_are_told_it(
    tmp_path: Path, controls: tuple[str, ...], grammar: str, layout: str
) -> None:
    config = load_config(profile=scripted_with(tmp_path, controls))
    parts = prepare(config)
    assert parts.grammar.id == grammar
    sent = make_profile(config, parts)
    assert (sent.grammar, sent.layout) == (grammar, layout)
    assert described(sent.grammar_rules) == parts.grammar
    Assembler(parts.tokenizer, sent)


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        (
            ("<|endoftext|>", *FIM, "<reponame>", "<file_sep>", "<|im_start|>"),
            "it is CodeQwen1.5-7B, which is not served",
        ),
        (("<|endoftext|>", *FIM, "<|repo_name|>"), "looks like .* but lacks "),
        (("<|endoftext|>", *FIM, "<filename>", "<reponame>"), "fit mellum and starcoder; say which"),
        (("<|start_header_id|>",), "fit no known grammar; .* left-to-right, which shows it nothing below"),
        (("<s>", "</s>", "[INST]", "[PREFIX]", "[SUFFIX]", "[SYSTEM_PROMPT]"), "fit no known grammar"),
        (("<s>", "</s>", "[PREFIX]", "[SUFFIX]"), "fit no known grammar"),  # codestral has no byte-level vocabulary
    ],
)
def test_what_fits_no_family_or_two_is_not_guessed(tmp_path: Path, controls: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        prepare(load_config(profile=scripted_with(tmp_path, controls)))
    assert caught.value.field == "model.grammar"


def test_a_grammar_that_the_operator_describes_is_served_and_sent_to_clients(tmp_path: Path) -> None:
    rules = """[model.grammar_rules]
id = "martian-1"
current = [{ control = "<|at|>" }, "{path}\\n"]
fim_prefix = "<|above|>"
fim_suffix = "<|below|>"
fim_middle = "<|here|>"
end_tokens = ["<|over|>"]
stops = ["\\nnext"]
"""
    controls = ("<|at|>", "<|above|>", "<|below|>", "<|here|>", "<|over|>")
    config = load_config(profile=scripted_with(tmp_path, controls, rules))
    parts = prepare(config)
    sent = make_profile(config, parts)
    assert sent.grammar == "martian-1"
    assert sent.stop.strings == ["\nnext"]
    assert Assembler(parts.tokenizer, sent).grammar == parts.grammar == described(sent.grammar_rules)
    with pytest.raises(ConfigError, match=r"<\|over\|>|<\|here\|>"):
        prepare(load_config(profile=scripted_with(tmp_path, controls[:3], rules)))


@pytest.mark.parametrize(
    ("configured", "own", "announced"),
    [
        (None, None, "psm_line_last"),
        (None, "spm", "spm"),
        ("psm_growing", "spm", "psm_growing"),
        ("copilot", "spm", "spm"),  # none of the grammar's: as if nothing were configured
        ("copilot", None, "psm_line_last"),
        ("psm_classic", "copilot", "psm_classic"),
    ],
)
def test_the_configured_layout_is_announced_else_the_models_own_else_the_grammars_first(
    tmp_path: Path, configured: str | None, own: str | None, announced: str
) -> None:
    named = "" if configured is None else f'[model]\nlayout = "{configured}"\n'
    config = load_config(profile=write(tmp_path / "p.toml", f'[engine]\nname = "scripted"\n{named}'))
    parts = replace(prepare(config), measured={} if own is None else {"layout": own})
    assert make_profile(config, parts).layout == announced


def test_an_exported_folder_names_grammar_and_layout(tmp_path: Path) -> None:
    named = '{"foretype_grammar": "foretype-1", "foretype_layout": "spm"}'
    write(tmp_path / "config.json", named)
    tokenizer = FOLDER / "tokenizer.json"
    (tmp_path / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    config = load_config(engine="scripted", model=str(tmp_path))
    assert make_profile(config, prepare(config)).layout == "spm"
    write(tmp_path / "config.json", '{"foretype_grammar": 5, "foretype_layout": ["spm"]}')
    parts = prepare(config)
    assert make_profile(config, parts).layout == parts.grammar.layout()


@pytest.mark.parametrize(
    "said, served", [("foretype-2", "foretype-2"), ("foretype-1", "foretype-1"), (2, "foretype-1")]
)
def test_an_exported_file_names_its_grammar_where_its_vocabulary_fits_two(
    tmp_path: Path, said: str | int, served: str
) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_key_value("foretype.grammar", said, gguf.GGUFValueType.get_type(said))
    written(writer, tmp_path / "model.gguf", tensors=False)
    config = load_config(engine="scripted", model=str(tmp_path / "model.gguf"))
    assert prepare(config).grammar.id == served
    (tmp_path / "model.gguf").write_bytes(b"GGUF, cut off")
    assert prepare(config).grammar.id == "foretype-1"


@pytest.mark.parametrize("own", ["copilot", "", 7, ["spm"]])
def test_a_layout_of_the_model_that_its_grammar_lacks_is_refused(own: object) -> None:
    config = load_config(engine="scripted")
    parts = replace(prepare(config), measured={"layout": own})
    with pytest.raises(ConfigError, match=r"own layout: .* is not one of psm_line_last.*name one as model\.layout"):
        make_profile(config, parts)


def test_an_unknown_option_of_an_engine_is_named(tmp_path: Path) -> None:
    profile = write(tmp_path / "p.toml", '[engine]\nname = "scripted"\n[engine.options]\nwarp = 9\n')
    with pytest.raises(ConfigError, match="warp"):
        prepare(load_config(profile=profile))


@pytest.mark.parametrize(
    ("headers", "listed"),
    [
        ({"host": "127.0.0.1:7878"}, True),
        ({"host": "localhost"}, True),
        ({"host": "[::1]:7878"}, True),
        ({"host": "LOCALHOST:1"}, True),
        ({"host": "10.0.0.1:7878"}, False),
        ({"host": "evil.example"}, False),
        ({"host": "localhost.evil.example"}, False),
        ({"host": ""}, False),
        ({}, False),
        ({"host": "localhost", "origin": "http://localhost"}, True),  # the gateway's own page
        ({"host": "localhost:1", "origin": "http://localhost:2"}, False),
        ({"host": "evil.example:1", "origin": "http://evil.example:1"}, False),  # rebound to this address
        ({"host": "localhost", "origin": ""}, False),
    ],
)
def test_host_and_origin_on_loopback(headers: dict[str, str], listed: bool) -> None:
    assert Gatekeeper(Config()).listed(headers) is listed


def test_a_gateway_for_the_network_takes_any_address_but_no_unlisted_name(tmp_path: Path) -> None:
    config = load_config(host="0.0.0.0", token_file=write(tmp_path / "token", LONG))
    keeper = Gatekeeper(config)
    assert keeper.listed({"host": "10.1.2.3:7878"})
    assert not keeper.listed({"host": "evil.example"})
