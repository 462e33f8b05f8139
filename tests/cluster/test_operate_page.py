"""docs/operate.md, executed on a control plane: each section's commands as they stand there, and each row of its last
table. The test is the Deployment's pod, by its own arguments and files."""

from __future__ import annotations

import hmac
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from codehosts import Call, CodeHost, Reply, served
from controlplane.server import ControlPlane
from deployment import HOME, POD_IP
from exporters import Answers, answering, matrix
from guide import PAGE, blocks, commands, wrong
from guided import HERE, PASSING, SILENT, STEADY, TRAIN, Scene, job, path_of
from openpgp import Person, needs_gpg
from unattended import at_last

from gpuctl.adapters.clock import SystemClock
from gpuctl.k8s.names import UTILISATION_NAME

ROOT = Path(__file__).resolve().parents[2]
HOMES, PODS = "tests/cluster/test_home.py", "tests/cluster/test_pod_failures.py"
ELSEWHERE = {
    "helm": "tests/cluster/test_install_upgrade.py::test_an_upgrade_by_the_chart_and_the_way_back_restart_no_job",
    "gpuctl reconcile": f"{HOMES}::test_it_says_the_command_and_ends_or_makes_its_namespace_and_goes_on",
    "gpuctl demo": "tests/cluster/test_demo.py::test_it_reaches_the_states_of_the_report",
    "gpuctl history": "tests/cluster/test_status_published.py::test_the_past_is_asked_for_by_a_port_of_the_leader",
    "gpuctl replay": "tests/cluster/test_status_published.py::test_the_past_is_asked_for_by_a_port_of_the_leader",
}
"""What the page marks as not run here, by its first words, with the test that runs such a command."""
OF_A_SECTION = {
    "the source of GPU metrics is away, slow or says nonsense",
    "a commit lacks a signature that counts (`--verify-signatures`)",
}
"""Rows that are made below, where a section is run that they need."""
IN_OTHER_TESTS = {
    "an object that gpuctl did not create has the name of a Service, an Ingress, a claim or another object of a job or "
    "a project": "tests/cluster/test_objects_of_people.py::test_an_object_that_a_person_made_is_left_as_it_is",
    "a project declares more jobs than the controller has memory for (`install --jobs`)":
        "tests/unit/app/test_most_jobs.py::test_a_sweep_of_more_than_there_is_memory_for_stays_behind",
    "more than nine tenths of the jobs that the controller has memory for are declared, or of their text":
        "tests/reconcile/test_watched.py::test_what_is_declared_is_near_what_there_is_memory_for_until_there_is_less",
    "the leader's clock differs from the API server's by more than a minute":
        "tests/cluster/test_clock.py::test_a_clock_that_is_days_ahead_ends_no_job",
    "a person writes on the objects of a job":
        "tests/cluster/test_hand_edits.py::test_what_is_ours_is_back_and_what_is_theirs_stays",
    "a person edits an object":
        "tests/cluster/test_hand_edits.py::test_what_is_only_theirs_costs_no_write",
    "a pod can't run or is not ready: its image, a Secret, memory, a volume, a node, a probe, or the server refuses it":
        f"{PODS}::test_a_container_that_can_not_start",
    "no node is heard of, or few: the control plane is cut off":
        "tests/cluster/test_cut_off.py::test_runs_go_on_while_no_node_is_heard_of",
    "a run has not started after 15 minutes (`scheduling.startTimeout`)":
        "tests/reconcile/test_pod_problems.py::test_a_start_that_fails_is_tried_again_later_and_later_also_by_another_process",
    "something else deletes a job's own storage (`newClaim`)":
        "tests/reconcile/test_notes.py::test_a_claim_that_a_person_deleted_is_told_and_that_it_is_made_anew",
    "a finished job's `ttlAfterFinished` is over":
        "tests/reconcile/test_job_lives.py::test_the_object_of_a_run_goes_after_its_time_and_the_run_stays_ended",
    "the server refuses an object of one job: a policy or a quota of the namespace says no":
        "tests/reconcile/test_refusals.py::test_an_object_that_a_tenant_made_in_the_place_of_a_jobs_holds_that_job_alone",
    "the server refuses an object of a project or of the cluster: a policy says no":
        "tests/reconcile/test_refusals.py::test_a_refused_object_of_a_project_is_not_asked_for_again_and_again",
    "gpuctl is newer than its installation, and has no right to what it now writes: NetworkPolicies, autoscalers":
        "tests/reconcile/test_refusals.py::test_where_gpuctl_has_no_right_to_network_policies_all_else_goes_on",
    "the API server is started anew, and refuses all until it has read its roles":
        "tests/cluster/test_server_goes_back.py::test_killed_between_two_writes_it_takes_the_rest_once_it_is_back",
    "an admission webhook does not answer, or no address is left for a Service":
        "tests/reconcile/test_refusals.py::test_a_webhook_that_does_not_answer_holds_up_the_jobs_of_its_kind_alone",
    "etcd is restored from a snapshot":
        "tests/cluster/test_server_goes_back.py::test_where_etcd_is_restored_gpuctl_goes_on_from_what_is_there",
    "a right is taken from gpuctl's account while it runs":
        "tests/reconcile/test_withdrawn_rights.py::test_without_a_right_that_no_decision_needs_all_else_goes_on",
    "a kind of another controller can't be read, as JobSets while the webhook that converts them is away":
        "tests/workloads/test_unconverted.py::test_a_kind_that_the_server_can_not_convert_holds_up_nothing_else",
    "an object that gpuctl did not create has the name of a run":
        "tests/reconcile/test_forgeries.py::test_a_strangers_object_in_the_place_of_a_run_is_left_alone_and_told",
    "the API server is away, refuses, forgets a watch or loses an answer":
        "tests/cluster/test_server_faults.py::test_a_fault_delays_what_is_new_and_nothing_else",
    "the leader is killed, stopped or cut off":
        "tests/cluster/test_replicas.py::test_the_leader_is_killed_then_stopped_and_woken_then_cut_off",
}  # fmt: skip
"""Rows that a test of their own makes; those in tests/reconcile take minutes, in virtual time."""


