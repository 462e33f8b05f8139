"""GPU308x: jobs that are made of templates."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3080",
        title="a template that is not declared",
        message='no template "{template}" is declared for jobs of project "{project}"',
        why="A job may use the templates of its own project, which name it in metadata.project, and those of the "
        "cluster, which name none.",
        fix="declare it in the cluster's own files, or in the project's folder; or name another",
    ),
    CodeEntry(
        code="GPU3081",
        title="a parameter that is not declared",
        message='this template has no parameter "{name}"',
        why="What stands for a parameter has to be one of the template's spec.parameters.",
        fix="declare it in spec.parameters",
    ),
    CodeEntry(
        code="GPU3082",
        title="a parameter without use",
        message='the parameter "{name}" is used nowhere in the template\'s job',
        why="A job could give a value for it, with no effect.",
        fix="write {$parameter: NAME} where its value belongs, or remove it",
    ),
    CodeEntry(
        code="GPU3083",
        title="a template too large",
        message="the template gives a job more than {limit} keys and values",
        why="A file of one line could otherwise declare a job of any size. Each 100 characters of a text count as "
        "one more.",
        fix="make the template smaller, or shorten the lists that are given for its parameters",
    ),
)
