"""What only the cluster's administrators may allow: levels of Pod Security, folders of nodes, priority classes."""

from __future__ import annotations

import pytest
from trees import CLUSTER, HEAD, OPEN_CLUSTER, codes, job, project, tree_of

from gpuctl.compile import Compiled, compile_tree
from gpuctl.diag.diagnostic import has_errors
from gpuctl.model.declared import PodSecurity, Security
from gpuctl.model.ids import ProjectName


def compiled(security: str, volume: str = "", **more: str) -> Compiled:
    """A cluster with that `security` and, in project team-a, a job that mounts the folder."""
    mounts = f"{{image: x, volumes: [{{hostPath: {volume}, mountPath: /m}}]}}" if volume else "{image: x}"
    files: dict[str, str | bytes] = {
        "cluster.yaml": f"{CLUSTER}  security: {security}\n",
        "p.yaml": project("team-a"),
        "j.yaml": job("train", mounts),
    }
    return compile_tree(tree_of({**files, **{f"{name}.yaml": text for name, text in more.items()}}))


def opened(*folders: str) -> str:
    return f"{{exceptions: {{team-a: privileged}}, hostPaths: [{', '.join(folders)}]}}"


def test_all_defaults_are_the_tight_ones_and_stand_there() -> None:
    made = compiled("{}").declared
    assert made is not None
    assert made.cluster.security == Security(
        pod_security=PodSecurity.BASELINE, exceptions={}, host_paths=(), priority_classes=()
    )


def test_the_level_is_the_clusters_or_the_projects_exception() -> None:
    made = compiled("{podSecurity: restricted, exceptions: {team-a: baseline}}").declared
    assert made is not None
    assert made.cluster.security.level_of(ProjectName("team-a")) is PodSecurity.BASELINE
    assert made.cluster.security.level_of(ProjectName("team-b")) is PodSecurity.RESTRICTED


IN_REACH = ["/mnt/data", "/mnt/data/", "//mnt/./data", "/mnt/data/sets", "/mnt/data/..data", "/mnt/data/./a b"]
OUT_OF_REACH = [
    "/", "//", "/.", "/mnt", "/mnt/", "/mnt/data2", "/mnt/dat", "/mnt/Data", "/mnt/da", '"/mnt/data "', '"/mnt/ data"',
    "/mnt/d\u0430ta", "/home/ubuntu/.ssh", "/dev", "/var/snap", "/opt/rke2", "/sysroot", "/etc",
    "/data", "/host/mnt/data", "/mnt//data2",
]  # fmt: skip


@pytest.mark.parametrize("folder", IN_REACH)
def test_a_listed_folder_and_what_is_below_it_may_be_mounted(folder: str) -> None:
    assert codes(compiled(opened("/mnt//data/."), folder)) == []


@pytest.mark.parametrize("folder", OUT_OF_REACH)
def test_no_other_folder_may(folder: str) -> None:
    assert codes(compiled(opened("/mnt/data"), folder)) == ["GPU3070"]


@pytest.mark.parametrize(
    "folder", ["/mnt/data/..", "/mnt/data/../../etc", "mnt/data", "/mnt/data:ro", '"/mnt/data\\0"', '"/mnt/data\\t/x"']
)
def test_what_is_no_plain_path_is_none_at_all(folder: str) -> None:
    assert codes(compiled(opened("/mnt/data"), folder)) == ["GPU2020"]
    assert "GPU2020" in codes(compiled(opened(folder)))


def test_the_root_is_allowed_only_by_that_name() -> None:
    assert codes(compiled(opened("/"), "/")) == []
    assert codes(compiled(opened("/"), "/etc")) == []


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_a_level_that_refuses_the_pods_is_told_before_they_are_made(level: str) -> None:
    assert codes(compiled(f"{{podSecurity: {level}, hostPaths: [/mnt]}}", "/mnt")) == ["GPU3071"]
    assert codes(compiled("{hostPaths: [/mnt], exceptions: {team-b: privileged}}", "/mnt", b=project("team-b"))) == [
        "GPU3071"
    ]
    assert codes(compiled("{podSecurity: privileged}", "/mnt")) == ["GPU3070"]
    assert codes(compiled("{}", "/mnt")) == ["GPU3070", "GPU3071"]


