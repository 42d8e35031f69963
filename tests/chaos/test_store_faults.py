"""A store that fails on command: what the client sees, what the store holds, what is told."""

import copy
import dataclasses
import http.client
import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from penstock.chaos.s3_proxy import Request
from penstock.chaos.store_faults import StoreFault, StoreFaults, faulty_store
from penstock.checkpoint.root import Root
from penstock.checkpoint.s3_store import S3Store
from penstock.clock import Clock, SystemChance
from penstock.effects import Stored
from penstock.errors import Unavailable
from penstock.ids import ETag, Key
from tests.support.clocks import SteppingClock
from tests.support.history import JOB, commit_epochs
from tests.support.servers import BUCKET, Endpoint, free_port

KEY, OTHER = Key("object"), Key("other")
LARGE = bytes(range(256)) * 4096
HUGE = bytes(8 << 20)
WAIT_S = 60.0
CLIENTS = 8
Use = Callable[[Endpoint], None]


@dataclass
class Scene:
    """One store, seen through the proxy and from behind it."""

    faults: StoreFaults
    url: str
    prefix: str
    store: S3Store
    """As the job sees it."""
    behind: S3Store
    """As it is."""

    def held(self, key: Key = KEY) -> bytes | None:
        found = self.behind.get(key)
        return None if found is None else found.body

    def made(self, body: bytes) -> ETag:
        """The version of a new object, which no proxy has seen."""
        self.behind.put(KEY, body)
        found = self.behind.get(KEY)
        assert found is not None
        return found.etag

    def path(self, key: Key = KEY) -> str:
        return f"/{BUCKET}/{self.prefix}/{key}"


@contextmanager
def opened(endpoint: Endpoint, use: Use, clock: Clock) -> Iterator[Scene]:
    """A scene with a folder of its own, whose faults take their time by `clock`."""
    prefix = SystemChance().unique()
    use(endpoint)
    behind = S3Store(BUCKET, prefix, SteppingClock())
    with faulty_store(endpoint.url, clock) as (url, faults):
        use(dataclasses.replace(endpoint, url=url))
        yield Scene(faults, url, prefix, S3Store(BUCKET, prefix, SteppingClock()), behind)


@pytest.fixture(scope="module")
def shared(moto_server: Endpoint) -> Iterator[Scene]:
    """One in which nobody waits. Making its clients takes longer than any test here."""
    with pytest.MonkeyPatch.context() as settings:

        def use(endpoint: Endpoint) -> None:
            for name, value in endpoint.settings().items():
                settings.setenv(name, value)

        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            settings.delenv(name, raising=False)
        with opened(moto_server, use, SteppingClock()) as made:
            yield made


@pytest.fixture
def scene(shared: Scene) -> Iterator[Scene]:
    """The same with a folder of its own."""
    prefix = SystemChance().unique()
    store, behind = (below(each, prefix) for each in (shared.store, shared.behind))
    yield dataclasses.replace(shared, prefix=prefix, store=store, behind=behind)
    shared.faults.disarm()


def below(store: S3Store, prefix: str) -> S3Store:
    """The same clients for another folder."""
    other = copy.copy(store)
    other._base = f"{prefix}/"
    return other


