"""Every command as people on a real API server: an administrator, a member of one team, someone without rights.

`gpuctl reconcile` runs as installed, and publishes. Team `b` has secrets: the names of its jobs, images and namespaces'
objects. Nobody of team `a` may learn one, from any command or from what is published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import warm
from click.testing import CliRunner, Result
from controlplane.server import ControlPlane
from unattended import PATIENCE_S, Site, at_last

from gpuctl.cli.main import COMMANDS, gpuctl
from gpuctl.k8s.overview import KEY

OVERVIEW = "/api/v1/namespaces/gpuctl-system/configmaps/gpuctl-overview"
SPACE = "gpu-people-a"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
HEAD = "apiVersion: gpuctl.dev/v1\nkind: "
ANN, DAN = (f"system:serviceaccount:default:{name}" for name in ("ann", "dan"))
"""Two of team a. Dan may not read what is published, and his context names the team's namespace."""
SECRETS = ("hush", "covert", "quiet", "registry.b.example.com")
"""Words of team b, by which no other team may learn of its jobs."""
FILES = {
    "c/a.yaml": f"{HEAD}Project\nmetadata: {{name: a}}\nspec: {{quota: 4, "
    f"access: [{{user: '{ANN}', role: edit}}, {{user: '{DAN}', role: edit}}]}}\n",
    "c/b.yaml": f"{HEAD}Project\nmetadata: {{name: b}}\nspec: {{quota: 4}}\n",
    "c/a-train.yaml": f"{HEAD}Job\nmetadata: {{name: train, project: a}}\n"
    "spec: {image: x, gpus: 4, maxDuration: 1h}\n",
    "c/a-wide.yaml": f"{HEAD}Job\nmetadata: {{name: wide, project: a}}\nspec: {{image: x, gpus: 4}}\n",
    "c/a-wider.yaml": f"{HEAD}Job\nmetadata: {{name: wider, project: a}}\nspec: {{image: x, gpus: 4}}\n",
    "c/b-covert.yaml": f"{HEAD}Job\nmetadata: {{name: covert, project: b}}\n"
    "spec: {image: registry.b.example.com/covert, gpus: 4, maxDuration: 2h}\n",
    "c/b-hush.yaml": f"{HEAD}Job\nmetadata: {{name: hush, project: b}}\n"
    "spec: {image: registry.b.example.com/quiet, gpus: 4}\n",
}
PEOPLE = ("admin", "ann", "dan", "eve")


@dataclass
class Scene:
    """The site, its leader, and a kubeconfig for each person."""

    site: Site
    folder: Path
    config: dict[str, Path] = field(default_factory=dict)
    runner: CliRunner = field(default_factory=CliRunner)

    def run(self, person: str, *line: object) -> Result:
        """A command as that person types it. It never ends in a traceback."""
        result = self.runner.invoke(gpuctl, [str(word) for word in line], prog_name="gpuctl", env=self.env(person))
        assert "Traceback" not in result.output
        assert "GPU9001" not in result.stderr
        return result

    def where(self, person: str) -> tuple[str, str]:
        return ("--kubeconfig", str(self.config[person]))

    def env(self, person: str) -> dict[str, str | None]:
        return {"KUBECONFIG": str(self.config[person]), "GPUCTL_EMBEDDED": None, "XDG_CONFIG_HOME": str(self.folder)}

    def is_told(self) -> bool:
        """Whether it is published that three jobs wait, and that both teams hold four GPUs each."""
        document = json.loads(self.overview() or '{"positions": [], "projects": []}')
        return len(document["positions"]) == 3 and [row[4] for row in document["projects"]] == [4000, 4000]

    def overview(self, **how: str) -> str:
        refused = self.site.plane.refused("GET", OVERVIEW, **how)
        return "" if refused else str(self.site.plane.call("GET", OVERVIEW, **how)["data"][KEY])