def shared(server: str, path: str, security: str = "nfs: [{server: files, path: /data}]") -> Compiled:
    """A job that mounts a folder of an NFS server."""
    mounted = job("train", f"{{image: x, volumes: [{{nfs: {{server: {server}, path: {path}}}, mountPath: /m}}]}}")
    return compile_tree(
        tree_of({
            "cluster.yaml": f"{CLUSTER}  security: {{{security}}}\n",
            "p.yaml": project("team-a"),
            "j.yaml": mounted,
        })
    )


@pytest.mark.parametrize("path", ["/data", "/data/", "//data/./sets"])
def test_a_folder_of_a_server_that_is_listed_may_be_mounted(path: str) -> None:
    assert codes(shared("files", path)) == []


@pytest.mark.parametrize(
    ("server", "path"),
    [("files", "/"), ("files", "/data2"), ("files", "/homes"), ("files.", "/data"), ("other", "/data")],
)
def test_no_other_folder_of_a_server_may(server: str, path: str) -> None:
    assert codes(shared(server, path)) == ["GPU2010" if server == "files." else "GPU3076"]


def test_what_the_api_server_would_refuse_of_nfs_is_told_before() -> None:
    assert codes(shared("files", "/data", "podSecurity: restricted, nfs: [{server: files, path: /}]")) == ["GPU3077"]
    assert codes(shared("files", "/data/../homes")) == ["GPU2020"]
    assert codes(shared("files", "/data", "hostPaths: [/data]")) == ["GPU3076"]


@pytest.mark.parametrize("field", ["security", "podSecurity", "exceptions", "hostPaths", "nfs", "priorityClasses"])
def test_a_project_can_grant_itself_nothing(field: str) -> None:
    """A job has a security of its own, and nothing of the Cluster's in it."""
    of_job = "security: {podSecurity: privileged}" if field == "security" else f"{field}: [/]"
    for kind, text in (
        ("p", project("team-b", f"{{quota: 0, {field}: privileged}}")),
        ("j", job("other", f"{{image: x, {of_job}}}")),
        ("d", f"{HEAD}kind: Department\nmetadata: {{name: d}}\nspec: {{{field}: [/]}}\n"),
    ):
        assert codes(compiled("{}", **{f"{kind}2": text})) == ["GPU2004"]


def test_a_second_cluster_in_a_projects_folder_is_not_the_one_that_holds() -> None:
    files: dict[str, str | bytes] = {
        "c/cluster.yaml": CLUSTER,
        "c/projects/team-a/project.yaml": project("team-a"),
        "c/projects/team-a/a-cluster.yaml": OPEN_CLUSTER,
        "c/projects/team-a/j.yaml": job("train", "{image: x, volumes: [{hostPath: /etc, mountPath: /m}]}"),
    }
    assert codes(compile_tree(tree_of(files, "c"))) == ["GPU3029", "GPU3070", "GPU3071"]


def test_an_exception_for_a_project_that_is_gone_makes_nothing_invalid() -> None:
    made = compiled("{exceptions: {team-b: privileged}}")
    assert codes(made) == ["GPU3072"]
    assert not has_errors(made.diagnostics)


@pytest.mark.parametrize(
    ("security", "code"),
    [
        ("{podSecurity: none}", "GPU2007"),
        ("{exceptions: {team-a: open}}", "GPU2007"),
        ("{exceptions: {Team-A: privileged}}", "GPU2010"),
        ("{hostPaths: /mnt}", "GPU2006"),
        ("{hostPaths: [/mnt, /mnt]}", "GPU2021"),
        ("{priorityClasses: [a b]}", "GPU2010"),
        ("{priorityClasses: [a, a]}", "GPU2021"),
        ("{hostpaths: [/mnt]}", "GPU2004"),
    ],
)
def test_mistakes_are_told(security: str, code: str) -> None:
    assert codes(compiled(security)) == [code]


