"""`submit`, `delete`, `suspend`, `resume`: what a person types, and what is then in the working tree."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import run as execute

import pytest
import yaml
from commands import ROOT, Run

from gpuctl.adapters.git import WorkingCopy

JOBS = Path("clusters/tr4858/projects/team-a/jobs")


@pytest.fixture
def here(repository: WorkingCopy, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the report's cluster, in which the command is run."""
    monkeypatch.chdir(repository.folder)
    return repository.folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.yaml")}


SUBMIT = "submit lab -p team-a -i x:1"


@pytest.mark.parametrize(
    ("flags", "spec"),
    [
        ("-g 2", "image: x:1|gpus: 2"),
        ("--gpu 0.5 --interactive", "type: interactive|image: x:1|gpus: 0.5"),
        ("--gpu-memory 8Gi", "image: x:1|gpuMemory: 8Gi"),
        ("--cpu 500m --memory 2Gi", "image: x:1|resources:|  cpu: 500m|  memory: 2Gi"),
        ("-e A=1 -e B=x=y", 'image: x:1|env:|  A: "1"|  B: x=y'),
        ("-e T=SECRET:hub,token", "image: x:1|env:|  T:|    secret: hub|    key: token"),
        ("-g 1 -- python --lr 0.1", 'image: x:1|args: [python, "--lr", "0.1"]|gpus: 1'),
        ("--command -- python x.py", "image: x:1|command: [python, x.py]"),
        ("--command sh --args -c --args true", 'image: x:1|command: [sh]|args: ["-c", "true"]'),
        ("-g 1 --workers 4 --min-replicas 2", "image: x:1|gpus: 1|workers: 4|minWorkers: 2"),
        ("--workers 2 --framework jax", "image: x:1|workers: 2|framework: jax"),
        ("--completions 4 --parallelism 2", "image: x:1|sweep:|  completions: 4|  parallelism: 2"),
        ("--matrix lr=0.1,big --matrix d=2", "image: x:1|sweep:|  matrix:|    lr: [0.1, big]|    d: [2]"),
        (
            "--matrix a=1.10,1e5,1e-3 --matrix b=007,0x10,+5",
            'image: x:1|sweep:|  matrix:|    a: [1.10, "1e5", "1e-3"]|    b: ["007", "0x10", "+5"]',
        ),
        ("-g 1e0", "image: x:1|gpus: 1.0"),
        ("--after a-1-g --after a-1-1-jupyter:any", "image: x:1|after:|- a-1-g|- job: a-1-1-jupyter|  result: any"),
        ("--node-type dgx1", "image: x:1|nodePools: [dgx1]"),
        ("--pvc data:/d:ro", "image: x:1|volumes:|- claim: data|  mountPath: /d|  readOnly: true"),
        ("--pvc f:9Gi:/d", "image: x:1|volumes:|- newClaim:|    size: 9Gi|    storageClass: f|  mountPath: /d"),
        ("--service-type portforward --port 8888", "image: x:1|expose:|- port: 8888|  via: portForward"),
        ("--local-image --large-shm", "image: x:1|imagePullPolicy: Never|largeShm: true"),
        ("--label a=b --annotation x.com/y=z=1", "image: x:1|labels:|  a: b|annotations:|  x.com/y: z=1"),
        (
            "--run-as-uid 1000 --run-as-gid 1001 --supplemental-groups 5,6",
            "image: x:1|security:|  runAsUser: 1000|  runAsGroup: 1001|  supplementalGroups: [5, 6]",
        ),
        ("--capability CHOWN", "image: x:1|security:|  capabilities:|    add: [CHOWN]"),
        ("--image-pull-secret hub --stdin", "image: x:1|imagePullSecrets: [hub]|tty: true"),
        ("--working-dir /w --retries 2", "image: x:1|workingDir: /w|retries: 2"),
        ("--workers 2 --retries-per-worker 3", "image: x:1|workers: 2|retriesPerWorker: 3"),
        ("--termination-grace-period 2m", "image: x:1|pauseGrace: 2m"),
        (
            "--priority -1 --max-duration 8h --no-preemptible",
            "image: x:1|priority: -1|preemptible: false|maxDuration: 8h",
        ),
    ],
)
def test_submit_declares_what_the_flags_say(run: Run, here: Path, flags: str, spec: str) -> None:
    result = run(*SUBMIT.split(), *flags.split())
    assert result.exit_code == 0, result.stderr
    head = "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata:\n  name: lab\n  project: team-a\nspec:\n"
    body = "".join(f"  {line}\n" for line in spec.split("|"))
    assert (here / JOBS / "lab.yaml").read_text() == head + body
    assert result.stdout.splitlines()[-1] == "next: gpuctl plan clusters/tr4858 --base HEAD"
    assert run("plan", "clusters/tr4858", "--base", "HEAD").exit_code == 2


