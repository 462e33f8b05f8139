"""Policies in CEL: what they can read, where they mark a breach, and where a mistake in an expression is marked."""

from __future__ import annotations

import pytest
from trees import HEAD, OPEN_CLUSTER, job, project, tree_of

from gpuctl.compile import CompileCache, Compiled, compile_tree
from gpuctl.diag.diagnostic import Diagnostic, Severity

VOLUMES = "{image: x, volumes: [{claim: c, mountPath: /c}, {mountPath: /m, hostPath: /mnt}]}"


def policy(cel: str, kind: str = "Job", more: str = "") -> str:
    return (
        f"{HEAD}kind: Policy\nmetadata: {{name: rule}}\nspec:\n  match: {{kind: {kind}}}\n  message: No.\n"
        f"{more}  cel: {cel}\n"
    )


def files(rule: str, spec: str, of_project: str = "{quota: 4}") -> dict[str, str | bytes]:
    return {
        "c.yaml": OPEN_CLUSTER,
        "p.yaml": project("team-a", of_project),
        "rule.yaml": rule,
        "j.yaml": job("j", spec),
    }


def checked(rule: str, spec: str = "{image: x, gpus: 2, workers: 2}", of_project: str = "{quota: 4}") -> Compiled:
    return compile_tree(tree_of(files(rule, spec, of_project)))


def marked(found: Diagnostic) -> str:
    return found.source_line[found.span.column - 1 : found.span.end_column - 1]


@pytest.mark.parametrize(
    ("cel", "spec", "words", "why"),
    [
        ("total.gpus <= 2", "{image: x, gpus: 2, workers: 2}", "gpus", "gpus of all workers is 4"),
        ("total.gpus <= 0.25", "{image: x, gpus: 0.5}", "gpus", "gpus of all workers is 0.5"),
        ("total.gpus <= 2", "{image: x, gpuMemory: 1Gi, workers: 3}", "spec", "gpus of all workers is 3"),
        ("object.spec.workers <= 1", "{image: x, workers: 2}", "workers", "spec.workers is 2"),
        ("object.spec.workers > 1", "{image: x}", "spec", "spec.workers is 1"),
        ("has(object.spec.maxDuration)", "{image: x}", "spec", "spec.maxDuration is missing"),
        ("object.spec.?maxDuration.orValue('') == '1h'", "{image: x, maxDuration: 2h}", "maxDuration",
         'spec.maxDuration is "2h"'),
        ("total.maxDurationSeconds <= 3600", "{image: x, maxDuration: 2h}", "maxDuration",
         "spec.maxDuration is 2h"),
        ("total.maxDurationSeconds != null", "{image: x}", "spec",
         "spec.maxDuration is missing, and so is the project's training.maxDuration"),
        ("total.maxDurationSeconds != null", "{image: x, type: inference}", "spec", "spec.maxDuration is missing"),
        ("total.memoryBytes <= 1024", "{image: x, workers: 2, resources: {memory: 1Gi}}", "memory",
         "memory of all workers is 2Gi"),
        ("object.spec.volumes.all(v, !has(v.hostPath))", VOLUMES, "hostPath", 'hostPath is "/mnt"'),
        ("'!object.spec.volumes.exists(v, has(v.hostPath))'", VOLUMES, "hostPath", 'hostPath is "/mnt"'),
        ("object.spec.command.all(c, c != 'a')", "{image: x, command: [b, a]}", "a", 'an entry of command is "a"'),
        ("size(object.spec.volumes) < 2", VOLUMES, "volumes", "spec.volumes has 2 entries"),
        ("object.spec.env.all(name, name != 'A')", "{image: x, env: {A: b}}", "env", "it is false"),
        ("object.spec.type == 'training' || has(object.spec.maxDuration)", "{image: x, type: interactive}", "spec",
         'spec.type is "interactive", spec.maxDuration is missing'),
        ("project.spec.quota >= 5", "{image: x}", "name", "project.spec.quota is 4"),
        ("cluster.metadata.name == 'd'", "{image: x}", "name", 'cluster.metadata.name is "c"'),
        ("object.spec.gpus * 1.0 <= 0.5", "{image: x, gpus: 0.75}", "gpus", "spec.gpus is 0.75"),
    ],
)  # fmt: skip
def test_the_field_that_breaks_a_rule_is_marked_and_said(cel: str, spec: str, words: str, why: str) -> None:
    (found,) = checked(policy(cel), spec).diagnostics
    assert (marked(found), found.message) == (words, f'No. ({why}; policy "rule")')


