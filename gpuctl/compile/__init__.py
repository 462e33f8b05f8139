"""Files to `Declared`. A user's mistake is a diagnostic with its place; all are found at once.

In the order data flows: `syntax` YAML events, `builder` and `reading` documents, `fields_v1`, `spec_v1`, `shape`
their form, `declarations` what is declared, `resolve` references, `defaults` what jobs don't say themselves, `quota`,
`capacity` and `fit` whether it can be, `most_jobs` whether there is memory for it, `policy` rules over declarations
(`rule_form` and `patterns` what a JSON Schema is, `rule_steps` how it is evaluated, `rule_causes` why it is broken;
`cel_rule` a rule in CEL, of `cel_tree` and `cel_reads`, what it reads of `cel_scope` and what it may cost, `cel_cost`),
`lower` and `digest` the values of `model`.
`cache` saves work and decides nothing; `stored` is one as bytes, for a later process.
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
