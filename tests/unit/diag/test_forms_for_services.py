"""The forms that services read: what their standards demand, fingerprints that stay, and nothing that others wrote in
them that is more than text."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gpuctl.compile import compile_tree
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.fingerprint import fingerprints
from gpuctl.diag.forms.github import workflow_commands
from gpuctl.diag.forms.gitlab import code_quality
from gpuctl.diag.forms.junit import junit
from gpuctl.diag.forms.sarif import FINGERPRINT, MOST_RESULTS, sarif
from gpuctl.diag.span import SourceSpan
from gpuctl.model.source import SourceFile, SourceTree

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}


def closed(required: str, optional: str = "", **properties: Any) -> dict[str, Any]:
    names = set(required.split()) | set(optional.split())
    assert names == set(properties)
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": {name.replace("_schema", "$schema"): schema for name, schema in properties.items()},
    }


MESSAGE = closed("text", text=TEXT)
LOCATION = closed(
    "physicalLocation", "id message",
    id={"type": "integer", "minimum": 0},
    message=MESSAGE,
    physicalLocation=closed(
        "artifactLocation region",
        artifactLocation=closed("uri", "uriBaseId", uri=TEXT, uriBaseId={"const": "SRCROOT"}),
        region=closed("startLine startColumn endColumn", startLine=COUNT, startColumn=COUNT, endColumn=COUNT),
    ),
)  # fmt: skip
RESULT = closed(
    "ruleId ruleIndex level message locations partialFingerprints", "relatedLocations",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations={"type": "array", "minItems": 1, "maxItems": 1, "items": LOCATION},
    relatedLocations={"type": "array", "uniqueItems": True, "items": LOCATION},
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
)  # fmt: skip
RULE = closed("id shortDescription fullDescription help", id=TEXT, shortDescription=MESSAGE, fullDescription=MESSAGE,
              help=MESSAGE)  # fmt: skip
RUN = closed(
    "tool columnKind originalUriBaseIds invocations results",
    tool=closed("driver", driver=closed("name version rules", name=TEXT, version=TEXT,
                                        rules={"type": "array", "uniqueItems": True, "items": RULE})),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds=closed("SRCROOT", SRCROOT=closed("description", description=MESSAGE)),
    invocations={"type": "array", "items": closed(
        "executionSuccessful toolExecutionNotifications",
        executionSuccessful={"type": "boolean"},
        toolExecutionNotifications={"type": "array", "items": closed(
            "level message", level={"enum": ["none", "note", "warning", "error"]}, message=MESSAGE)},
    )},
    results={"type": "array", "items": RESULT},
)  # fmt: skip
SARIF = closed("_schema version runs", _schema=TEXT, version={"const": "2.1.0"}, runs={"type": "array", "items": RUN})
SARIF["required"] = ["version", "runs"]
"""The part of sarif-schema-2.1.0 (OASIS) that gpuctl writes, with nothing beside."""

QUALITY = {
    "type": "array",
    "items": closed(
        "description check_name fingerprint severity location",
        description=TEXT,
        check_name=TEXT,
        fingerprint=TEXT,
        severity={"enum": ["info", "minor", "major", "critical", "blocker"]},
        location=closed("path lines", path=TEXT, lines=closed("begin", begin=COUNT)),
    ),
}
for each in (SARIF, QUALITY):
    Draft202012Validator.check_schema(each)
AS_SARIF, AS_QUALITY = Draft202012Validator(SARIF), Draft202012Validator(QUALITY)


def found(**fields: Any) -> Diagnostic:
    told: dict[str, Any] = {
        "code": "GPU3004",
        "message": 'project "visoin" is not declared',
        "span": SourceSpan(file="clusters/prod/jobs.yaml", line=14, column=14, end_column=20),
        "help": "declare it",
        "source_line": "    project: visoin",
    }
    return Diagnostic(**{**told, **fields})


def compiled(text: str) -> tuple[Diagnostic, ...]:
    return compile_tree(SourceTree(cluster_dir=".", files={"a.yaml": SourceFile(content=text.encode())})).diagnostics


def results(diagnostics: tuple[Diagnostic, ...]) -> list[dict[str, Any]]:
    document = json.loads(sarif(diagnostics, "0.1.0"))
    AS_SARIF.validate(document)
    found: list[dict[str, Any]] = document["runs"][0]["results"]
    return found


BROKEN = """\
apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: prod}
spec: {nodePools: [{name: a, gpus: 1}, {name: a, gpus: 1}]}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: one, project: visoin}
spec: {image: a b, gpus: many}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: two, project: visoin}
spec: {image: a b, gpus: many}
"""


def test_sarif_is_as_the_standard_demands() -> None:
    diagnostics = compiled(BROKEN)
    document = json.loads(sarif(diagnostics, "0.1.0"))
    AS_SARIF.validate(document)
    run = document["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [result["ruleId"] for result in run["results"]]
    assert len(run["results"]) == len(diagnostics) > 5
    for result in run["results"]:
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region["endColumn"] > region["startColumn"]
    assert json.loads(sarif((), "0.1.0"))["runs"][0]["results"] == []


def test_sarif_names_places_by_uri_and_has_no_links() -> None:
    span = SourceSpan(file="./a b/ä%[x].yaml", line=2, column=1, end_column=1)
    where = ("see [here](http://evil)", SourceSpan(file="/tmp/x.yaml"))
    (result,) = results((found(span=span, message="[x](javascript:1)", related=(where,)),))
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"].isascii()
    assert unquote(place["uri"]) == "a b/ä%[x].yaml"
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"] == {"uri": "file:///tmp/x.yaml"}
    assert "](" not in json.dumps(result)


def test_sarif_leaves_out_the_least_severe_and_says_so() -> None:
    many = tuple(
        found(span=SourceSpan(file="a", line=line + 1), severity=Severity.WARNING) for line in range(MOST_RESULTS)
    )
    run = json.loads(sarif((*many, found()), "0.1.0"))["runs"][0]
    assert len(run["results"]) == MOST_RESULTS
    assert run["results"][0]["level"] == "error"
    (told,) = run["invocations"][0]["toolExecutionNotifications"]
    assert told["message"]["text"].startswith("1 more")


def marks(text: str) -> dict[str, str]:
    return {mark: f"{one.code} {one.source_line}" for one, mark in fingerprints(compiled(text))}


def test_a_fingerprint_stays_when_lines_move_and_other_lines_change() -> None:
    before, told = marks(BROKEN), compiled(BROKEN)
    assert len(before) == len(told)
    first = BROKEN.index("kind: Job")
    moved = f"# a comment\n\n{BROKEN[:first]}# another\n{BROKEN[first:]}".replace("name: prod", "name: other")
    assert marks(moved) == before
    at = BROKEN.rindex("gpus: many")
    mended = marks(BROKEN[:at] + BROKEN[at:].replace("many", "1"))
    assert len(set(before) - set(mended)) == 2, "both mistakes of the line that changed, and no other"


@pytest.mark.parametrize("form", ["sarif", "gitlab"])
def test_forms_carry_the_same_fingerprints(form: str) -> None:
    diagnostics = compiled(BROKEN)
    wanted = {mark for _, mark in fingerprints(diagnostics)}
    if form == "sarif":
        assert {result["partialFingerprints"][FINGERPRINT] for result in results(diagnostics)} == wanted
    else:
        assert {entry["fingerprint"] for entry in json.loads(code_quality(diagnostics))} == wanted


def test_gitlab_code_quality() -> None:
    report = json.loads(code_quality([found(span=SourceSpan(file="./a.yaml", line=3)), *compiled(BROKEN)]))
    AS_QUALITY.validate(report)
    assert report[0]["location"] == {"path": "a.yaml", "lines": {"begin": 3}}
    assert json.loads(code_quality([])) == []


def test_junit_has_a_failed_case_for_each_error() -> None:
    warning = replace(found(), severity=Severity.WARNING)
    suites = ET.fromstring(junit([found(), found(code="GPU3005"), warning]))
    (suite,) = suites
    assert (suites.tag, suite.tag) == ("testsuites", "testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    assert [len(case.findall("failure")) for case in suite] == [1, 1, 0]
    assert [case.get("file") for case in suite] == ["clusters/prod/jobs.yaml"] * 3
    assert "^^^^^^" in (suite[0][0].text or "")
    (clean,) = ET.fromstring(junit([]))
    assert [case.get("name") for case in clean] == ["declarations"]


def test_github_shows_ten_of_each_severity_errors_first_and_says_how_many_more() -> None:
    warnings = [found(severity=Severity.WARNING, message=str(n)) for n in range(11)]
    errors = [found(message=str(n)) for n in range(14)]
    lines = workflow_commands([*warnings, *errors]).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 10 + ["::warning"] * 10 + ["::notice"]
    assert "4 more errors and 1 more warning " in lines[-1]
    assert len(workflow_commands(errors[:10]).splitlines()) == 10


COMMAND = re.compile(r"\A::([a-z-]+)(?: ([^:]*))?::(.*)\Z")
"""How the runner reads a line: the command's name, its properties up to the next `::`, and its text."""


