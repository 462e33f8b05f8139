"""A job's declaration with its defaults, as YAML; a comment at each default names its place."""

from __future__ import annotations

from gpuctl.compile import Expanded, parse_documents
from gpuctl.diag.escapes import printable
from gpuctl.views.yamltext import yaml_document


def expanded_text(job: Expanded) -> str:
    """One document. A line without a comment comes from the file that the first comment names."""
    text = yaml_document(job.data)
    documents, _ = parse_documents("", text.encode())
    lines = text.removesuffix("\n").split("\n")
    for path, origin in job.origins.items():
        lines[documents[0].key_span(path).line - 1] += f"  # {printable(origin.file)}:{origin.line}"
    return "\n".join([lines[0], f"# {printable(job.at.file)}:{job.at.line}", *lines[1:]]) + "\n"
