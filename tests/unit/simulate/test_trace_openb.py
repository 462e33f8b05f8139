"""openb's tables: what is read from them, and what is told of a wrong line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.simulate.trace import MOST_TOLD, Trace
from gpuctl.simulate.trace_openb import OpenbNode, OpenbPod, read_nodes, read_openb, read_pods

NODES = b"sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,P100\n"
PODS = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np-0,12000,16384,1,460\np-1,1000,1,8,1000\np-2,500,1,0,0\n"
TIMED = (
    b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    b"p-0,12000,16384,1,1000,,LS,Running,60,100,61\n"
    b"p-1,6000,12288,1,460,T4|P100,BE,Running,10,20,\n"
    b"p-2,6000,12288,0,0,,BE,Running,10,20,11\n"
    b"p-3,6000,12288,1,460,,BE,Failed,15,15,\n"
)


def test_nodes_and_pods_are_read_in_integers() -> None:
    nodes, no_mistakes = read_nodes("nodes.csv", NODES)
    pods, none_either = read_pods("pods.csv", PODS)
    assert (no_mistakes, none_either) == ((), ())
    assert nodes == (OpenbNode(name="n-0", cpu_milli=64_000, mem_bytes=262_144 << 20, gpus=2, model="P100"),)
    assert pods == (
        OpenbPod(name="p-0", cpu_milli=12_000, mem_bytes=16_384 << 20, gpu_milli=460),
        OpenbPod(name="p-1", cpu_milli=1_000, mem_bytes=1 << 20, gpu_milli=8_000),
        OpenbPod(name="p-2", cpu_milli=500, mem_bytes=1 << 20, gpu_milli=0),
    )


SPECS = (
    b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    b"p-0,1,1,1,460,\n"
    b"p-1,1,1,1,460,V100M32|V100M16\n"
    b"p-2,1,1,1,460,T4|V100M16|T4\n"
)


def test_the_gpu_models_a_pod_may_use_are_read_sorted_and_each_once() -> None:
    pods, mistakes = read_pods("pods.csv", SPECS, {"T4", "V100M16", "V100M32"})
    assert mistakes == ()
    assert [pod.models for pod in pods] == [(), ("V100M16", "V100M32"), ("T4", "V100M16")]


def test_a_list_without_the_column_of_models_leaves_every_pod_any_model() -> None:
    pods, _ = read_pods("pods.csv", PODS, {"T4"})
    assert {pod.models for pod in pods} == {()}


def test_every_wrong_gpu_spec_is_told_at_once_with_its_place() -> None:
    wrong = (b"|", b"T4|", b"T4||P100", b"T4| P100", b" ", b"T4|\x07", b"T" * 254)
    content = SPECS + b"".join(b"p-9,1,1,1,460,%s\n" % spec for spec in wrong)
    pods, mistakes = read_pods("pods.csv", content)
    assert pods == ()
    assert {m.code for m in mistakes} == {"GPU3910"}
    assert [(m.span.file, m.span.line, m.span.column) for m in mistakes] == [("pods.csv", n, 1) for n in range(5, 12)]
    with_models = read_pods("pods.csv", content, {"T4", "V100M16"})[1]
    assert [m.span.line for m in with_models] == [3, *range(5, 12)], "beside what is wrong, a model that no node has"
    assert "gpu_spec 'T4||P100' is not a list of GPU models: write T4|P100, or nothing for any" in mistakes[2].message


def test_a_model_that_no_node_has_is_told_where_the_nodes_are_known() -> None:
    pods, (mistake,) = read_pods("pods.csv", SPECS, {"T4", "V100M16"})
    assert (pods, mistake.span.line) == ((), 3)
    assert "no node has the GPU model 'V100M32'; nodes have T4, V100M16" in mistake.message
    assert read_pods("pods.csv", SPECS)[1] == ()


def test_a_trace_with_a_wrong_gpu_spec_is_refused() -> None:
    trace, mistakes = read_openb("pods.csv", TIMED.replace(b"T4|P100", b"T4|"))
    assert (trace, [m.span.line for m in mistakes]) == (None, [3])


def test_pods_with_gpus_are_jobs_by_time() -> None:
    trace, mistakes = read_openb("pods.csv", TIMED)
    assert mistakes == ()
    assert isinstance(trace, Trace)
    told = [(job.project, job.submitted_ms, job.duration_ms, job.gpu_milli) for job in trace.jobs]
    assert told == [("be", 10_000, 10_000, 460), ("ls", 60_000, 40_000, 1000)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"p-0,1,1,1,1001", "gpu_milli 1001 is not a part of one GPU"),
        (b"p-0,1,1,2,500", "parts of several GPUs"),
        (b"p-0,1,1,1,-5", "whole numbers"),
        (b"p-0,1,1,1,9999999999999", "whole numbers"),
        (b"p-0,1,1", "too few columns"),
    ],
)
def test_a_wrong_line_is_told_with_its_place(line: bytes, problem: str) -> None:
    pods, mistakes = read_pods("pods.csv", PODS + line + b"\n")
    assert pods == ()
    assert [(m.code, m.span.line) for m in mistakes] == [("GPU3910", 5)]
    assert problem in mistakes[0].message


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        (b"20,10", "deleted at 10, before it was created at 20"),
        (b",10", "whole numbers of seconds"),
        (b"10,999999999999", "whole numbers of seconds"),
    ],
)
def test_a_pod_that_came_after_it_went_is_told(times: bytes, problem: str) -> None:
    trace, mistakes = read_openb("pods.csv", TIMED + b"p-9,1,1,1,460,,LS,Running," + times + b",\n")
    assert trace is None
    assert [(m.code, m.span.line) for m in mistakes] == [("GPU3910", 6)]
    assert problem in mistakes[0].message


def test_pods_without_gpus_are_no_trace() -> None:
    _, (mistake,) = read_openb("pods.csv", b"\n".join([*TIMED.splitlines()[:1], *TIMED.splitlines()[3:]]))
    assert (mistake.code, mistake.message) == (
        "GPU3915", "there is nothing to replay: no pod in it held GPUs for any time"
    )  # fmt: skip


def test_a_table_of_another_kind_is_refused() -> None:
    assert [m.code for m in read_pods("pods.csv", NODES)[1]] == ["GPU3911"]
    assert [m.code for m in read_nodes("nodes.csv", b"")[1]] == ["GPU3915"]
    assert [m.code for m in read_pods("pods.csv", PODS.splitlines()[0])[1]] == ["GPU3915"]
    assert len(read_pods("pods.csv", PODS + b"x,y,z,0,0\n" * 50)[1]) == MOST_TOLD


def test_the_published_lists_are_read(traces: Path) -> None:
    nodes, mistakes = read_nodes("nodes", (traces / "openb" / "openb_node_list_gpu_node.csv").read_bytes())
    assert (len(nodes), sum(node.gpus for node in nodes), mistakes) == (1213, 6212, ())
    pods, mistakes = read_pods("pods", (traces / "openb" / "openb_pod_list_default.csv").read_bytes())
    assert (len(pods), sum(0 < pod.gpu_milli < 1000 for pod in pods), mistakes) == (8152, 3078, ())
