"""The two secrets of a deployment, cache salts' and texts': made by one command, and never silently where a file is named."""

import stat

import pytest
from foretype_backend.errors import StoreError
from foretype_backend.start.check import app as config_commands
from foretype_backend.start.check import check_file
from foretype_backend.start.cli import app as serve
from foretype_backend.telemetry.privacy import Privacy
from foretype_backend.telemetry.texts import read_key
from foretype_context.text.pasted import toml_string
from pasting import AWKWARD, commands_in, pasted
from typer.testing import CliRunner

FIELDS = ["identity.salt_file", "telemetry.key_file"]


def profile_naming(folder, field, file):
    table, _, name = field.partition(".")
    profile = folder / "team.toml"
    profile.write_text(f"[engine]\nname = 'scripted'\n[{table}]\n{name} = {toml_string(file)}\n")
    return profile


def test_the_command_makes_a_secret_once_and_for_its_user_alone(tmp_path):
    file = tmp_path / "salt"
    assert CliRunner().invoke(config_commands, ["new-secret", str(file)]).exit_code == 0
    made = file.read_bytes()
    assert (len(made), stat.S_IMODE(file.stat().st_mode)) == (32, 0o600)
    again = CliRunner().invoke(config_commands, ["new-secret", str(file)])
    assert again.exit_code == 2
    assert "FILE" in again.output
    assert file.read_bytes() == made
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("name", "content", "told"),
    [("secret", b"short", "has 5 bytes"), (".", None, "Is a directory"), ("sceret", None, "there is no file")],
)
def test_a_named_file_that_cannot_be_used_ends_the_start_and_is_told_by_line(tmp_path, field, name, content, told):
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    profile = profile_naming(tmp_path, field, file)
    before = sorted(tmp_path.iterdir())
    result = CliRunner().invoke(
        serve, ["--profile", str(profile), "--state-dir", str(tmp_path / "state"), "--port", "0"]
    )
    assert result.exit_code == 2
    assert f"{field}: " in result.output and told in result.output
    if told != "Is a directory":
        assert "foretype config new-secret" in result.output
    finding = check_file(profile)
    assert finding is not None and (finding.field, finding.line) == (field, 4) and told in finding.message
    assert sorted(tmp_path.iterdir()) == before


def test_the_command_that_makes_a_secret_can_be_pasted(tmp_path):
    file = tmp_path / AWKWARD / "salt"
    finding = check_file(profile_naming(tmp_path, "identity.salt_file", file))
    (command,) = commands_in(finding.message)
    assert pasted(command, tmp_path, "foretype") == [["foretype", "config", "new-secret", str(file)]]


@pytest.mark.parametrize("field", FIELDS)
def test_what_the_command_made_is_taken(tmp_path, field):
    file = tmp_path / "secret"
    assert CliRunner().invoke(config_commands, ["new-secret", str(file)]).exit_code == 0
    assert check_file(profile_naming(tmp_path, field, file)) is None


def test_without_telemetry_its_key_is_not_asked_for(tmp_path):
    profile = profile_naming(tmp_path, "telemetry.key_file", tmp_path / "key")
    profile.write_text(profile.read_text() + "enabled = false\n")
    assert check_file(profile) is None


def test_a_key_that_goes_while_the_gateway_runs_is_not_made_anew(tmp_path):
    with pytest.raises(StoreError, match=r"telemetry\.key_file: there is no file"):
        read_key(tmp_path / "gone", tmp_path / "own")
    assert list(tmp_path.iterdir()) == []


def test_a_machines_own_key_is_made_once_for_its_user_alone(tmp_path):
    own = tmp_path / "telemetry" / "key"
    key = read_key(None, own)
    assert (read_key(None, own), stat.S_IMODE(own.stat().st_mode)) == (key, 0o600)


def test_the_privacy_command_makes_no_key_of_a_mistyped_path(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "events.db").touch()
    with pytest.raises(ValueError, match=r"telemetry.key_file: there is no file .*new-secret"):
        Privacy(tmp_path, key_file=tmp_path / "sceret").show()
    assert not (tmp_path / "sceret").exists() and not (tmp_path / "key").exists()
