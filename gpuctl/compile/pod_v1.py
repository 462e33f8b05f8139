"""The public form of the content of a job's pods: variables, amounts, volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Discriminator, Field, Tag

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.fields_v1 import (
    INT32,
    AbsolutePath,
    CommandText,
    Cpu,
    EnvName,
    EnvText,
    Grace,
    LabelKey,
    LabelValue,
    Memory,
    Spec,
    Subdomain,
    exactly_one,
    form_of,
    in_mapping,
    matching,
    positive,
    unique,
)
from gpuctl.k8s.pod_keys import is_for_people
from gpuctl.k8s.tolerations import OF_THE_CLUSTER


class SecretKey(Spec):
    """A value from a Secret of the project's namespace."""

    secret: Subdomain = Field(description="The Secret's name.")
    key: Annotated[str, matching(r"[-._a-zA-Z0-9]+", "a key of a Secret")] = Field(
        min_length=1, max_length=253, description="The key in it."
    )


EnvEntry = Annotated[
    Annotated[EnvText, Tag("(plain)")] | Annotated[SecretKey, Tag("(mapping)")], Discriminator(form_of)
]


class EnvSource(Spec):
    """All keys of a Secret or of a ConfigMap. Their names are not known here, so each gets a prefix."""

    secret: Subdomain | None = Field(None, description="A Secret of the project's namespace.")
    config_map: Subdomain | None = Field(None, description="A ConfigMap of the project's namespace.")
    prefix: EnvName = Field(
        min_length=1,
        description="What each variable's name begins with: HUB_ makes HUB_TOKEN of the key TOKEN. So no key can name "
        "a variable that gives a container GPUs. For a name without it: env, with secret and key.",
    )

    _one_origin = in_mapping(lambda data: exactly_one(data, "secret", "configMap"))


Command = Annotated[list[CommandText], Field(max_length=10_000, description="Replaces the image's entry point.")]
Args = Annotated[
    list[CommandText], Field(max_length=10_000, description="Arguments of the command, or of the image's entry point.")
]
WorkingDir = Annotated[AbsolutePath | None, Field(description="Working directory. Default: the image's.")]
Env = Annotated[dict[EnvName, EnvEntry], Field(max_length=1000)]
EnvFrom = Annotated[
    list[EnvSource],
    Field(max_length=100, description="All keys of Secrets and ConfigMaps as environment variables."),
]
"""Fields that every container has. They are repeated in each model: with a common base class, these fields would come
before all others."""


UserId = Annotated[int, Field(ge=0, le=INT32)]


Capability = Literal[
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
]  # fmt: skip
"""The capabilities that Pod Security level `baseline` allows containers to add: others reach the node."""
HARMLESS_CAPABILITIES: frozenset[str] = frozenset(get_args(Capability))
CapabilityName = Annotated[
    str, matching(r"[A-Z][A-Z_]{0,62}", "the name of a capability, without CAP_: NET_RAW, or ALL")
]


class Capabilities(Spec):
    """Rights of root, a part each, as Linux names them."""

    add: Annotated[list[Capability], unique()] = Field(
        [], description="Those that are added. Where the cluster's pods are restricted, NET_BIND_SERVICE alone."
    )
    drop: Annotated[list[CapabilityName], unique()] = Field(
        [], max_length=50, description="Those that are taken away; ALL: all but the added ones."
    )


class PodSecurity(Spec):
    """As which user and groups a job's processes run. What is left out is the image's, or Kubernetes'."""

    run_as_user: UserId | None = Field(
        None,
        description="The user's number. Where the cluster's pods are restricted, not 0. Default: the image's user.",
    )
    run_as_group: UserId | None = Field(None, description="The number of the user's group. Default: the image's.")
    supplemental_groups: Annotated[list[UserId], unique()] = Field(
        [], max_length=100, description="Numbers of further groups, as a file server knows them."
    )
    fs_group: UserId | None = Field(
        None, description="A further group, which also owns the files of volumes where their driver allows that."
    )
    read_only_root_filesystem: bool = Field(
        default=False, description="The image's files can't be written; volumes can."
    )
    capabilities: Capabilities = Field(
        {}, validate_default=True, description="Rights of root that its processes have besides the usual ones, or lack."
    )
    seccomp: Literal["RuntimeDefault"] | None = Field(
        None,
        description="Which system calls its processes may make: those of the container runtime's own profile. "
        "Default: as the node is set up; that profile where the cluster's pods are restricted.",
    )


