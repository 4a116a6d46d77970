"""Settings: defaults, the file, the environment, the flags, and which of them wins."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import click
import pytest
import tomli
from click.testing import CliRunner

from dflash_cli.config import SETTINGS, Config
from dflash_cli.config_file import config_path, environment_problems, read_config
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.options import settings

EXAMPLE = Path(__file__).parents[1] / "config.example.toml"


def config_of(*args: str, **environ: str) -> Config:
    """The Config that a command with every option gets."""
    found: list[Config] = []

    @click.command("run")
    @click.argument("files", nargs=-1)
    @settings()
    def command(config: Config, files: tuple[str, ...]) -> None:
        found.append(config)

    CliRunner().invoke(command, args, env=environ, catch_exceptions=False, standalone_mode=False)
    return found[0]


def write(home: Path, text: str) -> Path:
    """The user's configuration file with this text."""
    path = home / ".config" / "dflash" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_anything_every_setting_has_its_default() -> None:
    assert config_of() == Config()


def test_example_names_every_key_with_its_default_and_help() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    given = tomli.loads(text)
    commented = dict(re.findall(r"^# (\w+) = (.*)$", text, re.MULTILINE))
    assert set(given) | set(commented) == set(SETTINGS)
    for name, setting in SETTINGS.items():
        if setting.default is None:
            assert name not in given
            setting.check(tomli.loads(f"x = {commented[name]}")["x"])
        else:
            assert setting.check(given[name]) == setting.default
        assert re.search(rf"^# {re.escape(setting.help)}\n(# )?{name} = ", text, re.MULTILINE), name


def test_every_default_is_a_valid_value() -> None:
    for setting in SETTINGS.values():
        if setting.default is not None:
            assert setting.check(list(setting.default) if setting.many else setting.default) == setting.default


def test_flag_beats_environment_beats_file_beats_default(home: Path) -> None:
    assert config_of().context is None
    write(home, "context = 1\ntop_k = 5\n")
    assert config_of().context == 1
    assert config_of(DFLASH_CONTEXT="2").context == 2
    assert config_of("--context", "3", DFLASH_CONTEXT="2").context == 3
    assert config_of("--context", "3", DFLASH_CONTEXT="2").top_k == 5


SAMPLES: dict[str, tuple[list[str], str, str, Any]] = {
    "model": (["-m", "a/b"], "a/b", '"a/b"', "a/b"),
    "draft": (["-d", "none"], "none", '"none"', "none"),
    "draft_vocabulary": (["--draft-vocabulary", "full"], "full", '"full"', "full"),
    "backend": (["--backend", "eager"], "eager", '"eager"', "eager"),
    "device": (["--device", "cuda:1"], "cuda:1", '"cuda:1"', "cuda:1"),
    "dtype": (["--dtype", "float32"], "float32", '"float32"', "float32"),
    "quantize": (["--quantize", "int8"], "int8", '"int8"', "int8"),
    "context": (["--context", "9"], "9", "9", 9),
    "block": (["--block", "1"], "1", "1", 1),
    "offline": (["--offline"], "1", "true", True),
    "system": (["-s", "Be brief."], "Be brief.", '"Be brief."', "Be brief."),
    "thinking": (["--no-think"], "no", "false", False),
    "chat_template": (["--chat-template", "/t.jinja"], "/t.jinja", '"/t.jinja"', str(Path("/t.jinja"))),
    "raw": (["--raw"], "true", "true", True),
    "max_new_tokens": (["-n", "7"], "7", "7", 7),
    "temperature": (["-t", "0.5"], "0.5", "0.5", 0.5),
    "top_k": (["--top-k", "0"], "0", "0", 0),
    "top_p": (["--top-p", "1"], "1", "1", 1.0),
    "min_p": (["--min-p", ".1"], "0.1", "0.1", 0.1),
    "repetition_penalty": (["--repetition-penalty", "1.1"], "1.1", "1.1", 1.1),
    "presence_penalty": (["--presence-penalty", "-1"], "-1", "-1", -1.0),
    "seed": (["--seed", "-4"], "-4", "-4", -4),
    "stop": (["--stop", "a b", "--stop", "\n"], '["a b", "\\n"]', '["a b", "\\n"]', ("a b", "\n")),
    "quiet": (["-q"], "on", "true", True),
    "verbose": (["-v"], "yes", "true", True),
    "color": (["--color", "never"], "never", '"never"', "never"),
    "trace": (["--trace", "/t.jsonl"], "/t.jsonl", '"/t.jsonl"', str(Path("/t.jsonl"))),
    "stats": (["--no-stats"], "no", "false", False),
    "overlay": (["--overlay", "tokens"], "tokens", '"tokens"', "tokens"),
    "theme": (["--theme", "tol"], "tol", '"tol"', "tol"),
    "markdown": (["--no-markdown"], "no", "false", False),
    "slow": (["--slow", "0.5"], "0.5", "0.5", 0.5),
    "history": (["--no-history"], "no", "false", False),
    "show_thinking": (["--hide-thinking"], "no", "false", False),
    "save": (["--no-save"], "no", "false", False),
    "save_events": (["--save-events"], "yes", "true", True),
}


