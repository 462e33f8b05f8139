from __future__ import annotations

from collections.abc import Iterator

from gpuctl.adapters.kubernetes.recorder import WaitingNotes
from gpuctl.app.ports import Note
from gpuctl.model.ids import ObjectRef


def notes(namespace: str, count: int) -> list[Note]:
    return [
        Note(regarding=ObjectRef("batch/v1", "Job", namespace, f"j{at}"), uid="", type="Normal", reason="R",
             message="", at_ms=at)
        for at in range(count)
    ]  # fmt: skip


def told(line: WaitingNotes) -> Iterator[tuple[str, int]]:
    while line:
        note = line.next()
        yield note.regarding.namespace, note.at_ms


def test_the_notes_of_a_namespace_come_in_their_order_and_those_of_several_in_turns() -> None:
    line = WaitingNotes(10)
    line.extend([*notes("a", 3), *notes("b", 2)])
    assert list(told(line)) == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]


def test_of_too_many_the_oldest_of_the_namespace_with_the_most_are_dropped() -> None:
    """The oldest of all were: a thousand failing pods of one team kept the pauses of all others from being told."""
    line = WaitingNotes(10)
    line.extend([*notes("b", 2), *notes("a", 1000), *notes("c", 3)])
    found = list(told(line))
    assert [at for namespace, at in found if namespace == "a"] == [995, 996, 997, 998, 999]
    assert [at for namespace, at in found if namespace == "b"] == [0, 1]
    assert [at for namespace, at in found if namespace == "c"] == [0, 1, 2]


def test_more_namespaces_than_there_is_room_for() -> None:
    line = WaitingNotes(2)
    line.extend(note for number in range(5) for note in notes(f"n{number}", 1))
    assert len(list(told(line))) == 2
    line.extend(notes("a", 1))
    line.clear()
    assert not line
