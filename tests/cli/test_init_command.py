from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run as execute

import pytest
import yaml
from commands import ROOT, Run
from jsonschema import Draft202012Validator

from gpuctl.compile.jsonschema import any_kind
from gpuctl.model.declared import Way
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Node
from gpuctl.scaffold import EXAMPLES, POLICIES, pools_seen

POOL = "name=dgx,nodes=dgx1-[1-2],gpus=8,memory=32Gi"
OPTIONS = ("--cluster", "prod", "--pool", POOL, "--owner", "@example/ml")


def held(folder: Path) -> dict[str, bytes]:
    files = (each for each in folder.rglob("*") if each.is_file() or each.is_symlink())
    return {str(each.relative_to(folder)): each.read_bytes() for each in files if ".git" not in each.parts}


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_what_it_makes_is_valid(run: Run, tmp_path: Path, ci: str) -> None:
    top = tmp_path / "gpus"
    result = run("init", str(top), *OPTIONS, "--ci", ci)
    assert result.exit_code == 0, result.stderr
    for path in held(top):
        assert f"  {EXAMPLES if path.startswith(EXAMPLES) else path}\n" in result.stdout
    validated = run("validate", str(top / "clusters" / "prod"))
    assert (validated.exit_code, validated.stderr) == (0, "")
    assert "valid, 1 job" in validated.stdout
    assert "warning" not in validated.output
    assert run("fmt", "--check", str(top / "clusters")).exit_code == 0
    codeowners = (top / "CODEOWNERS").read_text().splitlines()
    assert (codeowners[-2:], codeowners[0][:2]) == (
        ["# * @ORGANISATION/PLATFORM-TEAM", "/clusters/prod/projects/team-a/ @example/ml"],
        "# ",
    )
    assert "In CODEOWNERS, name the platform team" in result.stdout
    workflow = top / (".github/workflows/gpuctl.yml" if ci == "github" else ".gitlab-ci.yml")
    said = str(yaml.safe_load(workflow.read_text()))
    assert "ORGANISATION/gpuctl" in said
    assert "10000" in said
    assert (top / ".git" / "HEAD").is_file()
    commits = execute(["git", "rev-list", "--all"], cwd=top, capture_output=True, check=True)
    assert commits.stdout == b""


def test_every_declaration_names_the_schema_that_editors_use(run: Run, tmp_path: Path) -> None:
    assert run("init", str(tmp_path), *OPTIONS).exit_code == 0
    schema = tmp_path / ".vscode" / "gpuctl.schema.json"
    assert json.loads(schema.read_text()) == any_kind()
    settings = json.loads((tmp_path / ".vscode" / "settings.json").read_text())["yaml.schemas"]
    assert settings == {"./.vscode/gpuctl.schema.json": ["clusters/**/*.yaml", "policies/*.yaml"]}
    declared = [*(tmp_path / "clusters").rglob("*.yaml"), *(tmp_path / "policies").glob("*.yaml")]
    assert len(declared) == 5
    for path in declared:
        line = path.read_text().partition("\n")[0]
        named = line.removeprefix("# yaml-language-server: $schema=")
        assert (path.parent / named).resolve() == schema.resolve()
        assert Draft202012Validator(any_kind()).is_valid(yaml.safe_load(path.read_text()))


def test_the_platform_team_owns_what_is_no_project_s(run: Run, tmp_path: Path) -> None:
    for number, options in enumerate((OPTIONS, OPTIONS[:4])):
        top = tmp_path / str(number)
        result = run("init", str(top), *options, "--platform-owner", "@example/platform", "--platform-owner", "a@b.org")
        assert (result.exit_code, "In CODEOWNERS" in result.stdout) == (0, False)
        lines = [line for line in (top / "CODEOWNERS").read_text().splitlines() if not line.startswith("#")]
        owned = ["/clusters/prod/projects/team-a/ @example/ml"] if options is OPTIONS else []
        assert lines == ["* @example/platform a@b.org", *owned]


def test_without_owners_there_is_no_codeowners(run: Run, tmp_path: Path) -> None:
    assert run("init", str(tmp_path), *OPTIONS[:4]).exit_code == 0
    assert "CODEOWNERS" not in held(tmp_path)


