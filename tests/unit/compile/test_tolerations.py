"""What a pool tolerates, in the words of Kubernetes."""

from __future__ import annotations

import pytest
from trees import HEAD, tree_of

from gpuctl.compile import compile_tree
from gpuctl.model.taints import Toleration


def cluster(*tolerations: str) -> dict[str, str | bytes]:
    pool = f"{{name: dgx, nodes: [d1], gpusPerNode: 8, tolerations: [{', '.join(tolerations)}]}}"
    return {"c.yaml": f"{HEAD}kind: Cluster\nmetadata: {{name: c}}\nspec:\n  nodePools:\n  - {pool}\n"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{key: a}", Toleration(key="a")),
        ("{key: a, operator: Exists}", Toleration(key="a")),
        ("{key: a, operator: Equal}", Toleration(key="a", value="")),
        ("{key: a, value: b}", Toleration(key="a", value="b")),
        ('{key: a, value: ""}', Toleration(key="a", value="")),
        ("{key: x.y/a, operator: Equal, value: b, effect: NoExecute}",
         Toleration(key="x.y/a", value="b", effect="NoExecute")),
    ],
)  # fmt: skip
def test_a_toleration_is_read_as_kubernetes_reads_it(written: str, meant: Toleration) -> None:
    compiled = compile_tree(tree_of(cluster(written)))
    assert compiled.declared is not None, compiled.diagnostics
    (pool,) = compiled.declared.cluster.pools
    assert pool.tolerations == (meant,)


def test_all_mistakes_are_told_at_their_places() -> None:
    lost = "{key: node.kubernetes.io/unreachable}"
    beside = "{key: a, operator: Exists, value: b}"
    found = compile_tree(tree_of(cluster(lost, beside, "{operator: Exists}", "{key: a, effect: Never}"))).diagnostics
    assert [(each.code, each.span.line) for each in found] == [
        ("GPU2023", 6),
        ("GPU2023", 6),
        ("GPU2005", 6),
        ("GPU2007", 6),
    ]
    lost_message, beside_message = [each.message for each in found[:2]]
    assert lost_message.startswith('"node.kubernetes.io/unreachable" is not a taint that a pool may tolerate: ')
    assert beside_message == '"b" is not needed: with operator Exists any value is tolerated'