def test_the_words_are_those_of_the_declarations_and_not_of_the_expression() -> None:
    limits = "{quota: 4, interactive: {maxDuration: 9h}}"
    rule = policy("total.maxDurationSeconds <= 3600", more="  field: spec.maxDuration\n")
    (found,) = checked(rule, "{image: x, type: interactive}", limits).diagnostics
    assert found.message == 'No. (the project\'s interactive.maxDuration is 9h; policy "rule")'
    (found,) = checked(policy("project.held < 4"), of_project="{quota: 4}").diagnostics
    assert found.message == 'No. (gpus of the project\'s jobs is 4; policy "rule")'
    (found,) = checked(policy("total.quota < 5", "Project"), of_project="{quota: {dgx: 4, old: 1.5}}").diagnostics
    assert found.message == 'No. (spec.quota of all pools is 5.5; policy "rule")'


def test_the_policy_may_name_the_field_to_be_marked() -> None:
    (found,) = checked(policy("object.spec.workers <= 1", more="  field: spec.gpus\n")).diagnostics
    assert marked(found) == "gpus"


@pytest.mark.parametrize(
    ("cel", "words", "problem"),
    [
        ("object.spec.gpuz <= 4", "gpuz", "there is no field object.spec.gpuz"),
        ("object.spec.volumes.all(v, !has(v.hostPat))", "hostPat", "there is no field object.spec.volumes.*.hostPat"),
        ("object.spec.?resources.?cpus.orValue(1) < 2", "cpus", "there is no field object.spec.resources.cpus"),
        ("total.quota <= 4", "quota", "there is no field total.quota"),
        ("project.spec.nodeAffinity.batch == []", "batch", "there is no field project.spec.nodeAffinity.batch"),
        ("object.spec.gpus <=", "=", "Syntax error: mismatched input '<EOF>'"),
        ("'object.spec.gpus + ''x'' == 1 + ''a'''", "+",
         "found no matching overload for '_+_' applied to '(int, string)'"),
        ("|\n    object.spec.gpus <= 4 &&\n    1 + 'a' == 2", "+",
         "found no matching overload for '_+_' applied to '(int, string)'"),
        ("|\n    object.spec.gpus <= 4 &&\n    object.spec.workerz < 3", "workerz",
         "there is no field object.spec.workerz"),
        (">-\n    object.spec.gpus <= 4 &&\n    object.spec.workerz < 3", "workerz",
         "there is no field object.spec.workerz"),
        ("\n    object.spec.gpus <= 4 &&\n    object.spec.workerz < 3", "workerz",
         "there is no field object.spec.workerz"),
        ('"object.spec.image != \\"x\\" && object.spec.workerz < 3"', "workerz",
         "there is no field object.spec.workerz"),
        ("1 == objekt", "objekt", "undeclared reference to 'objekt'"),
        ("1 + 2", "1 + 2", "it gives INT, not true or false"),
        ("timestamp('2020-01-01T00:00:00Z') == null", "timestamp", "policies have no function timestamp"),
        ("object.spec.image.matches(object.spec.image)", "object.spec.image.matches(object.spec.image)",
         "matches: what matches compares with must be a literal"),
        ("object.spec.image.matches('(?=a)')", "object.spec.image.matches('(?=a)')",
         "matches: invalid perl operator: (?="),
    ],
)  # fmt: skip
def test_a_mistake_in_an_expression_is_marked_in_it(cel: str, words: str, problem: str) -> None:
    (found,) = checked(policy(cel)).diagnostics
    assert (found.code, found.span.file) == ("GPU4007", "rule.yaml")
    assert found.message.startswith(f"this is no rule in CEL: {problem}"), found.message
    assert marked(found) == words


def test_all_unknown_fields_are_told_at_once_each_with_its_likeness() -> None:
    found = checked(policy("object.spec.gpuz <= 4 && object.spec.worker < 3")).diagnostics
    assert [one.help for one in found] == ['did you mean "gpus"?', 'did you mean "workers"?']