def test_every_file_that_is_there_is_named_and_none_is_written(run: Run, tmp_path: Path) -> None:
    assert run("init", str(tmp_path / "whole"), *OPTIONS).exit_code == 0
    paths = sorted(held(tmp_path / "whole"))
    assert len(paths) == 18
    for path in paths:
        (tmp_path / "half" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "half" / path).write_text("mine")
    (tmp_path / "half" / paths[0]).unlink()
    before = held(tmp_path / "half")
    result = run("init", str(tmp_path / "half"), *OPTIONS)
    assert result.exit_code == 1
    assert [line.removesuffix(" is there already") for line in result.stderr.splitlines()[:-2]] == paths[1:]
    assert "GPU6401: something is in the place of 17 of the 18 files" in result.stderr
    assert held(tmp_path / "half") == before
    assert not (tmp_path / "half" / ".git").exists()


@pytest.mark.parametrize("name", ["clusters", ".vscode", "policies", "CODEOWNERS", "clusters/prod"])
@pytest.mark.parametrize("is_there", [True, False])
def test_no_link_leads_out(run: Run, tmp_path: Path, name: str, is_there: bool) -> None:  # noqa: FBT001
    top, outside = tmp_path / "gpus", tmp_path / "outside"
    (top / name).parent.mkdir(parents=True)
    if is_there:
        outside.mkdir()
    (top / name).symlink_to(outside)
    result = run("init", str(top), *OPTIONS)
    assert (result.exit_code, "GPU6401" in result.stderr) == (1, True)
    assert [each.name for each in top.iterdir()] == [name.partition("/")[0]]
    assert not is_there or not list(outside.iterdir())


def test_what_was_written_goes_when_the_rest_can_not_be(tmp_path: Path) -> None:
    limited = ["sh", "-c", 'ulimit -f 60; exec "$0" "$@"', sys.executable, "-m", "gpuctl"]  # 30 KiB a file
    top = tmp_path / "gpus"
    done = execute([*limited, "init", str(top), *OPTIONS], capture_output=True, text=True, check=False)
    assert (done.returncode, "GPU6404" in done.stderr) == (1, True), done.stderr
    assert (top / ".github" / "workflows").is_dir()
    assert held(top) == {}