class HeldClock(SteppingClock):
    """Whoever sleeps, sleeps until all are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = threading.Event()
        self.let_go = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.asleep.set()
        assert self.let_go.wait(WAIT_S)


def seen(attempt: Callable[[], object]) -> str:
    """What a client makes of its request."""
    try:
        return "refused" if attempt() is None else "confirmed"
    except Unavailable as error:
        return error.found


UNHEARD = "got no whole answer"
UNREAD = "got an answer from http://127.0.0.1:"
SWAPS = {
    StoreFault.LOST: (UNHEARD, b"old"),
    StoreFault.ACK_LOST: (UNHEARD, b"new"),
    StoreFault.APPLIED_500: ("was not confirmed by the store (InternalError, status 500", b"new"),
    StoreFault.APPLIED_503: ("was not confirmed by the store (ServiceUnavailable", b"new"),
    StoreFault.REFUSED_503: ("was not confirmed by the store (SlowDown, status 503)", b"old"),
    StoreFault.CONFLICT_409: ("was not confirmed by the store (ConditionalRequestConf", b"old"),
    StoreFault.FALSE_412: ("refused", b"new"),
    StoreFault.SLOW: ("confirmed", b"new"),
    StoreFault.DUPLICATED: ("confirmed", b"new"),
    StoreFault.CUT_403: (UNREAD, b"old"),
    StoreFault.CUT_404: (UNREAD, b"old"),
    StoreFault.PAGE_403: (UNREAD, b"old"),
    StoreFault.PAGE_404: (UNREAD, b"old"),
    StoreFault.PAGE_502: (UNREAD, b"old"),
    StoreFault.PAGE_503: (UNREAD, b"old"),
}
"""What is seen of a conditional write, and what the store holds after it."""

READS = (StoreFault.RESET, StoreFault.TRUNCATED, StoreFault.FLIPPED)
CONDITIONAL = (StoreFault.CONFLICT_409, StoreFault.FALSE_412)
OF_CHAIN = (StoreFault.FALSE_404, StoreFault.STALE)
UNREADABLE = [fault for fault, (says, _) in SWAPS.items() if says == UNREAD]


def test_every_fault_has_a_sentence_of_its_own_and_is_tried_below() -> None:
    """One that is added later must not be told as another, nor go untried."""
    assert len({fault.text for fault in StoreFault}) == len(StoreFault)
    assert all(fault.text for fault in StoreFault)
    assert {*SWAPS, *READS, *OF_CHAIN, StoreFault.LATE} == {*StoreFault}


@pytest.mark.parametrize("fault", SWAPS)
def test_what_a_client_sees_of_a_swap_and_what_became_of_it(
    scene: Scene, fault: StoreFault
) -> None:
    """The two differ: that is the fault. It happens once, and is told."""
    says, held = SWAPS[fault]
    etag = scene.made(b"old")
    armed = scene.faults.arm(fault)

    assert seen(lambda: scene.store.replace(KEY, b"new", etag)).startswith(says)
    assert armed.wait(WAIT_S)
    assert scene.held() == held
    (hit,) = armed.hits
    assert hit.startswith(f"PUT {scene.path()}: {fault.text}")

    now = scene.behind.get(KEY)
    assert now is not None
    assert scene.store.replace(KEY, b"newer", now.etag) is not None
    assert (scene.held(), len(armed.hits)) == (b"newer", 1)


@pytest.mark.parametrize("fault", [each for each in SWAPS if each not in CONDITIONAL])
def test_a_write_that_may_be_repeated_comes_through(scene: Scene, fault: StoreFault) -> None:
    """Its client tries again, and the object is what it was to be."""
    armed = scene.faults.arm(fault, times=2)

    for key in (KEY, OTHER):
        scene.store.put(key, key.encode())

    assert armed.wait(WAIT_S)
    assert (scene.held(KEY), scene.held(OTHER)) == (b"object", b"other")
    assert len(armed.hits) == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (StoreFault.RESET, "Connection reset by peer"),
        (StoreFault.TRUNCATED, f"IncompleteRead.{len(LARGE) // 2} bytes read"),
    ],
)
def test_an_answer_that_breaks_off_is_noticed_and_asked_for_again(
    scene: Scene, fault: StoreFault, words: str
) -> None:
    """A plain client is told; ours reads until it has all of it."""
    scene.made(LARGE)
    armed = scene.faults.arm(fault, times=3)

    with pytest.raises(BotoCoreError, match=words):
        plain_read(scene)
    found = scene.store.get(KEY)
    assert found is not None
    assert found.body == LARGE
    target = io.BytesIO()
    assert scene.store.download(KEY, target)
    assert target.getvalue() == LARGE
    assert armed.hits == [f"GET {scene.path()}: {fault.text}"] * 3


def plain_read(scene: Scene) -> bytes:
    """The object, as somebody else's client reads it, which tries once."""
    once = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    client = boto3.client("s3", config=once)
    return client.get_object(Bucket=BUCKET, Key=f"{scene.prefix}/{KEY}")["Body"].read()


