"""Parsing: the rules P1 to P5, the table of edge cases, the laws that hold for any text."""

from __future__ import annotations

import pytest

from rewardkit import parsing


@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize("name", parsing.FORMATS)
def test_the_example_of_the_prompt_parses(name: str, think: bool) -> None:
    text = parsing.example(name, think=think)
    assert parsing.prompt(name, think=think).endswith(text)
    forecast = parsing.parse([text], name, think="required" if think else "forbidden")
    assert forecast.wellformed.all(), forecast.reason
