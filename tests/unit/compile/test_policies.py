from __future__ import annotations

from pathlib import Path

import pytest
from trees import HEAD, OPEN_CLUSTER, codes, job, project, tree_of

from gpuctl.compile import Compiled, compile_tree
from gpuctl.diag.diagnostic import Severity

ROOT = Path(__file__).parents[3]
TWO_VOLUMES = "{image: x, volumes: [{claim: c, mountPath: /c}, {mountPath: /m, hostPath: /mnt}]}"


def policy(schema: str, match: str = "{kind: Job}", severity: str = "error") -> str:
    return (
        f"{HEAD}kind: Policy\nmetadata: {{name: rule}}\nspec:\n  match: {match}\n  severity: {severity}\n"
        f"  message: No.\n  schema: {schema}\n"
    )


def checked(rule: str, **documents: str) -> Compiled:
    files: dict[str, str | bytes] = {"cluster.yaml": OPEN_CLUSTER, "p.yaml": project("team-a"), "rule.yaml": rule}
    return compile_tree(tree_of({**files, **{f"{name}.yaml": text for name, text in documents.items()}}))


def marked(rule: str, spec: str) -> list[str]:
    """The words of the job's spec that a rule marks."""
    words = []
    for found in checked(rule, j=job("train", spec)).diagnostics:
        assert found.code == "GPU4001"
        words.append(found.source_line[found.span.column - 1 : found.span.end_column - 1])
    return words


@pytest.mark.parametrize(
    ("schema", "spec", "words"),
    [
        ("{properties: {spec: {properties: {volumes: {items: {not: {required: [hostPath]}}}}}}}",
         TWO_VOLUMES, ["hostPath"]),
        ("{properties: {spec: {properties: {volumes: false}}}}", TWO_VOLUMES, ["volumes"]),
        ("{properties: {spec: {required: [maxDuration]}}}", "{image: x}", ["spec"]),
        ("{properties: {spec: {properties: {workers: {maximum: 2}}}}}", "{image: x, workers: 3}", ["workers"]),
        ("{properties: {spec: {properties: {workers: {maximum: 2}}}}}", "{image: x, workers: 2}", []),
        ("{properties: {spec: {properties: {gpus: {multipleOf: 0.5}}}}}", "{image: x, gpus: 0.75}", ["gpus"]),
        ("{properties: {spec: {properties: {image: {}, env: {}}, additionalProperties: false}}}",
         "{image: x, retries: 1}", ["retries"]),
        ("{properties: {spec: {anyOf: [{required: [maxDuration]}, {properties: {type: {const: training}}}]}}}",
         "{image: x, type: interactive}", ["type"]),
        ("{$defs: {no: {maximum: 1}}, properties: {spec: {properties: {workers: {$ref: '#/$defs/no'}}}}}",
         "{image: x, workers: 2}", ["workers"]),
        ("{properties: {spec: {properties: {env: {patternProperties: {TOKEN$: {type: object}}}}}}}",
         "{image: x, env: {A_TOKEN: t, TOKENS: u}}", ["A_TOKEN"]),
        ("{properties: {spec: {not: {properties: {resources: {required: [cpu]}}, required: [resources]}}}}",
         "{image: x, resources: {cpu: 0}}", ["cpu"]),
    ],
)  # fmt: skip
def test_the_node_that_breaks_a_rule_is_marked(schema: str, spec: str, words: list[str]) -> None:
    assert marked(policy(schema), spec) == words


def test_what_a_policy_is_about() -> None:
    never = "{properties: {spec: {properties: {image: false}}}}"
    documents = {"a": job("x"), "b": project("infra"), "c": job("y", owner="infra")}
    for match, files in (
        ("{kind: Job}", ["a.yaml", "c.yaml"]),
        ("{kind: Job, projects: ['team-*']}", ["a.yaml"]),
        ("{kind: Job, except: [infra]}", ["a.yaml"]),
        ("{kind: Job, projects: [infra], except: ['*']}", []),
        ("{kind: Project}", []),
    ):
        assert [d.span.file for d in checked(policy(never, match), **documents).diagnostics] == files, match


NEVER = "{properties: {spec: {properties: {image: false}}}}"