@pytest.fixture(scope="module")
def scene(new_control_plane: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on this machine: the page's commands need it")
    assert callable(new_control_plane)
    plane: ControlPlane = new_control_plane()
    made = Scene(plane, tmp_path_factory.mktemp("operate"))
    install, listed = commands("Follow a repository")
    made.run(install)
    made.start()
    made.run(listed)
    yield made
    made.end()


def test_every_row_of_what_goes_wrong_is_made_by_a_test() -> None:
    assert set(wrong()) == set(HERE) | OF_A_SECTION | set(IN_OTHER_TESTS)
    for test in (*IN_OTHER_TESTS.values(), *ELSEWHERE.values()):
        path, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / path).read_text(), test


def test_what_is_not_run_here_is_marked() -> None:
    lines = [line for each in blocks("sh", elsewhere=True).values() for block in each for line in block.splitlines()]
    assert [line for line in lines if not line.startswith(tuple(ELSEWHERE))] == []


def test_the_status_is_asked_for_and_people_may_look(scene: Scene) -> None:
    for line in commands("Who may look"):
        scene.run(line)
    seen = ("/api/v1/namespaces/gpu-team-a/pods", f"{HOME}/configmaps/gpuctl-overview")
    at_last(lambda: not any(scene.plane.refused("GET", path, user="ann") for path in seen))
    assert scene.plane.refused("GET", "/api/v1/namespaces/gpu-team-b/pods", user="ann") is not None
    *told, waits = commands("How it is")
    scene.run(waits)  # what is published follows within seconds
    text, form = [scene.run(line) for line in told]
    assert text.startswith("prod: ready\n")
    assert json.loads(form)["ready"]


@pytest.mark.parametrize("what", HERE)
def test_what_goes_wrong_is_told_and_ends(what: str, scene: Scene) -> None:
    before, told, fault = scene.runs(STEADY), len(scene.pod.lines()), HERE[what]
    mend = fault(scene)
    codes = wrong()[what]
    if fault not in SILENT:
        at_last(lambda: codes & scene.pod.codes(told), scene.told)
    if fault not in PASSING:
        at_last(lambda: not scene.is_well(), scene.told)
    mend()
    at_last(scene.is_well, scene.told)
    assert scene.runs(STEADY) == before


def test_what_is_frozen_in_an_incident_goes_on_afterwards(scene: Scene) -> None:
    freeze_team, freeze_all, *others, sync = commands("Freeze in an incident")
    scene.run(freeze_team)
    at_last(lambda: scene.pod.status().get("frozen", ()), scene.told)
    scene.run(freeze_all)
    at_last(lambda: len(scene.pod.status().get("frozen", ())) == 2, scene.told)
    scene.commit(job("team-a/later"))
    for line in (*others, sync):
        scene.run(line)
    at_last(lambda: scene.runs("team-a/later"), scene.told)
    scene.commit({path_of("team-a/later"): None})


