"""What is said of a job's functions by looking at them: the right lines, and no others."""

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.chaos.impure import What, suspects
from penstock.runtime.loading import load_job
from tests.support.in_process import clicks_log, no_spark
from tests.support.suspicious import HONEST, described, honest_job, marked, written

DIFFERS, ACTS, KEEPS = What.DIFFERS, What.ACTS, What.KEEPS


def function(*lines: str, before: str = "") -> str:
    """A function with these lines in it."""
    head = '@ps.stateful(emits="user string, n long")\n'
    head += "def rate(user: str, events: ps.Events, seen: ps.Value[int], moment: ps.Moment):\n"
    return f"{before}\n{head}" + "".join(f"    {line}\n" for line in (*lines, "yield {}"))


SUSPICIOUS: dict[str, tuple[str, list[tuple[What, str]]]] = {
    "the time": (
        function("now = time.time()  # here", before="import time"),
        [(DIFFERS, "time.time")],
    ),
    "the time by another name": (
        function("now = clock()  # here", before="from time import time_ns as clock"),
        [(DIFFERS, "time.time_ns")],
    ),
    "the time in a variable": (
        function("clock = t.monotonic  # here", "now = clock()  # here", before="import time as t"),
        [(DIFFERS, "time.monotonic")] * 2,
    ),
    "the time, imported inside": (
        function("from datetime import datetime as dt", "dt.now()  # here"),
        [(DIFFERS, "datetime.datetime.now")],
    ),
    "today": (
        function("datetime.date.today()  # here", before="import datetime"),
        [(DIFFERS, "datetime.date.today")],
    ),
    "the time, as a text": (
        function("time.strftime('%H')  # here", before="import time"),
        [(DIFFERS, "time.strftime")],
    ),
    "chance": (
        function(
            "n = random.randint(1, 6)  # here",
            "m = draw([1, 2])  # here",
            before="import random\nfrom random import choice as draw",
        ),
        [(DIFFERS, "random.randint"), (DIFFERS, "random.choice")],
    ),
    "a generator without a seed": (
        function("random.Random().random()  # here", before="import random"),
        [(DIFFERS, "random.Random")],
    ),
    "a generator of the module": (
        function("RNG.random()  # here", before="import random\nRNG = random.Random(7)"),
        [(DIFFERS, "random.Random.random")],
    ),
    "numpy's chance": (
        function(
            "np.random.rand()  # here",
            "np.random.default_rng()  # here",
            before="import numpy as np",
        ),
        [(DIFFERS, "numpy.random.rand"), (DIFFERS, "numpy.random.default_rng")],
    ),
    "unique names": (
        function(
            "uuid4()  # here",
            "os.urandom(8)  # here",
            "secrets.token_hex()  # here",
            before="import os, secrets\nfrom uuid import uuid4",
        ),
        [(DIFFERS, "uuid.uuid4"), (DIFFERS, "os.urandom"), (DIFFERS, "secrets.token_hex")],
    ),
    "the address of an object, and the hash of a text": (
        function("a = id(events)  # here", "b = hash(user) % 8  # here"),
        [(DIFFERS, "id"), (DIFFERS, "hash")],
    ),
    "a file": (
        function("with open('/tmp/x', 'a') as file:  # here", "    file.write(user)"),
        [(ACTS, "open")],
    ),
    "a file by its path": (
        function(
            "(FOLDER / user).write_text('x')  # here",
            "path = Path(user)",
            "path.unlink()  # here",
            "path.open(mode='w')  # here",
            "events[0].path.write_bytes(b'')  # here",
            before="from pathlib import Path\nFOLDER = Path('/tmp')",
        ),
        [
            (ACTS, "pathlib.Path.write_text"),
            (ACTS, "pathlib.Path.unlink"),
            (ACTS, "pathlib.Path.open"),
            (ACTS, "pathlib.Path.write_bytes"),
        ],
    ),
    "the system": (
        function(
            "os.remove('x')  # here",
            "run(['ls'])  # here",
            "shutil.rmtree('x')  # here",
            "os.open('x', os.O_CREAT | os.O_WRONLY)  # here",
            before="import os, shutil\nfrom subprocess import run",
        ),
        [(ACTS, "os.remove"), (ACTS, "subprocess.run"), (ACTS, "shutil.rmtree"), (ACTS, "os.open")],
    ),
    "the network": (
        function(
            "urllib.request.urlopen('http://x')  # here",
            "socket.create_connection(('x', 1))  # here",
            before="import socket, urllib.request",
        ),
        [(ACTS, "urllib.request.urlopen"), (ACTS, "socket.create_connection")],
    ),
    "variables of the module": (
        function(
            "global COUNT",
            "COUNT += 1  # here",
            "SEEN.append(user)  # here",
            "BY_USER[user] = 1  # here",
            "del BY_USER[user]  # here",
            "Config.last = user  # here",
            "next(NUMBERS)  # here",
            before=(
                "import itertools\nCOUNT, SEEN, BY_USER = 0, [], {}\nNUMBERS = itertools.count()\n"
                "class Config:\n    last = None"
            ),
        ),
        [(KEEPS, n) for n in ("COUNT", "SEEN", "BY_USER", "BY_USER", "Config.last", "NUMBERS")],
    ),
    "what it calls": (
        function(
            "stamp(user)",
            "sorted(events, key=lambda event: random.random())  # here",
            before=(
                "import functools, random, time\n"
                "def stamp(user):\n    return Clock().now() + cached(user) + [*map(chosen, user)]\n"
                "class Clock:\n    def now(self):\n        return self._read()\n"
                "    def _read(self):\n        return time.time()  # here\n"
                "@functools.lru_cache\ndef cached(user):\n    return random.random()  # here\n"
                "def chosen(_):\n    return random.gauss()  # here\n"
            ),
        ),
        [
            (DIFFERS, "time.time"),
            (DIFFERS, "random.random"),
            (DIFFERS, "random.gauss"),
            (DIFFERS, "random.random"),
        ],
    ),
    "a function made by another": (
        "import time\n"
        "def made(clock):\n"
        "    seen = 0\n"
        '    @ps.stateful(emits="n long")\n'
        "    def rate(user: str, events: ps.Events):\n"
        "        nonlocal seen\n"
        "        seen += 1  # here\n"
        "        yield {'n': clock()}  # here\n"
        "    return rate\n"
        "rate = made(time.time)\n",
        [(KEEPS, "seen"), (DIFFERS, "time.time")],
    ),
    "a function for each event": (
        "import random\n"
        '@ps.stateful(emits="n long", each=True)\n'
        "def rate(user: str, event: ps.Event):\n"
        "    yield {'n': random.getrandbits(3)}  # here\n",
        [(DIFFERS, "random.getrandbits")],
    ),
    "a class": (
        "import time\n"
        '@ps.stateful(emits="n long", name="rate")\n'
        "class Rate:\n"
        "    everyone = []\n"
        "    def __init__(self):\n"
        "        self.began = time.time()  # here\n"
        "        self.calls = 0\n"
        "    def process(self, user: str, events: ps.Events):\n"
        "        self.calls += 1  # here\n"
        "        self.sum = 0\n"
        "        self.sum += 1\n"
        "        self.everyone.append(user)  # here\n"
        "        yield from self._rows()\n"
        "    def _rows(self):\n"
        "        yield {'n': time.time_ns()}  # here\n"
        "rate = Rate\n",
        [
            (DIFFERS, "time.time"),
            (KEEPS, "self.calls"),
            (KEEPS, "self.everyone"),
            (DIFFERS, "time.time_ns"),
        ],
    ),
    "a vectorised function": (
        "import numpy as np\n"
        'rate = ps.vectorized(emits="n long", name="rate")(\n'
        "    lambda batch: {'n': np.random.permutation(len(batch))}  # here\n"
        ")\n",
        [(DIFFERS, "numpy.random.permutation")],
    ),
    "one of two lambdas in a line": (
        "import time\n"
        "slow, quick = (lambda: time.time()), (lambda: 0)  # here\n"
        + function("slow()", "quick()"),
        [(DIFFERS, "time.time")],
    ),
}


