"""A person who looks at the model job's dead letters and asks for some, as the command does.

The person mends the job's function at some moment, starts it again or leaves that to others, asks
twice, asks by a listing that is old by now, and names letters that a rewind has left behind.
"""

from penstock.chaos.actions import Action
from penstock.chaos.host import Host
from penstock.chaos.model_job import Program
from penstock.chaos.model_workload import DEAD, OPERATOR, Workload
from penstock.checkpoint import Chain
from penstock.checkpoint.layout import request_key
from penstock.effects import Steps, Wait
from penstock.errors import Gone, Invalid
from penstock.ids import Generation
from penstock.points import Point
from penstock.runtime.letters import LetterKey
from penstock.runtime.replay_requests import ask
from penstock.sinks.table_index import read_index
from penstock.sinks.table_tail import table_tails

__all__ = ["Requester"]

ROUNDS = 3


class Requester:
    """One person with a terminal."""

    def __init__(self, host: Host, workload: Workload) -> None:
        self._host = host
        self._workload = workload
        self._mine: list[LetterKey] = []
        """Those that were seen last."""
        self._asked: set[LetterKey] = set()

    def rounds(self) -> Steps[None]:
        """Look, think, ask, and perhaps start the job again, a few times."""
        rng, job = self._host.rng, self._workload.job
        for _ in range(ROUNDS):
            yield Wait(rng.random() * 2)
            job.is_mended = job.is_mended or rng.random() < 0.4
            try:
                generation, letters = yield from self.look()
            except Gone:
                continue
            yield Wait(rng.random() * rng.choice((0, 0, 2)))
            chosen = [letter for letter in letters if rng.random() < 0.7]
            yield from self.ask(generation, chosen, elsewhere=rng.random() < 0.5)
            if rng.random() < 0.5:
                yield from Program(self._host, self._workload).leader(patient=False)

    def look(self) -> Steps[tuple[Generation, list[LetterKey]]]:
        """The letters of HEAD's line, replayed ones included."""
        chain = Chain()
        head = (yield from chain.head(Point.READ_HEAD)).document
        if head.manifest is None:
            return head.generation, []
        newest = yield from chain.manifest(head.manifest, head.epoch, Point.READ_MANIFEST)
        tails = yield from table_tails(chain, newest, [DEAD])
        files = tails[DEAD].files()
        if DEAD in newest.tables:
            named = newest.tables[DEAD]
            index = yield from read_index(chain, named, head.epoch, Point.READ_OBJECT)
            files = [*index.files, *files]
        letters = [(file.output.ref.key, n) for file in files for n in range(file.output.rows)]
        self._mine = letters
        self._workload.noted.update(letters)
        return head.generation, letters

    def ask(
        self, generation: Generation, chosen: list[LetterKey], *, elsewhere: bool
    ) -> Steps[None]:
        """Ask for letters that were seen in a generation; `elsewhere`: and for all that are known
        of other lines of history."""
        strange = sorted(self._workload.noted.difference(self._mine)) if elsewhere else []
        letters = [*chosen, *strange]
        if not letters:
            return
        mark = self._host.chance.unique()
        request = request_key(OPERATOR, generation, mark)
        self._host.report("asking", request, generation, letters)
        try:
            yield from ask(OPERATOR, generation, letters, mark)
        except Invalid as refusal:
            self._host.report("request refused", str(refusal))
            self._host.did(Action.REFUSED_OLD)
            return
        self._host.report("asked", request)
        self._host.did(Action.ASK_ELSEWHERE if strange else Action.ASK)
        if not self._asked.isdisjoint(letters):
            self._host.did(Action.ASK_AGAIN)
        self._asked.update(letters)