@pytest.mark.parametrize("fault", UNREADABLE)
def test_an_answer_in_the_stores_place_is_asked_for_again(scene: Scene, fault: StoreFault) -> None:
    """A page, or half an error: nothing is believed of it, whatever is asked for."""
    etag = scene.made(b"body")
    armed = scene.faults.arm(fault, times=4)

    assert scene.store.get(KEY) == Stored(b"body", etag)
    assert [entry.key for entry in scene.store.list("")] == [KEY]
    scene.store.delete(KEY)
    scene.store.put(OTHER, b"other")

    assert (scene.held(KEY), scene.held(OTHER)) == (None, b"other")
    assert len(armed.hits) == 4


def test_a_look_has_no_body_to_cut_or_replace(scene: Scene) -> None:
    """Such a fault waits for another request."""
    armed = [scene.faults.arm(fault) for fault in UNREADABLE]
    line = http.client.HTTPConnection(urlsplit(scene.url).netloc, timeout=WAIT_S)
    line.request("HEAD", scene.path())
    with line.getresponse() as answer:
        assert answer.status == 404
    line.close()

    assert [each.hits for each in armed] == [[]] * len(armed)


HEAD = Key("HEAD")


def test_an_old_head_is_shown_once_it_was_swapped(scene: Scene) -> None:
    """As it was before its last change, with its version then: who swaps on it is refused."""
    armed = scene.faults.arm(StoreFault.STALE)
    first = scene.store.create(HEAD, b"1")
    assert first is not None
    assert scene.store.get(HEAD) == Stored(b"1", first)
    second = scene.store.replace(HEAD, b"2", first)
    assert second is not None

    assert scene.store.get(HEAD) == Stored(b"1", first)
    assert scene.store.get(HEAD) == Stored(b"2", second)
    assert armed.hits == [f"GET {scene.path(HEAD)}: {StoreFault.STALE.text}"]
    assert scene.store.replace(HEAD, b"3", first) is None


def test_a_head_that_is_there_is_said_not_to_be(scene: Scene) -> None:
    """By a whole answer: only looking again can tell. One that is not there is no hit."""
    armed = scene.faults.arm(StoreFault.FALSE_404)
    assert scene.store.get(HEAD) is None
    assert armed.hits == []
    etag = scene.store.create(HEAD, b"1")
    assert etag is not None

    assert scene.store.get(HEAD) is None
    assert scene.store.get(HEAD) == Stored(b"1", etag)
    assert armed.hits == [f"GET {scene.path(HEAD)}: {StoreFault.FALSE_404.text}"]


def joined(name: str, before: set[threading.Thread]) -> None:
    """Wait for what a fault has left to threads of its own."""
    for thread in set(threading.enumerate()) - before:
        if thread.name == name:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_a_swap_that_comes_minutes_late_is_refused(moto_server: Endpoint, use: Use) -> None:
    """Its sender heard nothing and has long gone on; an object written once more is the same."""
    clock, before = HeldClock(), set(threading.enumerate())
    with opened(moto_server, use, clock) as scene:
        etag = scene.made(b"old")
        armed = scene.faults.arm(StoreFault.LATE)
        assert seen(lambda: scene.store.replace(KEY, b"new", etag)).startswith(UNHEARD)
        assert scene.held() == b"old"
        assert scene.store.replace(KEY, b"newer", etag) is not None
        again = scene.faults.arm(StoreFault.LATE)
        scene.store.put(OTHER, b"other")
        clock.let_go.set()
        joined("penstock-late", before)

        assert (scene.held(KEY), scene.held(OTHER)) == (b"newer", b"other")
        assert [*armed.hits, *again.hits] == [
            f"PUT {scene.path(key)}: hung up on, and held back for 120 seconds"
            for key in (KEY, OTHER)
        ]