@pytest.mark.parametrize("case", SUSPICIOUS)
def test_a_line_that_does_not_give_the_same_twice_is_named(tmp_path: Path, case: str) -> None:
    """With its place, and by the name that everybody knows, whatever the job calls it."""
    text, wanted = SUSPICIOUS[case]
    path = written(tmp_path, text)
    found = suspects(described(path))

    assert [(each.what, each.name) for each in found] == wanted
    assert [each.line for each in found] == marked(path)
    assert {(each.operator, each.file) for each in found} == {("rate", str(path))}


INNOCENT = {
    "the moment": function("moment.time, moment.random.random(), moment.random.choice([1])"),
    "what is only read": function(
        "open('/etc/hosts').close(), open(user, mode='rb'), Path(user).read_text()",
        "print(user, file=sys.stdout), sys.stdout.write(user)",
        "LIMITS['a'], NAMES[0], LIMITS.get(user), sorted(NAMES), max(LIMITS)",
        before="import sys\nfrom pathlib import Path\nLIMITS, NAMES = {'a': 1}, ['b']",
    ),
    "what is its own": function(
        "found, time, total = [], {}, Total()",
        "found.append(user), time.update(a=1)",
        "total.add(1)",
        "def add(n):",
        "    nonlocal found",
        "    found = [*found, n]",
        "add(1)",
        before="import time\nclass Total:\n    n = 0\n    def add(self, n):\n        self.n += n",
    ),
    "what a seed or a moment makes": function(
        "random.Random(user).random(), np.random.default_rng(3).integers(7)",
        "time.localtime(3), time.strftime('%H', time.gmtime(0)), datetime.fromtimestamp(0)",
        "uuid.uuid5(uuid.NAMESPACE_URL, user), hash(3)",
        before="import random, time, uuid\nimport numpy as np\nfrom datetime import datetime",
    ),
    "what is only said of it": function(
        "found: 'time.time' = socket.socket is None, isinstance(user, subprocess.Popen)",
        before="import socket, subprocess",
    ),
    "what runs once, when it is loaded": (
        "import os, time\nBEGAN = time.time()\nos.environ.get('HOME')\n"
        + function("BEGAN")
        + "\n\ndef main():\n    open('x', 'w')\n"
    ),
}


