"""Makes the reference pages of docs/ from what they are about: codes, schemas, and the help of commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from gpuctl.cli.command import ExampleCommand, ExampleGroup
from gpuctl.cli.main import gpuctl
from gpuctl.compile.jsonschema import schemas
from gpuctl.diag.codes import CODES

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "diagnostics"
WIDTH = 100
"""Columns of help texts, as in a terminal of that width or more."""

FAMILIES = {
    "1": "YAML",
    "2": "the form of declarations",
    "3": "references, and the capacity of the cluster",
    "4": "policies",
    "5": "why a job waits or runs",
    "6": "guards, and commands on files",
    "7": "the cluster",
    "8": "Git",
    "9": "the command line, and faults of gpuctl",
}


_schemas = cache(schemas)
"""Made once: to make them takes 50 ms, and a page of fields looks into them for each field that has parts."""


def errors_page() -> str:
    """docs/errors.md: each code with its meaning, what is told in an example, and what to do."""
    lines = [
        "# All codes",
        "",
        "Every message has a code. What is told here as an example is what a test gets for the input in",
        "`tests/diagnostics/CODE`; `gpuctl explain CODE` says the same as this page. A code never changes its meaning.",
        "`error` makes a tree invalid, `warning` does not.",
        "",
    ]
    family = ""
    for code, entry in CODES.items():
        if code[3] != family:
            family = code[3]
            lines += [f"## GPU{family}xxx: {FAMILIES[family]}", ""]
        told = _told(code)
        fence = "````" if "```" in told else "```"
        lines += [f"### {code}", "", f"**{_plain(_capital(entry.title))}.** {_plain(entry.why)}", ""]
        lines += [f"{fence}text", told, fence, "", f"Fix: {_plain(entry.fix.removesuffix('.'))}.", ""]
    return "\n".join(lines)


def decisions_page() -> str:
    """docs/adr/index.md: the decisions that had alternatives, by their titles."""
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    titles = [(page.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# "), page.name) for page in pages]
    return "\n".join([
        "# Decisions",
        "",
        "Each page says what was decided, what it costs, and what was rejected.",
        "",
        *(f"- [{title}]({name})" for title, name in titles),
        "",
    ])


def _told(code: str) -> str:
    """The example of one code: of several diagnostics the first with that code, without its help."""
    told = (FIXTURES / code / "expected.txt").read_text(encoding="utf-8")
    block = next((each for each in told.split("\n\n") if f" {code}: " in each), told)
    return "\n".join(line for line in block.rstrip("\n").split("\n") if not line.startswith("help: "))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _plain(text: str) -> str:
    """Text in Markdown that shows its own `<`, `*`, `_`, `[` and `|`, outside of code."""
    parts = text.split("`")
    for index in range(0, len(parts), 2):
        for sign in "\\<*_[|":
            parts[index] = parts[index].replace(sign, f"\\{sign}")
    return "`".join(parts)


def commands_page() -> str:
    """docs/commands.md: the help of every command."""
    settings = {**gpuctl.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(gpuctl, info_name="gpuctl", **settings)
    lines = [
        "# Every command and flag",
        "",
        "What `--help` prints. What they are for, by what people do: [commands](cli.md).",
        "",
    ]
    for command, inner in _commands(gpuctl, context):
        told = command.get_help(inner)
        lines += [f"## {inner.command_path}", "", "```text", told, "```", ""]
    return "\n".join(lines)


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert isinstance(command, ExampleCommand | ExampleGroup), f"{name} has no examples"
        inner = click.Context(command, info_name=name, parent=context, terminal_width=WIDTH, max_content_width=WIDTH)
        yield command, inner
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def fields_page() -> str:
    """docs/fields.md: every field of every kind, in the order of the schema."""
    lines = [
        "# Every field",
        "",
        "Made of the JSON Schemas that `gpuctl schema` prints and editors use. What they mean together:",
        "[what teams write](declare.md). A field without a default must be there.",
        "",
    ]
    for kind, schema in _schemas().items():
        lines += [f"## {kind}", "", _sentence(schema["description"]), ""]
        lines += _table(kind, schema, leave_out=("apiVersion", "kind"))
        for name, part in _in_order(schema):
            lines += [f"### {kind}: {name}", "", _sentence(part["description"]), "", *_table(kind, part)]
    return "\n".join(lines)


_ELSEWHERE = {("Template", "JobSpec"): "Job"}
"""Parts that are shown with another kind."""


def _in_order(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The parts of a schema as they are met from its top."""
    found: dict[str, Any] = {}

    def visit(node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                visit(each)
        elif isinstance(node, dict):
            name = str(node.get("$ref", "")).rpartition("/")[2]
            if name and name not in found and (schema["title"], name) not in _ELSEWHERE:
                found[name] = schema["$defs"][name]
                visit(found[name])
            for key, each in node.items():
                if key != "$defs":
                    visit(each)

    visit(schema)
    return [(name, part) for name, part in found.items() if "properties" in part]


def _table(kind: str, schema: Mapping[str, Any], leave_out: tuple[str, ...] = ()) -> list[str]:
    rows = ["| field | is | default | |", "|---|---|---|---|"]
    for name, field in schema["properties"].items():
        if name in leave_out:
            continue
        default = "" if name in schema.get("required", ()) else _default(field.get("default"))
        words = _sentence(field["description"])
        rows.append(f"| `{name}` | {_type(kind, field)} | {default} | {words} |")
    return [*rows, ""]


def _sentence(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


def _default(value: Any) -> str:
    match value:
        case None | {}:
            return "-"
        case bool():
            return f"`{str(value).lower()}`"
        case list():
            return f"`[{', '.join(map(str, value))}]`".replace("*", '"*"')
        case "":
            return "empty"
        case _:
            return f"`{value}`"


PATTERNS = {
    r"^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$": "duration: `1d2h30m`",
    r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$": "memory: `16Gi`",
    r"^[0-9]+(\.[0-9]{1,3})?$": "number",
    r"^[0-9]+(m|\.[0-9]{1,3})?$": "CPU: `4`, `500m`",
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "name",
    r"^/": "path",
}


def _type(kind: str, field: Mapping[str, Any]) -> str:
    """What a field may be, in a few words; parts of their own are links."""
    if "$ref" in field:
        part = field["$ref"].rpartition("/")[2]
        kind = _ELSEWHERE.get((kind, part), kind)
        defined = _schemas()[kind]["$defs"][part]
        return f"[{part}](#{kind.lower()}-{part.lower()})" if "properties" in defined else _type(kind, defined)
    choices = [*field.get("anyOf", ()), *field.get("oneOf", ())]
    if choices:
        words = [_type(kind, each) for each in choices if each.get("type") != "null"]
        kept = [word for word in words if not (word == "number" and any(": `" in other for other in words))]
        return " or ".join(dict.fromkeys(kept))
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    match field.get("type"):
        case "array":
            return f"list of {_type(kind, field['items'])}"
        case "object":
            return _map(kind, field)
        case "string":
            return PATTERNS.get(field.get("pattern", ""), "text")
        case "boolean":
            return "`true` or `false`"
        case "integer" | "number" as word:
            return word if word == "number" else "whole number"
        case _:
            return "any"


def _map(kind: str, field: Mapping[str, Any]) -> str:
    values = [each for each in (field.get("additionalProperties"), *field.get("patternProperties", {}).values())
              if isinstance(each, dict)]  # fmt: skip
    return f"map of {_type(kind, values[0])}" if values else "map"
