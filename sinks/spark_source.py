"""Tables of a job as a Spark data source, read-only.

    register(spark)
    spark.read.format("penstock").option("root", …).option("table", …).option("epoch", …).load()

The epoch is decided once, when the data frame is made: whatever is computed from it later, and
however often, sees the same rows. With columns named by `.schema(...)` Spark asks nothing before
it runs a query, so there each query sees the HEAD of its own time, unless an epoch is given. Files
are verified where they are read. The rows of a data frame have no order; the columns of
provenance tell it.
"""

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.root import Root
from penstock.errors import Invalid
from penstock.ids import Epoch
from penstock.sinks.table_index import TableFile, TableFiles, find_files
from penstock.sinks.table_read import fetch_file, fitted, refuse_strangers, table_schema

__all__ = ["PenstockDataSource", "register"]

GROUP_BYTES_MAX = 16 << 20
"""What one task reads, unless a single file is larger."""

GROUP_FILES_MAX = 256


def register(spark: SparkSession) -> None:
    """Let a session read `format("penstock")`."""
    spark.dataSource.register(PenstockDataSource)


class PenstockDataSource(DataSource):
    """One table as of one epoch."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        root, epoch = _option(options, "root"), options.get("epoch")
        self._at = _Place(
            root,
            _option(options, "table"),
            Root.open(root).head().epoch if epoch is None else _number(epoch),
        )
        self._takes_all = False

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "penstock"

    def schema(self) -> StructType:
        """The columns of the table. Spark asks for them unless the user has named some, and sends
        this object on afterwards: who reads must know whether a column may be left out."""
        self._takes_all = True
        columns = table_schema(self._at.table, self._at.files())
        try:
            return from_arrow_schema(columns)
        except PySparkException as why:
            raise Invalid(
                f"table {self._at.table}",
                f"has a column that Spark cannot hold ({why})",
                "name the columns you want with `.schema(...)`, or use `read_table`",
            ) from why

    def reader(self, schema: StructType) -> DataSourceReader:
        """What plans and reads these columns."""
        return _TableReader(self._at, schema, self._takes_all)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to read, in words that can be sent to another process."""

    root: str
    table: str
    epoch: Epoch

    def files(self) -> TableFiles:
        return find_files(Root.open(self.root), self.table, self.epoch)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A root in the process of a task, and the line of history that its files are on."""

    root: Root
    chain: Chain


class _TableReader(DataSourceReader):
    """Plans in the driver, reads in tasks."""

    def __init__(self, at: _Place, schema: StructType, takes_all: bool) -> None:
        self._at = at
        self._schema = schema
        self._takes_all = takes_all

    def partitions(self) -> list[InputPartition]:
        files = self._at.files()
        return [InputPartition((files.generation, refs)) for refs in _grouped(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        root = Root.open(self._at.root)
        columns = to_arrow_schema(self._schema, timezone="UTC")
        if partition.value is None:  # Spark makes a partition where there is none
            return
        generation, refs = partition.value
        place = _Opened(root, Chain(generation=generation))
        for ref in refs:
            found, batches = fetch_file(place, ref)
            if self._takes_all:
                refuse_strangers(self._at.table, ref, found, columns)
            yield from (fitted(self._at.table, batch, columns) for batch in batches)


def _grouped(files: Iterable[TableFile]) -> Iterator[tuple[Ref, ...]]:
    """Consecutive files, so many that a task is worth starting."""
    group: list[Ref] = []
    size_bytes = 0
    for file in files:
        ref = file.output.ref
        is_full = size_bytes + ref.size_bytes > GROUP_BYTES_MAX or len(group) == GROUP_FILES_MAX
        if group and is_full:
            yield tuple(group)
            group, size_bytes = [], 0
        group.append(ref)
        size_bytes += ref.size_bytes
    if group:
        yield tuple(group)


def _option(options: MutableMapping[str, str], name: str) -> str:
    if not options.get(name):
        raise Invalid(
            'format("penstock")',
            f"was not told the {name}",
            f'add `.option("{name}", …)`; it needs a root and a table',
        )
    return options[name]


def _number(text: str) -> Epoch:
    try:
        return Epoch(int(text))
    except ValueError as unknown:
        raise Invalid(
            f"epoch {text!r}", "is not a number", "give the number of a committed epoch"
        ) from unknown
