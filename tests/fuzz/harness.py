"""Feeds gpuctl's readers what no honest user writes: inputs made of a corpus by chance, the same for the same seed.

A target is a file `target_<name>.py` beside this one that holds `TARGET`, and its corpus, the folder `corpus/<name>/`
with small right inputs. Nothing else names them. A target's `check` takes bytes and raises exactly where gpuctl
misbehaves: for bad input gpuctl returns diagnostics (or leaves the object out), in bounded time and in bounded text.
What does not come of the bytes alone, such as the time or a random number, `check` must not use.

    TARGET = Target(check=check, form=JSON, words=(b"gpuctl.dev/queued-at", ...))

`form` says how inputs are read as trees, so that leaves are replaced one by one: YAML, JSON or CSV below, where a
target of a cluster's objects takes JSON: an input is then one JSON list of objects. `words` are put in between bytes.

In the test suite each target runs on its whole corpus and on a thousand inputs. More of them, as long as wanted:

    python -m tests.fuzz --inputs 100000 --seed 1 --target compile

An input that fails is written to the corpus, one for each place that raises, and is tested from then on. Input number
n of a seed is the same however many are run, as long as the corpus is: `--first n --inputs 1` runs it again.
"""

from __future__ import annotations

import csv
import io
import json
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import count
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import yaml

HERE = Path(__file__).parent
LONGEST_INPUT = 1 << 16
SLOWEST_S = 2
"""Of processor time, so that a busy machine is no failure. Any input of this size needs a tenth of it."""

