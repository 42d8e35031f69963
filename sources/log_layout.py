"""What is where below a topic.

    TOPIC                                             what the topic is; replaced by swap
    partitions/<partition>/TAIL                       what a partition holds; replaced by swap
    partitions/<partition>/segments/<version>-<name>.arrow
    partitions/<partition>/pages/<version>-<name>.json

Invariant: but for TOPIC and TAIL no name is ever used twice, and a name says which version of
TAIL its writer had seen. TAIL's floor is the promise that nothing named below it will ever be
taken in: so what is below the floor, and not reached from TAIL, never will be. Sweeping needs
neither a clock nor the word of a producer.
"""

import re

from penstock.ids import Key

__all__ = ["TOPIC_KEY", "page_key", "partition_prefix", "segment_key", "tail_key", "version_of"]

TOPIC_KEY = Key("TOPIC")
_VERSION = re.compile(r"partitions/\d{6}/(?:segments|pages)/(\d{12})-[^/]+\.(?:arrow|json)")


def partition_prefix(partition: int) -> str:
    """What everything of a partition starts with."""
    return f"partitions/{partition:06d}/"


def tail_key(partition: int) -> Key:
    """Where the partition's TAIL is."""
    return Key(f"{partition_prefix(partition)}TAIL")


def segment_key(partition: int, version: int, name: str) -> Key:
    """Where a segment goes whose writer has seen that version of TAIL."""
    return Key(f"{partition_prefix(partition)}segments/{version:012d}-{name}.arrow")


def page_key(partition: int, version: int, name: str) -> Key:
    """Where a page of pieces goes whose writer has seen that version of TAIL."""
    return Key(f"{partition_prefix(partition)}pages/{version:012d}-{name}.json")


def version_of(key: str) -> int | None:
    """The version in the name of a segment or page; None for anything else."""
    found = _VERSION.fullmatch(key)
    return None if found is None else int(found[1])
