import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.k8s.timestamps import format_seconds, format_timestamp, parse_timestamp


def test_forms() -> None:
    assert format_timestamp(1_596_000_000_007) == "2020-07-29T05:20:00.007Z"
    assert format_seconds(1_596_000_000_999) == "2020-07-29T05:20:00Z"
    assert parse_timestamp("2020-07-29T05:20:00Z") == 1_596_000_000_000
    assert parse_timestamp("2020-07-29T07:20:00.0079999+02:00") == 1_596_000_000_007


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2020-07-29T05:20:00",
        "2020-13-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_what_is_no_timestamp_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is the library's own
        parse_timestamp(text)


@given(st.integers(0, 253_402_300_799_000))
def test_instants_survive_writing(at_ms: int) -> None:
    assert parse_timestamp(format_timestamp(at_ms)) == at_ms
    assert parse_timestamp(format_seconds(at_ms)) == at_ms - at_ms % 1000
