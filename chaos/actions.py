"""The actions of a simulated run, counted when they took effect.

A campaign that never went back proves nothing about going back: an action with the count zero fails
it, like a fault that never happened.
"""

from enum import StrEnum

__all__ = ["Action"]


class Action(StrEnum):
    """What a process of the model world has done."""

    COMMIT = "committed an epoch"
    EMPTY_COMMIT = "committed an epoch without events"
    INDEX = "extended the index of a table"
    COLLECT = "collected garbage"
    SWEEP = "swept garbage below a table"
    KEPT_BY_AGE = "kept an epoch only because it is young"
    PIN = "made a savepoint"
    UNPIN = "removed a savepoint"
    REWIND = "went back to an earlier epoch"
    RETURN = "returned to a savepoint"
    FORK = "forked"
    GO_ON_IN_FORK = "went on in a fork"
    ADD_SINK = "added a sink"
    GIVE_UP_SINK = "gave a changelog up"
    ACCEPT = "accepted a sink after going back"
    READ = "read the committed outputs"
    INSPECT = "inspected the root"
    LETTER = "set an event aside as a dead letter"
    ASK = "asked for dead letters"
    ASK_AGAIN = "asked for a dead letter once more"
    ASK_ELSEWHERE = "asked for a dead letter of another line"
    REFUSED_OLD = "took a request back after a rewind"
    REPLAY = "replayed a dead letter"
    REPLAY_IN_VAIN = "replayed a dead letter that failed again"
    REPLAY_IN_FORK = "replayed a dead letter in a fork"
    TAKE_BACK = "took a replay back by going back"
