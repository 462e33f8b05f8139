"""Jobs that are made of templates: as the same words in the job, each mistake at a line that its author can change."""

from __future__ import annotations

import pytest
from trees import CLUSTER, HEAD, codes, project, tree_of
from trees import job as declared_job

from gpuctl.compile import Compiled, compile_tree, expanded
from gpuctl.model.job import Job
from gpuctl.model.volumes import (
    ClaimVolume,
)
from gpuctl.views.expanded import expanded_text

PARAMETERS = """
    image: {description: the training code}
    gpus: {type: number, default: 1, minimum: 1, maximum: 8}
    rate: {enum: ["0.1", "0.01"], default: "0.1"}
    args: {type: list, default: []}
    limit: {default: null}
    spot: {type: boolean, default: true}
"""
JOB = """
    image: {$parameter: image}
    gpus: {$parameter: gpus}
    command: [train, --lr, {$parameter: rate}, --limit, {$parameter: limit}, --end]
    args: {$parameter: args}
    env: {RATE: {$parameter: rate}, LOG: info}
    resources: {cpu: 8, memory: 32Gi}
    volumes: [{claim: data, mountPath: /data}, {claim: home, mountPath: /home}]
    maxDuration: {$parameter: limit}
    preemptible: {$parameter: spot}
"""


def declared_template(spec: str, metadata: str = "{name: train}") -> str:
    return f"{HEAD}kind: Template\nmetadata: {metadata}\nspec: {spec}\n"


TRAIN = declared_template(f"\n  parameters:{PARAMETERS}  job:{JOB}")


def compiled(spec: str, **files: str) -> Compiled:
    """A job of the cluster's template, and other files of the cluster."""
    return compile_tree(tree_of({
        "cluster.yaml": CLUSTER,
        "train.yaml": TRAIN,
        "projects/team-a/project.yaml": project("team-a"),
        "projects/team-a/job.yaml": declared_job("j", spec),
        **{f"{name}.yaml": text for name, text in files.items()},
    }))  # fmt: skip


def made(spec: str, **files: str) -> Job:
    found = compiled(spec, **files)
    assert found.declared is not None, found.diagnostics
    return found.declared.jobs[0]


def told(spec: str, **files: str) -> list[str]:
    """What is wrong, each as place and code."""
    return [f"{one.span}: {one.code}" for one in compiled(spec, **files).diagnostics]


def test_a_job_is_as_if_it_said_itself_what_its_template_says() -> None:
    own = (
        "{image: x, gpus: 2, command: [train, --lr, '0.01', --limit, 8h, --end], args: [-v], "
        "env: {RATE: '0.01', LOG: info}, resources: {cpu: 8, memory: 32Gi}, maxDuration: 8h, preemptible: false, "
        "volumes: [{claim: data, mountPath: /data}, {claim: home, mountPath: /home}]}"
    )
    used = "{template: {name: train, with: {image: x, gpus: 2, rate: '0.01', limit: 8h, spot: false, args: [-v]}}}"
    assert made(used) == made(own)


def test_what_a_job_says_itself_goes_before_its_template() -> None:
    found = made(
        "{template: {name: train, with: {image: x}}, gpus: 3, env: {LOG: debug, X: y}, resources: {cpu: 4}, "
        "volumes: [{claim: mine, mountPath: /data}]}"
    )
    assert (found.gpu_milli, found.cpu_milli, found.mem_bytes) == (3000, 4000, 32 << 30)
    assert found.container.env == {"LOG": "debug", "RATE": "0.1", "X": "y"}
    assert [(volume.claim, volume.mount_path) for volume in found.container.volumes
            if isinstance(volume, ClaimVolume)] == [("mine", "/data"), ("home", "/home")]  # fmt: skip


def test_a_job_that_asks_for_memory_of_a_gpu_has_no_gpus_of_its_template() -> None:
    assert made("{template: {name: train, with: {image: x}}, gpuMemory: 8Gi}").gpu_mem_bytes == 8 << 30


def test_what_is_null_is_left_out() -> None:
    found = made("{template: {name: train, with: {image: x}}}")
    assert found.max_duration_ms is None
    assert found.container.command == ("train", "--lr", "0.1", "--limit", "--end")


