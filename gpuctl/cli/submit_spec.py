"""The flags of `gpuctl submit` as the fields of a job. Amounts are passed on unchanged: the compiler checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.cli.failures import Failure

BARE = "\0"
"""The value of --command without a word: the words after -- are the command."""
_VIA = {"ingress": "ingress", "service": "service", "portforward": "portForward"}


def spec_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The job's spec: only the given fields, no defaults."""
    fields = {
        "type": _type(options),
        "image": options["image"],
        "imagePullPolicy": _pull_policy(options),
        **_words(options),
        "workingDir": options["working_dir"],
        "env": dict(map(_variable, options["environment"])),
        "gpus": _amount(options["gpu"]),
        "gpuMemory": options["gpu_memory"],
        "workers": options["workers"],
        "minWorkers": options["min_workers"],
        "framework": options["framework"],
        "resources": _given({"cpu": _amount(options["cpu"]), "memory": options["memory"]}),
        "priority": options["priority"],
        "preemptible": options["preemptible"],
        "maxDuration": options["max_duration"],
        "nodePools": [pool for some in options["node_pools"] for pool in some.split(",") if pool],
        "expose": _ports(options["port"], options["service_type"]),
        "largeShm": options["large_shm"] or None,
        "volumes": [
            *map(_claim, options["pvc"]),
            *map(_nfs, options["nfs"]),
            *map(_host_path, options["volume"]),
        ],
        "imagePullSecrets": list(options["image_pull_secret"]),
        "labels": dict(_pair("--label", text) for text in options["label"]),
        "annotations": dict(_pair("--annotation", text) for text in options["annotation"]),
        "security": _security(options),
        "tty": options["tty"] or None,
        "pauseGrace": options["pause_grace"],
        "retries": options["retries"],
        "retriesPerWorker": options["retries_per_worker"],
        "after": list(map(_dependency, options["after"])),
        "sweep": _sweep(options),
        "scaling": _given({
            "metric": options["metric"],
            "of": options["metric_of"],
            "labels": dict(_pair("--metric-label", text) for text in options["metric_label"]),
            "target": _amount(options["metric_target"]),
        }),
    }
    return _given(fields)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value not in ([], {})}


def _type(options: Mapping[str, Any]) -> str | None:
    if options["interactive"] and options["kind"] not in {None, "interactive"}:
        raise Failure("GPU9002", f"--interactive and --type {options['kind']} exclude each other", hint="leave one out")
    return "interactive" if options["interactive"] else options["kind"]


def _pull_policy(options: Mapping[str, Any]) -> str | None:
    named = {
        "--image-pull-policy": options["image_pull_policy"],
        "--local-image": "Never" if options["local_image"] else None,
        "--always-pull-image": "Always" if options["always_pull_image"] else None,
    }
    given = {option: policy for option, policy in named.items() if policy is not None}
    if len(set(given.values())) > 1:
        raise Failure("GPU9002", f"{' and '.join(given)} exclude each other", hint="leave one out")
    return next(iter(given.values()), None)


def _words(options: Mapping[str, Any]) -> dict[str, list[str]]:
    """`command` and `args`. The words after -- are arguments or, with a bare --command, the command."""
    bare = BARE in options["command"]
    command = [word for word in options["command"] if word != BARE]
    words, args = list(options["words"]), list(options["args"])
    if bare and not words:
        raise Failure("GPU9002", "--command needs a word, or the command after --", hint="--command -- python train.py")
    return {"command": [*command, *words], "args": args} if bare else {"command": command, "args": [*args, *words]}


def _amount(text: str | None) -> Any:
    """A number as a number; any other text unchanged."""
    from gpuctl.compile.scalars import number_or_text  # noqa: PLC0415 - only where there is one

    return None if text is None else number_or_text(text)


