"""The executor's settings: what can't be meant is refused by name, and no protection can be switched off."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from esper.errors import SettingError
from esper.kasmina.config import ELSEWHERE, FIXED, KasminaConfig


@pytest.mark.parametrize("name", sorted(FIXED))
def test_what_is_fixed_is_accepted_at_its_value_only(name: str) -> None:
    fixed: dict[str, Any] = {name: FIXED[name]}
    other: dict[str, Any] = {name: not FIXED[name] if isinstance(FIXED[name], bool) else FIXED[name] + 1}

    assert getattr(KasminaConfig(**fixed), name) == FIXED[name]
    with pytest.raises(SettingError, match=name):
        KasminaConfig(**other)


@pytest.mark.parametrize("truthy", [1, "yes", 1.0])
def test_a_protection_is_not_on_by_something_like_true(truthy: object) -> None:
    loose: dict[str, Any] = {"hmac_authentication": truthy}

    with pytest.raises(SettingError, match=r"hmac_authentication is .* expected True"):
        KasminaConfig(**loose)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window", 0),
        ("window", 2.5),
        ("rho", 1.0),
        ("error_rate", 0.0),
        ("min_gain", float("nan")),
        ("latency_budget_ms", float("inf")),
        ("embargo_epochs", -1),
        ("seeds_per_site", True),
        ("alpha_feedback", 1),
        ("gradient_ratio_min", 11.0),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_name(name: str, value: object) -> None:
    given: dict[str, Any] = {name: value}

    with pytest.raises(SettingError, match=name):
        KasminaConfig(**given)


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_is_set_elsewhere_is_refused_here_and_says_where(name: str) -> None:
    given: dict[str, Any] = {name: "other"}

    with pytest.raises(SettingError, match=re.escape(ELSEWHERE[name])):
        KasminaConfig(**given)


def test_settings_are_frozen_and_each_has_a_default() -> None:
    config = KasminaConfig()

    assert all(getattr(config, field.name) == field.default for field in fields(config))
    with pytest.raises(FrozenInstanceError):
        config.window = 3  # type: ignore[misc]