def test_defaults_go_behind_the_template() -> None:
    defaults = "{quota: 4, defaults: {all: {env: {LOG: x, PROXY: y}, cpuPerGpu: 3}}}"
    found = compile_tree(tree_of({
        "cluster.yaml": CLUSTER + TRAIN.replace(HEAD, f"---\n{HEAD}"),
        "project.yaml": project("team-a", defaults),
        "job.yaml": declared_job("j", "{template: {name: train, with: {image: x}}}"),
    })).declared  # fmt: skip
    assert found is not None
    assert found.jobs[0].container.env == {"LOG": "info", "PROXY": "y", "RATE": "0.1"}
    assert found.jobs[0].cpu_milli == 8000


def test_text_that_looks_like_a_parameter_stays_text() -> None:
    found = made("{template: {name: train, with: {image: '${gpus}', args: ['{{ rate }}', '$parameter', \"x: {y\"]}}}")
    assert found.container.image == "${gpus}"
    assert found.container.args == ("{{ rate }}", "$parameter", "x: {y")


def test_all_mistakes_of_a_job_are_told_at_its_own_lines() -> None:
    spec = (
        "\n  template:\n    name: train\n    with:\n      gpus: 9\n      rate: 0.1\n      agrs: [a]\n      limit: 8x\n"
        "  envv: {}\n  resources: {cpu: 90000m, memory: x}"
    )
    where = "projects/team-a/job.yaml"
    assert told(spec) == [
        f"{where}:7:5: GPU2005", f"{where}:8:13: GPU2018", f"{where}:9:13: GPU2008", f"{where}:10:7: GPU2004",
        f"{where}:11:14: GPU2014", f"{where}:12:3: GPU2004", f"{where}:13:36: GPU2015",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("gpus: '2'", "GPU2006"), ("gpus: true", "GPU2006"), ("gpus: 0", "GPU2018"), ("gpus: null", "GPU2006"),
        ("rate: '0.2'", "GPU2007"), ("args: a", "GPU2006"), ("args: [1]", "GPU2006"), ("args: {a: b}", "GPU2006"),
        ("spot: maybe", "GPU2009"), ("gpus: 2.5", "GPU2013"), ("limit: [8h]", "GPU2006"), ("$x: 1", "GPU2023"),
    ],
)  # fmt: skip
def test_a_value_for_a_parameter_is_of_its_type(given: str, code: str) -> None:
    found = compiled(f"{{template: {{name: train, with: {{image: x, {given}}}}}}}")
    assert codes(found) == [code]
    assert found.diagnostics[0].span.file == "projects/team-a/job.yaml"


def test_what_only_a_job_makes_wrong_is_told_at_its_line_with_the_templates_beside() -> None:
    large = declared_template("{job: {image: x, gpus: 1, resources: {cpu: 90}}}")
    (found,) = compiled("{template: {name: train}}", train=large).diagnostics
    assert (found.code, str(found.span)) == ("GPU3016", "projects/team-a/job.yaml:4:25")
    assert [(text, str(span)) for text, span in found.related] == [("the template says it here", "train.yaml:4:50")]


def test_a_policy_judges_what_a_job_is_made_of() -> None:
    policy = (
        f"{HEAD}kind: Policy\nmetadata: {{name: images}}\nspec:\n  message: no\n  match: {{kind: Job}}\n"
        "  cel: object.spec.image.startsWith('registry/')\n"
    )
    spec = "{template: {name: train, with: {image: registry/x}}}"
    assert told(spec, policy=policy) == []
    assert told(spec.replace("registry/x", "x"), policy=policy) == ["projects/team-a/job.yaml:4:39: GPU4001"]
    schema = policy.replace("cel: ", "schema: {properties: {spec: {properties: {volumes: {maxItems: 1}}}}} # ")
    assert told(spec, policy=schema) == ["projects/team-a/job.yaml:4:25: GPU4001"]


OWN = declared_template("{job: {image: own}}", "{name: train, project: team-a}")


def test_a_projects_template_goes_before_the_clusters_and_is_its_own_alone() -> None:
    own = {"projects/team-a/own": OWN, "projects/team-b/project": project("team-b")}
    other = {"projects/team-b/job": declared_job("j", "{template: {name: train, with: {image: x}}}", "team-b")}
    found = compiled("{template: {name: train}}", **own, **other).declared
    assert found is not None
    assert {str(each.id): each.container.image for each in found.jobs} == {"team-a/j": "own", "team-b/j": "x"}
    only = {**own, "projects/team-a/own": OWN.replace("train", "mine")}
    theirs = declared_job("j", "{template: {name: mine}}", "team-b")
    assert told("{template: {name: mine}}", **only, **{"projects/team-b/job": theirs}) == [
        "projects/team-b/job.yaml:4:25: GPU3080"
    ]


