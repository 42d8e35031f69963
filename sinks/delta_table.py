"""A Delta table as a sink needs it: loaded anew each time, made if need be, and looked over.

A table may be changed by others at any time, so it is looked over whenever it is loaded. What would
refuse a row after its epoch is decided, such as a constraint, and what would make the cursor go
away, is refused here, before anything is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from penstock.errors import Invalid
from penstock.sinks.delta_columns import kept_as
from penstock.sinks.delta_errors import explained, is_conflict
from penstock.sinks.delta_place import Place

__all__ = ["Shape", "TableAt", "columns_of"]

CHECKPOINT_COMMITS = "10"
"""How many commits a reader of the log has to go through at most. Each epoch is one."""

_CONSTRAINT = "delta.constraints."
_FORGETS = "delta.setTransactionRetentionDuration"
_MAPPING = "delta.columnMapping.mode"
_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a sink asks of its table."""

    columns: pa.Schema
    """With the types that a table gives them."""
    key: Sequence[str]
    partition_by: Sequence[str]


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table at its place."""

    sink: str
    place: Place
    shape: Shape

    def __str__(self) -> str:
        return f"sink {self.sink}, table {self.place}"

    def load(self) -> DeltaTable:
        """The table as it is now, if it takes the sink's rows."""
        with explained(str(self), self.place):
            return self._checked()

    def made(self, *, create: bool) -> DeltaTable:
        """The table, created if there is none and that was asked for."""
        with explained(str(self), self.place):
            try:
                table = self._checked()
            except TableNotFoundError:
                if not create:
                    raise
                self._create()
                table = self._checked()
            if not _is_append_only(table):
                table.delete("false")  # commits nothing: the client says whether it could
            return table

    def _checked(self) -> DeltaTable:
        table = DeltaTable(self.place.url, storage_options=self.place.options())
        self._check_settings(table)
        self._check_columns(table)
        return table

    def _create(self) -> None:
        if self.place.is_taken():
            found = "holds something that is no Delta table"
            raise Invalid(str(self), found, "give the sink a place of its own")
        try:
            DeltaTable.create(
                self.place.url,
                schema=self.shape.columns,
                mode="ignore",
                partition_by=list(self.shape.partition_by),
                configuration={"delta.checkpointInterval": CHECKPOINT_COMMITS},
                storage_options=self.place.options(),
                # Without this the second of two creators would replace what the first has made.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError as error:
            if not is_conflict(error):
                raise

    def _check_settings(self, table: DeltaTable) -> None:
        found = table.metadata()
        settings = found.configuration
        rules = [name for name in settings if name.startswith(_CONSTRAINT)]
        if rules:
            raise self._refused(
                f"has the constraint {rules[0].removeprefix(_CONSTRAINT)!r}, which a row could "
                "break when it can no longer be taken back",
                "drop it, or use another table",
            )
        if _FORGETS in settings:
            said = f"forgets cursors, because its {_FORGETS} is {settings[_FORGETS]!r}"
            raise self._refused(said, "unset that property, or use another table")
        if settings.get(_MAPPING, "none") != "none":
            said = f"gives its columns other names in its files ({_MAPPING})"
            raise self._refused(said, "use a table without column mapping")
        if self.shape.key and _is_append_only(table):
            raise self._refused("takes no row back, and the sink has a key", "unset appendOnly")
        if found.partition_columns != list(self.shape.partition_by):
            said = f"is parted by {_listed(found.partition_columns)}, and the sink says "
            said += _listed(self.shape.partition_by)
            raise self._refused(said, "give the sink `partition_by` as the table has it")

    def _check_columns(self, table: DeltaTable) -> None:
        kinds = {field.name: kept_as(field.type) for field in columns_of(table)}
        wanted = set(self.shape.columns.names)
        for field in table.schema().fields:
            ruled = any(name.startswith(_RULES) for name in field.metadata)
            must_be = not field.nullable and field.name not in self.shape.key
            if ruled or must_be:
                said = "has a rule of its own in the table" if ruled else "must have a value there"
                whose = "rows can be without one" if field.name in wanted else "rows have none"
                advice = "take that off the column, or use another table"
                raise self._refused(f"{said}, and {whose}", advice, field.name)
        for column in self.shape.columns:
            if column.name not in kinds:
                advice = "add it to the table, or emit rows without it"
                raise self._refused("is not in the table", advice, column.name)
            if kinds[column.name] != column.type:
                said = f"is {kinds[column.name]} in the table, and the rows have {column.type}"
                raise self._refused(said, "cast it, or name another column", column.name)

    def _refused(self, found: str, advice: str, column: str | None = None) -> Invalid:
        return Invalid(f"{self}, column {column!r}" if column else str(self), found, advice)


def columns_of(table: DeltaTable) -> pa.Schema:
    """All the columns of a table, in their order."""
    return pa.schema(table.schema().to_arrow())


def _is_append_only(table: DeltaTable) -> bool:
    return table.metadata().configuration.get("delta.appendOnly", "false").lower() == "true"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