def test_the_command_that_is_shown_names_the_folder_whatever_others_called_it(run: Run, here: Path) -> None:
    (here / "clusters" / "tr4858").rename(here / "clusters" / "a b;id")
    result = run(*SUBMIT.split(), "-g", "1")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "next: gpuctl plan 'clusters/a b;id' --base HEAD"


def test_submit_declares_what_a_service_is_scaled_by(run: Run, here: Path) -> None:
    cluster = here / "clusters/tr4858/cluster.yaml"
    pools = cluster.read_text().replace("sharing: dra", "sharing: device-plugin")
    cluster.write_text(pools)
    flags = "--type inference --workers 4 --min-replicas 1 --metric calls --metric-threshold 0.5 --metric-of external"
    result = run(*SUBMIT.split(), *flags.split(), "--metric-label", "queue=chat", "--no-preemptible", "-g", "1")
    assert result.exit_code == 0, result.stderr
    spec = yaml.safe_load((here / JOBS / "lab.yaml").read_text())["spec"]
    assert spec["scaling"] == {"metric": "calls", "of": "external", "labels": {"queue": "chat"}, "target": 0.5}


def test_a_dry_run_prints_the_difference_and_writes_nothing(run: Run, here: Path) -> None:
    before = contents(here)
    result = run("suspend", "team-a/a-1-g", "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"--- a/{JOBS}/a-1-g.yaml",
        f"+++ b/{JOBS}/a-1-g.yaml",
        "@@ -7,3 +7,4 @@",
        "   type: training",
        "   image: gcr.io/run-ai-demo/quickstart",
        "   gpus: 1",
        "+  suspend: true",
    ]
    assert contents(here) == before


def test_suspend_and_resume_are_one_line(run: Run, here: Path) -> None:
    file = here / JOBS / "a-1-g.yaml"
    before = file.read_text()
    assert run("resume", "team-a/a-1-g").stdout.endswith("nothing to do, it is so already\n")
    assert run("suspend", "a-1-g", "-p", "team-a").exit_code == 0
    assert file.read_text() == f"{before}  suspend: true\n"
    assert run("suspend", "a-1-g", "-p", "team-a").stdout.endswith("nothing to do, it is so already\n")
    assert run("resume", "a-1-g", "-p", "team-a").exit_code == 0
    assert file.read_text() == before
    for line, then in (("  suspend: true  # until Monday\n", "  suspend: false  # until Monday\n"), ("", "")):
        file.write_text(f"{before}{line}")
        run("resume", "team-a/a-1-g")
        assert file.read_text() == f"{before}{then}"


def test_suspend_and_resume_leave_a_file_as_it_was(run: Run, here: Path) -> None:
    file = here / JOBS / "a-1-g.yaml"
    head = "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {name: a-1-g, project: team-a}\n"
    for spec in (
        "spec: {image: x, gpus: 1}",
        "spec:\n  image: x\n  gpus: 1\n  # more\n  priority: 2",
        "spec:\n  image: x",
    ):
        file.write_bytes(f"{head}{spec}".replace("\n", "\r\n").encode())
        before = file.read_bytes()
        assert run("suspend", "team-a/a-1-g").exit_code == 0
        assert file.read_bytes() != before
        assert run("resume", "team-a/a-1-g").exit_code == 0
        assert file.read_bytes() == before


def test_delete_removes_the_document_and_an_empty_file(run: Run, here: Path) -> None:
    file = here / JOBS / "a-1-g.yaml"
    first = file.read_bytes()
    file.write_bytes(first + b"---\n" + first.replace(b"a-1-g", b"a-9-g"))
    assert run("delete", "team-a/a-9-g").exit_code == 0
    assert file.read_bytes() == first
    assert run("delete", "team-a/a-1-g").exit_code == 0
    assert not file.exists()


