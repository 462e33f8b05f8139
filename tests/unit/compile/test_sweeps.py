"""Sweeps: what a declaration of several jobs comes to, which are refused, and that none is a burden."""

from __future__ import annotations

import pytest
from trees import codes, compiled_of, job, project

from gpuctl.compile.fit import MOST_JOBS
from gpuctl.model.job import Job

MANY = "completions: 1000"


def jobs_of(spec: str, name: str = "train") -> tuple[Job, ...]:
    found = compiled_of(a=project("team-a"), b=job(name, spec))
    assert found.declared is not None, found.diagnostics
    return found.declared.jobs


def refused(spec: str, name: str = "train") -> list[str]:
    return codes(compiled_of(a=project("team-a"), b=job(name, spec)))


def sweep(text: str, more: str = "") -> str:
    return f"{{image: x, env: {{A: b}}, sweep: {{{text}}}{more}}}"


def test_each_index_has_its_number_and_all_else_in_common() -> None:
    found = sorted(jobs_of(sweep("completions: 12, parallelism: 3")), key=lambda each: each.position)
    assert [each.id.name for each in found] == [f"train-{number}" for number in range(12)]
    assert [each.container.env["JOB_COMPLETION_INDEX"] for each in found] == [str(number) for number in range(12)]
    assert {(each.container.env["A"], each.parallelism, str(each.declared_as)) for each in found} == {
        ("b", 3, "team-a/train")
    }
    assert len({each.digest for each in found}) == 12


def test_a_matrix_is_every_combination_with_values_as_they_are_written() -> None:
    found = jobs_of(sweep("matrix: {lr: [0.10, 1e-4], mode: [on, true], depth: [2]}"))
    assert sorted(tuple(sorted(each.container.env.items())) for each in found) == sorted(
        (("A", "b"), ("DEPTH", "2"), ("LR", lr), ("MODE", mode)) for lr in ("0.10", "0.0001") for mode in ("on", "true")
    )


def test_what_is_added_or_put_in_another_order_makes_no_other_job_of_those_that_were() -> None:
    before = {each.id: each.digest for each in jobs_of(sweep("matrix: {lr: [0.1, 0.2], depth: [2, 4]}"))}
    after = {
        each.id: each.digest
        for each in jobs_of(sweep("matrix: {depth: [8, 4, 2], lr: [0.3, 0.2, 0.1]}, parallelism: 2"))
    }
    assert len(before) == 4
    assert before.items() < after.items()
    few, more = jobs_of(sweep("completions: 2")), jobs_of(sweep("completions: 3"))
    assert {(each.id, each.digest) for each in few} < {(each.id, each.digest) for each in more}


def test_an_index_is_not_the_run_of_a_plain_job_of_its_name() -> None:
    (plain,) = jobs_of('{image: x, env: {A: b, JOB_COMPLETION_INDEX: "0"}}', "train-0")
    (index,) = jobs_of(sweep("completions: 1"))
    assert plain.id == index.id
    assert plain.digest != index.digest


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("completions: 1000000000", "GPU2018"),
        ("completions: 0", "GPU2018"),
        ("completions: 2, matrix: {a: [1]}", "GPU2019"),
        ("parallelism: 2", "GPU2019"),
        ("matrix: {}", "GPU2018"),
        ("matrix: {lr: []}", "GPU2018"),
        ("matrix: {lr: [1, 1]}", "GPU2021"),
        ('matrix: {lr: [1, "1"]}', "GPU2021"),
        ('matrix: {lr: ["", ""]}', "GPU2021"),
        ("matrix: {lr: [1], LR: [2]}", "GPU2021"),
        ("matrix: {lr: [[1]]}", "GPU2006"),
        ("matrix: {lr: [null]}", "GPU2006"),
        ("matrix: {learning-rate: [1]}", "GPU2023"),
        ("matrix: {a: [1]}, paralellism: 2", "GPU2004"),
        ("matrix: {nvidia_visible_devices: [all]}", "GPU3047"),
        ("matrix: {a: [1, 2]}", "GPU3090"),
    ],
)
def test_a_sweep_that_is_not_right_is_a_mistake_at_its_place(text: str, code: str) -> None:
    assert refused(sweep(text)) == [code]


def test_a_product_is_refused_before_anything_is_made_of_it() -> None:
    values = f"[{', '.join(map(str, range(1000)))}]"
    matrix = ", ".join(f"k{number}: {values}" for number in range(20))
    (mistake,) = compiled_of(a=project("team-a"), b=job("train", sweep(f"matrix: {{{matrix}}}"))).diagnostics
    assert mistake.code == "GPU2018"
    assert "combinations" in mistake.message


def test_only_training_is_a_sweep_and_workers_number_themselves() -> None:
    assert refused(sweep("completions: 2", ", type: interactive")) == ["GPU2019"]
    assert refused(sweep("completions: 2", ", type: inference")) == ["GPU2019"]
    assert refused(sweep("completions: 2", ", workers: 2")) == ["GPU2019"]
    assert len(jobs_of(sweep("matrix: {lr: [1, 2]}", ", workers: 2"))) == 2


def test_names_with_the_index_are_as_short_as_names_have_to_be() -> None:
    assert len(jobs_of(sweep(MANY), "x" * 59)) == 1000
    assert refused(sweep(MANY), "x" * 60) == ["GPU2018"]
    assert refused(sweep("matrix: {lr: [1]}"), "x" * 55) == ["GPU2018"]


def test_what_all_indices_have_together_is_bounded() -> None:
    long = f", args: [{', '.join(['x' * 1000] * 20)}]"
    assert refused(sweep(MANY, long)) == ["GPU3091"]
    assert len(jobs_of(sweep("completions: 100", long))) == 100


def test_a_name_is_taken_only_by_an_index_that_there_is() -> None:
    text = "---\n".join([job("train", sweep("completions: 4")), job("train-3"), job("train-4"), job("train-03")])
    assert codes(compiled_of(a=project("team-a"), b=text)) == ["GPU3092"]
    text = "---\n".join([job("train", sweep("completions: 4")), job("train-3", owner="team-b")])
    assert codes(compiled_of(a=project("team-a"), b=project("team-b"), c=text)) == []


def test_all_jobs_of_a_project_are_counted() -> None:
    text = "---\n".join(job(f"s{number}", "{image: x, sweep: {completions: 1000}}") for number in range(51))
    (mistake,) = compiled_of(a=project("team-a"), b=text).diagnostics
    assert mistake.code == "GPU3031"
    assert str(MOST_JOBS // 1000) in mistake.message


def test_a_job_comes_after_a_sweep_and_not_after_one_of_its_jobs() -> None:
    both = "---\n".join([job("train", sweep("completions: 2")), job("best", "{image: x, after: [train]}")])
    assert codes(compiled_of(a=project("team-a"), b=both)) == []
    one = both.replace("[train]", "[train-1]")
    (mistake,) = compiled_of(a=project("team-a"), b=one).diagnostics
    assert mistake.code == "GPU3032"
    assert "train" in mistake.help