def test_a_folder_inside_another_repository_is_refused(run: Run, tmp_path: Path) -> None:
    execute(["git", "init", "-q", str(tmp_path)], check=True)
    result = run("init", str(tmp_path / "gpus"), *OPTIONS)
    assert (result.exit_code, "GPU6405" in result.stderr) == (1, True)
    assert not (tmp_path / "gpus").exists()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--cluster", "../x"), "GPU9002"),
        (("--project", "a/b"), "GPU9002"),
        (("--owner", "ml: x"), "GPU6403"),
        (("--platform-owner", "@a/b\n* @c"), "GPU9002"),
        (("--pool", "name=b,nodes=b1,gpus=8,memory=3x"), "GPU6403"),
        (("--pool", "name=dgx,nodes=c1,gpus=8"), "GPU6403"),
        (("--pool", "name=b,gpus=x"), "GPU6402"),
        (("--pool", "nodes=b1"), "GPU6402"),
        (("--pool", "name=b,nodes=b[1-999999999]"), "GPU6402"),
        (("--pool", "name=b,nodes=b[2-1]"), "GPU6402"),
        (("--pool", "name=b,nodes=b[1-"), "GPU6402"),
        (("--pool", "name=b,name=c"), "GPU6402"),
        (("--pool", "name=b,colour=red"), "GPU6402"),
        (("--pool", "name=b,nodes=b1,gpus=8,memory=40Gi,sharing=mig"), "GPU6403"),
        (("--pool", "name=b,nodes=b1,gpus=8,mig=3g.20gb"), "GPU6402"),
        (("--pool", "name=b,nodes=b1,gpus=8,mig=3g.20gb:1,mig=3g.20gb:2"), "GPU6402"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(
    run: Run, tmp_path: Path, options: tuple[str, ...], code: str
) -> None:
    result = run("init", str(tmp_path / "gpus"), *OPTIONS, *options)
    assert (result.exit_code, code in result.stderr) == (1, True), result.output
    assert not (tmp_path / "gpus").exists()


def test_a_pool_of_each_way_to_share_is_described(run: Run, tmp_path: Path) -> None:
    of_a_gpu = "gpus=8,memory=40Gi"
    described = {
        "sharing=device-plugin": {"sharing": "device-plugin"},
        "sharing=hami": {"sharing": "hami"},
        "sharing=mig,mig=3g.20gb:2,mig=1g.5gb:1": {"sharing": "mig", "mig": {"3g.20gb": 2, "1g.5gb": 1}},
        "sharing=dra,driver=hami": {"sharing": "dra", "driver": "hami"},
        "sharing=dra,driver=nvidia,mig=2g.10gb:1": {"sharing": "dra", "driver": "nvidia", "mig": {"2g.10gb": 1}},
    }
    pools = (f"name=p{at},nodes=n{at},{of_a_gpu},{said}" for at, said in enumerate(described))
    result = run("init", str(tmp_path), "--cluster", "live", *(text for pool in pools for text in ("--pool", pool)))
    assert result.exit_code == 0, result.output
    keys = {"sharing", "driver", "mig"}
    found = [{key: value for key, value in pool.items() if key in keys} for pool in declared_pools(tmp_path)]
    assert found == list(described.values())


def test_the_wheel_has_its_policies() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for path in (path for name in POLICIES for path in (f"{name}.yaml", f"examples/{name}")):
        assert f'"policies/{path}" = "gpuctl/examples/policies/{path}"' in text


def test_its_policies_have_examples(run: Run, tmp_path: Path) -> None:
    assert run("init", str(tmp_path / "gpus"), *OPTIONS).exit_code == 0
    tested = run("policy", "test", str(tmp_path / "gpus/policies"))
    assert tested.exit_code == 0, tested.output
    assert [line.partition(":")[0] for line in tested.stdout.splitlines()][:2] == list(POLICIES)


def declared_pools(top: Path, cluster: str = "live") -> list[dict[str, object]]:
    pools: list[dict[str, object]] = yaml.safe_load((top / f"clusters/{cluster}/cluster.yaml").read_text())["spec"][
        "nodePools"
    ]
    return pools


def test_pools_of_a_live_cluster_are_read(run: Run, tmp_path: Path, embedded: Path) -> None:
    result = run("init", str(tmp_path), "--cluster", "live", "--embedded", embedded)
    assert result.exit_code == 0, result.output
    (pool,) = declared_pools(tmp_path)
    assert pool["name"] == "dgx1"
    assert (pool["nodes"], pool["gpusPerNode"]) == (["dgx1-1", "dgx1-2"], 8)
    assert pool["resourcesPerNode"] == {"cpu": 80, "memory": "512Gi"}
    assert run("validate", str(tmp_path / "clusters" / "live")).exit_code == 0


@pytest.mark.parametrize("options", [(), ("--pool", POOL, "--kubeconfig", "x")])
def test_pools_are_said_or_read(run: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    result = run("init", str(tmp_path / "gpus"), "--cluster", "live", *options)
    assert (result.exit_code, "GPU9002" in result.stderr) == (1, True)
    assert not (tmp_path / "gpus").exists()


def node(name: str, gpus: int = 8, *, ways: frozenset[Way] | None = None, **labels: str) -> Node:
    told = {f"nvidia.com/gpu.{key}": value for key, value in labels.items() if key != "pool"}
    told |= {"gpuctl.dev/pool": labels["pool"]} if "pool" in labels else {}
    return Node(name=NodeName(name), labels=told, gpus=gpus, cpu_milli=79_500, mem_bytes=(512 << 30) + 5, ways=ways)


def test_nodes_are_grouped_by_label_then_by_product() -> None:
    seen = pools_seen([
        node("b", pool="lab"), node("a", 4, pool="lab"), node("c", pool="lab"), node("cpu", 0),
        node("h1", product="NVIDIA-H100", memory="81559"), node("h2", product="NVIDIA-H100", memory="81559"),
        node("x"), node("n/a", product="*"),
    ])  # fmt: skip
    assert [(pool.name, pool.nodes, pool.odd, pool.memory, dict(pool.selector)) for pool in seen.pools] == [
        ("gpu", ("x",), (), "", {}),
        ("gpu-2", ("n/a",), (), "", {"nvidia.com/gpu.product": "*"}),
        ("lab", ("a", "b", "c"), (("a", 4),), "", {}),
        ("nvidia-h100", ("h1", "h2"), (), "81559Mi", {"nvidia.com/gpu.product": "NVIDIA-H100"}),
    ]
    assert {(pool.cpu, pool.ram) for pool in seen.pools} == {("79", "512Gi")}
    assert seen.notes == (
        "1 node has no GPU and no label gpuctl.dev/pool: in no pool",
        "label the nodes of pool gpu: kubectl label node x gpuctl.dev/pool=gpu",
    )


@pytest.mark.parametrize(
    ("way", "sharing"),
    [
        (Way.COUNT, ("", "")),
        (Way.HAMI, ("hami", "")),
        (Way.HAMI_CLAIM, ("dra", "hami")),
        (Way.NVIDIA_CLAIM, ("dra", "nvidia")),
    ],
)
def test_how_gpus_are_handed_out_is_read(way: Way, sharing: tuple[str, str]) -> None:
    (pool,) = pools_seen([node("a", ways=frozenset({way}), pool="x")]).pools
    assert (pool.sharing, pool.driver) == sharing