def test_a_flipped_bit_looks_like_any_other(scene: Scene) -> None:
    """The length is right and nobody complains: only a hash can tell."""
    etag = scene.made(LARGE)
    armed = scene.faults.arm(StoreFault.FLIPPED)

    found = scene.store.get(KEY)
    assert found is not None
    difference = int.from_bytes(found.body) ^ int.from_bytes(LARGE)
    assert (len(found.body), difference.bit_count()) == (len(LARGE), 1)
    assert armed.hits == [f"GET {scene.path()}: answered with one bit flipped"]
    assert scene.store.get(KEY) == Stored(LARGE, etag)


def test_lists_are_not_flipped_but_may_break_off(scene: Scene) -> None:
    """Nothing vouches for a list, so no reader could tell that a name in it is wrong."""
    scene.made(b"body")
    flipped = scene.faults.arm(StoreFault.FLIPPED)
    broken = [scene.faults.arm(fault) for fault in (StoreFault.RESET, StoreFault.TRUNCATED)]

    assert [entry.key for entry in scene.store.list("")] == [KEY]
    assert flipped.hits == []
    assert [armed.hits for armed in broken] == [
        [f"GET /{BUCKET}: {fault.text}"] for fault in (StoreFault.RESET, StoreFault.TRUNCATED)
    ]


def test_a_refused_look_leaves_nothing_on_the_line(scene: Scene) -> None:
    """An answer to HEAD has no body; one would be taken for the start of the next answer."""
    armed = scene.faults.arm(StoreFault.REFUSED_503)
    line = http.client.HTTPConnection(urlsplit(scene.url).netloc, timeout=WAIT_S)
    statuses = []
    for method in ("HEAD", "GET"):
        line.request(method, scene.path())
        with line.getresponse() as answer:
            statuses.append(answer.status)
            answer.read()
    line.close()

    assert statuses == [503, 404]
    assert armed.hits == [f"HEAD {scene.path()}: never passed on, and answered with 503"]


@pytest.mark.parametrize("fault", [each for each in SWAPS if "applied, " in each.text])
def test_a_write_that_the_store_refused_is_no_hit(scene: Scene, fault: StoreFault) -> None:
    """It was not applied, so its answer is the truth; the fault waits for one that is."""
    etag = scene.made(b"old")
    armed = scene.faults.arm(fault)

    assert seen(lambda: scene.store.create(KEY, b"new")) == "refused"
    assert (armed.hits, armed.wait(0.0)) == ([], False)
    seen(lambda: scene.store.replace(KEY, b"new", etag))
    assert armed.wait(WAIT_S)
    assert len(armed.hits) == 1


@pytest.mark.parametrize("fault", READS)
def test_an_object_that_is_not_there_is_no_hit(scene: Scene, fault: StoreFault) -> None:
    """An absence that was garbled would be another fault, and was not asked for."""
    armed = scene.faults.arm(fault)
    assert scene.store.get(KEY) is None
    scene.behind.put(KEY, b"")
    assert scene.store.get(KEY) is not None

    assert armed.hits == []


def is_of_other(request: Request) -> bool:
    return request.path.endswith(f"/{OTHER}")


@pytest.mark.parametrize("fault", StoreFault)
def test_what_was_never_hit_is_not_told_as_hit(scene: Scene, fault: StoreFault) -> None:
    """Because no request was meant, or because it was called off."""
    armed = scene.faults.arm(fault, is_of_other)
    assert scene.store.create(KEY, b"body") is not None
    assert scene.store.get(KEY) is not None
    assert (armed.hits, armed.wait(0.0)) == ([], False)

    scene.faults.disarm()
    assert scene.store.create(OTHER, b"body") is not None
    found = scene.store.get(OTHER)
    assert found is not None
    assert (found.body, armed.hits, armed.wait(0.0)) == (b"body", [], False)


