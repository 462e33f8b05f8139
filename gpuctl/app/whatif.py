"""The effect of a change that is not committed: another quota, or one more job. Nothing is written.

The change is made in the text of the declarations, as a person would make it, and planned against the text without it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuctl.app.effects import on_cluster
from gpuctl.app.planning import Side, plan_report
from gpuctl.app.revisions import as_seen, contents_of
from gpuctl.compile import CompileCache, compile_tree
from gpuctl.compile.reading import read_file
from gpuctl.compile.scalars import number_or_text
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.edit import Target, Value, add, set_fields
from gpuctl.model.comparison import Comparison
from gpuctl.model.ids import NO_REVISION
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import RawObjects
from gpuctl.model.units import Instant
from gpuctl.views.plan_report import PlanReport

API_VERSION = "gpuctl.dev/v1"
_IMAGE = "registry.example.com/what-if:1"
_NEW_FILE = "what-if"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A person's question. Amounts are as typed: the compiler says what is wrong with them.

    `quota`: of the project; empty: unchanged. `job`: the name of one more job; empty: none.
    """

    project: str
    quota: str = ""
    job: str = ""
    gpus: str = "1"
    workers: str = "1"
    type: str = "training"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The plan; None where the changed declarations have errors, which are in `mistakes`."""

    plan: PlanReport | None
    mistakes: tuple[Diagnostic, ...] = ()


def asked(tree: SourceTree, question: Question) -> SourceTree:
    """The declarations with the change of the question. Raises Refused."""
    target = Target(kind="Project", name=question.project)
    path, content = _file_of(tree, target)
    files = dict(tree.files)
    if question.quota:
        changed = set_fields(path, content, target, {("spec", "quota"): number_or_text(question.quota)})
        files[path] = SourceFile(content=changed)
    if question.job:
        new = posixpath.join(posixpath.dirname(path), f"{_NEW_FILE}.yaml")
        while new in files:
            new = f"{new.removesuffix('.yaml')}-{_NEW_FILE}.yaml"
        files[new] = SourceFile(content=add(new, None, _job(question)))
    return replace(tree, revision=NO_REVISION, files=files)


def answer(trees: tuple[SourceTree, SourceTree], compared: Comparison, objects: RawObjects, now_ms: Instant) -> Answer:
    """The plan from one tree to another, on a cluster as it is.

    Cost: two compilations, and a schedule of each.
    """
    before, after = trees
    cache = CompileCache()
    base = compile_tree(before, cache)
    head = compile_tree(replace(after, files=as_seen(after.files, before.files)), cache, base)
    if base.declared is None or head.declared is None:
        wrong = base if base.declared is None else head
        return Answer(plan=None, mistakes=tuple(wrong.diagnostics))
    old = replace(base.declared, project_contents=contents_of(before, base, cache))
    new = replace(head.declared, project_contents=contents_of(after, head, cache))
    sides = (Side(declared=old, written=base.written), Side(declared=new, written=head.written))
    return Answer(plan=plan_report(*sides, compared, on_cluster(old, new, objects, now_ms)))


def _file_of(tree: SourceTree, target: Target) -> tuple[str, bytes]:
    """The file that declares the target. Cost: linear in the files that contain its name."""
    wanted = target.name.encode()
    for path, file in sorted(tree.files.items()):
        if wanted in file.content and any(map(target.is_in, read_file(path, file.content).documents)):
            return path, file.content
    # If no file declares the target, the edit of this missing file reports what is wrong.
    return f"{tree.cluster_dir}/projects/{target.name}/project.yaml", b""


def _job(question: Question) -> Mapping[str, Value]:
    spec: dict[str, Value] = {"image": _IMAGE, "gpus": number_or_text(question.gpus)}
    if question.type != "training":
        spec["type"] = question.type
    if question.workers != "1":
        spec["workers"] = number_or_text(question.workers)
    metadata: dict[str, Value] = {"name": question.job, "project": question.project}
    return {"apiVersion": API_VERSION, "kind": "Job", "metadata": metadata, "spec": spec}
