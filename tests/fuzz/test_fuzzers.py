"""Each fuzzer runs on its whole corpus and on a thousand inputs made of it. `harness` says how to run more."""

from __future__ import annotations

from itertools import islice

import pytest

from .harness import HERE, JSON, Target, attempt, corpus, inputs, targets

INPUTS = 1000
"""Of each target; the time of a few seconds."""
TARGETS = targets()
KEPT = [(name, file) for name in TARGETS for file in corpus(name)]


def test_each_corpus_has_a_target() -> None:
    assert {path.name for path in (HERE / "corpus").iterdir()} == set(TARGETS)


def test_an_input_is_known_by_its_seed_and_number() -> None:
    target, seeds = TARGETS["compile"], list(corpus("compile").values())
    made = list(islice(inputs(target, seeds, seed=1), 40))
    assert list(islice(inputs(target, seeds, seed=1, first=30), 10)) == made[30:]
    assert list(islice(inputs(target, seeds, seed=2), 40)) != made


def _read_text(data: bytes) -> None:
    data.decode()


def test_what_raises_is_a_failure_with_its_place() -> None:
    failure = attempt(Target(check=_read_text, form=JSON), b"\xff")
    assert failure is not None
    assert failure.place.startswith(__file__)
    assert "UnicodeDecodeError" in failure.told


@pytest.mark.parametrize(("name", "file"), KEPT)
def test_what_is_kept_is_read_as_it_should_be(name: str, file: str) -> None:
    failure = attempt(TARGETS[name], corpus(name)[file])
    assert failure is None, failure.told


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_makes_gpuctl_misbehave(name: str, fuzz_seed: int) -> None:
    made = inputs(TARGETS[name], list(corpus(name).values()), fuzz_seed)
    for data in islice(made, INPUTS):
        failure = attempt(TARGETS[name], data)
        assert failure is None, f"{failure.told}\n{data[:2000]!r}"
