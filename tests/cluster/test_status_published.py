"""The status on a real control plane: published with the installed rights, and read with those of a reader."""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from codehosts import Call, CodeHost, Reply, served
from controlplane.known import await_rights
from controlplane.ports import free_ports
from controlplane.server import ControlPlane
from unattended import LEASE, Process, Site, all_writes_of, at_last, job, project, typed

from gpuctl.adapters.clock import SystemClock
from gpuctl.cli.main import gpuctl
from gpuctl.install import CONTAINER, HISTORY_FILE
from gpuctl.k8s.timestamps import format_timestamp

ROOT = Path(__file__).parents[2]
HOME = "/api/v1/namespaces/gpuctl-system"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/gpuctl-system/rolebindings"


NUMBERS = count(1)


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    """Each has a name of its own: the namespaces of the last one may still be ending."""
    made = Site(plane_with_gpuctl, tmp_path, f"status{next(NUMBERS)}")
    yield made
    made.leave()


def account(plane: ControlPlane, folder: Path, name: str, role: str) -> str:
    """The kubeconfig of an account that has a role in gpuctl-system, and nothing else."""
    accounts = f"{HOME}/serviceaccounts"
    plane.call("PATCH", f"{accounts}/{name}?fieldManager=test", {
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name},
    })  # fmt: skip
    plane.call("PATCH", f"{RBAC}/{name}?fieldManager=test", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "gpuctl-system"}],
    })  # fmt: skip
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.call("POST", f"{accounts}/{name}/token", request)["status"]["token"]
    await_rights(plane, token, "gpuctl-system")
    return str(plane.write_kubeconfig(folder / f"{name}.kubeconfig", token))


