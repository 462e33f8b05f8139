import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.k8s.quantity import format_bytes, format_cpu, parse_milli, parse_whole, same_quantity


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("500m", 500),
        ("4", 4000),
        ("0.5", 500),
        (".5", 500),
        ("1e3", 1_000_000),
        ("1n", 1),
        ("2k", 2_000_000),
        (8, 8000),
    ],
)
def test_thousandths(text: object, milli: int) -> None:
    assert parse_milli(text) == milli


@pytest.mark.parametrize(
    ("text", "count"),
    [("16255Mi", 16255 * 2**20), ("512Gi", 512 * 2**30), ("1500m", 2), ("1G", 10**9), ("1.5Ki", 1536), ("1E", 10**18)],
)
def test_units(text: object, count: int) -> None:
    assert parse_whole(text) == count


@pytest.mark.parametrize("text", ["", "Mi", "1 Gi", "0x10", "1e", "1e9999", "nan", "NaN", "inf", "1Mi1", "--1", None])
def test_what_is_no_quantity_is_an_error(text: object) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_milli(text)


def test_an_amount_is_no_more_than_a_server_holds() -> None:
    """Python reads any number of digits: a sum of such amounts could not be written down."""
    assert parse_milli("1e999") == parse_whole("1e999") == 2**63 - 1
    assert parse_whole("-1e999") == -(2**63 - 1)
    with pytest.raises(ValueError, match="quantity"):
        parse_whole("9" * 5000)


def test_equal_amounts_are_equal_however_they_are_written() -> None:
    assert same_quantity("1Gi", "1024Mi")
    assert same_quantity("1", 1)
    assert same_quantity("1000m", "1")
    assert not same_quantity("1G", "1Gi")
    assert not same_quantity("soon", "soon")


def test_canonical_forms() -> None:
    assert format_bytes(16255 * 2**20) == "16255Mi"
    assert format_bytes(2**30) == "1Gi"
    assert format_bytes(1000) == "1000"
    assert format_bytes(0) == "0"
    assert format_cpu(4000) == "4"
    assert format_cpu(1500) == "1500m"


@given(st.integers(0, 2**63 - 1))
def test_amounts_survive_writing(amount: int) -> None:
    assert parse_whole(format_bytes(amount)) == amount
    assert parse_milli(format_cpu(amount)) == amount
