"""What is left of a refusal's words; tests/cluster/test_server_refusals.py asks a server of today for its own."""

from __future__ import annotations

import pytest

from gpuctl.adapters.kubernetes.refusals import said
from gpuctl.model.state import Body

TEMPLATE = (
    'core.PodTemplateSpec{ObjectMeta:v1.ObjectMeta{Name:"", Labels:map[string]string{"app":"a: b", "x":"}"}}, '
    'Spec:core.PodSpec{Volumes:[]core.Volume(nil), Containers:[]core.Container{core.Container{Name:"main", '
    'Image:"say \\"hi\\": {", Command:[]string(nil)}}, ServiceAccountName:""}}'
)
"""As servers before 1.33 print it."""


def invalid(*causes: tuple[str, str]) -> Body:
    told = [{"field": field, "message": message} for field, message in causes]
    return {"message": "Job.batch x is invalid: all of it at length", "details": {"causes": told}}


@pytest.mark.parametrize(
    ("cause", "wanted"),
    [
        (f"Invalid value: {TEMPLATE}: field is immutable", "f: field is immutable"),
        (f"Invalid value: {TEMPLATE}: must be one of [a b]", "f: must be one of [a b]"),
        ('Invalid value: "null": must be set', 'f: "null": must be set'),
        ("Invalid value: 3: must be in [0, 2]", "f: 3: must be in [0, 2]"),
        (f'Invalid value: "{"x" * 70}": must be shorter', f'f: "{"x" * 59}...: must be shorter'),
        ('Unsupported value: "C": supported values: "A", "B"', 'f: "C": supported values: "A", "B"'),
        ('Duplicate value: "http"', 'f: Duplicate value: "http"'),
        ("Required value: name", "f: Required value: name"),
        ("Invalid value: {", "f: Invalid value: {"),
    ],
)  # fmt: skip
def test_the_field_a_short_value_and_the_reason_are_left(cause: str, wanted: str) -> None:
    assert said(422, invalid(("f", cause))) == wanted


def test_each_mistake_is_told_once_and_the_first_three() -> None:
    status = invalid(*((f"f{number // 2}", "Forbidden: no") for number in range(10)))
    assert said(422, status) == "f0: Forbidden: no; f1: Forbidden: no; f2: Forbidden: no; and 2 more"


def test_without_causes_it_is_the_servers_sentence() -> None:
    assert said(422, {"message": "nothing\nmore"}) == r"nothing\nmore"
    assert said(503, {}) == "HTTP status 503"
    assert said(400, {"message": "x" * 1000}) == "x" * 800 + "..."


def test_what_go_prints_of_a_body_that_does_not_fit_is_left_out() -> None:
    start = "failed to create typed patch object (gpu-a/e; batch/v1, Kind=Job): .spec.suspend: expected boolean"
    assert said(500, {"message": f"{start}, got &{{x}}"}) == ".spec.suspend: expected boolean, got x"
    assert said(500, {"message": f"{start}, got &{{map[{'x' * 80}]}}"}) == ".spec.suspend: expected boolean"