def in_folders(match: str, **more: str) -> list[tuple[str, str]]:
    """What is told where team-a has a policy in its folder, beside a project team-b."""
    files = {
        "cluster.yaml": OPEN_CLUSTER,
        "loose.yaml": "---\n".join([job("l", owner="team-a"), job("l", owner="team-b")]),
        "projects/team-a/rule.yaml": policy(NEVER, match),
        **{f"projects/{team}/project.yaml": project(team) for team in ("team-a", "team-b")},
        **{f"projects/{team}/j.yaml": job("j", owner=team) for team in ("team-a", "team-b")},
    }
    return [(d.code, d.span.file) for d in compile_tree(tree_of({**files, **more})).diagnostics]


OWN_JOB = ("GPU4001", "projects/team-a/j.yaml")
BEYOND = ("GPU4006", "projects/team-a/rule.yaml")


@pytest.mark.parametrize(
    ("match", "told"),
    [
        ("{kind: Job}", [OWN_JOB]),
        ("{kind: Job, projects: [team-a]}", [OWN_JOB]),
        ("{kind: Job, except: [team-b]}", [OWN_JOB]),
        ("{kind: Job, except: ['*']}", []),
        ("{kind: Job, projects: ['*']}", [OWN_JOB, BEYOND]),
        ("{kind: Job, projects: [team-b, team-a]}", [OWN_JOB, BEYOND]),
        ("{kind: Job, projects: [team-b]}", [BEYOND]),
        ("{kind: Project, projects: ['team-?']}", [BEYOND]),
        ("{kind: Cluster}", [BEYOND]),
        ("{kind: Department}", [BEYOND]),
    ],
)
def test_a_policy_in_a_projects_folder_binds_that_project_alone(match: str, told: list[tuple[str, str]]) -> None:
    assert in_folders(match) == told


def test_what_another_puts_into_a_projects_folder_is_not_bound_by_its_policy() -> None:
    stranger = {"projects/team-b/x.yaml": job("x", owner="team-a")}
    assert in_folders("{kind: Job}", **stranger) == [OWN_JOB, ("GPU3008", "projects/team-b/x.yaml")]


def test_policies_over_other_kinds() -> None:
    for kind, file in (("Cluster", "cluster.yaml"), ("Project", "p.yaml")):
        found = checked(policy("{required: [labels]}", f"{{kind: {kind}}}"))
        assert [(d.code, d.span.file) for d in found.diagnostics] == [("GPU4001", file)]


def test_a_warning_leaves_the_tree_valid() -> None:
    found = checked(policy("{required: [labels]}", severity="warning"), j=job("train"))
    assert [d.severity for d in found.diagnostics] == [Severity.WARNING]
    assert found.declared is not None


def test_a_schema_that_is_none_and_one_that_leads_out_are_mistakes_of_the_policy() -> None:
    for schema in ("{type: objekt}", "{properties: {spec: {pattern: '('}}}", "{patternProperties: {'[': {}}}"):
        assert codes(checked(policy(schema))) == ["GPU4002"]
    endless = policy("{$defs: {a: {$ref: '#/$defs/a'}}, $ref: '#/$defs/a'}")
    assert codes(checked(endless, j=job("train"))) == ["GPU4002"]
    for reference in ("https://example.invalid/x.json", "file:///etc/passwd", "#/$defs/gone"):
        assert codes(checked(policy(f"{{$ref: '{reference}'}}"), j=job("train"))) == ["GPU4002"]


def _with_the_repositorys_policies(spec: str, owner: str = "team-a") -> list[str]:
    files: dict[str, str | bytes] = {path.name: path.read_bytes() for path in (ROOT / "policies").glob("*.yaml")}
    files |= {"c.yaml": OPEN_CLUSTER, "p.yaml": project(owner), "j.yaml": job("train", spec, owner)}
    return [d.message for d in compile_tree(tree_of(files)).diagnostics]


def test_the_repositorys_own_policies() -> None:
    (host_path,) = _with_the_repositorys_policies(TWO_VOLUMES)
    assert "no-host-paths" in host_path
    assert _with_the_repositorys_policies(TWO_VOLUMES, "infra") == []
    (secret,) = _with_the_repositorys_policies("{image: x, env: {HUB_TOKEN: abc, EPOCHS: '9'}}")
    assert "secrets-from-secrets" in secret
    assert _with_the_repositorys_policies("{image: x, env: {HUB_TOKEN: {secret: hub, key: token}}}") == []