@pytest.fixture(scope="module")
def scene(plane_with_gpuctl: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    plane, folder = plane_with_gpuctl, tmp_path_factory.mktemp("people")
    made = Scene(Site(plane, tmp_path_factory.mktemp("site"), "people", gpus=8), folder)
    made.config["admin"] = plane.kubeconfig
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    for name in PEOPLE[1:]:
        plane.call("POST", accounts, {"metadata": {"name": name}})
        token: str = plane.call("POST", f"{accounts}/{name}/token", {"spec": {}})["status"]["token"]
        made.config[name] = plane.write_kubeconfig(folder / name, token)
    named = json.loads(made.config["dan"].read_text())
    named["contexts"][0]["context"]["namespace"] = SPACE
    made.config["dan"].write_text(json.dumps(named))
    made.site.commit(FILES)
    made.site.start()
    made.site.await_pods("train", project="a")
    made.site.await_pods("covert", project="b")
    at_last(made.is_told, made.site.logs)
    grant = (f"{RBAC}/namespaces/gpuctl-system/rolebindings", {
        "metadata": {"name": "gpuctl-reader-ann"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gpuctl-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "ann", "namespace": "default"}],
    })  # fmt: skip
    plane.call("POST", *grant)
    at_last(lambda: made.overview(user=ANN))
    yield made
    made.site.leave()
    plane.call("DELETE", OVERVIEW)
    plane.call("DELETE", f"{grant[0]}/gpuctl-reader-ann")
    for name in PEOPLE[1:]:
        plane.call("DELETE", f"{accounts}/{name}")


def lines(told: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in told.splitlines() if line.strip()}


LOOKS = {
    "list of all": ("list", "-A"),
    "list of a project": ("list", "-p", "a"),
    "list as data": ("list", "-A", "-o", "json"),
    "get": ("get", "train", "-p", "a"),
    "get by the name alone": ("get", "a/wide", "-o", "yaml"),
    "explain": ("explain", "wide", "-p", "a"),
    "project list": ("project", "list"),
    "project list as data": ("project", "list", "-o", "json"),
    "top node": ("top", "node"),
    "top node, each GPU": ("top", "node", "-d"),
    "top job": ("top", "job", "-A"),
    "top project": ("top", "project"),
}


@pytest.mark.parametrize("case", LOOKS)
def test_a_member_of_a_team_looks_and_learns_no_word_of_another(case: str, scene: Scene) -> None:
    assert scene.run("admin", *LOOKS[case]).exit_code == 0
    told = scene.run("ann", *LOOKS[case])
    assert told.exit_code == 0, told.output
    assert [word for word in SECRETS if word in told.output] == []


@pytest.mark.parametrize(
    "case", ["list of all", "list of a project", "get", "get by the name alone", "explain", "top job"]
)
def test_a_member_with_rights_in_the_namespace_alone_has_that_of_the_context_read(case: str, scene: Scene) -> None:
    told = scene.run("dan", *LOOKS[case])
    assert told.exit_code == 0, told.output
    assert "train" in told.stdout or "wide" in told.stdout
    assert [word for word in SECRETS if word in told.output] == []
    other = scene.run("dan", "list", "-n", SPACE.replace("people-a", "people-b"))
    assert other.exit_code == 2, "what is named goes before the context's"


@pytest.mark.parametrize("case", LOOKS)
def test_a_stranger_is_told_whose_role_is_missing_and_nothing_else(case: str, scene: Scene) -> None:
    told = scene.run("eve", *LOOKS[case])
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("error GPU7015: system:serviceaccount:default:eve may not list ")
    assert "--role=gpuctl-reader --serviceaccount=default:eve" in told.stderr
    assert "role=gpuctl " not in told.stderr
    assert [word for word in (*SECRETS, "train", SPACE) if word in told.output] == []


def test_a_member_sees_the_jobs_of_the_team(scene: Scene) -> None:
    told = scene.run("ann", "list", "-A")
    assert set(lines(told.stdout)) >= {"train", "wide", "wider"}
    assert told.stderr.startswith("note: jobs that you may not see are left out")
    assert lines(scene.run("ann", "list", "-p", "a").stdout)["train"][1] == "Running"
    assert "--role" not in scene.run("ann", "list", "-p", "a").stderr


def test_a_member_learns_the_place_in_the_queue_and_when_the_job_starts(scene: Scene) -> None:
    def explained() -> list[str]:
        return [scene.run("ann", "explain", name, "-p", "a").stdout for name in ("wide", "wider")]

    at_last(lambda: any("It starts by 20" in each for each in explained()), explained)
    told = explained()
    assert "of 2 in a, and " in told[0]
    assert all(" of 3 overall." in each for each in told)
    assert {each.split("queue is ")[1][0] for each in told} == {"1", "2"}
    first, second = sorted(told, key=lambda each: each.split("queue is ")[1])
    assert "It starts by 20" in first
    assert "no start is forecast" in second
    as_admin = scene.run("admin", "explain", "wide", "-p", "a").stdout
    assert position(as_admin) == position(told[0])


def position(told: str) -> list[str]:
    return [line for line in told.splitlines() if line.startswith("Its position")]