@pytest.mark.parametrize("case", INNOCENT)
def test_what_gives_the_same_with_every_try_is_not_accused(tmp_path: Path, case: str) -> None:
    """A warning that is wrong teaches people to overlook the right one."""
    assert suspects(described(written(tmp_path, INNOCENT[case]))) == []


@pytest.mark.parametrize("name", HONEST)
def test_the_jobs_of_this_project_are_beyond_suspicion(tmp_path: Path, name: str) -> None:
    """They are what users begin with."""
    topology = honest_job(name, tmp_path).topology(str(tmp_path / "root"), no_spark)

    assert len(topology.operators) >= 1
    assert suspects(topology) == []


def test_a_suspicion_is_a_sentence_with_the_place_and_what_to_do(tmp_path: Path) -> None:
    """It is read by whoever wrote the job."""
    before = "import os, time\nSEEN = []\ndef stamp():\n    return time.time()"
    text = function("stamp()", "os.remove(user)", "SEEN.append(user)", before=before)
    said = [str(each) for each in suspects(described(written(tmp_path, text)))]

    assert said == [
        "function stamp of job.py, line 6, called in operator rate, asks time.time for the time: "
        "take moment.time",
        "function rate of job.py, line 10, acts on the outside with os.remove, and does it again "
        "when an epoch is tried again: yield a row, and let a sink do it",
        "function rate of job.py, line 11, keeps something outside its state, in SEEN: "
        "take a ps.Value, ps.List or ps.Map",
    ]


def test_a_function_of_a_file_beside_the_job_is_followed_and_one_of_a_library_is_not(
    tmp_path: Path,
) -> None:
    """What users import from their own files is theirs as well."""
    (tmp_path / "beside_the_job.py").write_text("import time\n\n\ndef now():\n    time.time()\n")
    before = "import json, tempfile\nfrom beside_the_job import now"
    path = written(tmp_path, function("now(), tempfile.mkdtemp(), json.dumps(1)", before=before))

    found = suspects(described(path))
    assert [(Path(each.file).name, each.line) for each in found] == [("beside_the_job.py", 5)]


def test_transforms_are_looked_at_as_well(tmp_path: Path) -> None:
    """Spark reads rows again for another try, and draws again."""
    log = clicks_log(tmp_path)
    path = tmp_path / "job.py"
    path.write_text(
        "import penstock as ps\n"
        "from pyspark.sql import functions as F\n"
        f"{function()}\n"
        "job = ps.Job('job', partitions=1)\n"
        f"clicks = job.read(ps.Log({log.url!r}), name='clicks')\n"
        "clicks = clicks.transform(lambda df: df.where('n > 1'))\n"
        "clicks = clicks.transform(lambda df: df.withColumn('n', F.rand()))  # here\n"
        "clicks.key_by('user').process(rate).write(ps.Table('out'))\n"
    )
    topology = load_job(str(path)).topology(str(tmp_path / "root"), lambda _, schema: schema)
    found = suspects(topology)

    assert [each.name for each in found] == ["pyspark.sql.functions.rand"]
    assert [each.line for each in found] == marked(path)


class Odd:
    """Answers everything with an error."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


ODD = Odd()


def test_code_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    """Functions without a source, of C, with cells that are empty, with objects that bite."""
    names: dict[str, Any] = {"ps": ps, "odd": ODD}
    exec("@ps.vectorized(emits='n long')\ndef without(batch: ps.Batch):\n    return odd.x\n", names)

    @ps.vectorized(emits="n long")
    def biting(batch: ps.Batch) -> Any:
        ODD.append(batch)
        ODD[1] = ODD.time().now
        return later(ODD)

    if len(str(tmp_path)) > 10_000:

        def later(_: Any) -> Any:
            """Never defined."""

    log = clicks_log(tmp_path)
    job = ps.Job("job", partitions=1)
    stream = job.read(log, name="clicks").key_by("user")
    for number, odd in enumerate((names["without"], biting)):
        stream.process(odd).write(ps.Table(f"out-{number}"))

    assert suspects(job.topology(str(tmp_path / "root"), no_spark)) == []


def test_a_file_that_has_changed_since_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    """A line that is no longer there must not be blamed."""
    path = written(tmp_path, function("time.time()", before="import time"))
    topology = described(path)
    path.write_text("nothing = 0\n" * 30)

    assert suspects(topology) == []
