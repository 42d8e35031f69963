"""Every planted bug. Those with a B happened to others; the rest break one rule of ours
each, in the way that looks most natural."""

from tests.mutants import collection, commits, epochs, leadership, logs, partitions, sinks, stores

MUTANTS = (
    *commits.MUTANTS,
    *stores.MUTANTS,
    *leadership.MUTANTS,
    *collection.MUTANTS,
    *sinks.MUTANTS,
    *partitions.MUTANTS,
    *logs.MUTANTS,
    *epochs.MUTANTS,
)
