import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.model.ids import ObjectRef
from gpuctl.model.manifest import Manifest, Manifests
from gpuctl.views.yamltext import yaml_document, yaml_stream

texts = st.text("aAn0123.eExX:+-_#&*!|>'\"%@`{}[], ~\t\n\\é\u2028\u0007", max_size=12)
values = st.recursive(
    texts | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(texts, values, max_size=4))
def test_what_is_written_reads_back(body: dict[str, object]) -> None:
    assert yaml.safe_load(yaml_document(body)) == body


@pytest.mark.parametrize(
    "text", ["no", "On", "1e3", "0o7", "12:30", "0badcafe", "1_000", "~", "", ".5", "- a", "NaN", "="]
)
def test_what_another_reader_could_take_for_something_else_is_quoted(text: str) -> None:
    assert yaml_document({"a": text}) == f'---\na: "{text}"\n'


@pytest.mark.parametrize("text", ["dgx1-1", "/dev/shm", "a/b:1@c", "16255Mi", "gpuctl.dev"])
def test_what_is_surely_a_text_is_plain(text: str) -> None:
    assert yaml_document({"a": text}) == f"---\na: {text}\n"


def test_keys_are_sorted_and_shared_parts_are_written_out() -> None:
    shared = {"x": "1"}
    assert yaml_document({"b": shared, "a": shared}) == '---\na:\n  x: "1"\nb:\n  x: "1"\n'


def test_a_stream_has_a_document_a_manifest() -> None:
    items = [Manifest(ref=ObjectRef("v1", "X", "", name), body={"name": name}, project=None) for name in "ab"]
    assert yaml_stream(Manifests(items=tuple(items))) == "---\nname: a\n---\nname: b\n"
