"""Every annotation, label and ledger key that gpuctl writes or reads, edited by hand to every kind of garbage.

The names come from `k8s/names.py`, so that a new one is tried without anybody thinking of it. Of each: no cycle fails,
no decision about another team changes, and what is gpuctl's on the object is put back, or the damage is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from neighbours import TOWN, Neighbours, job

from gpuctl.k8s import names
from gpuctl.k8s.ledger import ledger_ref
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import ProjectName
from gpuctl.model.state import Body

ANNOTATIONS = sorted({value for name, value in vars(names).items() if name.endswith("_ANNOTATION")})
LABELS = sorted({value for name, value in vars(names).items() if name.endswith("_LABEL")})
LEDGER_KEYS = ("content", "finished", "inventory", "revision", "runs", "seen", "shards", "usage")
WRITTEN_ANEW = {"content", "revision", "runs", "seen", "shards", "usage"}
"""Facts that follow from what is declared and what runs: garbage in them lasts until the next write of the ledger."""
FORMS_OF_A_SECTION = {"an object"}
"""Garbage that a section may well be: nothing in it."""
DIGITS_19, DIGITS_5000 = "9" * 19, "9" * 5000
PLACES = '[{"node":"n1","gpus":[0,1,2,3],"uuids":["GPU-0"]},{"node":"n2","gpus":[0,1,2,3]}]'

GARBAGE: dict[str, str | None] = {
    "absent": None,
    "empty": "",
    "another type": "true",
    "a number": "7",
    "19 digits": DIGITS_19,
    "5,000 digits": DIGITS_5000,
    "negative": "-1",
    "no number": "NaN",
    "an exponent": "1e999",
    "digits of another script": "\u0661\u0662",
    "null": "null",
    "a list": "[]",
    "an object": "{}",
    "nested without end": "[" * 100_000,
    "1 MB": "x" * 1_000_000,
    "another job": "good/g1",
    "another's place": PLACES,
    "a place that is none": '[{"node":"n1","gpus":[99999999999999999999]}]',
    "a charge beyond all": f'{{"cpuMilli":{DIGITS_5000},"gpuMilli":{DIGITS_19},"memBytes":-1}}',
    "before all time": "0001-01-01T00:00:00+23:59",
    "after all time": "9999-12-31T23:59:59-23:59",
    "control characters": "\x1b[31m\u202e\x00\x07",
    "HAMi's devices": f"GPU-0,NVIDIA,{DIGITS_5000},{DIGITS_5000}:;",
}
LABEL_GARBAGE: dict[str, str | None] = {
    "absent": None,
    "empty": "",
    "19 digits": DIGITS_19,
    "63 digits": "9" * 63,
    "another team": "good",
    "another job": "g1",
    "another manager": "helm",
}
MINE = (("Job", "e1"), ("Deployment", "e2"), ("Pod", "e1"), ("Pod", "e2"), ("Job", "e5"))
FILES = {**TOWN, "e5.yaml": job("e5", "evil", 1, ", suspend: true")}


@pytest.fixture(scope="module")
def town() -> Iterator[Neighbours]:
    """One for all cases: each is put right before the next. A job of `good` waits, so that its place is at stake."""
    made = Neighbours({**FILES, "g3.yaml": job("g3", "good", 4)})
    yield made
    assert made.reports[-1].settled


def mine(town: Neighbours) -> dict[tuple[str, str], Body]:
    """The attacker's objects as they are now."""
    live = town.objects()
    evils = [ref for ref in sorted(live) if ref.namespace == "gpu-evil"]
    return {
        (kind, name): next(live[ref] for ref in evils if ref.kind == kind and ref.name.startswith(f"{name}-"))
        for kind, name in MINE
    }


def set_to(town: Neighbours, body: Body, part: str, key: str, value: str | None) -> None:
    def change(new: dict[str, Any]) -> None:
        found = new["metadata"].setdefault(part, {})
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value

    # As an API server would store it: what it would not take from a client is written all the same.
    town.edit_unchecked(body, change)


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_an_annotation_edited_to_garbage_is_no_matter(town: Neighbours, key: str) -> None:
    attack(town, "annotations", key, GARBAGE)


@pytest.mark.parametrize("key", LABELS)
def test_a_label_edited_to_garbage_is_no_matter(town: Neighbours, key: str) -> None:
    attack(town, "labels", key, LABEL_GARBAGE)


def attack(town: Neighbours, part: str, key: str, values: dict[str, str | None]) -> None:
    """On all objects of the attacker at once. What is gpuctl's to write is put back; on pods nothing is.

    Where an object is declared is written with any other change, so that its absence waits for one.
    """
    before = town.life_of("good")
    for said, value in values.items():
        found = mine(town)
        wanted = {each: body["metadata"].get(part, {}) for each, body in found.items()}
        for body in found.values():
            set_to(town, body, part, key, value)
        town.enforce()
        assert town.life_of("good") == before, said
        for each, body in mine(town).items():
            kind, _ = each
            if kind != "Pod" and key in wanted[each] and not (value is None and key in names.PROVENANCE_ANNOTATIONS):
                assert body["metadata"][part].get(key) == wanted[each][key], f"{said} is put back"
            else:
                set_to(town, body, part, key, wanted[each].get(key))


@pytest.mark.parametrize("key", LEDGER_KEYS)
def test_a_ledger_edited_to_garbage_is_its_projects_matter_alone(key: str) -> None:
    """An administrator's slip: nobody else may write there."""
    town = Neighbours(FILES)
    ref = ledger_ref("one", ProjectName("evil"))
    before = town.life_of("good")
    for said, value in GARBAGE.items():
        body = town.objects()[ref]
        town.edit_unchecked(body, lambda new, value=value: _put(new["data"], key, value))  # type: ignore[misc]
        report = town.enforce()
        assert town.life_of("good") == before, said
        damaged = {part for found, part in report.state.damaged if found == ref}
        same = town.objects()[ref]["data"] == body["data"]
        assert same or damaged or key in WRITTEN_ANEW or said in FORMS_OF_A_SECTION, f"{said} is put back or told"
        town.edit_unchecked(town.objects()[ref], lambda new, body=body: new.update(data=dict(body["data"])))  # type: ignore[misc]
        town.enforce()
        assert ref_of(town.objects()[ref]) == ref


def _put(data: dict[str, Any], key: str, value: str | None) -> None:
    if value is None:
        data.pop(key, None)
    else:
        data[key] = value
