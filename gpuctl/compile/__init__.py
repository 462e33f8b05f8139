"""Files to `Declared`. A user's mistake is a diagnostic with its place; one compilation reports all mistakes.

The modules, in the order in which data flows: `syntax` makes YAML events; `builder` and `reading` make documents;
`fields_v1`, `spec_v1` and `shape` check their form; `declarations` collects the declarations; `resolve` resolves
references; `defaults` fills in what jobs leave out; `quota`, `capacity` and `fit` check that the cluster could run it;
`most_jobs` checks that the reconciler has memory for it; `policy` checks rules over declarations (`rule_form` and
`patterns`: what a JSON Schema may be, `rule_steps`: its evaluation, `rule_causes`: why it is broken; `cel_rule`: rules
in CEL, with `cel_tree` and `cel_reads`, the variables of `cel_scope`, and the bound on their cost in `cel_cost`);
`lower` and `digest` make the values of `model`.
`cache` saves work and decides nothing; `stored` writes a cache as bytes, for a later process.
"""

from __future__ import annotations

from gpuctl.compile.cache import CompileCache
from gpuctl.compile.compiler import Compiled, Written, compile_tree
from gpuctl.compile.defaults import Expanded, expanded
from gpuctl.compile.digest import content_digest, fields_of_a_new_run
from gpuctl.compile.most_jobs import DeclaredSize, declared_size, within
from gpuctl.compile.reading import parse_documents
from gpuctl.compile.shape import check_shape

__all__ = [
    "CompileCache",
    "Compiled",
    "DeclaredSize",
    "Expanded",
    "Written",
    "check_shape",
    "compile_tree",
    "content_digest",
    "declared_size",
    "expanded",
    "fields_of_a_new_run",
    "parse_documents",
    "within",
]