def test_a_template_in_the_folder_of_another_project_has_no_effect() -> None:
    planted = {"projects/team-b/project": project("team-b"), "projects/team-b/planted": OWN}
    assert told("{template: {name: train}}", **planted) == [
        "projects/team-a/job.yaml:4:8: GPU2005",  # the cluster's needs an image
        "projects/team-b/planted.yaml:3:34: GPU3008",
    ]
    assert told("{image: x}", **{"projects/team-a/own": declared_template("{job: {image: x}}")}) == [
        "projects/team-a/own.yaml:2:7: GPU3029"
    ]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("{job: {gpsu: 1}}", ["4:14: GPU2004"]),
        ("{job: {template: {name: x}}}", ["4:14: GPU2004"]),
        ("{job: {image: {$parameter: x}}}", ["4:34: GPU3081"]),
        ("{parameters: {x: {}}, job: {image: y}}", ["4:21: GPU3082"]),
        ("{parameters: {x: {default: 9x}}, job: {image: y, maxDuration: {$parameter: x}}}", ["4:34: GPU2014"]),
        ("{parameters: {x: {default: 9}}, job: {image: {$parameter: x}}}", ["4:34: GPU2008"]),
        ("{parameters: {x: {default: a, enum: [b, 1]}}, job: {image: {$parameter: x}}}",
         ["4:34: GPU2007", "4:47: GPU2008"]),
        ("{parameters: {x: {minimum: 1}}, job: {image: {$parameter: x}}}", ["4:34: GPU2018"]),
        ("{parameters: {x: {type: date}}, job: {image: {$parameter: x}}}", ["4:31: GPU2007"]),
        ("{parameters: {x-y: {}}, job: {image: x}}", ["4:21: GPU2023"]),
        ("{parameters: {x: {}}, job: {image: x, env: {A: {$parameter: x, b: c}}}}",
         ["4:21: GPU3082", "4:51: GPU2005", "4:51: GPU2005", "4:55: GPU2004", "4:70: GPU2004"]),
    ],
)  # fmt: skip
def test_a_templates_own_mistakes_are_told_in_it_without_a_job(spec: str, found: list[str]) -> None:
    assert [one.removeprefix("train.yaml:") for one in told("{image: x}", train=declared_template(spec))] == found


def test_of_a_template_with_a_mistake_its_jobs_are_not_told() -> None:
    assert told("{template: {name: train}}", train=declared_template("{job: {gpsu: 1}}")) == [
        "train.yaml:4:14: GPU2004"
    ]
    assert told("{template: {name: train}}", train=declared_template("{job: [}")) == ["train.yaml:4:14: GPU1001"]


def test_a_project_of_a_template_has_to_be_declared() -> None:
    assert told("{image: x}", train=declared_template("{job: {image: x}}", "{name: train, project: taem-a}")) == [
        "train.yaml:3:34: GPU3004"
    ]


def test_two_templates_of_one_name_are_a_mistake() -> None:
    assert codes(compiled("{image: x}", other=TRAIN)) == ["GPU3003"]


def test_a_list_can_not_make_a_job_larger_than_a_template_may() -> None:
    many = "[" + ", ".join(["a"] * 1500) + "]"
    twice = declared_template(
        "{parameters: {x: {type: list}}, job: {image: y, command: {$parameter: x}, args: {$parameter: x}}}"
    )
    assert told(f"{{template: {{name: train, with: {{x: {many}}}}}}}", train=twice) == [
        "projects/team-a/job.yaml:4:25: GPU3083"
    ]


def test_an_expanded_job_says_where_each_value_is_written_and_compiles_to_the_same() -> None:
    spec = "\n  template:\n    name: train\n    with:\n      image: x\n      args: [-v]\n  env: {LOG: debug}"
    found = compiled(spec)
    text = expanded_text(expanded(found.jobs[0].declaration, found.jobs[0].filled))
    assert "template" not in text
    lines = {line.split("  #")[0].strip(): line.partition("  # ")[2] for line in text.splitlines()}
    assert lines["image: x"] == "projects/team-a/job.yaml:8"
    assert lines['RATE: "0.1"'] == "train.yaml:8"
    assert lines["LOG: debug"] == ""
    assert lines["resources:"] == "train.yaml:18"
    again = compile_tree(tree_of({"cluster.yaml": CLUSTER, "p.yaml": project("team-a"), "j.yaml": text})).declared
    assert again is not None
    assert again.jobs[0].digest == made(spec).digest