def test_a_job_goes_beside_the_other_jobs_of_its_project(run: Run, here: Path) -> None:
    one = here / "clusters/tr4858/team-b.yaml"
    folder = here / "clusters/tr4858/projects/team-b"
    one.write_bytes(b"---\n".join(path.read_bytes() for path in sorted(folder.rglob("*.yaml"))))
    for path in sorted(folder.rglob("*.yaml")):
        path.unlink()
    before = one.read_bytes()
    assert run("submit", "more", "-p", "team-b", "-i", "x:1").exit_code == 0
    assert one.read_bytes().startswith(before + b"---\napiVersion")
    (here / "clusters/tr4858/e.yaml").write_text("apiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {name: team-e}\n")
    assert run("submit", "first", "-p", "team-e", "-i", "x:1").exit_code == 0
    assert (here / "clusters/tr4858/projects/team-e/jobs/first.yaml").exists()
    assert run("submit", "second", "-p", "team-e", "-i", "x:1", "--file", "clusters/tr4858/e.yaml").exit_code == 0
    assert (here / "clusters/tr4858/e.yaml").read_text().count("---\n") == 1


@pytest.mark.parametrize(
    ("line", "code", "exit_code"),
    [
        ("submit a-1-g -p team-a -i x", "GPU6104", 2),
        ("submit new -p team-x -i x", "GPU6105", 2),
        ("submit new -p team-a -i x -g 1.5", "GPU6117", 1),
        (f"submit new -p team-a -i x --completions 1{'0' * 20}", "GPU9002", 2),
        (f"submit new -p team-a -i x --completions 1{'0' * 17}", "GPU2018", 1),
        (f"submit new -p team-a -i x --workers 1{'0' * 20}", "GPU9002", 2),
        ("submit New -p team-a -i x", "GPU6117", 1),
        ("submit new -p team-a -i x -v /mnt:/mnt", "GPU6117", 1),
        ("submit new -p team-a -i x --file ../x.yaml", "GPU6108", 2),
        ("submit new -p team-a -i x --file clusters/tr4858/x.txt", "GPU6108", 2),
        ("submit new -p team-a -i x --file clusters/tr4858/.x/x.yaml", "GPU6108", 2),
        ("submit new -p team-a -i x -m text", "GPU9002", 2),
        ("submit new -p team-a -i x -e A", "GPU9002", 2),
        ("submit new -p team-a -i x --pvc a", "GPU9002", 2),
        ("submit new -p team-a -i x --label a", "GPU9002", 2),
        ("submit new -p team-a -i x --label job-name=a", "GPU6117", 1),
        ("submit new -p team-a -i x --supplemental-groups x", "GPU6117", 1),
        ("submit new -p team-a -i x --command", "GPU9002", 2),
        ("submit new -p team-a -i x --interactive --type training", "GPU9002", 2),
        ("submit new -i x", "GPU9002", 2),
        ("submit team-a/new -p team-b -i x", "GPU9002", 2),
        ("delete team-a/none", "GPU6105", 2),
        ("delete team-a/a-1-g --path nowhere", "GPU6107", 2),
        ("suspend ../x", "GPU6105", 2),
    ],
)
def test_what_can_not_be_is_told_and_nothing_is_written(
    run: Run, here: Path, line: str, code: str, exit_code: int
) -> None:
    before = contents(here)
    result = run(*line.split())
    assert f"error {code}: " in result.stderr
    assert "help: " in result.stderr
    assert result.exit_code == exit_code
    assert contents(here) == before


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("submit new -p taem-a -i x", "; did you mean team-a?"),
        ("delete team-a/a-1-gg", "; did you mean a-1-g?"),
        ("delete team-a/none", ""),
    ],
)
def test_a_name_that_is_not_declared_is_answered_with_the_nearest_of_its_kind(run: Run, line: str, meant: str) -> None:
    said = run(*line.split()).stderr.splitlines()[0]
    assert said.endswith(f"is not declared in clusters/tr4858{meant}")