WORDS = (
    b"\x00", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xb2\x80", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\x1b[2J", b"\x85",
    b"\r", b"\n", b"\t", b" ", b"-", b"---\n", b"...\n", b"&a ", b"*a", b"<<: *a", b"!!binary x", b"!!set {a}", b"!x ",
    b"!!python/object/apply:os.abort []", b"|\n", b">-\n", b"? ", b": ", b", ", b"[", b"{", b"}", b"]", b"'", b'"',
    b"#", b"%YAML 9.9\n", b"@", b"`", b"~", b"null", b"true", b"no", b"0", b"-1", b"1e999999", b".nan", b"-.inf",
    b"0x7fffffffffffffff", b"2147483648", b"9223372036854775808", b"9" * 30, b"9" * 5000, b"1:30:00", b"2020-02-30",
    b"x" * 300, b"(a+)+$", b"{0.a}", b"%s", b"../../etc/passwd", b"apiVersion: gpuctl.dev/v1\n", b"kind: Cluster\n",
)  # fmt: skip
GARBAGE: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", " ", "x", "x" * 5000,
    "9" * 5000, "-1", "1e999999", "NaN", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", "\x00", "\x1b[2J",
    "\u202e", "\ud800", "../..", "a/b", "*", "^(a+)+$", "{0.a}", [], {}, [None], [[]], {"": None}, {"x": {"x": {}}},
    ["x"] * 200, list(range(300)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How an input is a tree of mappings, lists and values, and how a tree is an input. `read` may raise anything."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


def _write_json(tree: Any) -> bytes:
    return json.dumps(tree, default=str).encode()


def _read_yaml(data: bytes) -> list[Any]:
    """Documents without anchors: with them, what is small as YAML is a tree without end."""
    if b"&" in data:
        raise ValueError("an anchor")
    return list(yaml.safe_load_all(data))


def _write_yaml(tree: Any) -> bytes:
    """Documents in the YAML that is JSON."""
    return b"\n---\n".join(map(_write_json, tree if isinstance(tree, list) else [tree]))


def _write_csv(tree: Any) -> bytes:
    rows = (row if isinstance(row, list) else [row] for row in (tree if isinstance(tree, list) else [tree]))
    return "\n".join(",".join(map(str, row)) for row in rows).encode(errors="surrogatepass")


JSON = Form(read=json.loads, write=_write_json)
YAML = Form(read=_read_yaml, write=_write_yaml)
CSV = Form(read=lambda data: list(csv.reader(io.StringIO(data.decode()))), write=_write_csv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is fuzzed. `check` raises where gpuctl misbehaves; `words` are of its own language."""

    check: Callable[[bytes], None]
    form: Form
    words: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An input on which a target misbehaved. `place` tells failures of one cause from others, roughly."""

    data: bytes
    place: str
    told: str


class TooSlow(BaseException):
    """An input took longer than SLOWEST_S. No handler of ordinary exceptions may take it for one."""


def targets() -> dict[str, Target]:
    """Every target by its name."""
    names = sorted(path.stem for path in HERE.glob("target_*.py"))
    return {name.removeprefix("target_"): import_module(f"{__package__}.{name}").TARGET for name in names}


def corpus(name: str) -> dict[str, bytes]:
    """The inputs kept for a target, by file name."""
    return {path.name: path.read_bytes() for path in sorted((HERE / "corpus" / name).iterdir())}


def keep(name: str, failure: Failure, file: str) -> Path:
    """Write an input that failed to the corpus of its target."""
    path = HERE / "corpus" / name / file
    path.write_bytes(failure.data)
    return path


def inputs(target: Target, seeds: list[bytes], seed: int, first: int = 0) -> Iterator[bytes]:
    """Inputs without end, from a number on."""
    trees = [tree for data in seeds for tree in _read(target.form, data)]
    for number in count(first):
        yield _Mutation(Random(f"{seed} {number}"), seeds, target).made(trees)


def attempt(target: Target, data: bytes) -> Failure | None:
    """Run one input; None when gpuctl behaved."""
    try:
        with _in_time():
            target.check(data)
    except (Exception, TooSlow) as error:  # noqa: BLE001 - that is what is looked for
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if "/gpuctl/" in frame.filename] or frames
        place = "too slow" if isinstance(error, TooSlow) else f"{inside[-1].filename}:{inside[-1].lineno}"
        told = "".join(traceback.format_exception(error, limit=-6))[-3000:]
        return Failure(data=data, place=place, told=told)
    return None


@contextmanager
def _in_time() -> Iterator[None]:
    def end(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        raise TooSlow(f"longer than {SLOWEST_S} s")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, SLOWEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@lru_cache(maxsize=1024)
def _read(form: Form, data: bytes) -> list[Any]:
    """The tree of an input, which is copied before it is changed; none if it can't be read.

    Read once a process: some are kept because it takes long to read them. The four readings of `compile` in its test of
    numbers took 2.6 s, and take 0.9.
    """
    try:
        return [form.read(data)]
    except Exception:  # noqa: BLE001 - inputs that failed once are of any kind
        return []


class _Mutation:
    """One input in the making. Everything random comes of `random`."""

    def __init__(self, random: Random, seeds: list[bytes], target: Target) -> None:
        self.random = random
        self.seeds = seeds
        self.target = target
        self.words = WORDS + target.words

    def made(self, trees: list[Any]) -> bytes:
        """A seed with a few changes: of its tree, so that it is still read and reaches what is behind; of its bytes; or
        of both."""
        kind = self.random.randrange(8) if trees else 7
        data = self.random.choice(self.seeds)
        if kind < 5:
            with suppress(RecursionError):  # wrapped so often that it can't be copied: the seed as it is
                data = self._tree_changed(self.random.choice(trees))
        if kind > 3:
            for _ in range(self.random.randint(1, 3)):
                data = self.random.choice(_BYTE_CHANGES)(self, data)
        return data[:LONGEST_INPUT]

    def _tree_changed(self, seed: Any) -> bytes:
        tree = self._copy(seed)
        for _ in range(self.random.choice([1, 1, 2, 3])):
            tree = self._changed(tree)
        return self.target.form.write(tree)

    def _copy(self, tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: self._copy(below) for key, below in tree.items()}
        return [self._copy(below) for below in tree] if isinstance(tree, list) else tree

    def _changed(self, tree: Any) -> Any:
        """The tree with one node anywhere in it put out, put twice, renamed, or replaced by garbage."""
        places = list(_places(tree))
        if not places:
            return self._copy(self.random.choice(GARBAGE))
        holder, key = self.random.choice(places)
        change = self.random.randrange(12)
        if change == 0:
            del holder[key]
        elif change == 1 and isinstance(holder, list):
            holder.insert(key, self._copy(holder[key]))
        elif change == 1:
            holder[self.random.choice([f"{key}x", "", "name", "9" * 70])] = holder.pop(key)
        elif change < 6:
            alike = [other[there] for other, there in places if type(other[there]) is type(holder[key])]
            holder[key] = self._copy(self.random.choice(alike))
        elif change == 6:
            holder[key] = self._wrapped(holder[key])
        elif change == 7:
            holder[key] = self.random.choice(self.words).decode(errors="replace")
        else:
            holder[key] = self._copy(self.random.choice(GARBAGE))
        return tree

    def _wrapped(self, value: Any) -> Any:
        for _ in range(self.random.choice([1, 2, 60, 200])):
            value = [value] if self.random.random() < 0.5 else {"x": value}
        return value

    def _at(self, data: bytes) -> int:
        return self.random.randint(0, len(data))

    def flip(self, data: bytes) -> bytes:
        """One bit is another."""
        if not data:
            return data
        at = self.random.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << self.random.randrange(8))]) + data[at + 1 :]

    def insert(self, data: bytes) -> bytes:
        """A word more."""
        at = self._at(data)
        return data[:at] + self.random.choice(self.words) + data[at:]

    def replace(self, data: bytes) -> bytes:
        """A word in place of some bytes."""
        at = self._at(data)
        return data[:at] + self.random.choice(self.words) + data[at + self.random.randint(1, 12) :]

    def cut(self, data: bytes) -> bytes:
        """Some bytes fewer."""
        at = self._at(data)
        return data[:at] + data[at + self.random.choice([1, 4, 40, 400]) :]

    def splice(self, data: bytes) -> bytes:
        """The beginning of this input and the end of another."""
        other = self.random.choice(self.seeds)
        return data[: self._at(data)] + other[self._at(other) :]

    def repeat(self, data: bytes) -> bytes:
        """Some bytes many times: long lists, deep nesting, large numbers."""
        at = self._at(data)
        part = (
            data[at : at + self.random.choice([1, 2, 8, 60])]
            if self.random.random() < 0.5
            else self.random.choice(self.words)
        )
        return data[:at] + part[:100] * self.random.choice([2, 10, 100, 1000]) + data[at:]


_BYTE_CHANGES = (_Mutation.flip, _Mutation.insert, _Mutation.replace, _Mutation.cut, _Mutation.splice, _Mutation.repeat)


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Each node below the top, as what holds it and its key or index there."""
    stack = [tree]
    while stack:
        holder = stack.pop()
        for key in _keys(holder):
            yield holder, key
            stack.append(holder[key])


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder))) if isinstance(holder, list) else []