def _for_people(key: str) -> str:
    if is_for_people(key):
        return key
    raise WrongValue("GPU2018", fix="take a key with a domain of your own, or without one", found=key,
                     rule="gpuctl, Kubernetes or a driver obeys this key")  # fmt: skip


def _small_in_all(annotations: dict[str, str]) -> dict[str, str]:
    """Bound the size of all annotations: an API server has 256 KiB for an object's annotations, and gpuctl needs a
    part."""
    size = sum(len(key) + len(text.encode()) for key, text in annotations.items())
    if size <= _MOST_ANNOTATION_BYTES:
        return annotations
    raise WrongValue("GPU2018", found=f"{size} bytes", rule=f"at most {_MOST_ANNOTATION_BYTES} in all annotations")


_MOST_ANNOTATION_BYTES = 65_536
_PeoplesKey = Annotated[LabelKey, AfterValidator(_for_people)]
PodLabels = dict[_PeoplesKey, LabelValue]
PodAnnotations = Annotated[dict[_PeoplesKey, EnvText], AfterValidator(_small_in_all)]


def _address(value: str) -> str:
    try:
        return str(ip_address(value))
    except ValueError:
        raise WrongValue("GPU2023", found=value, wanted="an IP address: 10.0.0.7") from None


class HostAlias(Spec):
    """Names at an address, as in /etc/hosts."""

    ip: Annotated[str, AfterValidator(_address)] = Field(max_length=45, description="The address.")
    hostnames: Annotated[list[Subdomain], unique()] = Field(
        min_length=1, max_length=100, description="The names that are found there."
    )


_Port = Annotated[int, Field(ge=1, le=65535)]


class HttpCheck(Spec):
    """A request that has to be answered with a status from 200 to 399."""

    port: _Port = Field(description="The port that the container listens on.")
    path: Annotated[str, matching(r"/[!-~]*", "the path of a URL: /healthz")] = Field(
        "/", max_length=1024, description="The path: /healthz."
    )


class TcpCheck(Spec):
    """A connection that has to be taken."""

    port: _Port = Field(description="The port that the container listens on.")


class Probe(Spec):
    """What a worker's node asks of it again and again: exactly one of http, tcp and exec."""

    http: HttpCheck | None = Field(None, description="An HTTP request to the worker.")
    tcp: TcpCheck | None = Field(None, description="A TCP connection to the worker.")
    exec: list[CommandText] | None = Field(
        None, min_length=1, max_length=1000, description="A command that is run in the container; exit code 0 is a yes."
    )
    delay: Grace | None = Field(None, description="How long after its start it is first asked: 10s. Default: at once.")
    period: Grace = Field("10s", validate_default=True, description="How often it is asked.")
    timeout: Grace = Field("1s", validate_default=True, description="No answer for so long is a no.")
    failures: int = Field(3, ge=1, le=10_000, description="So many times no in a row count.")

    _one_question = in_mapping(lambda data: exactly_one(data, "http", "tcp", "exec"))


class Probes(Spec):
    """What a worker is asked while it runs."""

    startup: Probe | None = Field(
        None, description="Whether it has started. Until then the others are not asked; a no is as one of liveness."
    )
    readiness: Probe | None = Field(
        None, description="Whether it can serve. Until then, and after a no, its Service sends it no requests."
    )
    liveness: Probe | None = Field(
        None,
        description="Whether it is alive. After a no it is stopped: a service's worker is started again, one of other "
        "jobs has failed.",
    )


class Resources(Spec):
    """What one worker asks for besides GPUs."""

    cpu: Cpu = Field(0, description="CPU cores: 4, 0.5 or 500m.")
    memory: Memory = Field(0, description="Memory: 32Gi.")


