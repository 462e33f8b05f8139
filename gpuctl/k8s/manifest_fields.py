"""The fields that the pods of another controller's object may have, as data: no more than gpuctl's own fields give.

A list of allowed fields, not of forbidden ones: a field that a later version of Kubernetes adds is refused until it has
been reviewed. `gpuctl/compile/manifest_v1.py` checks a manifest against it.
"""

from __future__ import annotations

from gpuctl.model.workload_kind import Allowed

ANY: Allowed = {}
"""Any value is allowed."""


def any_of(*fields: str) -> dict[str, Allowed]:
    """Fields that may have any value."""
    return dict.fromkeys(fields, ANY)


METADATA: Allowed = any_of("labels", "annotations")
_USER = any_of("runAsUser", "runAsGroup", "runAsNonRoot")
_SECCOMP = {"seccompProfile": any_of("type")}
_HTTP = any_of("path", "port", "scheme", "httpHeaders")
_ASKED = {"exec": any_of("command"), "httpGet": _HTTP, "tcpSocket": any_of("port")}
_PROBE = {
    **_ASKED,
    "grpc": any_of("port", "service"),
    **any_of("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
}
_ITEMS = {"items": any_of("key", "path", "mode"), **any_of("defaultMode", "optional")}
CONTAINER: Allowed = {
    **any_of("name", "image", "imagePullPolicy", "command", "args", "workingDir", "stdin", "stdinOnce", "tty"),
    **any_of("terminationMessagePath", "terminationMessagePolicy", "restartPolicy"),
    "env": {
        **any_of("name", "value"),
        "valueFrom": any_of("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"),
    },
    "envFrom": {
        **any_of("prefix"), "secretRef": any_of("name", "optional"), "configMapRef": any_of("name", "optional"),
    },
    "ports": any_of("name", "containerPort", "protocol"),
    "resources": any_of("requests", "limits"),
    "volumeMounts": any_of("name", "mountPath", "subPath", "readOnly"),
    "startupProbe": _PROBE,
    "readinessProbe": _PROBE,
    "livenessProbe": _PROBE,
    "lifecycle": {"postStart": _ASKED, "preStop": {**_ASKED, "sleep": any_of("seconds")}},
    "securityContext": {
        **_USER, **_SECCOMP, **any_of("allowPrivilegeEscalation", "readOnlyRootFilesystem"),
        "capabilities": any_of("add", "drop"),
    },
}  # fmt: skip
"""The fields that a container of such a workload may have: no more than a job's own fields give."""
POD: Allowed = {
    "containers": CONTAINER,
    "initContainers": CONTAINER,
    "volumes": {
        **any_of("name"),
        "emptyDir": any_of("medium", "sizeLimit"),
        "configMap": {**any_of("name"), **_ITEMS},
        "secret": {**any_of("secretName"), **_ITEMS},
        "persistentVolumeClaim": any_of("claimName", "readOnly"),
        "nfs": any_of("server", "path", "readOnly"),
        "hostPath": any_of("path", "type"),
        "downwardAPI": ANY,
        "projected": {
            **any_of("defaultMode"),
            "sources": {
                "secret": any_of("name", "items", "optional"),
                "configMap": any_of("name", "items", "optional"),
                "downwardAPI": ANY,
            },
        },
        "csi": {**any_of("driver", "readOnly", "fsType", "volumeAttributes"), "nodePublishSecretRef": any_of("name")},
    },
    "securityContext": {**_USER, **_SECCOMP, **any_of("fsGroup", "fsGroupChangePolicy", "supplementalGroups")},
    "imagePullSecrets": any_of("name"),
    "hostAliases": any_of("ip", "hostnames"),
    **any_of("restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "hostname", "subdomain"),
    **any_of("enableServiceLinks", "setHostnameAsFQDN"),
}
"""The fields that the spec of its pods may have. Only gpuctl says where they run, as which account, in which order."""
TEMPLATE: Allowed = {"metadata": METADATA, "spec": POD}
"""A pod template."""