def test_samples_cover_every_setting() -> None:
    assert set(SAMPLES) == set(SETTINGS) == {each.name for each in dataclasses.fields(Config)}


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_can_be_given_three_ways(name: str, home: Path) -> None:
    flags, text, toml, expected = SAMPLES[name]
    wanted = dataclasses.replace(Config(), **{name: expected})
    assert config_of(*flags) == wanted
    assert config_of(**{f"DFLASH_{name.upper()}": text}) == wanted
    write(home, f"{name} = {toml}\n")
    assert config_of() == wanted
    assert environment_problems({f"DFLASH_{name.upper()}": text}) == []


@pytest.mark.parametrize("switch", ["offline", "raw", "quiet", "verbose"])
def test_a_switch_of_the_file_can_be_turned_off(switch: str, home: Path) -> None:
    write(home, f"{switch} = true\n")
    assert getattr(config_of(), switch) is True
    assert getattr(config_of(**{f"DFLASH_{switch.upper()}": "0"}), switch) is False
    assert getattr(config_of(f"--no-{switch}"), switch) is False


def test_one_stop_string_in_the_environment_needs_no_brackets() -> None:
    assert config_of(DFLASH_STOP="[END] of it").stop == ("[END] of it",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("contxt = 1", r"config\.toml has an unknown key 'contxt'; did you mean 'context'\?"),
        ("max-new-tokens = 1", r"did you mean 'max_new_tokens'"),
        ("qqqqqqqq = 1", r"unknown key 'qqqqqqqq'\. Known are model, draft"),
        ("[model]\nname = 'x'", r"model in .*config\.toml: found \{'name': 'x'\}; expected a text"),
        ("context = '9'", r"context in .*: found '9'; expected a whole number of at least 1"),
        ("context = 0", r"found 0; expected a whole number of at least 1"),
        ("context = true", r"found True; expected a whole number"),
        ("block = 2.0", r"found 2\.0; expected a whole number of at least 1, or auto"),
        ("top_p = 0", r"found 0; expected a number above 0 and at most 1"),
        ("temperature = nan", r"found nan; expected a number at least 0"),
        ("offline = 'yes'", r"found 'yes'; expected true or false"),
        ("stop = 'x'", r"found 'x'; expected an array"),
        ("stop = ['']", r"found ''; expected a text that is not empty"),
        ("dtype = 'int8'", r"found 'int8'; expected one of auto, float32"),
        ("device = 'tpu'", r"found 'tpu'; expected auto, cpu"),
        ("model = ''", r"found ''; expected a text that is not empty"),
        ("context = ", r"is not valid TOML: .*line 1"),
    ],
)
def test_what_is_wrong_in_the_file_is_told(line: str, message: str, home: Path) -> None:
    write(home, line + "\n")
    with pytest.raises(UsageError, match=message):
        read_config()


def test_a_file_that_is_not_text_or_cannot_be_read(home: Path, tmp_path: Path) -> None:
    write(home, "").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_config()
    with pytest.raises(UsageError, match=r"cannot be read: Is a directory"):
        read_config(tmp_path)


def test_only_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    assert read_config() == {}
    with pytest.raises(UsageError, match=r"nothing\.toml does not exist"):
        read_config(tmp_path / "nothing.toml")


def test_config_flag_beats_config_variable_beats_default_file(home: Path, tmp_path: Path) -> None:
    write(home, "context = 1\n")
    for number in (2, 3):
        (tmp_path / f"{number}.toml").write_text(f"context = {number}\n", encoding="utf-8")
    two, three = str(tmp_path / "2.toml"), str(tmp_path / "3.toml")
    assert config_of(DFLASH_CONFIG=two).context == 2
    assert config_of("--config", three, DFLASH_CONFIG=two).context == 3


