"""Crash points: every place where a protocol touches the world, by name.

An effect carries the point it happens at, so a test, the simulator or a chaos run can say
"die here, the third time" without the production code knowing. Nothing looks at the names
unless somebody armed them: `penstock.checkpoint.perform` runs plain handlers otherwise.
"""

from enum import StrEnum

__all__ = ["COMMIT_POINTS", "LOG_POINTS", "Point"]


class Point(StrEnum):
    """One name per place. `make crashpoints` fails when one of them is never reached; those of
    the sources, which are no part of a commit, are not: `make sim-log` reaches those of the log."""

    TAKEOVER_READ = "takeover.read"
    TAKEOVER_EMPTY = "takeover.empty"
    TAKEOVER_SWAP = "takeover.swap"
    TAKEOVER_SETTLE = "takeover.settle"

    RECOVER_MANIFEST = "recover.manifest"
    RECOVER_HEAD = "recover.head"

    STAGE_DELTA = "stage.delta"
    STAGE_SNAPSHOT = "stage.snapshot"
    STAGE_OUTPUT = "stage.output"

    COMMIT_MANIFEST = "commit.manifest"
    COMMIT_SWAP = "commit.swap"
    COMMIT_SETTLE = "commit.settle"

    SINK_CURSOR = "sink.cursor"
    SINK_OUTPUT = "sink.output"
    SINK_APPLY = "sink.apply"

    COLLECT_HEAD = "collect.head"
    COLLECT_MANIFEST = "collect.manifest"
    COLLECT_PINS = "collect.pins"
    COLLECT_PIN = "collect.pin"
    COLLECT_LIST = "collect.list"
    COLLECT_RECHECK = "collect.recheck"
    COLLECT_DELETE = "collect.delete"

    PIN_TARGET = "pin.target"
    PIN_WRITE = "pin.write"
    PIN_CHECK = "pin.check"
    PIN_REMOVE = "pin.remove"

    FORK_EMPTY = "fork.empty"
    FORK_COPY = "fork.copy"
    FORK_SWAP = "fork.swap"
    FORK_SETTLE = "fork.settle"

    HEARTBEAT_LOOK = "heartbeat.look"
    HEARTBEAT_BEAT = "heartbeat.beat"
    HEARTBEAT_RELEASE = "heartbeat.release"
    STANDBY_HEAD = "standby.head"
    STANDBY_BEAT = "standby.beat"

    READ_HEAD = "read.head"
    READ_MANIFEST = "read.manifest"
    READ_OBJECT = "read.object"

    LETTER_ASK = "letter.ask"
    LETTER_CHECK = "letter.check"
    LETTER_LIST = "letter.list"
    LETTER_READ = "letter.read"
    LETTER_REMOVE = "letter.remove"

    LOG_TOPIC = "log.topic"
    LOG_TOPIC_SWAP = "log.topic.swap"
    LOG_TOPIC_SETTLE = "log.topic.settle"
    LOG_TAIL = "log.tail"
    LOG_CLAIMS = "log.claims"
    LOG_STAGE = "log.stage"
    LOG_PAGE = "log.page"
    LOG_SWAP = "log.swap"
    LOG_SETTLE = "log.settle"
    LOG_READ_PAGE = "log.read.page"
    LOG_READ_SEGMENT = "log.read.segment"
    LOG_LIST = "log.list"
    LOG_DELETE = "log.delete"

    FILES_ORDER = "files.order"
    FILES_CHUNK = "files.chunk"
    FILES_STAGE = "files.stage"
    FILES_SWAP = "files.swap"
    FILES_SETTLE = "files.settle"


LOG_POINTS = tuple(point for point in Point if point.startswith("log."))
"""Where the embedded log touches the world."""

_ELSEWHERE = ("log.", "files.")
COMMIT_POINTS = tuple(point for point in Point if not point.startswith(_ELSEWHERE))
"""Where a job's own protocols do, and the requests that they obey."""
