"""The jobs that jobs come after: which names are taken for mistakes, and that no number of them is a burden."""

from __future__ import annotations

from trees import HEAD, codes, compiled_of, job, project

from gpuctl.compile.after import MOST_ENTRIES
from gpuctl.compile.document import MOST_TOLD

MANY = 3_000


def after(name: str, *others: str) -> str:
    return job(name, f"{{image: x, after: [{', '.join(others)}]}}")


def chain_of(count: int, last: str = "") -> str:
    """Each after the one before; the first after `last`."""
    named = [after(f"j{at}", f"j{at - 1}") for at in range(1, count)]
    return "---\n".join([after("j0", last) if last else job("j0"), *named])


def test_a_job_that_has_another_mistake_is_there_all_the_same() -> None:
    found = compiled_of(a=project("team-a"), b=after("train", "data"), c=job("data", "{image: x, gpu: 1}"))
    assert codes(found) == ["GPU2004"]


def test_a_job_that_can_not_be_read_may_be_the_one_that_is_meant() -> None:
    found = compiled_of(a=project("team-a"), b=after("train", "data"), c=f"{HEAD}kind: Job\nmetadata: {{name: data, \n")
    assert "GPU3032" not in codes(found)


def test_the_same_name_in_another_project_is_another_job() -> None:
    found = compiled_of(
        a=project("team-a"), b=project("team-b"), c=after("train", "data"), d=job("data", "{image: x}", owner="team-b")
    )
    assert codes(found) == ["GPU3032"]


def test_what_a_template_names_is_told_where_the_job_names_the_template() -> None:
    spec = "spec:\n  job: {image: x, after: [gone]}"
    given = f"{HEAD}kind: Template\nmetadata: {{name: t, project: team-a}}\n{spec}\n"
    found = compiled_of(a=project("team-a"), b=given, c=job("train", "{template: {name: t}}"))
    (mistake,) = found.diagnostics
    assert (mistake.code, mistake.span.file) == ("GPU3032", "c.yaml")
    assert [span.file for _, span in mistake.related] == ["b.yaml"]


def test_each_circle_is_told_once_also_where_others_lead_into_it() -> None:
    jobs = [after("a", "b"), after("b", "a"), after("c", "a", "d"), after("d", "d"), after("e", "c"), job("f")]
    found = compiled_of(a=project("team-a"), b="---\n".join(jobs))
    assert [(mistake.code, mistake.message) for mistake in found.diagnostics] == [
        ("GPU3034", 'jobs come after each other: "a" > "b" > "a"'),
        ("GPU3034", 'jobs come after each other: "d" > "d"'),
    ]


def test_a_long_chain_is_no_recursion_and_a_long_circle_is_told_in_short() -> None:
    assert compiled_of(a=project("team-a"), b=chain_of(MANY)).diagnostics == ()
    (mistake,) = compiled_of(a=project("team-a"), b=chain_of(MANY, f"j{MANY - 1}")).diagnostics
    assert mistake.code == "GPU3034"
    assert len(mistake.message) < 200
    assert len(mistake.related) < 10


def test_of_very_many_wrong_names_some_are_made_and_as_many_told_as_of_other_mistakes() -> None:
    others = [f"k{at}" for at in range(20)]
    jobs = "---\n".join(after(f"j{at}", *others) for at in range(MOST_ENTRIES // 20 + 10))
    found = compiled_of(a=project("team-a"), b=jobs)
    assert len(found.diagnostics) == MOST_TOLD + 1