@pytest.mark.parametrize(
    ("schema", "spec", "why"),
    [
        ("{required: [maxDuration]}", "{image: x}", "maxDuration is missing"),
        ("{required: [maxDuration, gpus]}", "{image: x}", "maxDuration and gpus are missing"),
        ("{dependentRequired: {gpus: [maxDuration]}}", "{image: x, gpus: 1}", "maxDuration is missing beside gpus"),
        ("{properties: {workers: {maximum: 1}}}", "{image: x, workers: 2}", "2 is more than 1"),
        ("{properties: {workers: {minimum: 3}}}", "{image: x, workers: 2}", "2 is less than 3"),
        ("{properties: {workers: {exclusiveMaximum: 2}}}", "{image: x, workers: 2}", "2 is not less than 2"),
        ("{properties: {workers: {exclusiveMinimum: 2}}}", "{image: x, workers: 2}", "2 is not more than 2"),
        ("{properties: {workers: {maximum: 1, multipleOf: 3}}}", "{image: x, workers: 2}",
         "2 is more than 1, 2 is not a multiple of 3"),
        ("{properties: {gpus: {multipleOf: 0.5}}}", "{image: x, gpus: 0.75}", "0.75 is not a multiple of 0.5"),
        ("{properties: {image: {pattern: ^a/}}}", "{image: x}", '"x" is no match of "^a/"'),
        ("{properties: {type: {enum: [interactive, inference]}}}", "{image: x, type: training}",
         '"training" is not "interactive" or "inference"'),
        ("{properties: {type: {const: interactive}}}", "{image: x, type: training}",
         '"training" is not "interactive"'),
        ("{properties: {env: {additionalProperties: {type: object}}}}", "{image: x, env: {A: b}}",
         "it is text, not object"),
        ("{properties: {volumes: false}}", "{image: x, volumes: []}", "volumes is not allowed"),
        ("{properties: {volumes: {items: {not: {required: [hostPath]}}}}}", TWO_VOLUMES, "hostPath is not allowed"),
        ("{properties: {command: {items: {not: {minLength: 2}}}}}", "{image: x, command: [a, bc]}",
         "command[1] is of a kind that is not allowed"),
        ("{properties: {command: {maxItems: 1}}}", "{image: x, command: [a, bc]}", "2 entries, more than 1"),
        ("{properties: {image: {maxLength: 3}}}", "{image: abcd}", "4 characters, more than 3"),
        ("{properties: {command: {uniqueItems: true}}}", "{image: x, command: [a, a]}", "two entries are alike"),
    ],
)  # fmt: skip
def test_the_message_says_why(schema: str, spec: str, why: str) -> None:
    (found,) = checked(policy(f"{{properties: {{spec: {schema}}}}}"), j=job("train", spec)).diagnostics
    assert found.message == f'No. ({why}; policy "rule")'
    assert found.policy == "rule"


def test_what_a_tenant_wrote_is_shown_short_and_escaped() -> None:
    written = '"\\u202E' + "x" * 5000 + '"'
    rule = policy("{properties: {spec: {properties: {command: {items: {const: y}}}}}}")
    (found,) = checked(rule, j=job("train", f"{{image: x, command: [{written}]}}")).diagnostics
    assert found.message.isprintable()
    assert len(found.message) < 200


def test_an_audit_stops_nothing_and_is_no_diagnostic() -> None:
    found = checked(policy("{properties: {spec: {required: [maxDuration]}}}", severity="audit"), j=job("train"))
    assert (found.diagnostics, found.declared is not None) == ((), True)
    assert [(one.severity, one.policy) for one in found.audits] == [(Severity.AUDIT, "rule")]


def test_many_names_that_are_missing_are_told_in_few_words() -> None:
    names = ", ".join(f"n{n}" for n in range(3000))
    (found,) = checked(policy(f"{{properties: {{spec: {{required: [{names}]}}}}}}"), j=job("train")).diagnostics
    assert found.message.endswith(' and 2992 more are missing; policy "rule")')
