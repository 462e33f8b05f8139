from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.compile.scalars import NotFinite, OutOfRange, Scalar, number, plain_scalar

MEANINGS: list[tuple[str, Scalar]] = [
    ("", None), ("~", None), ("null", None), ("nUll", "nUll"),
    ("true", True), ("False", False), ("yes", "yes"), ("on", "on"), ("no", "no"), ("off", "off"), ("y", "y"),
    ("4", 4), ("-4", -4), ("+4", 4), ("0755", 755), ("0o17", 15), ("0x1F", 31), ("0b11", "0b11"), ("1_000", "1_000"),
    ("0.5", Decimal("0.5")), (".5", Decimal("0.5")), ("1.", Decimal(1)), ("1e3", Decimal(1000)), ("-0.0", Decimal(0)),
    ("8:30", "8:30"), ("2024-01-01", "2024-01-01"), ("1.2.3", "1.2.3"), ("-", "-"), (".", "."),
    ("1h", "1h"), ("e3", "e3"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), MEANINGS)
def test_the_core_schema_of_yaml_1_2(text: str, value: Scalar) -> None:
    read = plain_scalar(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "-.inf", "+.INF"])
def test_what_is_not_finite_is_refused(text: str) -> None:
    with pytest.raises(NotFinite):
        plain_scalar(text)


@pytest.mark.parametrize("text", ["1e400", "1e-400", "9" * 5000, "0." + "1" * 60, "1e999999999999", "0x" + "f" * 40])
def test_what_no_amount_could_be_is_refused_at_once(text: str) -> None:
    with pytest.raises(OutOfRange):
        plain_scalar(text)


@given(st.integers(-(10**16), 10**16))
def test_integers_are_exact(value: int) -> None:
    assert plain_scalar(str(value)) == value


@given(st.decimals(-(10**9), 10**9, places=6))
def test_decimals_are_exact(value: Decimal) -> None:
    assert number(f"{value:f}") == value


@given(st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        value = plain_scalar(text)
    except (NotFinite, OutOfRange):
        return
    assert not isinstance(value, float)