def commands(output: str) -> Iterator[tuple[str, dict[str, str], str]]:
    assert output.endswith("\n")
    for line in re.split(r"\r\n|\r|\n", output[:-1]):
        read = COMMAND.match(line)
        assert read, f"no command, or one with something before it: {line}"
        name, properties, text = read.groups()
        assert re.sub("%25|%0D|%0A|%3A|%2C", "", properties).count("%") == 0
        yield name, dict(part.split("=", 1) for part in properties.split(",")), text


HOSTILE = st.one_of(
    st.text(max_size=30),
    st.sampled_from([
        "\n::add-mask::x",
        "::stop-commands::x",
        "%0A::error::",
        "\r::set-output name=a::b",
        "##[add-path]x",
        "a,line=9",
    ]),
)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_nothing_a_tenant_writes_starts_another_command(file: str, message: str, fix: str) -> None:
    told = found(span=SourceSpan(file=file or "x"), message=message, help=fix)
    ((name, properties, _),) = commands(workflow_commands([told]))
    assert (name, set(properties)) == ("error", {"file", "line", "col", "endColumn", "title"})
    assert (properties["line"], properties["title"]) == ("1", "GPU3004")


@given(HOSTILE, HOSTILE, HOSTILE)
def test_the_other_forms_hold_hostile_text_as_text(file: str, message: str, line: str) -> None:
    told = found(span=SourceSpan(file=f"x{file}"), message=message, source_line=line, help=f"<b>{message}")
    AS_SARIF.validate(json.loads(sarif([told], "0")))
    AS_QUALITY.validate(json.loads(code_quality([told])))
    (suite,) = ET.fromstring(junit([told]))
    assert [case.tag for case in suite] == ["testcase"]
    assert [part.tag for part in suite[0]] == ["failure"]