def test_a_folder_of_an_nfs_server_is_declared_by_a_flag(run: Run, here: Path) -> None:
    file = here / "clusters/tr4858/cluster.yaml"
    file.write_text(f"{file.read_text()}  security: {{nfs: [{{server: files, path: /sets}}]}}\n")
    assert run(*SUBMIT.split(), "--nfs", "files:/sets/a:/data:ro").exit_code == 0
    assert "nfs:" in (here / JOBS / "lab.yaml").read_text()
    assert run("validate", "clusters/tr4858").exit_code == 0
    refused = run(*SUBMIT.replace("lab", "other").split(), "--nfs", "files:/homes:/data")
    assert (refused.exit_code, "GPU3076" in refused.stderr) == (1, True)


@pytest.mark.parametrize("flag", ["--elastic", "--nfs-server", "--host-network", "--job-name-prefix"])
def test_a_flag_of_runai_that_no_field_has_is_answered(run: Run, here: Path, flag: str) -> None:
    del here
    result = run(*SUBMIT.split(), flag, "1")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == f"error GPU9002: submit has no option {flag}"
    assert "gpuctl submit --help" not in result.stderr.splitlines()[1]


def test_mistakes_that_are_there_already_do_not_hold_up_an_edit(run: Run, here: Path) -> None:
    (here / "clusters/tr4858/odd.yaml").write_text("kind: Odd\n")
    result = run("suspend", "team-a/a-1-g")
    assert result.exit_code == 0
    assert "GPU2003" in result.stderr
    assert "suspend: true" in (here / JOBS / "a-1-g.yaml").read_text()


