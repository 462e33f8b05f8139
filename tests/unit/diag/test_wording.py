from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import pytest

from gpuctl.diag.catalogue import CodeEntry, catalogue
from gpuctl.diag.codes import CODES
from gpuctl.diag.escapes import printable
from gpuctl.diag.wording import (
    all_of,
    duration,
    explain_code,
    memory,
    message,
    one_of,
    reason_text,
    thousandths,
)
from gpuctl.engine import reasons
from gpuctl.model.decision import Reason

GPUCTL = Path(__file__).parents[3] / "gpuctl"
MAKERS = {"_reason", "_with", "_named", "_of_job"}


def test_units() -> None:
    assert [thousandths(milli) for milli in (4000, 500, 1, 0, -1500)] == ["4", "0.5", "0.001", "0", "-1.5"]
    assert [duration(ms) for ms in (0, 5_400_000, 90_000, 86_400_500)] == ["0s", "1h30m", "1m30s", "1d500ms"]
    assert [memory(size) for size in (0, 1, 1024, 3 << 29, 17 << 30)] == ["0", "1", "1Ki", "1536Mi", "17Gi"]


def test_lists() -> None:
    assert [one_of("abc"[:count]) for count in range(4)] == ["", "a", "a or b", "a, b or c"]
    assert all_of("abcdefghij") == "a, b, c, d, e, f, g, h and 2 more"


def test_a_reason_in_words_names_its_parameters() -> None:
    assert reason_text(Reason(code="GPU3013", params=(("limit", 500), ("quota", 4000)))) == (
        "the limit 0.5 is below the quota 4"
    )


def test_one_is_not_many() -> None:
    said = [
        message("GPU3016", {"pools": "pool p", "need": f"{many} {what}s"}) for what in ("CPU", "GPU") for many in "13"
    ]
    assert [words.split(" has ")[1].removesuffix(" for a worker") for words in said] == [
        "1 CPU", "3 CPUs", "1 GPU", "3 GPUs",
    ]  # fmt: skip


def test_a_reason_of_another_version_is_shown_as_it_is() -> None:
    assert reason_text(Reason(code="GPU5999", params=(("a", 1), ("b", "x\x1b")))) == "GPU5999 a=1 b=x\\x1b"
    assert reason_text(Reason(code="GPU3013", params=(("limit", 500),))) == "GPU3013 limit=500"


def test_a_long_value_is_cut() -> None:
    assert len(message("GPU2011", {"found": "x" * 10_000})) < 300


def test_what_people_typed_is_made_visible() -> None:
    assert printable("a\x1b[0m\n漢") == "a\\x1b[0m\\n漢"


@pytest.mark.parametrize("code", CODES)
def test_every_code_says_what_why_and_how(code: str) -> None:
    entry = CODES[code]
    assert re.fullmatch(r"GPU[1-9]\d{3}", code)
    for text in (entry.title, entry.message, entry.why, entry.fix):
        assert text.strip()
    units = {spec for _, name, spec, _ in string.Formatter().parse(entry.message) if name}
    assert units <= {"", "gpus", "cpu", "duration", "instant", "memory"}
    assert explain_code(code).startswith(f"{code}: {entry.title}\n")


def test_a_code_stands_once() -> None:
    entry = CodeEntry(code="GPU1001", title="t", message="m", why="w", fix="f")
    with pytest.raises(ValueError, match="duplicate code"):
        catalogue([[entry], [entry]])


def test_reasons_have_the_parameters_of_their_message() -> None:
    for call in ast.walk(ast.parse((GPUCTL / "engine" / "reasons.py").read_text())):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in MAKERS:
            code, *names = map(ast.unparse, call.args)
            code = getattr(reasons, code, code.strip("'"))
            if code in CODES:  # Others come with the call, and have no parameters.
                named = {name for _, name, _, _ in string.Formatter().parse(CODES[code].message) if name}
                given = {*(parameter.arg for parameter in call.keywords), *map(ast.literal_eval, names)}
                assert given == named, code


def test_no_code_is_spelt_in_the_source_that_is_not_in_the_catalogue() -> None:
    named = {code for path in GPUCTL.rglob("*.py") for code in re.findall(r"\bGPU[1-9]\d{3}\b", path.read_text())}
    assert named <= set(CODES)
