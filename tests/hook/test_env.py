"""The registry of STEPD_* variables: every setting has one, bad values name themselves, docs/settings.md is what the code says."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from stepd.hook import env
from stepd.hook.model import Way

SETTINGS_PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_every_setting_has_a_variable_and_every_variable_a_setting() -> None:
    assert [variable.field for variable in env.VARIABLES] == [field.name for field in fields(env.Settings)]
    assert all(variable.help.endswith(".") and variable.name.startswith(env.PREFIX) for variable in env.VARIABLES)


def test_the_page_is_generated_from_the_registry() -> None:
    assert env.markdown() in SETTINGS_PAGE.read_text(), "docs/settings.md: run `python -m stepd.hook.env` and paste its output"


def test_values_are_read() -> None:
    settings = env.read({"STEPD_ENABLE": "1", "STEPD_WAY": "In-Session", "STEPD_OVERHEAD_BUDGET": "0.02", "STEPD_PROFILE": "every"})
    assert settings.enable
    assert settings.way is Way.IN_SESSION
    assert settings.overhead_budget == 0.02
    assert settings.profile == "always"
    assert env.read({}) == env.Settings()
    assert env.read({"STEPD_WAY": ""}) == env.Settings()


@pytest.mark.parametrize(
    ("name", "text", "takes"),
    [
        ("STEPD_ENABLE", "maybe", "1 or 0"),
        ("STEPD_WAY", "sideways", "auto, in-session, restart"),
        ("STEPD_OVERHEAD_BUDGET", "2", "a number from 0 to 1"),
        ("STEPD_OVERHEAD_BUDGET", "nan", "a number from 0 to 1"),
        ("STEPD_MAX_COPIES", "0", "a whole number from 1 to 1000"),
        ("STEPD_USER_DEVICES", "some", "free, keep, override"),
    ],
)
def test_a_bad_value_names_the_variable_and_what_it_takes(name: str, text: str, takes: str) -> None:
    with pytest.raises(env.SettingsError) as raised:
        env.read({name: text})
    assert name in str(raised.value)
    assert takes in str(raised.value)


def test_unknown_variables_are_found_and_others_left_alone() -> None:
    assert env.unknown({"STEPD_ENABEL": "1", "STEPD_WAY": "auto", "PATH": "/bin"}) == ["STEPD_ENABEL"]


def test_the_report_shows_origins_and_masks_secrets() -> None:
    environ = {"STEPD_TOKEN": "s3cret", "STEPD_WAY": "restart"}
    shown = env.report(env.read(environ), environ)
    assert shown["STEPD_TOKEN"] == "*** (environment)"
    assert shown["STEPD_WAY"] == "restart (environment)"
    assert shown["STEPD_ORDER"] == "auto (default)"


@pytest.mark.parametrize("text", ["", "0", "false", "OFF", "no"])
def test_words_that_mean_off(text: str) -> None:
    assert not env.enabled({"STEPD_ENABLE": text})