def test_a_member_sees_what_other_projects_hold(scene: Scene) -> None:
    def seen_by(person: str) -> dict[str, dict[str, Any]]:
        forms = json.loads(scene.run(person, "project", "list", "-o", "json").stdout)["projects"]
        return {form["name"]: form for form in forms if form["name"] in {"a", "b"}}

    expected = {"allocatedGpuMilli": 4000, "running": 1, "pending": 1, "pendingGpuMilli": 4000}
    # What is published follows the cluster within seconds.
    at_last(lambda: expected.items() <= seen_by("ann")["b"].items(), scene.site.logs)
    at_last(lambda: seen_by("admin") == seen_by("ann"), lambda: [seen_by("admin"), seen_by("ann")])
    assert seen_by("ann")["b"]["quotas"][0]["fairShareGpuMilli"] == 4000


def test_a_member_sees_nodes_with_the_own_jobs_by_name(scene: Scene) -> None:
    details = scene.run("ann", "top", "node", "people-1", "-d").stdout
    assert "a/train" in details
    assert details.count("<other projects> (1)") == 4
    mine = json.loads(scene.run("ann", "top", "node", "people-1", "-o", "json").stdout)["nodes"][0]
    whole = json.loads(scene.run("admin", "top", "node", "people-1", "-o", "json").stdout)["nodes"][0]
    same = ("gpus", "allocatedGpuMilli", "foreignGpuMilli", "cpuMilli", "requestedCpuMilli", "memoryBytes", "status")
    assert [mine[key] for key in same] == [whole[key] for key in same]


@pytest.mark.parametrize("line", [("get", "b/covert"), ("explain", "hush", "-p", "b"), ("logs", "b/covert")])
def test_a_job_of_another_team_is_as_one_that_is_not_there(line: tuple[str, ...], scene: Scene) -> None:
    told = scene.run("ann", *line)
    other = scene.run("ann", *(word.replace("covert", "nosuch").replace("hush", "nosuch") for word in line))
    assert told.exit_code == other.exit_code == 2
    assert told.output.replace("covert", "nosuch").replace("hush", "nosuch") == other.output


def test_what_is_published_has_no_word_of_a_job(scene: Scene) -> None:
    said = scene.overview()
    assert [word for word in (*SECRETS, "train", "wide") if word in said] == []
    uids = [job["metadata"]["uid"] for project in "ab" for job in scene.site.jobs(project)]
    assert [uid for uid in uids if uid in said] == []
    document = json.loads(said)
    assert set(document) == {
        "version",
        "at",
        "leftOut",
        "projects",
        "departments",
        "nodes",
        "positions",
        "starts",
        "removed",
    }
    assert sorted(document["positions"].values()) == [1, 2, 3]
    assert not set(document["positions"]) & set(document["starts"]), "a position is not to be joined with a start"


@pytest.fixture
def forged(scene: Scene) -> Iterator[str]:
    """Ann may edit a namespace that is no project's, where no guard holds, and eve may read all. There is team b's job
    under its name and labels, as others may learn them, with an address of Ann's; the name of the job."""
    plane, space = scene.site.plane, "people-own"
    (job,) = [each for each in scene.site.jobs("b") if each["metadata"]["labels"]["gpuctl.dev/job"] == "covert"]
    meta = {key: job["metadata"][key] for key in ("name", "labels")}
    template = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "forged"}]}
    backend = {"service": {"name": "x", "port": {"number": 80}}}
    path = {"path": "/login", "pathType": "Prefix", "backend": backend}
    rules = [{"host": "phish.example.com", "http": {"paths": [path]}}]
    plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    for kind, role, place, name in (
        ("RoleBinding", "edit", f"{RBAC}/namespaces/{space}/rolebindings", "ann"),
        ("ClusterRoleBinding", "gpuctl-reader", f"{RBAC}/clusterrolebindings", "eve"),
    ):
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        whom = [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]
        plane.call("POST", place, {"kind": kind, "metadata": {"name": "forged"}, "roleRef": ref, "subjects": whom})
    jobs, ingresses = (
        f"/apis/{group}/namespaces/{space}/{plural}"
        for group, plural in (("batch/v1", "jobs"), ("networking.k8s.io/v1", "ingresses"))
    )
    at_last(lambda: not plane.refused("GET", jobs, user=ANN))
    plane.call("POST", jobs, {"metadata": meta, "spec": {"suspend": True, "template": {"spec": template}}}, user=ANN)
    plane.call("POST", ingresses, {"metadata": meta, "spec": {"rules": rules}}, user=ANN)
    at_last(lambda: scene.run("eve", "list", "-A").exit_code == 0)
    yield "b/covert"
    plane.call("DELETE", f"{RBAC}/clusterrolebindings/forged")
    plane.call("DELETE", f"/api/v1/namespaces/{space}")
    at_last(lambda: plane.refused("GET", f"{jobs}/{meta['name']}"))