class Receiver(CodeHost):
    """A webhook, Slack, and GitHub's statuses at once; what it was told."""

    def serve(self, call: Call) -> Reply:
        return (201 if "/statuses/" in call.path else 200), {}, {}

    def events(self) -> set[tuple[str, str]]:
        found = {("webhook", str(call.body["event"])) for call in self.calls if call.path == "/hook"}
        found |= {("slack", call.body["text"].split()[2].rstrip(":")) for call in self.calls if call.path == "/slack"}
        return found | {("status", call.body["state"]) for call in self.calls if "/statuses/" in call.path}


def test_notifications(scene: Scene) -> None:
    for line in commands("Notifications"):
        scene.run(line)
    with served(Receiver()) as host:
        assert isinstance(host, Receiver)
        scene.start()
        keys = {"slack_url": f"{host.url}/slack", "webhook_url": f"{host.url}/hook", "webhook_key": "k"}
        scene.secret("gpuctl-notify", **keys, github_token="t0k3n", github_url=host.url)
        scene.commit({path_of(TRAIN): "kind: [\n"})
        told = {("webhook", "held"), ("slack", "held"), ("status", "failure")}
        at_last(lambda: told <= host.events(), lambda: (host.calls, scene.told()))
        scene.commit(job(TRAIN))
        told = {("webhook", "recovered"), ("slack", "recovered"), ("webhook", "applied"), ("status", "success")}
        at_last(lambda: told <= host.events(), lambda: (host.calls, scene.told()))
        signed = next(call for call in host.calls if call.path == "/hook")
        digest = hmac.new(b"k", json.dumps(signed.body).encode(), "sha256").hexdigest()
        assert signed.headers["x-signature"] == f"sha256={digest}"
        (named,) = re.findall(r"any webhook: JSON with ([^;]*);", PAGE)
        assert set(named.replace("`", "").split(", ")) <= set(signed.body)
        assert host.writes.count(f"POST /repos/acme/gpus/statuses/{scene.git('rev-parse', 'HEAD')}") == 1