def test_faults_that_are_armed_together_happen_one_after_another(scene: Scene) -> None:
    """And each request suffers one of them."""
    first = scene.faults.arm(StoreFault.REFUSED_503)
    second = scene.faults.arm(StoreFault.ACK_LOST)

    scene.store.put(KEY, b"body")

    assert first.hits == [f"PUT {scene.path()}: never passed on, and answered with 503"]
    assert second.hits == [f"PUT {scene.path()}: applied, and nobody was told"]
    assert scene.held() == b"body"


def test_a_slow_request_holds_up_no_other(moto_server: Endpoint, use: Use) -> None:
    """Not even one that writes; and it is done in the end."""
    clock = HeldClock()
    with opened(moto_server, use, clock) as scene, ThreadPoolExecutor(1) as aside:
        armed = scene.faults.arm(StoreFault.SLOW)
        slow = aside.submit(scene.store.put, KEY, b"late")
        assert clock.asleep.wait(WAIT_S)

        scene.store.put(OTHER, b"body")
        assert (scene.held(OTHER), scene.held(KEY)) == (b"body", None)
        clock.let_go.set()
        slow.result(WAIT_S)

        assert scene.held(KEY) == b"late"
        assert armed.hits == [f"PUT {scene.path()}: slowed down by 4 seconds"]


def test_a_duplicate_of_a_swap_comes_later_and_is_refused(moto_server: Endpoint, use: Use) -> None:
    """By then the version has moved on. It is told when it has happened, and disarming does
    not call back what is on its way."""
    clock = HeldClock()
    with opened(moto_server, use, clock) as scene:
        etag = scene.made(b"old")
        armed = scene.faults.arm(StoreFault.DUPLICATED)
        new = scene.store.replace(KEY, b"new", etag)
        assert new is not None
        assert scene.store.replace(KEY, b"newer", new) is not None
        scene.faults.disarm()
        assert armed.hits == []
        clock.let_go.set()

        assert armed.wait(WAIT_S)
        assert scene.held() == b"newer"
        assert armed.hits == [
            f"PUT {scene.path()}: applied, and sent again 3 seconds later and answered with 412"
        ]


@pytest.mark.parametrize(
    ("fault", "name"),
    [(StoreFault.DUPLICATED, "penstock-duplicate"), (StoreFault.LATE, "penstock-late")],
)
def test_a_write_that_still_waits_at_the_end_is_dropped(
    moto_server: Endpoint, use: Use, fault: StoreFault, name: str
) -> None:
    """Whoever looks at the store after a run must find it at rest."""
    clock = HeldClock()
    before = set(threading.enumerate())
    with opened(moto_server, use, clock) as scene:
        armed = scene.faults.arm(fault)
        scene.store.put(KEY, b"body")
        assert clock.asleep.wait(WAIT_S)
    scene.behind.delete(KEY)
    clock.let_go.set()
    joined(name, before)

    assert (scene.held(), len(armed.hits)) == (None, fault is StoreFault.LATE)


def test_nothing_passes_once_it_is_over(moto_server: Endpoint, use: Use) -> None:
    """Not even over a connection that was opened before."""
    with opened(moto_server, use, SteppingClock()) as scene:
        scene.store.put(KEY, b"body")

    assert seen(lambda: scene.store.replace(KEY, b"late", ETag('"any"'))) != "confirmed"
    with pytest.raises(Unavailable):
        scene.store.put(KEY, b"late")
    assert scene.held() == b"body"