def test_a_chat_template_in_the_file_is_relative_to_it(home: Path) -> None:
    folder = write(home, 'chat_template = "mine.jinja"\n').parent
    (folder / "mine.jinja").write_text("{{ 'ä' }}", encoding="utf-8")
    assert config_of().read_chat_template() == "{{ 'ä' }}"
    write(home, 'chat_template = "~/mine.jinja"\n')
    assert config_of().chat_template == str(home / "mine.jinja")
    with pytest.raises(DFlashError, match=r"mine\.jinja cannot be read: No such file"):
        config_of().read_chat_template()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CONTEXT", "many"),
        ("THINKING", "maybe"),
        ("TOP_P", "2"),
        ("DEVICE", "tpu"),
        ("SEED", "1e3"),
        ("BLOCK", "9" * 99),
    ],
)
def test_a_wrong_variable_is_named(name: str, text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        config_of(**{f"DFLASH_{name}": text})
    message = caught.value.format_message()
    assert f"the variable DFLASH_{name}: found " in message
    assert "; expected " in message
    assert len(environment_problems({f"DFLASH_{name}": text})) == 1


def test_a_wrong_flag_is_named() -> None:
    with pytest.raises(click.BadParameter) as caught:
        config_of("--context", "-1")
    assert re.search(r"'--context': found -1; expected a whole number of at least 1", caught.value.format_message())


def test_an_empty_variable_is_not_set() -> None:
    assert config_of(DFLASH_CONTEXT="") == Config()
    assert environment_problems({"DFLASH_CONTEXT": ""}) == []


def test_an_unknown_variable_is_told_with_the_nearest() -> None:
    assert environment_problems({"DFLASH_CONTEX": "1", "DFLASH_CONFIG": "x", "OTHER": "1"}) == [
        "unknown variable DFLASH_CONTEX; did you mean 'DFLASH_CONTEXT'?"
    ]


def test_quiet_and_verbose_exclude_each_other(home: Path) -> None:
    write(home, "quiet = true\n")
    with pytest.raises(UsageError, match="--no-quiet"):
        config_of("-v")
    assert config_of("-v", "--no-quiet").verbose


def test_verbose_tells_where_settings_come_from(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(home, "context = 5\ndraft = 'none'\n")
    monkeypatch.setenv("DFLASH_TOP_K", "4")

    @click.command()
    @settings()
    def command(config: Config) -> None:
        click.echo("answer")

    command.main(["-v", "--draft", "x"], standalone_mode=False)
    assert capsys.readouterr() == (
        "answer\n",
        f"dflash: settings: draft = 'x' (command line), context = 5 ({path}), top_k = 4 (DFLASH_TOP_K), "
        "verbose = True (command line)\n",
    )


def test_a_command_may_want_some_settings_only(home: Path) -> None:
    write(home, "context = 5\ncolor = 'never'\n")
    found: list[Config] = []

    @click.command()
    @settings("color", "text")
    def command(config: Config) -> None:
        found.append(config)

    assert CliRunner().invoke(command, ["--raw"]).exit_code == 0
    assert found == [Config(color="never", raw=True)]
    assert CliRunner().invoke(command, ["--context", "1"]).exit_code == 2


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Always."""
        return True


def test_colours_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert Config().wants_color(Terminal())
    assert not Config().wants_color(io.StringIO())
    assert not Config().wants_color(None)
    assert not Config(color="never").wants_color(Terminal())
    assert Config(color="always").wants_color(io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Config().wants_color(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Config().wants_color(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not Config().wants_color(Terminal())


def test_the_file_lies_in_the_users_config_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_path() == home / ".config" / "dflash" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "elsewhere"))
    assert config_path() == home / "elsewhere" / "dflash" / "config.toml"


def test_block_auto_is_the_default_in_words(home: Path) -> None:
    write(home, "block = 4")
    assert config_of().block == 4
    assert config_of("--block", "auto").block is None
    assert config_of(DFLASH_BLOCK="auto").block is None
    write(home, 'block = "auto"')
    assert config_of().block is None
    assert config_of("--block", "3").block == 3
    with pytest.raises(click.BadParameter, match="found '0'; expected a whole number of at least 1, or auto"):
        config_of("--block", "0")