def test_a_rule_that_fails_on_a_declaration_is_told_there_by_its_severity() -> None:
    (found,) = checked(policy("object.spec.maxDuration == '1h'", more="  severity: warning\n")).diagnostics
    assert (found.code, found.severity, marked(found)) == ("GPU4008", Severity.WARNING, "spec")
    assert found.message == 'policy "rule" can\'t be evaluated here: Key not found in map : "maxDuration"'
    (found,) = checked(policy("object.spec.priority")).diagnostics
    assert (found.code, found.message.endswith("it gives INT")) == ("GPU4008", True)


def test_numbers_are_compared_whatever_they_are_written_as() -> None:
    for cel in ("object.spec.gpus < 1", "object.spec.gpus < 1.5", "total.gpus < 1", "total.gpus == 0.5"):
        assert checked(policy(cel), "{image: x, gpus: 0.5}").diagnostics == (), cel
    for cel in ("object.spec.gpus < 2", "object.spec.gpus < 1.5", "total.gpus == 1", "total.gpus * 2.0 <= 2.0"):
        assert checked(policy(cel), "{image: x, gpus: 1}").diagnostics == (), cel


def test_totals_of_the_other_kinds() -> None:
    of_pools = "{quota: {dgx: 4, old: 1.5}, limit: {dgx: 8}}"
    rules = {
        "total.quota == 5.5 && total.limit == 8 && total.gpus == 4 && project.held == 4": "Project",
        "total.gpus == 22 && total.nodes == 4 && cluster == object": "Cluster",
    }
    for cel, kind in rules.items():
        assert checked(policy(cel, kind), of_project=of_pools).diagnostics == ()
    held = policy("project.held <= 3", "Project")
    (found,) = checked(held).diagnostics
    assert "gpus of the project's jobs is 4" in found.message
    assert checked(held, "{image: x, gpus: 4, suspend: true}").diagnostics == ()


RAISE = policy("old == null || total.quota - oldTotal.quota <= 2", "Project")


def of_quota(text: str) -> dict[str, str | bytes]:
    return files(RAISE, "{image: x}", f"{{quota: {text}}}")


def test_a_rule_about_a_change_is_held_against_what_was_declared_before() -> None:
    base = compile_tree(tree_of(of_quota("4")))
    for text, breaks in (("6", False), ("6.5", True), ("{dgx: 6.5}", True), ("1", False)):
        found = compile_tree(tree_of(of_quota(text)), before=base).diagnostics
        assert [marked(one) for one in found if one.code == "GPU4001"] == ["quota"] * breaks, text
        assert compile_tree(tree_of(of_quota(text))).diagnostics == ()
    new = {**of_quota("4"), "n.yaml": project("team-n", "{quota: 9}")}
    assert compile_tree(tree_of(new), before=base).diagnostics == ()
    first = policy("old != null || total.quota <= 2", "Project")
    (one,) = compile_tree(tree_of({**new, "rule.yaml": first}), before=base).diagnostics
    assert (one.code, one.span.file) == ("GPU4001", "n.yaml")
    assert one.message == 'No. (it is new, spec.quota is 9; policy "rule")'
    assert compile_tree(tree_of({**new, "rule.yaml": first})).diagnostics == ()


def test_a_cache_changes_nothing() -> None:
    """What a rule reads besides the declaration changes, and the declaration doesn't."""
    cache = CompileCache()
    rules = ("project.held <= 4", "total.maxDurationSeconds == null", "cluster.spec.namespacePrefix == 'gpu-'")
    before: Compiled | None = None
    for cel in rules:
        for change in (
            {},
            {"more.yaml": job("more", "{image: x, gpus: 1}")},
            {"p.yaml": project("team-a", "{quota: 4, training: {maxDuration: 1d}}")},
            {"c.yaml": OPEN_CLUSTER + "  namespacePrefix: ml-\n"},
            {"rule.yaml": RAISE, "p.yaml": project("team-a", "{quota: 9}")},
        ):
            tree = tree_of({**files(policy(cel), "{image: x, gpus: 4}"), **change})
            for base in (None, before):
                assert compile_tree(tree, cache, base).diagnostics == compile_tree(tree, before=base).diagnostics
            before = compile_tree(tree_of(files(policy(cel), "{image: x, gpus: 4}")))


def test_a_field_to_be_marked_is_for_cel_alone() -> None:
    rule = policy("true", more="  field: spec.gpus\n").replace("cel: true", "schema: {}")
    (found,) = checked(rule).diagnostics
    assert (found.code, marked(found)) == ("GPU4009", "spec.gpus")
