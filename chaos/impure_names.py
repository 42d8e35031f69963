"""Names that a function of a job had better not use: they differ from call to call, or they act.

A function is known by the object that it is, whatever a job calls it: after `from time import time
as now`, `now` is still `time.time`. A method is known by the class it belongs to. Modules that are
not loaded are not asked for, because nothing in a job can stand for what is in them.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any

__all__ = ["Known", "Names", "What"]


class What(StrEnum):
    """In which way a function is under suspicion."""

    DIFFERS = "differs"
    """What it asks for is another thing with every try of an epoch."""
    ACTS = "acts"
    """It does something to the outside, and does it again with every try."""
    KEEPS = "keeps"
    """It keeps something outside its state, which no commit covers."""


IsText = Callable[[ast.expr], bool]
When = Callable[[ast.Call | None, IsText], bool]
"""Whether it matters, as it is called; None: it is only named, for others to call."""


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to say of a name."""

    what: What
    said: str
    """The rest of a sentence about whoever uses it."""
    when: When


def _always(call: ast.Call | None, is_text: IsText) -> bool:
    return True


def _called(call: ast.Call | None, is_text: IsText) -> bool:
    return call is not None


def _with_fewer(wanted: int) -> When:
    """Unless it is given so many arguments: a seed, or a moment."""

    def when(call: ast.Call | None, is_text: IsText) -> bool:
        if call is None:
            return False
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        return sum(not _is_none(each) for each in given) < wanted

    return when


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _writing(place: int) -> When:
    """If the mode, which is the argument at that place, is one that writes."""

    def when(call: ast.Call | None, is_text: IsText) -> bool:
        if call is None:
            return False
        named = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
        modes = (*named, *call.args[place : place + 1])
        texts = [mode.value for mode in modes if isinstance(mode, ast.Constant)]
        return any(isinstance(text, str) and set(text) & set("wax+") for text in texts)

    return when