_REPOSITORY = r"(https://|ssh://([a-z_][a-z0-9_-]{0,31}@)?)[a-zA-Z0-9][a-zA-Z0-9.-]{0,252}(:[1-9][0-9]{0,4})?(/[a-zA-Z0-9_~][a-zA-Z0-9._~-]*){1,20}"


def _key_of_ssh(git: Mapping[str, Any]) -> Iterator[WrongValue]:
    if str(git.get("repository", "")).startswith("ssh://") and git.get("secret") is None:
        fix = "name a Secret with the keys ssh-privatekey and known_hosts"
        yield WrongValue("GPU2005", fix=fix, at=("repository",), field="secret")


class GitCheckout(Spec):
    """A Git repository that each worker has checked out before it starts, by the cluster's git-sync."""

    repository: Annotated[
        str,
        matching(
            _REPOSITORY,
            "the address of a repository: https://git.example.com/team/train.git, or ssh://git@git.example.com/a/b.git",
        ),
    ] = Field(
        max_length=500,
        description="Its address, https://… without a name or password, or ssh://…; keys and passwords are in secret.",
    )
    revision: Annotated[
        str,
        matching(r"[a-zA-Z0-9_][a-zA-Z0-9_+-]*([./][a-zA-Z0-9_+-]+)*", "a branch, a tag, or a whole commit hash"),
    ] = Field(
        "HEAD",
        max_length=250,
        description="A branch, a tag, or a whole commit hash. Each pod checks out what it is when it starts, so that "
        "workers of a gang are alike for certain with a hash alone.",
    )
    path: AbsolutePath = Field(
        description="A folder of its own in the container: the checkout is below it, in a folder of the repository's "
        "name: with /code it is /code/train."
    )
    secret: Subdomain | None = Field(
        None,
        description="A Secret of the project's namespace with the keys username and password; with ssh, where one is "
        "needed, with ssh-privatekey and known_hosts.",
    )
    size: Annotated[Memory, AfterValidator(positive)] = Field(
        10 << 30, description="How much the checkout may take on the node's disk. Default: 10Gi."
    )

    _has_a_key = in_mapping(_key_of_ssh)


def _of_the_pool(key: str) -> str:
    if not key.startswith(OF_THE_CLUSTER):
        return key
    wanted = "a taint that a pool may tolerate: Kubernetes gives it to nodes that are lost, full or leaving"
    raise WrongValue("GPU2023", fix="remove the entry: no job may be on such a node", found=key, wanted=wanted)


def _operator_and_value(toleration: Mapping[str, Any]) -> Iterator[WrongValue]:
    if toleration.get("operator") == "Exists" and toleration.get("value") is not None:
        wanted = "needed: with operator Exists any value is tolerated"
        fix = "remove the value; or write operator: Equal"
        yield WrongValue("GPU2023", at=("value",), fix=fix, found=str(toleration["value"]), wanted=wanted)


class Expose(Spec):
    """A port that is reached from outside."""

    port: int = Field(ge=1, le=65535, description="The port the container listens on.")
    via: Literal["ingress", "service", "portForward"] = Field(
        "service",
        description="An Ingress at /<project>/<job>, a Service, or portForward: neither; the port is reached by "
        "gpuctl port-forward alone.",
    )


class Toleration(Spec):
    """A taint that keeps no job away, as Kubernetes writes it."""

    key: Annotated[LabelKey, AfterValidator(_of_the_pool)] = Field(max_length=317, description="The key of the taint.")
    operator: Literal["Equal", "Exists"] | None = Field(
        None, description="Exists: any value. Equal: this value. Default: Equal where there is a value, else Exists."
    )
    value: LabelValue | None = Field(None, description="The value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="The effect of the taint. Default: any."
    )

    _is_consistent = in_mapping(_operator_and_value)

    @property
    def taint_value(self) -> str | None:
        """The value that the taint must have; None: any."""
        return self.value or "" if self.operator == "Equal" or self.value is not None else None