def test_the_cluster_that_is_meant_is_found(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = here / "clusters/dev"
    (other / "projects/x").mkdir(parents=True)
    cluster = (here / "clusters/tr4858/cluster.yaml").read_text()
    (other / "cluster.yaml").write_text(cluster.replace("name: tr4858", "name: dev"))
    (other / "projects/x/project.yaml").write_text("apiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {name: x}\n")
    assert run("suspend", "team-a/a-1-g").exit_code == 0
    assert run("submit", "j", "-p", "x", "-i", "x").exit_code == 0
    assert (other / "projects/x/jobs/j.yaml").exists()
    result = run("submit", "j", "-p", "y", "-i", "x")
    assert result.stderr.startswith("error GPU6107: which cluster is meant is not known: none of clusters/dev or ")
    monkeypatch.chdir(other / "projects")
    assert run("delete", "x/j").exit_code == 0
    assert run("resume", "team-a/a-1-g", "--path", "../../tr4858").exit_code == 0


def test_links_that_lead_out_of_the_repository_are_not_followed(run: Run, here: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.yaml").write_bytes((here / JOBS / "a-1-g.yaml").read_bytes())
    (here / JOBS / "a-1-g.yaml").unlink()
    (here / JOBS / "a-1-g.yaml").symlink_to(outside / "x.yaml")
    assert run("suspend", "team-a/a-1-g").exit_code == 2
    (here / JOBS / "sub").symlink_to(outside)
    (here / JOBS / "dangling.yaml").symlink_to(here / "none.yaml")
    for name in ("sub/new.yaml", "dangling.yaml"):
        result = run(*SUBMIT.split(), "--file", JOBS / name)
        assert result.exit_code == 2
        assert result.stderr.splitlines()[0].startswith(("error GPU6103", "error GPU6108")), result.stderr
    assert os.listdir(outside) == ["x.yaml"]  # noqa: PTH208 - as the system says
    assert b"suspend" not in (outside / "x.yaml").read_bytes()


def test_a_link_inside_the_repository_stays_one(run: Run, here: Path) -> None:
    real = here / "clusters/tr4858/a-1-g.txt"
    (here / JOBS / "a-1-g.yaml").rename(real)
    (here / JOBS / "a-1-g.yaml").symlink_to("../../../a-1-g.txt")
    assert run("suspend", "team-a/a-1-g").exit_code == 0
    assert (here / JOBS / "a-1-g.yaml").is_symlink()
    assert "suspend: true" in real.read_text()


def test_the_mode_of_a_file_stays(run: Run, here: Path) -> None:
    file = here / JOBS / "a-1-g.yaml"
    file.chmod(0o640)
    assert run("suspend", "team-a/a-1-g").exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


def test_several_jobs_are_one_commit(run: Run, here: Path) -> None:
    before = contents(here)
    result = run("suspend", "a-1-g", "a-2-gg", "team-b/b-4-gg", "-p", "team-a", "--dry-run")
    assert (result.exit_code, "name two projects" in result.stderr) == (2, True)
    assert contents(here) == before
    result = run("delete", "team-a/a-1-g", "team-b/b-4-gg", "team-a/a-1-g", "--commit")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0] == "Delete jobs team-a/a-1-g and team-b/b-4-gg"
    gone = {f"{JOBS}/a-1-g.yaml", "clusters/tr4858/projects/team-b/jobs/b-4-gg.yaml"}
    assert set(before) - set(contents(here)) == gone
    show = ["git", "show", "--format=%s", "--name-status", "HEAD"]
    shown = execute(show, cwd=here, capture_output=True, text=True, check=True).stdout.splitlines()
    assert shown == ["Delete jobs team-a/a-1-g and team-b/b-4-gg", "", *(f"D\t{path}" for path in sorted(gone))]


def test_all_jobs_of_a_project_also_in_one_file(run: Run, here: Path) -> None:
    folder = here / "clusters/tr4858/projects/team-c/jobs"
    texts = [path.read_text() for path in sorted(folder.iterdir())]
    for path in folder.iterdir():
        path.unlink()
    (folder / "all.yaml").write_text("---\n".join(texts))
    before = contents(here)
    assert run("suspend", "-p", "team-c", "--all").exit_code == 0
    changed = {path for path, content in contents(here).items() if before[path] != content}
    assert changed == {"clusters/tr4858/projects/team-c/jobs/all.yaml"}
    assert (folder / "all.yaml").read_text().count("suspend: true") == len(texts) == 5
    assert "nothing to do" in run("suspend", "-p", "team-c", "--all").stdout
    assert run("resume", "-p", "team-c", "--all").exit_code == 0
    assert "suspend" not in (folder / "all.yaml").read_text()
    assert run("delete", "-p", "team-c", "--all").exit_code == 0
    assert not (folder / "all.yaml").exists()


def test_a_guard_that_will_hold_it_is_told(run: Run, here: Path) -> None:
    jobs = [f"{path.parts[-3]}/{path.stem}" for path in sorted(here.glob("clusters/*/projects/*/jobs/*.yaml"))]
    result = run("delete", *jobs, "--dry-run")
    assert result.exit_code == 0
    assert "a guard will hold this: GPU6" in result.stderr
    assert "Gpuctl-Confirm:" in result.stderr
    assert "a guard will hold" not in run("delete", jobs[0], "--dry-run").stderr


@pytest.mark.parametrize("line", ["delete", "delete a-1-g --all -p team-a", "suspend --all", "resume --all -p nobody"])
def test_jobs_are_named_or_all_of_a_project(run: Run, here: Path, line: str) -> None:
    before = contents(here)
    result = run(*line.split())
    assert (result.exit_code, "GPU9002" in result.stderr, contents(here)) == (2, True, before)


def test_a_policy_about_a_change_judges_the_edit_and_what_changed_since(run: Run, here: Path) -> None:
    policy = (ROOT / "policies" / "quota-raise.yaml").read_text()
    (here / "policies").mkdir(exist_ok=True)
    (here / "policies" / "quota-raise.yaml").write_text(policy.replace("severity: audit", "severity: error"))
    cluster = here / "clusters/tr4858/cluster.yaml"
    cluster.write_text(cluster.read_text().replace("dgx1-2]", "dgx1-2, dgx1-3, dgx1-4]"))
    project = here / "clusters/tr4858/projects/team-a/project.yaml"
    before = project.read_bytes()
    result = run("project", "set-quota", "team-a", "9")
    assert (result.exit_code, "error GPU4001" in result.stderr, "GPU6117" in result.stderr) == (1, True, True)
    assert project.read_bytes() == before
    assert run("project", "set-quota", "team-a", "8").exit_code == 0
    project.write_bytes(before.replace(b"quota: 4", b"quota: 9"))
    assert run("validate", "clusters/tr4858").exit_code == 0
    told = run("validate", "clusters/tr4858", "--changed-since", "HEAD")
    assert (told.exit_code, "GPU4001" in told.output) == (1, True)