def _with_writing_flags(call: ast.Call | None, is_text: IsText) -> bool:
    flags = "" if call is None else ast.unparse(call)
    return any(word in flags for word in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"))


def _of_text(call: ast.Call | None, is_text: IsText) -> bool:
    return call is not None and len(call.args) == 1 and is_text(call.args[0])


_TIME = "asks {name} for the time: take moment.time"
_CHANCE = "asks {name} for chance: take moment.random"
_KEPT_CHANCE = "asks {name} of a generator that goes on from call to call: take moment.random"
_HERE = "asks {name} for what differs from process to process: let nothing depend on it"
_HASH = "asks {name} of a text, which may differ from process to process: take zlib.crc32"
_SPARK = "asks {name} for what differs when rows are read again: make it of the event's own columns"
_ACTS = (
    "acts on the outside with {name}, and does it again when an epoch is tried again: "
    "yield a row, and let a sink do it"
)


def _differs(said: str, when: When = _always) -> Known:
    return Known(What.DIFFERS, said, when)


def _acts(when: When = _always) -> Known:
    return Known(What.ACTS, _ACTS, when)


_DRAWS = (
    "betavariate choice choices expovariate gammavariate gauss getrandbits lognormvariate "
    "normalvariate paretovariate randbytes randint random randrange sample shuffle triangular "
    "uniform vonmisesvariate weibullvariate"
)
_NUMPY_DRAWS = (
    "beta binomial bytes chisquare choice dirichlet exponential f gamma geometric gumbel "
    "hypergeometric integers laplace logistic lognormal logseries multinomial multivariate_normal "
    "negative_binomial noncentral_chisquare noncentral_f normal pareto permutation permuted "
    "poisson power rand randint randn random random_integers random_sample ranf rayleigh sample "
    "shuffle standard_cauchy standard_exponential standard_gamma standard_normal standard_t "
    "triangular uniform vonmises wald weibull zipf"
)
_VERBS = "delete get head options patch post put request"

_FUNCTIONS: tuple[tuple[str, str, Known], ...] = (
    (
        "time",
        "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time "
        "process_time_ns thread_time thread_time_ns clock_gettime clock_gettime_ns",
        _differs(_TIME),
    ),
    ("time", "localtime gmtime ctime asctime", _differs(_TIME, _with_fewer(1))),
    ("time", "strftime", _differs(_TIME, _with_fewer(2))),
    ("random", _DRAWS, _differs(_CHANCE)),
    ("random", "Random", _differs(_CHANCE, _with_fewer(1))),
    ("random", "SystemRandom", _differs(_CHANCE, _called)),
    ("numpy.random", _NUMPY_DRAWS, _differs(_CHANCE)),
    (
        "numpy.random",
        "default_rng RandomState SeedSequence MT19937 PCG64 PCG64DXSM Philox SFC64",
        _differs(_CHANCE, _with_fewer(1)),
    ),
    ("uuid", "uuid1 uuid4", _differs(_CHANCE)),
    ("os", "urandom getrandom", _differs(_CHANCE)),
    (
        "secrets",
        "choice randbelow randbits token_bytes token_hex token_urlsafe",
        _differs(_CHANCE),
    ),
    ("builtins", "id", _differs(_HERE)),
    ("builtins", "hash", _differs(_HASH, _of_text)),
    ("os", "getpid getppid", _differs(_HERE)),
    ("threading", "get_ident get_native_id", _differs(_HERE)),
    ("socket", "gethostname getfqdn", _differs(_HERE)),
    ("platform", "node", _differs(_HERE)),
    (
        "pyspark.sql.functions",
        "current_date current_timestamp localtimestamp monotonically_increasing_id now rand randn "
        "shuffle uuid",
        _differs(_SPARK),
    ),
    ("builtins", "open", _acts(_writing(1))),
    ("gzip", "open", _acts(_writing(1))),
    ("bz2", "open", _acts(_writing(1))),
    ("lzma", "open", _acts(_writing(1))),
    ("codecs", "open", _acts(_writing(1))),
    ("zipfile", "ZipFile", _acts(_writing(1))),
    ("tarfile", "open", _acts(_writing(1))),
    ("os", "fdopen", _acts(_writing(1))),
    ("os", "open", _acts(_with_writing_flags)),
    (
        "os",
        "chmod chown execv execve execvp fork kill killpg link makedirs mkdir mkfifo popen "
        "posix_spawn putenv pwrite remove removedirs rename renames replace rmdir symlink system "
        "truncate unlink unsetenv utime write",
        _acts(),
    ),
    ("shutil", "copy copy2 copyfile copytree make_archive move rmtree unpack_archive", _acts()),
    ("subprocess", "call check_call check_output getoutput getstatusoutput run", _acts()),
    ("subprocess", "Popen", _acts(_called)),
    ("socket", "socket create_connection", _acts(_called)),
    ("urllib.request", "urlopen urlretrieve", _acts()),
    ("http.client", "HTTPConnection HTTPSConnection", _acts(_called)),
    ("requests", _VERBS, _acts()),
    ("requests", "Session session", _acts(_called)),
    ("httpx", f"{_VERBS} stream", _acts()),
    ("httpx", "AsyncClient Client", _acts(_called)),
    ("aiohttp", "ClientSession", _acts(_called)),
    ("smtplib", "SMTP SMTP_SSL", _acts(_called)),
    ("sqlite3", "connect", _acts()),
    ("psycopg", "connect", _acts()),
    ("psycopg2", "connect", _acts()),
    ("pymongo", "MongoClient", _acts(_called)),
    ("redis", "Redis StrictRedis from_url", _acts(_called)),
    ("boto3", "client resource", _acts()),
    ("confluent_kafka", "Producer", _acts(_called)),
    ("numpy", "save savetxt savez savez_compressed", _acts()),
    ("pyarrow.parquet", "write_table write_to_dataset", _acts()),
)
"""Modules, functions of them or classes that are called, and what there is to say."""

_METHODS: tuple[tuple[str, str, Known], ...] = (
    ("datetime.datetime", "now today utcnow", _differs(_TIME)),
    ("datetime.date", "today", _differs(_TIME)),
    (
        "pathlib.Path",
        "chmod hardlink_to mkdir rename replace rmdir symlink_to touch unlink write_bytes "
        "write_text",
        _acts(),
    ),
    ("pathlib.Path", "open", _acts(_writing(0))),
)
"""The same for methods of classes and of those below them."""

_KEPT_METHODS: tuple[tuple[str, str, Known], ...] = (
    ("random.Random", _DRAWS, _differs(_KEPT_CHANCE)),
    ("numpy.random.Generator", _NUMPY_DRAWS, _differs(_KEPT_CHANCE)),
    ("numpy.random.RandomState", _NUMPY_DRAWS, _differs(_KEPT_CHANCE)),
    ("requests.Session", _VERBS, _acts()),
    ("penstock.clock.SystemClock", "monotonic wall", _differs(_TIME)),
    ("penstock.clock.SystemChance", "fraction unique", _differs(_CHANCE)),
)
"""The same for objects that were there before the function was called. A generator that a function
makes itself, from a seed, gives the same with every try."""

UNMISTAKABLE = ("write_bytes", "write_text")
"""Methods of a path that nothing else has, so that nobody need know what they are called on."""


class Names:
    """Looks up what values are."""

    def __init__(self) -> None:
        self._left = list(_FUNCTIONS)
        """Those whose modules are not loaded yet."""
        self._by_id: dict[int, tuple[Any, tuple[str, Known]]] = {}
        """With the object itself, so that no other can come to have its id."""

    def function(self, value: Any) -> tuple[str, Known] | None:
        """What is known of a function or a class, and its name."""
        for row in [row for row in self._left if row[0] in sys.modules]:
            self._left.remove(row)
            self._by_id.update(_members(*row))
        found = self._by_id.get(id(value))
        return None if found is None else found[1]

    @staticmethod
    def method(kind: type, name: str, *, is_kept: bool) -> tuple[str, Known] | None:
        """What is known of a method of a class, or of an object that was there before."""
        for dotted, names, known in (*_METHODS, *(_KEPT_METHODS if is_kept else ())):
            if name in names.split() and _is_below(kind, dotted):
                return f"{dotted}.{name}", known
        return None

    @staticmethod
    def unmistakable(name: str) -> tuple[str, Known] | None:
        """What is known of a method by its name alone."""
        return (f"pathlib.Path.{name}", _acts()) if name in UNMISTAKABLE else None

    @staticmethod
    def imported(name: str) -> ModuleType | None:
        """A module that a function imports. It is loaded only if something is known of it."""
        if name not in sys.modules and _is_known(name):
            with suppress(Exception):  # it may not be installed
                importlib.import_module(name)
        return sys.modules.get(name)


def _members(
    module: str, names: str, known: Known
) -> Iterator[tuple[int, tuple[Any, tuple[str, Known]]]]:
    for name in names.split():
        value = getattr(sys.modules[module], name, None)
        if callable(value):
            told = name if module == "builtins" else f"{module}.{name}"
            yield id(value), (value, (told, known))


def _is_below(kind: type, dotted: str) -> bool:
    module, _, name = dotted.rpartition(".")
    known = getattr(sys.modules.get(module), name, None)
    return inspect.isclass(known) and issubclass(kind, known)


def _is_known(name: str) -> bool:
    modules = {module for module, *_ in _FUNCTIONS}
    modules |= {dotted.rpartition(".")[0] for dotted, *_ in (*_METHODS, *_KEPT_METHODS)}
    return any(module == name or module.startswith(f"{name}.") for module in modules)
