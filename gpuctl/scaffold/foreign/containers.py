"""A container of a Kubernetes pod in the form of a job: its process, its user, its probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.compile.pod_v1 import HARMLESS_CAPABILITIES
from gpuctl.edit import Value
from gpuctl.scaffold.foreign import amounts
from gpuctl.scaffold.foreign.values import Record, given, strings, variables

_OF_SYSTEM = ("terminationMessagePath", "terminationMessagePolicy")
_QUESTIONS = {"startupProbe": "startup", "readinessProbe": "readiness", "livenessProbe": "liveness"}
_NUMBERS = {"runAsUser": "runAsUser", "runAsGroup": "runAsGroup", "fsGroup": "fsGroup"}
_OF_A_POD = ("fsGroup", "supplementalGroups")


def process(container: Record, at: str, unsaid: list[str]) -> dict[str, Value]:
    """The container's process and variables."""
    container.take(*_OF_SYSTEM)
    return given({
        "image": container.text("image"),
        "imagePullPolicy": container.text("imagePullPolicy"),
        "command": strings(container.list_of("command")),
        "args": strings(container.list_of("args")),
        "workingDir": container.text("workingDir"),
        "env": variables(container.list_of("env"), f"{at}.env", unsaid),
        "envFrom": _sources(container.list_of("envFrom"), f"{at}.envFrom", unsaid),
    })


def _sources(entries: Iterable[Any], at: str, unsaid: list[str]) -> list[Value]:
    """All keys of Secrets and ConfigMaps, if they have the prefix that declarations require."""
    found: list[Value] = []
    for entry in entries:
        record = Record(entry)
        prefix, secret = record.text("prefix"), record.below("secretRef").text("name")
        config_map = record.below("configMapRef").text("name")
        if prefix and (secret or config_map):
            found.append(given({"secret": secret, "configMap": config_map, "prefix": prefix}))
        else:
            unsaid.append(f"{at} of {secret or config_map}, without a prefix: write env with secret and key")
    return found


def probes(container: Record, at: str, unsaid: list[str]) -> dict[str, Value]:
    """The container's probes; a probe that can't be declared is added to `unsaid`."""
    named = {Record(each).text("name"): amounts.whole(Record(each).take("containerPort"))
             for each in container.list_of("ports")}  # fmt: skip
    found: dict[str, Value] = {}
    for field, name in _QUESTIONS.items():
        probe = container.below(field)
        asked = _question(probe, named)
        if asked:
            found[name] = given({
                **asked,
                "delay": amounts.seconds(probe.take("initialDelaySeconds")),
                "period": amounts.seconds(probe.take("periodSeconds")),
                "timeout": amounts.seconds(probe.take("timeoutSeconds")),
                "failures": amounts.whole(probe.take("failureThreshold")),
            })
            probe.skip("successThreshold", (1,))
        elif probe.rest():
            unsaid.append(f"{at}.{field}")
            probe.take_all()
    return found


def _question(probe: Record, named: Mapping[str, int | None]) -> dict[str, Value]:
    http, tcp = probe.below("httpGet"), probe.below("tcpSocket")
    http.skip("scheme", ("HTTP",))
    words = strings(probe.below("exec").list_of("command"))
    for part, name in ((http, "http"), (tcp, "tcp")):
        port = part.take("port")
        number = named.get(port) if isinstance(port, str) and not port.isdecimal() else amounts.whole(port)
        path = part.text("path") if name == "http" else ""
        if number and not part.rest():
            return {name: given({"port": number, "path": path})}
    return {"exec": [*words]} if words else {}


def security(record: Record, at: str, unsaid: list[str]) -> dict[str, Value]:
    """The user and privileges of a container, or of a whole pod."""
    found: dict[str, Value] = {
        ours: number for theirs, ours in _NUMBERS.items() if (number := amounts.whole(record.take(theirs))) is not None
    }
    groups = [number for each in record.list_of("supplementalGroups") if (number := amounts.whole(each)) is not None]
    if groups:
        found["supplementalGroups"] = [*groups]
    if record.take("readOnlyRootFilesystem") is True:
        found["readOnlyRootFilesystem"] = True
    profile = record.below("seccompProfile")
    if profile.text("type") == "RuntimeDefault":
        found["seccomp"] = "RuntimeDefault"
    elif profile.text("type"):
        unsaid.append(f"{at}.seccompProfile of type {profile.text('type')}")
    capabilities = record.below("capabilities")
    added = strings(capabilities.list_of("add"))
    unsaid += [f"{at}.capabilities.add of {each}" for each in added if each not in HARMLESS_CAPABILITIES]
    kept: dict[str, Value] = {
        "add": [each for each in added if each in HARMLESS_CAPABILITIES],
        "drop": [*strings(capabilities.list_of("drop"))],
    }
    if given(kept):
        found["capabilities"] = given(kept)
    return found


def security_beside(
    own: Mapping[str, Value], pod: Mapping[str, Value], job: Mapping[str, Value], at: str, unsaid: list[str]
) -> dict[str, Value]:
    """The security of another container. Fields that it leaves out would come from the job, so it gets its own value,
    its pod's, or none."""
    wanted = {**{name: value for name, value in pod.items() if name not in _OF_A_POD}, **own}
    found = {name: value for name, value in wanted.items() if job.get(name) != value}
    for name in job.keys() - wanted.keys() - set(_OF_A_POD):
        if name == "readOnlyRootFilesystem":
            found[name] = False
        elif name == "capabilities":
            found[name] = {}
        else:
            unsaid.append(f"{at} without {name}, which it has from the job now")
    return found