SECRETS_STORE = "volumes: [{csi: {driver: secrets-store.csi.k8s.io, attributes: {class: a}}, mountPath: /m}]"


@pytest.mark.parametrize(
    ("drivers", "told"),
    [("[secrets-store.csi.k8s.io]", []), ("[]", ["GPU3079"]), ("[csi.k8s.io]", ["GPU3079"])],
)
def test_only_drivers_that_the_cluster_lists_make_volumes_for_pods(drivers: str, told: list[str]) -> None:
    found = compiled(f"{{csiDrivers: {drivers}}}", t=job("other", f"{{image: x, {SECRETS_STORE}}}"))
    assert codes(found) == told


@pytest.mark.parametrize(
    ("sources", "code"),
    [
        ("[{secret: a}, {configMap: a}]", ""),
        ("[{secret: a, items: {k: p/k}}, {configMap: a, items: {k: p/k2}}, {downwardAPI: {p/l: metadata.labels}}]", ""),
        ("[{downwardAPI: {l: \"metadata.labels['example.com/x']\"}}]", ""),
        ("[]", "GPU2018"),
        ("[{}]", "GPU2019"),
        ("[{secret: a, configMap: a}]", "GPU2019"),
        ("[{downwardAPI: {l: metadata.labels}, items: {k: p}}]", "GPU2019"),
        ("[{serviceAccountToken: {path: token}}]", "GPU3113"),
        ("[{secret: a, items: {k: p}}, {configMap: a, items: {k: p}}]", "GPU2021"),
        ("[{secret: a, items: {k: p}}, {downwardAPI: {p: metadata.name}}]", "GPU2021"),
        ("[{secret: a, items: {k: /p}}]", "GPU2023"),
        ("[{secret: a, items: {k: p/../../q}}]", "GPU2023"),
        ("[{secret: a, items: {k: ..p}}]", "GPU2023"),
        ("[{secret: a, items: {..k: p}}]", "GPU2023"),
        ("[{downwardAPI: {l: status.podIP}}]", "GPU2023"),
        ("[{downwardAPI: {l: \"metadata.labels['a b']\"}}]", "GPU2023"),
    ],
)
def test_what_a_projected_volume_may_have(sources: str, code: str) -> None:
    volume = f"volumes: [{{projected: {{sources: {sources}}}, mountPath: /m}}]"
    assert codes(compiled("{}", t=job("other", f"{{image: x, {volume}}}"))) == ([code] if code else [])


@pytest.mark.parametrize(
    ("ingress", "found"),
    [
        ("{host: gpus.example.com, hostPerProject: true}", []),
        ("{host: 10.0.0.1}", []),
        ("{host: 10.0.0.1, hostPerProject: true}", ["GPU2018"]),
        (f"{{host: {'a.' * 95}com, hostPerProject: true}}", ["GPU2018"]),
    ],
)
def test_projects_have_hosts_of_their_own_where_a_name_can_stand_before_the_clusters(
    ingress: str, found: list[str]
) -> None:
    made = compile_tree(tree_of({"cluster.yaml": f"{CLUSTER}  ingress: {ingress}\n"}))
    assert codes(made) == found
    if made.declared is not None and made.declared.cluster.ingress is not None:
        assert made.declared.cluster.ingress.host_per_project is ("hostPerProject" in ingress)


@pytest.mark.parametrize(
    ("said", "listed", "found"),
    [
        ("{}", None, []),
        ("{reachableFrom: []}", (), []),
        ("{reachableFrom: [monitoring, ingress-nginx]}", ("ingress-nginx", "monitoring"), []),
        ("{reachableFrom: [a, a]}", None, ["GPU2021"]),
        ('{reachableFrom: ["*"]}', None, ["GPU2010"]),
    ],
)
def test_the_cluster_says_from_which_namespaces_pods_are_reached(
    said: str, listed: tuple[str, ...] | None, found: list[str]
) -> None:
    made = compiled(said)
    assert codes(made) == found
    if made.declared is not None:
        assert made.declared.cluster.security.reachable_from == listed
