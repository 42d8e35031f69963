"""The object store against a dict: whatever is done in whatever order, both say the same."""

import io
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.memory_store import MemoryStore
from penstock.checkpoint.s3_store import S3Store
from penstock.checkpoint.store import ObjectStore
from penstock.clock import SystemChance
from penstock.effects import Stored
from penstock.ids import ETag, Key
from tests.support.servers import BUCKET, Endpoint

NAMES = ["a-b", "a.b", "a/b", "a/b-c/d", "a/c", "ab", "b/c/d", "b/c/e"]
keys = st.sampled_from([Key(name) for name in NAMES])
bodies = st.binary(max_size=20)
texts = st.sampled_from(["", "a", "a-", "a/", "a/b", "a/b-c", "ab", "b/", "b/c/d", "z"])


class StoreMachine(RuleBasedStateMachine):
    """Every operation, on few keys, so that they meet."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__()
        self.store = store
        self.model: dict[Key, Stored] = {}
        self.versions = [ETag('"0123456789abcdef0123456789abcdef"')]

    def wrote(self, key: Key, body: bytes, etag: ETag | None) -> None:
        assert etag is not None
        self.model[key] = Stored(body, etag)
        self.versions.append(etag)

    def read_version(self, key: Key) -> ETag | None:
        stored = self.store.get(key)
        return None if stored is None else stored.etag

    @rule(key=keys, body=bodies)
    def put(self, key: Key, body: bytes) -> None:
        self.store.put(key, body)
        self.wrote(key, body, self.read_version(key))

    @rule(key=keys, body=bodies)
    def upload(self, key: Key, body: bytes) -> None:
        self.store.upload(key, io.BytesIO(body))
        self.wrote(key, body, self.read_version(key))

    @rule(key=keys, body=bodies)
    def create(self, key: Key, body: bytes) -> None:
        etag = self.store.create(key, body)
        if key in self.model:
            assert etag is None
        else:
            self.wrote(key, body, etag)

    @rule(key=keys, body=bodies, data=st.data())
    def replace_any(self, key: Key, body: bytes, data: st.DataObject) -> None:
        """With a version of some object at some time: it counts if it is this one's now."""
        self.replace(key, body, data.draw(st.sampled_from(self.versions)))

    @precondition(lambda self: self.model)
    @rule(body=bodies, data=st.data())
    def replace_current(self, body: bytes, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.replace(key, body, self.model[key].etag)

    def replace(self, key: Key, body: bytes, expected: ETag) -> None:
        etag = self.store.replace(key, body, expected)
        if key in self.model and self.model[key].etag == expected:
            self.wrote(key, body, etag)
        else:
            assert etag is None

    @rule(key=keys)
    def delete(self, key: Key) -> None:
        self.store.delete(key)
        self.model.pop(key, None)

    @rule(key=keys)
    def get(self, key: Key) -> None:
        assert self.store.get(key) == self.model.get(key)

    @rule(key=keys)
    def download(self, key: Key) -> None:
        target = io.BytesIO()
        assert self.store.download(key, target) == (key in self.model)
        if key in self.model:
            assert target.getvalue() == self.model[key].body

    @rule(prefix=texts, after=texts)
    def list(self, prefix: str, after: str) -> None:
        expected = [key for key in sorted(self.model) if key.startswith(prefix) and key > after]
        assert [entry.key for entry in self.store.list(prefix, after)] == expected

    @invariant()
    def whole(self) -> None:
        listed = {entry.key: entry.size_bytes for entry in self.store.list("")}
        assert listed == {key: len(stored.body) for key, stored in self.model.items()}


def run(open_empty: Callable[[], ObjectStore], examples: int) -> None:
    run_state_machine_as_test(
        lambda: StoreMachine(open_empty()),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_memory_store_is_a_dict() -> None:
    """The store of the simulator is the model of all others."""
    run(MemoryStore, 100)


def test_a_directory_store_is_a_dict() -> None:
    """Folders come and go with the objects in them, and nobody notices."""
    with ExitStack() as stack:
        run(lambda: DirectoryStore(Path(stack.enter_context(TemporaryDirectory())) / "new"), 40)


@pytest.mark.parametrize("server", ["atomic_moto", "versity_server"])
def test_an_s3_store_is_a_dict(
    server: str, request: pytest.FixtureRequest, use: Callable[[Endpoint], None]
) -> None:
    """Two servers that share no code give the same answers."""
    use(request.getfixturevalue(server))

    run(lambda: S3Store(BUCKET, SystemChance().unique()), 5)
