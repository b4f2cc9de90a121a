"""A configuration of 0.1 or 0.2 that names the model that shipped then."""

import logging

import pytest
from foretype_backend.config.load import load_config

PROFILE = """
[engine]
name = "embedded"
model = "foretype-py-10m-q8_0.gguf"
options = { device = "CPU" }
[model]
name = "foretype-py-10m"
grammar = "foretype-1"
layout = "spm"
local_min_confidence = 0.15
budgets = { prompt_tokens = 500 }
"""


@pytest.mark.parametrize("file", ["foretype-py-10m-q8_0.gguf", "foretype-py-10m-0.1.0.gguf"])
def test_a_former_model_that_is_gone_gives_way_to_the_one_that_ships(tmp_path, caplog, file):
    profile = tmp_path / "team.toml"
    profile.write_text(PROFILE.replace("foretype-py-10m-q8_0.gguf", file))
    with caplog.at_level(logging.WARNING):
        config = load_config(profile=profile)
    assert (config.engine.name, config.engine.model, config.engine.options) == ("embedded", None, {})
    assert [config.model.name, config.model.grammar, config.model.layout, config.model.local_min_confidence] == [
        None
    ] * 4
    assert config.model.budgets.prompt_tokens == 500
    (told,) = [record.getMessage() for record in caplog.records]
    assert "ships no more; the model that ships now serves in its place" in told


def test_one_that_is_still_there_serves_as_before(tmp_path, caplog):
    (tmp_path / "foretype-py-10m-q8_0.gguf").touch()
    (tmp_path / "team.toml").write_text(PROFILE)
    config = load_config(profile=tmp_path / "team.toml")
    assert config.engine.model == str(tmp_path / "foretype-py-10m-q8_0.gguf")
    assert (config.model.grammar, caplog.records) == ("foretype-1", [])


def test_another_file_that_is_gone_is_not_replaced(tmp_path):
    (tmp_path / "team.toml").write_text(PROFILE.replace("foretype-py-10m-q8_0.gguf", "my-model.gguf"))
    assert load_config(profile=tmp_path / "team.toml").engine.model == str(tmp_path / "my-model.gguf")