def test_who_reads_all_sees_no_forged_object_in_the_place_of_a_job(forged: str, scene: Scene) -> None:
    """The ledgers, by which the controller and administrators tell them apart, are not for readers."""
    for person in ("admin", "eve"):
        told = json.loads(scene.run(person, "get", forged, "-o", "json").stdout)
        assert (told["state"], told["object"]["namespace"]) == ("Running", SPACE.replace("people-a", "people-b"))
        assert told["urls"] == []
        assert "forged" not in scene.run(person, "list", "-A", "-o", "json").stdout


@pytest.mark.parametrize("method", ["PATCH", "DELETE", "PUT"])
def test_no_team_writes_what_is_published(method: str, scene: Scene) -> None:
    body: Any = {"metadata": {"name": "gpuctl-overview", "namespace": "gpuctl-system"}, "data": {KEY: "{}"}}
    media = "application/merge-patch+json" if method == "PATCH" else ""
    refused = scene.site.plane.refused(method, OVERVIEW, body, user=ANN, media=media)
    assert refused is not None
    assert "cannot " in refused[1]
    assert scene.overview(user=ANN) != ""
    assert scene.overview(user="system:serviceaccount:default:eve") == ""


def test_containers_are_entered_with_the_teams_own_role(scene: Scene) -> None:
    scene.site.plane.pod_log.write_text("2026-11-21T10:00:00.000000000Z stdout F step 1\n")
    assert scene.run("ann", "logs", "train", "-p", "a").exit_code == 0
    for line in (
        ("logs", "train", "-p", "a"),
        ("exec", "train", "-p", "a", "--", "true"),
        ("bash", "train", "-p", "a"),
        ("port-forward", "train", "0:8888", "-p", "a"),
    ):
        assert "error GPU7015" in scene.run("eve", *line).stderr