def test_one_fault_is_not_shared_out_to_many(scene: Scene) -> None:
    """However many ask at once, it happens as often as it was armed."""
    armed = scene.faults.arm(StoreFault.CONFLICT_409, times=3)

    with ThreadPoolExecutor(CLIENTS) as clients:
        keys = [Key(f"object-{number}") for number in range(CLIENTS)]
        said = list(clients.map(lambda key: seen(lambda: scene.store.create(key, b"")), keys))

    assert said.count("confirmed") == CLIENTS - 3
    assert (len(armed.hits), len(scene.behind.list(""))) == (3, CLIENTS - 3)


def test_of_many_who_create_one_object_one_succeeds(scene: Scene) -> None:
    """The endpoint behind checks first and acts later; the proxy makes up for that."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        bodies = [str(number).encode() for number in range(CLIENTS)]
        said = list(clients.map(lambda body: seen(lambda: scene.store.create(KEY, body)), bodies))

    assert sorted(said) == ["confirmed"] + ["refused"] * (CLIENTS - 1)
    assert scene.held() == bodies[said.index("confirmed")]


def test_clients_that_are_killed_cost_their_own_connection(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the middle of a request or of an answer; nothing is printed, and others go on."""
    scene.made(HUGE)
    before = set(threading.enumerate())
    killed_while_sending(scene)
    killed_while_reading(scene)
    for thread in set(threading.enumerate()) - before:
        thread.join(WAIT_S)
        assert not thread.is_alive()

    found = scene.store.get(KEY)
    assert found is not None
    assert (found.body, scene.held(OTHER)) == (HUGE, None)
    assert tuple(capfd.readouterr()) == ("", "")


def killed_while_sending(scene: Scene) -> None:
    with connected(scene) as line:
        head = f"PUT {scene.path(OTHER)} HTTP/1.1\r\nHost: store\r\nContent-Length: 100\r\n"
        line.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert line.recv(100).startswith(b"HTTP/1.1 100")
        line.sendall(b"half")


def killed_while_reading(scene: Scene) -> None:
    with connected(scene) as line:
        line.sendall(f"GET {scene.path()} HTTP/1.1\r\nHost: store\r\n\r\n".encode())
        assert line.recv(1) == b"H"


@contextmanager
def connected(scene: Scene) -> Iterator[socket.socket]:
    """A connection that ends as that of a killed process does."""
    port = int(scene.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.settimeout(WAIT_S)
        yield line
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_store_that_is_away_is_no_hit(
    moto_server: Endpoint, use: Use, capfd: pytest.CaptureFixture[str]
) -> None:
    """The proxy hangs up, and goes on."""
    nowhere = dataclasses.replace(moto_server, url=f"http://127.0.0.1:{free_port()}")
    with opened(nowhere, use, SteppingClock()) as scene:
        armed = scene.faults.arm(StoreFault.ACK_LOST)
        for _ in range(2):
            assert seen(lambda: scene.store.create(KEY, b"")).startswith(UNHEARD)

    assert armed.hits == []
    assert tuple(capfd.readouterr()) == ("", "")


STRUCK = [(fault, "/HEAD") for fault in StoreFault]
STRUCK += [
    (fault, "/manifests/") for fault in StoreFault if fault not in (*CONDITIONAL, StoreFault.STALE)
]


@pytest.mark.parametrize(("fault", "where"), STRUCK)
def test_a_job_comes_through(scene: Scene, fault: StoreFault, where: str) -> None:
    """Whatever strikes a take-over and the commits after it: every epoch is there, once."""
    root = Root(scene.store, SteppingClock())
    with root.lead(JOB) as session:
        commit_epochs(root, session, 1)
    armed = scene.faults.arm(fault, lambda request: where in request.path)

    with root.lead(JOB) as session:
        commit_epochs(root, session, 2)
        mine = session.head

    assert armed.wait(WAIT_S)
    assert root.head() == mine
    assert (mine.token, mine.epoch) == (2, 3)
    assert [manifest.epoch for manifest in root.history()] == [3, 2, 1]
    assert Root(scene.behind, SteppingClock()).check().wrong == []