@pytest.fixture
def reader(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> str:
    return account(plane_with_gpuctl, tmp_path, "looker", "gpuctl-operator")


def status(kubeconfig: str, *more: str) -> Result:
    return typed(kubeconfig, "status", *more)


def test_a_reader_sees_what_the_leader_publishes(site: Site, reader: str) -> None:
    commit = site.commit(project("a", 4), job("j"))
    process = site.start()
    waited = status(reader, "--wait", "--timeout", "60s", "--commit", commit)
    assert waited.exit_code == 0, (waited.stdout, waited.stderr, site.logs())
    form = json.loads(status(reader, "-o", "json").stdout)
    assert (form["cluster"], form["commit"]["applied"], form["commit"]["head"]) == (site.name, commit, commit)
    leader = site.plane.call("GET", LEASE)["spec"]["holderIdentity"]
    assert (form["replica"]["identity"], form["replica"]["leader"]) == (leader, leader)

    def told() -> int:
        return sum(r["objectRef"].get("name") == "gpuctl-status" for r in all_writes_of(process.audited()))

    def is_written_no_more() -> bool:
        """Through several cycles: only what has changed is published."""
        before = told()
        time.sleep(4)
        return told() == before > 0

    at_last(is_written_no_more, site.logs)
    site.commit(job("j", more=", gpus: x"))
    (held,) = at_last(lambda: json.loads(status(reader, "-o", "json").stdout)["held"], site.logs)
    assert status(reader).exit_code == 1
    assert (held["project"], held["commit"]) == ("a", commit)


class Ahead(SystemClock):
    """A machine's clock that is some minutes ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + 600_000


def test_a_person_whose_clock_is_wrong_is_told_the_same(site: Site, reader: str) -> None:
    site.commit(project("a", 4))
    site.start()
    assert status(reader, "--wait", "--timeout", "60s").exit_code == 0, site.logs()
    result = CliRunner().invoke(gpuctl, ["status", "--kubeconfig", reader], obj=Ahead())
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, f"{site.name}: ready")


def test_it_is_not_ready_where_no_replica_leads(site: Site, reader: str) -> None:
    site.commit(project("a", 4))
    process = site.start()
    assert status(reader, "--wait", "--timeout", "60s").exit_code == 0, site.logs()
    process.end()
    released = status(reader)
    assert (released.exit_code, released.stdout.splitlines()[1]) == (1, "  no replica leads")
    lease = site.plane.call("GET", LEASE)
    site.plane.call("PUT", LEASE, {**lease, "spec": {**lease["spec"], "renewTime": "2026-01-01T00:00:00.000000Z"}})
    result = status(reader)
    assert (result.exit_code, result.stdout.splitlines()[1]) == (1, "  no replica leads")


def test_a_person_with_the_freezers_role_freezes_and_has_git_read(site: Site, reader: str, tmp_path: Path) -> None:
    freezer = account(site.plane, tmp_path, "freezer", "gpuctl-freezer")
    site.commit(project("a", 4), job("j"))
    site.start(interval="10m")
    site.await_pods("j")
    told = typed(freezer, "freeze", "project", "a", "--reason", "an incident")
    assert told.stdout == "project a is frozen by system:serviceaccount:gpuctl-system:freezer: an incident\n", told
    assert "--role=gpuctl-freezer " in typed(reader, "freeze", "cluster", "--reason", "x").stderr
    site.commit(job("k"), {"c/a-j.yaml": None}, project("b", 4), job("m", project="b"))
    assert typed(freezer, "sync").exit_code == 0
    site.await_pods("m", project="b")
    assert sorted(site.pods()) == ["j"]
    frozen = at_last(lambda: json.loads(status(reader, "-o", "json").stdout)["frozen"], site.logs)
    assert [(each["project"], each["by"], each["reason"]) for each in frozen] == [
        ("a", "system:serviceaccount:gpuctl-system:freezer", "an incident")
    ]
    assert typed(freezer, "unfreeze", "project", "a").exit_code == 0
    assert typed(freezer, "unfreeze", "project", "a").stderr.startswith("error GPU9003: project a is not frozen")
    site.await_pods("k")


def test_any_project_can_be_frozen_where_none_is_known(site: Site, tmp_path: Path) -> None:
    site.plane.refused("DELETE", f"{HOME}/configmaps/gpuctl-overview")
    freezer = account(site.plane, tmp_path, "freezer", "gpuctl-freezer")
    told = typed(freezer, "freeze", "project", "unseen", "--reason", "an incident")
    assert told.exit_code == 0, told
    assert told.stderr.startswith("note: it can't be known whether project unseen is declared")
    assert typed(freezer, "unfreeze", "project", "unseen").exit_code == 0


def test_the_past_is_asked_for_by_a_port_of_the_leader(site: Site, reader: str, tmp_path: Path) -> None:
    """KWOK leads port 8081 of gpuctl's pods to a port here; the process has the pod's name, as in a cluster."""
    historian = account(site.plane, tmp_path, "historian", "gpuctl-history")
    pod, node = socket.gethostname(), f"{site.name}-1"
    harmless = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    site.plane.call("POST", f"{HOME}/pods", {
        "metadata": {"name": pod},
        "spec": {
            "nodeName": node, "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": CONTAINER, "image": "x", "securityContext": harmless}],
        },
    })  # fmt: skip
    try:
        site.commit(project("a", 4), job("j"))
        address = f"127.0.0.1:{site.plane.history_port}"
        site.start("--history", str(tmp_path / "past.db"), "--history-address", address)
        site.await_pods("j")
        at_last(lambda: '"Running"' in typed(historian, "history", "a/j", "-o", "json").stdout, site.logs)
        found = typed(historian, "history", "a/j")
        assert [line.split()[1] for line in found.stdout.splitlines()][-1] == "Running", (found.stdout, found.stderr)
        refused = typed(reader, "history", "cluster")
        assert refused.exit_code == 2
        assert "--role=gpuctl-history " in refused.stderr
        _installed(site.plane, tmp_path / "past.db")
        at, report = format_timestamp(SystemClock().now_ms() + 60_000), tmp_path / "report.gpuctl"
        made = typed(site.plane.kubeconfig, "replay", "--at", at, "--output", str(report))
        assert (made.exit_code, "all are the same" in made.stdout) == (0, True), (made.stdout, made.stderr)
        assert "all are the same" in typed(reader, "replay", str(report)).stdout
        denied = typed(historian, "replay", "--at", at)
        assert (denied.exit_code, "pods/exec" in denied.stderr) == (2, True), denied.stderr
        assert "kubectl create" not in denied.stderr
        early = typed(site.plane.kubeconfig, "replay", "--at", "2020-01-01T00:00:00Z")
        assert (early.exit_code, "none up to that time are kept" in early.stderr) == (2, True), early.stderr
    finally:
        site.plane.call("DELETE", f"{HOME}/pods/{pod}?gracePeriodSeconds=0")


def _installed(plane: ControlPlane, history: Path) -> None:
    """KWOK runs commands of containers on this machine: `gpuctl` there, with the file that a pod has in its place."""
    plane.programs.mkdir(exist_ok=True)
    program = plane.programs / "gpuctl"
    words = f'$(echo "$*" | sed "s|{HISTORY_FILE}|{history}|")'
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m gpuctl {words}\n')
    program.chmod(0o755)


class Hook(CodeHost):
    """A webhook that takes everything."""

    def serve(self, call: Call) -> Reply:
        del call
        return 200, {}, {}

    def told(self) -> list[tuple[str, str | None]]:
        return [(call.body["event"], call.body["project"]) for call in self.calls]


def test_a_push_has_git_read_and_a_receiver_is_told(site: Site, tmp_path: Path) -> None:
    """By any replica: one in standby passes the push on. What was told is not told again by the next leader."""
    (tmp_path / "notify").mkdir()
    (tmp_path / "push").write_text("a secret of this cluster\n")
    ports = free_ports(2)

    def start(at: int) -> Process:
        more = ("--notify", tmp_path / "notify", "--push-secret", tmp_path / "push", "--push-address")
        return site.start(*map(str, more), f"127.0.0.1:{at}", interval="10m")

    def push(body: bytes) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{ports[1]}/push", body, method="POST")
        request.add_header("X-Gitlab-Token", "a secret of this cluster")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 202

    with served(Hook()) as hook:
        assert isinstance(hook, Hook)
        (tmp_path / "notify" / "webhook-url").write_text(hook.url)
        site.commit(project("a", 4), job("j"))
        leader = start(ports[0])
        site.await_pods("j")
        at_last(lambda: hook.told() == [("applied", None)], site.logs)
        standby = start(ports[1])
        at_last(lambda: any(line["event"] == "standby" for line in standby.lines()), site.logs)
        site.commit(job("j", more=", gpus: x"))
        push(b"1")
        at_last(lambda: sorted(hook.told()[1:]) == [("applied", None), ("held", "a")], site.logs)
        leader.end()
        at_last(standby.leads, site.logs)
        site.commit(job("j"), job("k"))
        push(b"2")
        site.await_pods("j", "k")
        at_last(lambda: sorted(hook.told()[3:]) == [("applied", None), ("recovered", "a")], site.logs)
