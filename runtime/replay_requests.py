"""Requests to replay dead letters: written by a person's command, read by the leader.

A request is an object of its own name that never changes, so it survives every crash and any
number of them may be made at once. It says which line of history its letters were seen in. In
another line the same places may hold other letters, or their events may have been processed: a
request that is older than the last rewind is removed, and its letters stay as they are.

A request is a few bytes and may name any number of letters, and each of them becomes memory of the
leader. So a request of more than `LETTERS_MAX` is left alone, and commands write several instead.

These are protocols without I/O: they yield effects, and the simulator can perform them.
"""

import logging
from collections.abc import Iterable, MutableMapping

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import seal, unseal
from penstock.checkpoint.layout import request_key, request_prefix
from penstock.effects import Delete, Get, Page, Put, Steps
from penstock.errors import Corrupt, Invalid
from penstock.ids import Generation, Key
from penstock.points import Point
from penstock.runtime.letters import REQUEST_FORMAT, LetterKey, Request, grouped

__all__ = ["LETTERS_MAX", "ask", "open_requests", "remove_outdated", "remove_requests"]

READS_MAX = 4
"""How often a request that cannot be understood is read again before it is left alone."""

LETTERS_MAX = 100_000
"""Letters that one request may name."""

log = logging.getLogger("penstock.run")


def ask(
    operator: str, generation: Generation, letters: Iterable[LetterKey], mark: str
) -> Steps[Key]:
    """Write a request for letters that were seen in a line of history; its name.

    1. Write it under a name of its own; `mark` must be unique.
    2. Look at HEAD: if history was rewound since the letters were seen, take the request back. A
       crash before that leaves a request of an older line, which no leader acts upon.
    """
    key = request_key(operator, generation, mark)
    request = Request(operator=operator, generation=generation, letters=grouped(letters))
    yield Put(Point.LETTER_ASK, key, seal(request))  # 1
    head = (yield from Chain().head(Point.LETTER_CHECK)).document
    if head.generation != generation:  # 2
        yield Delete(Point.LETTER_REMOVE, key)
        found = f"went from generation {generation} to {head.generation} meanwhile"
        raise Invalid("the history of the job", found, "list the dead letters again, and choose")
    return key


def open_requests(
    operator: str, generation: Generation, known: MutableMapping[Key, Request | None]
) -> Steps[dict[Key, Request]]:
    """The requests of one line of history. `known` are those that need not be read again; one
    that cannot be read is None there, and is reported once."""
    found: dict[Key, Request] = {}
    after = ""
    while page := (yield Page(Point.LETTER_LIST, request_prefix(operator), after)):
        after = page[-1].key
        for entry in page:
            if entry.key not in known:
                yield from _read(entry.key, operator, known)
            request = known.get(entry.key)
            if request is not None and request.generation == generation:
                found[entry.key] = request
    return found


def remove_outdated(
    generation: Generation, known: MutableMapping[Key, Request | None]
) -> Steps[None]:
    """Remove those of the known requests that were made before history was rewound."""
    for key, request in known.items():
        if request is not None and request.generation < generation:
            log.warning("%s was made before history was rewound: ask again", key)
            known[key] = None
            yield Delete(Point.LETTER_REMOVE, key)


def remove_requests(keys: Iterable[Key]) -> Steps[None]:
    """Forget requests that are fulfilled."""
    for key in keys:
        yield Delete(Point.LETTER_REMOVE, key)


def _read(key: Key, operator: str, known: MutableMapping[Key, Request | None]) -> Steps[None]:
    """Read a request that was listed. One that is not there was fulfilled and removed by another
    leader, or is not to be seen yet: the next look decides."""
    for remaining in reversed(range(READS_MAX)):
        try:
            stored = yield Get(Point.LETTER_READ, key)
            if stored is None:
                return
            known[key] = _checked(unseal(key, stored.body, Request, REQUEST_FORMAT), key, operator)
            return
        except (Corrupt, Invalid) as error:  # a wire may flip a bit, once
            if not remaining:
                log.warning("a request to replay dead letters is left alone: %s", error)
                known[key] = None


def _checked(request: Request, key: Key, operator: str) -> Request:
    if request.operator != operator:
        raise Invalid(key, f"is of operator {request.operator!r}", "remove it")
    if request.count > LETTERS_MAX:
        found = f"names {request.count:,} letters, and a request names {LETTERS_MAX:,} at most"
        raise Invalid(key, found, "remove it: Penstock wrote no such request")
    return request
