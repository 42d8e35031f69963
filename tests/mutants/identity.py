"""Planted bugs of what is known again: a changed job over an old root, a file that is another."""

import tempfile
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import Manifest
from penstock.runtime import compatibility
from penstock.runtime.description import JobDescription
from penstock.runtime.loop import EpochLoop
from penstock.runtime.planning import EpochPlan
from penstock.sources import files_discovery
from tests.mutants.mutant import Mutant, by
from tests.runtime import test_changed_job as changed
from tests.sources import test_files as files

honest_refs = Manifest.refs


def never_told(loop: EpochLoop, plan: EpochPlan) -> Ref | None:
    """Name the description that the root has, and never store one."""
    return plan.position.description


def told_as_declared(known: JobDescription, declared: JobDescription) -> JobDescription:
    """Forget what the job has left out."""
    return declared


def refs_of_data(manifest: Manifest) -> Iterator[Ref]:
    """All that an epoch names, but the description."""
    return (ref for ref in honest_refs(manifest) if ref != manifest.description)


def kept_ends(file: Any) -> str:
    """Record nothing of how a file begins and ends."""
    return ""


def on_sales(test: Callable[[Path, ps.Log], None]) -> Callable[[], None]:
    """A test of a changed job, in a folder of its own."""

    @wraps(test)
    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder), changed.sales(Path(folder)))

    return run


def a_rewritten_file() -> None:
    """The test of it, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        scene = files.Scene.below(Path(folder))
        files.test_a_file_rewritten_with_equal_size_and_time_gives_no_rows(scene)


MUTANTS = (
    Mutant(
        "description-never-stored",
        "a root does not remember its job: another key goes into the same state",
        ((EpochLoop, "_description", never_told),),
        by(on_sales(changed.test_another_key_over_the_same_state_is_refused)),
    ),
    Mutant(
        "keys-not-compared",
        "only names of operators are compared, and not what they are keyed by",
        ((compatibility, "_keys", lambda known, now: ()),),
        by(on_sales(changed.test_another_key_over_the_same_state_is_refused)),
    ),
    Mutant(
        "columns-not-compared",
        "a table is given a column of another type, and cannot be read any more",
        ((compatibility, "_sink", lambda name, known, now: ()),),
        by(
            on_sales(
                changed.test_an_emitted_column_of_another_type_is_refused_and_the_table_stays_readable
            )
        ),
    ),
    Mutant(
        "left-out-is-forgotten",
        "a column that was left out may come back as another type, over its old rows",
        ((compatibility, "adopted", told_as_declared),),
        by(on_sales(changed.test_a_column_that_was_left_out_comes_back_as_it_was)),
    ),
    Mutant(
        "description-collected",
        "the description counts as garbage once its first epoch is passed",
        ((Manifest, "refs", refs_of_data),),
        by(on_sales(changed.test_a_description_is_stored_once_and_kept_while_it_is_named)),
    ),
    Mutant(
        "file-by-size-and-time",
        "a file is the recorded one if it has its size and time, whatever is in it",
        ((files_discovery, "hash_ends", kept_ends),),
        by(a_rewritten_file),
    ),
)
