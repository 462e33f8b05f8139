"""A review: the plan of a change is made and told in every form, whatever a pull request holds.

An input is the files after the change, as for `compile`; before it they are the town's. What is declared from then on
is what a tenant may write, so names, messages and owners may hold anything that compiles.
"""

from __future__ import annotations

import json
import re

from gpuctl.app.effects import on_inventory
from gpuctl.app.planning import Side, plan_report
from gpuctl.compile import compile_tree
from gpuctl.model.comparison import Comparison
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.views import plan_form, plan_markdown, plan_text
from gpuctl.views.plan_page import ReadPlan, page, read_plan
from gpuctl.wiring import blueprint

from .harness import Target
from .target_compile import TARGET as COMPILE
from .target_compile import files_of
from .town import DECLARED

MOST_TOLD_BYTES = 4 << 20
_TAG = re.compile(r"(?<!\\)(?:\\\\)*<script", re.IGNORECASE)
"""A tag that Markdown takes for one: after a backslash, but for one that is escaped itself, it is text."""


def check(data: bytes) -> None:
    """Plan the change, and tell it."""
    files = {path: SourceFile(content=text) for path, text in files_of(data).items()}
    compiled = compile_tree(SourceTree(cluster_dir=".", files=files))
    if compiled.declared is None:
        return
    breaches = tuple(found for found in compiled.diagnostics if found.code == "GPU4001")
    after = Side(declared=compiled.declared, written=compiled.written, breaches=breaches)
    foreseen = on_inventory(DECLARED, compiled.declared, blueprint)
    compared = Comparison(base="main", head="feature", folder="c")
    report = plan_report(Side(declared=DECLARED), after, compared, foreseen)
    lines = ["".join(part.text for part in line) for line in plan_text.text(report)]
    told, form = plan_markdown.markdown(page(report)), json.dumps(plan_form.document(report))
    for text in (told, *lines, form):
        assert len(text.encode(errors="surrogatepass")) <= MOST_TOLD_BYTES
    assert not _TAG.search(told)
    read = read_plan(form.encode())
    assert isinstance(read, ReadPlan), read
    assert plan_markdown.markdown(read.comment) == told


TARGET = Target(
    check=check,
    form=COMPILE.form,
    words=(*COMPILE.words, b"<script>alert(1)</script>", b"@everyone", b"`", b"|", b"](javascript:x)", b"owners: [x@y]",
           b"gpus: 0.5", b"workers: 3", b"minWorkers: 1", b"quota: 9", b"type: inference"),
)  # fmt: skip