def test_git_tells_of_pushes(scene: Scene) -> None:
    for line in commands("Have Git tell of pushes"):
        scene.run(line)
    scene.start()
    secret, body = "sixteen characters", b'{"ref": "refs/heads/main"}'

    def push(headers: dict[str, str]) -> int:
        url = f"http://127.0.0.1:{scene.pod.ports[8082]}/push"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
                return int(answer.status)
        except HTTPError as error:
            with error:
                return error.code

    signed = {"X-Hub-Signature-256": f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"}
    assert push(signed) == 503
    scene.secret("gpuctl-push", secret=secret)

    def asked() -> str:
        notes = scene.plane.call("GET", f"{HOME}/configmaps/gpuctl-control")["metadata"].get("annotations", {})
        return str(notes.get("gpuctl.dev/sync", ""))

    before = asked()
    assert push({"X-Hub-Signature-256": f"sha256={'0' * 64}"}) == 401
    assert [push(signed), push(signed)] == [202, 202]
    at_last(lambda: asked() != before)
    once = asked()
    assert push({"X-Gitlab-Token": secret}) == 202
    at_last(scene.is_well, scene.told)
    assert asked() == once, "a body that came before does nothing again"
    service = scene.plane.call("GET", f"{HOME}/services/gpuctl-push")["spec"]
    assert service["ports"][0]["port"] == 8082


def measured(scene: Scene, percent: str) -> bytes:
    """Prometheus' answer of five minutes and more: each pod's GPU was so busy in every sample."""
    series = []
    for space in ("gpu-team-a", "gpu-team-b"):
        for pod in scene.plane.call("GET", f"/api/v1/namespaces/{space}/pods")["items"]:
            labels = {
                "__name__": "DCGM_FI_DEV_GPU_UTIL", "namespace": space, "pod": pod["metadata"]["name"],
                "container": "main", "gpu": "0", "UUID": f"GPU-{pod['metadata']['uid']}",
            }  # fmt: skip
            series.append((labels, [(SystemClock().now_ms() / 1000, percent)]))
    return matrix(*series)


def is_measured(published: Any) -> bool:
    return bool(json.loads(published["data"]["utilisation.json"])["projects"])


def test_what_gpus_do(scene: Scene) -> None:
    install, top_job, top_project = commands("What GPUs do")
    scene.run(install)
    with answering(Answers()) as prometheus:
        scene.instead["http://prometheus.monitoring:9090"] = prometheus.url
        prometheus.pieces = lambda: iter([measured(scene, "80")])
        scene.start()

        def busy() -> object:
            teams = json.loads(scene.run(top_project))["projects"]
            return [each["use"]["busyGpuMilli"] for each in teams if each.get("use")]

        # The command is asked once it has something to tell: it would cost more than all else of this test.
        path = f"{HOME}/configmaps/{UTILISATION_NAME}"
        at_last(lambda: scene.plane.refused("GET", path) is None and is_measured(scene.plane.call("GET", path)))
        assert set(busy()) == {800}  # type: ignore[call-overload]
        assert TRAIN.partition("/")[2] in scene.run(top_job)
        assert all('job="dcgm-exporter"' in query for query in prometheus.queries())
        what, told = "the source of GPU metrics is away, slow or says nonsense", len(scene.pod.lines())
        prometheus.pieces = lambda: iter([b"nonsense"])
        at_last(lambda: wrong()[what] & scene.pod.codes(told), scene.told)
        prometheus.pieces = lambda: iter([measured(scene, "80")])
        at_last(scene.is_well, scene.told)


@needs_gpg
def test_commits_that_are_not_signed_are_not_applied(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", scene.folder / "key"], check=True)
    public = " ".join((scene.folder / "key.pub").read_text().split()[:2])
    (scene.folder / "allowed_signers").write_text(f'ann@example.com namespaces="git" {public}\n')
    person = Person(scene.folder, "keys")
    shutil.copy(person.export(), scene.folder / "keys.asc")
    scene.commit(job("team-a/before"))  # what is in force already counts as good
    at_last(lambda: scene.runs("team-a/before"), scene.told)
    for line in commands("Who may change the cluster"):
        scene.run(line)
    sign = ("-c", "gpg.format=ssh", "commit", "-q", "--amend", "--no-edit", f"-S{scene.folder / 'key'}")
    scene.start()
    told, what = len(scene.pod.lines()), "a commit lacks a signature that counts (`--verify-signatures`)"
    scene.commit(job("team-a/unsigned"))
    at_last(lambda: wrong()[what] & scene.pod.codes(told), scene.told)
    assert scene.jobs("team-a/unsigned") == []
    scene.git(*sign)
    at_last(lambda: scene.runs("team-a/unsigned"), scene.told)
    scene.commit({path_of("team-a/unsigned"): None, path_of("team-a/before"): None})
    monkeypatch.setenv("GNUPGHOME", str(person.home))
    program = ("-c", f"gpg.program={person.program}", "-c", "gpg.format=openpgp")
    scene.git(*program, "commit", "-q", "--amend", "--no-edit", f"-S{person.address}")
    at_last(scene.is_well, scene.told)


def test_the_dashboard_is_served_to_the_proxy_alone(scene: Scene) -> None:
    page = (ROOT / "docs" / "dashboard.md").read_text().partition("## Served by the controller\n")[2]
    install = re.findall(r"^gpuctl install .*$", page, re.MULTILINE)[0]
    scene.run(install)
    scene.start()
    scene.secret("gpuctl-dashboard", secret="only the proxy knows")

    def page_for(**headers: str) -> int:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        request = urllib.request.Request(f"http://127.0.0.1:{scene.pod.ports[8083]}/jobs", headers=named)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status) if b"train" in answer.read() else 0
        except (HTTPError, OSError) as error:
            return getattr(error, "code", 0)

    proxy = {"X_Proxy_Secret": "only the proxy knows", "X_Forwarded_User": "ann"}
    at_last(lambda: page_for(**proxy) == 200, scene.told)
    assert page_for(X_Forwarded_User="ann", X_Proxy_Secret="guessed") == 403
    assert page_for(X_Forwarded_User="ann") == 403
    slices = "/apis/discovery.k8s.io/v1/namespaces/gpuctl-system/endpointslices/gpuctl-dashboard"
    at_last(lambda: scene.plane.refused("GET", slices) is None, scene.told)
    assert scene.plane.call("GET", slices)["endpoints"][0]["addresses"] == [POD_IP]
