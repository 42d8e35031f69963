"""Every planted bug. B1 to B8 and B21 to B23 happened to others; the rest break one rule of ours
each, in the way that looks most natural."""

from tests.mutants import collection, commits, leadership, sinks, stores

MUTANTS = (
    *commits.MUTANTS,
    *stores.MUTANTS,
    *leadership.MUTANTS,
    *collection.MUTANTS,
    *sinks.MUTANTS,
)