@pytest.mark.parametrize("command", ["exec train -- true", "bash train", "port-forward train 8888"])
def test_a_reader_enters_no_container_and_is_told_at_once(command: str, scene: Scene) -> None:
    """Of a port before it is listened on here."""
    eve = {"kind": "ServiceAccount", "name": "eve", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gpuctl-reader"}
    binding = {"metadata": {"name": "reads"}, "roleRef": role, "subjects": [eve]}
    scene.site.plane.call("POST", f"{RBAC}/namespaces/{SPACE}/rolebindings", binding)
    try:
        name, *rest = command.split()
        words = (name, "-n", SPACE, *rest)
        at_last(lambda: "may not get pods/" in scene.run("eve", *words).stderr)
        told = scene.run("eve", *words)
    finally:
        scene.site.plane.call("DELETE", f"{RBAC}/namespaces/{SPACE}/rolebindings/reads")
    assert (told.exit_code, told.stdout) == (2, "")
    assert "role edit in the project's namespace gives it" in told.stderr


WHOLE = {
    "diff": ("diff", "{folder}"),
    "plan": ("plan", "{folder}", "--base", "main", "--context", "test"),
    "explain by the engine": ("explain", "wide", "{folder}", "-p", "a"),
    "status": ("status",),
}


@pytest.mark.parametrize("case", WHOLE)
def test_what_needs_the_whole_cluster_names_the_readers_role(case: str, scene: Scene) -> None:
    line = [word.format(folder=scene.site.copy.folder / "c") for word in WHOLE[case]]
    assert scene.run("admin", *line).exit_code in {0, 1, 2}
    assert "GPU7015" not in scene.run("admin", *line).stderr
    for person in ("ann", "eve"):
        told = scene.run(person, *line)
        assert "error GPU7015" in told.stderr
        assert "kubectl create " in told.stderr
        assert "role=gpuctl-" in told.stderr


ALIKE = {
    "bench": ("bench", "--help"),
    "comment": ("comment", "--help"),
    "completion": ("completion", "bash"),
    "config": ("config", "project"),
    "dashboard": ("dashboard", "--help"),
    "watch": ("watch", "--help"),
    "delete": ("delete", "--help"),
    "demo": ("demo", "--help"),
    "fmt": ("fmt", "--check", "{folder}"),
    "import": ("import", "--help"),
    "init": ("init", "--help"),
    "install": ("install", "--repo", "https://git.example.com/x.git", "--path", "c"),
    "man": ("man", "--help"),
    "policy": ("policy", "list", "{folder}"),
    "render": ("render", "{folder}"),
    "resume": ("resume", "--help"),
    "schema": ("schema", "Job"),
    "simulate": ("simulate", "--help"),
    "submit": ("submit", "--help"),
    "suspend": ("suspend", "--help"),
    "validate": ("validate", "{folder}"),
    "version": ("version",),
}
"""Commands that ask no API server, or only where they are told to: they are the same for all."""


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_about_files_is_the_same_for_all(name: str, scene: Scene) -> None:
    line = [word.format(folder=scene.site.copy.folder / "c") for word in ALIKE[name]]
    told = [scene.run(person, *line) for person in PEOPLE]
    assert len({(each.exit_code, each.output) for each in told}) == 1
    assert told[0].exit_code in {0, 1}


CONTROLS = {
    "freeze": ("freeze", "project", "b", "--reason", "an incident"),
    "unfreeze": ("unfreeze", "project", "b"),
    "sync": ("sync",),
}


PAST = {"history": ("history", "a/train"), "replay": ("replay", "--at", "2026-03-02T10:04:12Z")}


@pytest.mark.parametrize("person", PEOPLE[1:])
def test_the_past_of_all_teams_names_its_own_role_at_once(person: str, scene: Scene) -> None:
    told = [scene.run(person, *line) for line in PAST.values()]
    assert [(each.exit_code, each.stdout) for each in told] == [(2, "")] * 2
    assert f"--role=gpuctl-history --serviceaccount=default:{person}" in told[0].stderr
    assert "no role for people gives it" in told[1].stderr


@pytest.mark.parametrize("name", PAST)
def test_a_leader_that_runs_in_no_pod_is_told_as_that(name: str, scene: Scene) -> None:
    told = scene.run("admin", *PAST[name])
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("error GPU7086: ")
    assert "runs in no pod" in told.stderr


def test_an_administrator_freezes_what_is_declared(scene: Scene) -> None:
    absent = scene.run("admin", "freeze", "project", "nosuch", "--reason", "x")
    assert (absent.exit_code, absent.stdout) == (2, "")
    assert absent.stderr.startswith("error GPU9003: project nosuch is not declared in this cluster\n")
    assert "declared are: a and b" in absent.stderr
    assert [scene.run("admin", *line).exit_code for line in CONTROLS.values()] == [0, 0, 0]


@pytest.mark.parametrize("person", PEOPLE[1:])
@pytest.mark.parametrize("name", CONTROLS)
def test_what_controls_a_running_controller_names_the_freezers_role(name: str, person: str, scene: Scene) -> None:
    told = scene.run(person, *CONTROLS[name])
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith(f"error GPU7015: system:serviceaccount:default:{person} may not get configmaps ")
    assert f"--role=gpuctl-freezer --serviceaccount=default:{person}" in told.stderr


@pytest.mark.parametrize("person", PEOPLE[1:])
def test_reconcile_without_the_controllers_rights_says_so_and_stands_by(person: str, scene: Scene) -> None:
    follow = ("--repo", str(scene.site.copy.folder), "--path", "c", "--branch", "main")
    line = ["reconcile", *follow, "--workdir", str(scene.folder / f"{person}-work")]
    log = scene.folder / f"{person}.log"
    with log.open("wb") as out:
        process = warm.Begun([*line, *scene.where(person)], out)
    try:
        at_last(lambda: "GPU7015" in log.read_text(), log.read_text)
    finally:
        process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert "may not " in log.read_text()


def test_a_removed_job_is_told_with_its_commit_to_its_team_alone(scene: Scene) -> None:
    commit = scene.site.commit({"c/a-wider.yaml": None, "c/b-hush.yaml": None})
    at_last(lambda: len(json.loads(scene.overview())["removed"]) == 2, scene.site.logs)
    told = {name: scene.run("ann", "get", name).stderr for name in ("wider", "a/wider")}
    assert len(set(told.values())) == 1
    assert (
        f"a/wider is not in this cluster: it is no longer declared since commit {commit[:10]}, taken up at 20"
        in told["wider"]
    )
    assert "no longer declared since commit" in scene.run("admin", "get", "b/hush").stderr
    assert scene.run("ann", "get", "b/hush").stderr == scene.run("ann", "get", "b/nosuch").stderr.replace(
        "nosuch", "hush"
    )
    assert [word for word in (*SECRETS, "wide") if word in scene.overview()] == []
    assert "since commit" not in scene.run("eve", "get", "a/wider").output


def test_every_command_was_tried() -> None:
    tried = {line[0] for lines in (LOOKS, WHOLE, ALIKE, CONTROLS, PAST) for line in lines.values()}
    assert tried | {"logs", "exec", "bash", "port-forward", "reconcile"} == set(COMMANDS)
