"""Commands for an administrator that give a person a refused right: by a role that `gpuctl install` ships, or `edit`.

Security: the controller's own role is never suggested, because it writes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from gpuctl.diag.wording import all_of
from gpuctl.k8s import kinds, names
from gpuctl.model.right import Right

_LOOKS = frozenset({"get", "list", "watch"})
_FORWARDS = "pods/portforward"
_COMMANDS = frozenset({"pods/exec", "pods/attach"})
_CONFIG_MAPS, _LEASES = (kinds.KINDS[kind].plural for kind in (kinds.CONFIG_MAP, kinds.LEASE))
_ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9.-]+):([a-z0-9.-]+)")
_NAME = re.compile(r"[^a-z0-9-]+")
_LONGEST_NAME = 40
CONTROLLERS_OWN = (
    "no role for people gives it: who runs a command in the controller's pod has the controller's rights. An "
    "administrator can write the report: gpuctl replay --at TIME --output FILE"
)
"""What to do about a missing right to enter the controller's own pods, which `replay` of a cluster needs."""


def grant_of(right: Right) -> str:
    """What to do about a missing right, with the command that gives it."""
    home = names.SYSTEM_NAMESPACE
    at_home = right.namespace == home
    if at_home and right.resource == _FORWARDS:
        return past_grant(right)
    if at_home and right.resource in _COMMANDS:
        return CONTROLLERS_OWN
    if right.resource in _COMMANDS or right.resource == _FORWARDS:
        there = right.namespace or "NAMESPACE"
        return f"role edit in the project's namespace gives it: {_binding('edit', right, there)}"
    if at_home and right.resource == _CONFIG_MAPS and (right.name == names.CONTROL_NAME or right.verb == "create"):
        return _control_grant(right)
    if right.verb not in _LOOKS:
        return "gpuctl-reader does not give it: its roles look and change nothing"
    if at_home and right.resource in {_CONFIG_MAPS, _LEASES}:
        role = names.READER_ROLE if right.verb == "get" else names.OPERATOR_ROLE
        return f"role {role} gives it: {_binding(role, right, home, kind='role')}"
    if right.namespace:
        return f"role {names.READER_ROLE} gives it: {_binding(names.READER_ROLE, right, right.namespace)}"
    return f"role {names.READER_ROLE} gives it in all projects: {_binding(names.READER_ROLE, right)}"


def lacking(rights: Sequence[Right]) -> str:
    """Several missing rights in one sentence, those on nodes, namespaces and the like first."""
    what = all_of(dict.fromkeys(map(_named, sorted(rights, key=lambda right: right.group != ""))))
    return f"{rights[0].user or 'the account'} may not list {what}: what these say is left out"


def _named(right: Right) -> str:
    group = f".{right.group}" if right.group else ""
    return f"{right.resource}{group}" + (f" in namespace {right.namespace}" if right.namespace else "")


def past_grant(right: Right) -> str:
    """What a person needs who asks for the past, whichever right was refused first."""
    role = names.HISTORY_ROLE
    return f"role {role} gives it: {_binding(role, right, names.SYSTEM_NAMESPACE, kind='role')}"


def _control_grant(right: Right) -> str:
    """The grant for ConfigMap gpuctl-control, the only one that a command creates or changes for a person."""
    if right.verb == "create":
        return f"{names.CONTROL_NAME} is missing; an administrator applies what `gpuctl install` prints"
    role = names.FREEZER_ROLE
    return f"role {role} gives it: {_binding(role, right, names.SYSTEM_NAMESPACE, kind='role')}"


def team_grant(right: Right) -> str:
    """What a member of one project needs who can't see anything of a cluster yet."""
    home = names.SYSTEM_NAMESPACE
    own, shared = (_binding(names.READER_ROLE, right, place, kind=kind) for place, kind in (
        ("NAMESPACE", "clusterrole"), (home, "role")))  # fmt: skip
    return f"role {names.READER_ROLE} shows one project: {own} && {shared}"


def _binding(role: str, right: Right, namespace: str = "", *, kind: str = "clusterrole") -> str:
    """The command of kubectl that binds a role to the user."""
    account = _ACCOUNT.fullmatch(right.user)
    whom = f"--serviceaccount={account[1]}:{account[2]}" if account else f"--user={shlex.quote(right.user or 'USER')}"
    name = _NAME.sub("-", f"{role}-{(account[2] if account else right.user or 'user').lower()}")[:_LONGEST_NAME].strip(
        "-"
    )
    what = f"rolebinding {name} -n {namespace}" if namespace else f"clusterrolebinding {name}"
    return f"kubectl create {what} --{kind}={role} {whom}"