def _variable(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise _usage("-e", text, "KEY=VALUE, or KEY=SECRET:NAME,KEY")
    if value.startswith("SECRET:"):
        secret, comma, key = value.removeprefix("SECRET:").partition(",")
        if not (secret and comma and key):
            raise _usage("-e", text, "KEY=SECRET:NAME,KEY: the Secret's name and a key in it")
        return name, {"secret": secret, "key": key}
    return name, value


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise _usage(option, text, "KEY=VALUE")
    return key, value


def _dependency(text: str) -> Any:
    """`JOB` or `JOB:RESULT`."""
    job, colon, result = text.partition(":")
    return {"job": job, "result": result} if colon else job


def _sweep(options: Mapping[str, Any]) -> dict[str, Any]:
    """`sweep`, if one of its flags is given."""
    matrix = {}
    for text in options["matrix"]:
        key, values = _pair("--matrix", text)
        matrix[key] = [_value(value) for value in values.split(",")]
    return _given({"completions": options["completions"], "matrix": matrix, "parallelism": options["parallelism"]})


def _value(text: str) -> Any:
    """A value of a matrix: a number if the job then reads it as typed. 007 and 1e-3 stay texts."""
    value = _amount(text)
    return value if str(value) == text else text


def _security(options: Mapping[str, Any]) -> dict[str, Any]:
    groups = [group for some in options["supplemental_groups"] for group in some.split(",") if group]
    return _given({
        "runAsUser": options["run_as_user"],
        "runAsGroup": options["run_as_gid"],
        "supplementalGroups": list(map(_amount, groups)),
        "capabilities": _given({"add": list(options["capability"])}),
        "seccomp": options["seccomp_profile"],
    })


def _ports(ports: Sequence[str], service: str | None) -> list[dict[str, Any]]:
    if service is not None and not ports:
        raise Failure("GPU9002", f"--service-type {service} needs a port", hint="--port 8888")
    exposed: list[dict[str, Any]] = []
    for text in ports:
        port = _amount(text.rpartition(":")[2])
        if not isinstance(port, int):
            raise _usage("--port", text, "the port that the container listens on: 8888")
        exposed.append(_given({"port": port, "via": _VIA[service] if service is not None else None}))
    return exposed


def _claim(text: str) -> dict[str, Any]:
    """`CLAIM:PATH`, `CLASS:SIZE:PATH`, `:SIZE:PATH`, each with `:ro` or without."""
    parts, read_only = _mount(text)
    match parts:
        case [claim, path] if claim:
            return _given({"claim": claim, "mountPath": path, "readOnly": read_only})
        case [storage_class, size, path] if size:
            new = _given({"size": size, "storageClass": storage_class or None})
            return _given({"newClaim": new, "mountPath": path, "readOnly": read_only})
    raise _usage("--pvc", text, "CLAIM:PATH for a claim that exists, CLASS:SIZE:PATH or :SIZE:PATH for a new one")


def _nfs(text: str) -> dict[str, Any]:
    parts, read_only = _mount(text)
    match parts:
        case [server, folder, path] if server and folder:
            return _given({"nfs": {"server": server, "path": folder}, "mountPath": path, "readOnly": read_only})
    raise _usage("--nfs", text, "SERVER:FOLDER:PATH or SERVER:FOLDER:PATH:ro")


def _host_path(text: str) -> dict[str, Any]:
    parts, read_only = _mount(text)
    match parts:
        case [folder, path] if folder:
            return _given({"hostPath": folder, "mountPath": path, "readOnly": read_only})
    raise _usage("-v", text, "HOST:PATH or HOST:PATH:ro")


def _mount(text: str) -> tuple[list[str], bool | None]:
    parts = text.split(":")
    if len(parts) > 1 and parts[-1] in {"ro", "rw"}:
        return parts[:-1], parts[-1] == "ro" or None
    return parts, None


def _usage(option: str, text: str, form: str) -> Failure:
    return Failure("GPU9002", f"{option} {text}: not understood", hint=f"write {option} {form}")
