"""The judgement on a chaos run: every oracle that a real run can be asked, and what each says.

    chain, sources, objects, tables, sinks, leftovers   the audit: I1, I2, I4 to I8, I13
    replay         the same epochs without a fault, compared: I1 to I3, I5, I10, I11, I16
    readers        those who read along: I12
    local state    what the chain vouches for on the disk: I14
    progress       once the faults stop, the job ends, and with all that was there to read: I15, I1
    drivers        nobody who was deposed ends as a leader does, or cries damage: I6, I18
    function       the user's own code: the same for the same, and nothing done outside
    invariants     what the user says must be true
    faults         those that were asked for have happened: I18
    output         every sink got rows: of one that got none, nothing was shown: I18

Where a replay differs, it is made once more. If the two differ from each other as well, the
function is not deterministic, and that is said instead: no fault has done it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from penstock.chaos.audit import audit
from penstock.chaos.comparing import Comparison, Difference
from penstock.chaos.conductor import Conducted
from penstock.chaos.findings import Check, Ledger
from penstock.chaos.history import Ended, Led
from penstock.chaos.impure import suspects
from penstock.chaos.local_state import check_local_state
from penstock.chaos.replaying import recorded
from penstock.chaos.watch import effects
from penstock.checkpoint.root import Root
from penstock.errors import PenstockError
from penstock.runtime.topology import CHANGES, DEAD_LETTERS, UNDECODABLE, Topology

__all__ = ["Evidence", "judged"]

DIFFERENCES_MAX = 20
NO_ROW = (
    "got no row, so this run shows nothing of it; name a topic with events that reach it "
    "(--input), or make up more of them (--records, without --rate)"
)
_NOT_EXPECTED = (CHANGES, DEAD_LETTERS, UNDECODABLE)
"""Outputs that no function of the job yields."""
_DAMAGE = ("Corrupt:", "Bug:")
_KNOWN = ("Unavailable:", "Invalid:", "Fenced:", "Gone:", "Locked:", "SparkFailed:")
"""What a driver may say at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a run has left behind."""

    root: Root
    topology: Topology
    """The job as it is written, with the inputs it was given and its sinks as they are."""
    conducted: Conducted
    folder: Path
    """Where the run's processes wrote side effects; scratch folders go below it."""
    job_state: Path
    """What the host kept of the job."""
    replay: Callable[[int], Root | str]
    """Goes through the epochs once more, on root number n; or why it could not."""
    drained: frozenset[str] = frozenset()
    """The sources that the run was to read to their end."""
    impossible: Mapping[str, str] = field(default_factory=dict)
    """What was asked for by name and cannot happen to this job, and why."""


def judged(evidence: Evidence, tell: Callable[[str], None] = lambda what: None) -> list[Check]:
    """Every check, those that rest on the least first."""
    checks = [_faults(evidence), _done("progress", lambda: _progress(evidence))]
    checks.append(_drivers(evidence.conducted))
    checks.append(_done("output", lambda: _output(evidence)))
    tell("the audit")
    try:
        checks += audit(evidence.root, evidence.topology, tell=tell).audited.checks
        checks.append(_done("local state", lambda: _local(evidence)))
        checks += _replayed(evidence, tell)
    except PenstockError as error:
        ledger = Ledger("root", "What the job has stored can be looked at.")
        ledger.unknown("the root", str(error))
        checks.append(ledger.check())
    return checks


def _faults(evidence: Evidence) -> Check:
    ledger = Ledger("faults", "Every kind of fault that was due has happened.")
    for what, why in evidence.impossible.items():
        ledger.unknown(f"faults of {what}", why)
    for name, times in evidence.conducted.faults.items():
        ledger.count("faults", times)
        ledger.count("kinds")
        if not times:
            ledger.unknown(f"fault {name}", "did not come about, so nobody knows what it would do")
    return ledger.check()


def _progress(evidence: Evidence) -> Check:
    promise = "When the faults stop, the job comes to its end, and has read all there was."
    ledger = Ledger("progress", promise)
    stuck = evidence.conducted.stuck
    if stuck is not None:
        ledger.wrong("I15", "the job", f"did not come to its end: {stuck}")
        return ledger.check()
    newest = evidence.root.newest()
    for name in sorted(evidence.drained):
        reached = {} if newest is None else newest.sources[name].resume_at
        for partition, span in evidence.topology.sources[name].source.spans().items():
            ledger.count("partitions read to their end")
            at = reached.get(partition, span.earliest)
            if at < span.latest:
                subject = f"source {name}, partition {partition}"
                ledger.wrong("I1", subject, f"was read up to {at}, and ends at {span.latest}")
    return ledger.check()


def _output(evidence: Evidence) -> Check:
    """Comparing nothing with nothing cannot fail, so a sink without a row proves nothing."""
    ledger = Ledger("output", "Every sink got rows, so there was something to judge.")
    rows: Counter[str] = Counter()
    for manifest in evidence.root.history():
        for name, outputs in manifest.sinks.items():
            rows[name] += sum(output.rows for output in outputs)
    for node in evidence.topology.sinks:
        if node.output not in _NOT_EXPECTED:
            ledger.count("sinks")
            ledger.count("rows", rows[node.name])
            if not rows[node.name]:
                ledger.unknown(f"sink {node.name}", NO_ROW)
    return ledger.check()


def _drivers(conducted: Conducted) -> Check:
    """Killed, deposed, out of a store or a Spark: all of that may happen to a driver. Calling
    something damaged that is not, breaking one's own promise, or not noticing that one is deposed
    may not."""
    ledger = Ledger("drivers", "No driver cried damage, broke a rule of its own, or was two.")
    alive: set[int] = set()
    deposed: set[int] = set()
    for each in conducted.happenings:
        if isinstance(each, Led):
            deposed |= alive - {each.driver}
            alive.add(each.driver)
        elif isinstance(each, Ended):
            alive.discard(each.driver)
            ledger.count("drivers")
            _ending(ledger, each, each.driver in deposed)
    return ledger.check()


def _ending(ledger: Ledger, ended: Ended, was_deposed: bool) -> None:
    subject = f"driver {ended.driver}"
    if ended.code == 0 and was_deposed:
        ledger.wrong("I6", subject, "was deposed, and ended as if it had led to the end")
    elif ended.code > 0 and ended.said.startswith(_DAMAGE):
        ledger.wrong("I18", subject, f"ended: {ended.said}")
    elif ended.code > 0 and not ended.said.startswith(_KNOWN):
        ledger.unknown(subject, f"ended: {ended.said or 'without a word'}")


def _done(name: str, work: Callable[[], Check]) -> Check:
    try:
        return work()
    except PenstockError as error:
        ledger = Ledger(name, "It could be looked at.")
        ledger.unknown(name, str(error))
        return ledger.check()


def _local(evidence: Evidence) -> Check:
    return check_local_state(evidence.root, evidence.job_state, evidence.folder / "scratch-local")


def _replayed(evidence: Evidence, tell: Callable[[str], None]) -> list[Check]:
    promise = "A run over the same epochs without a fault gives the same rows and state."
    ledger = Ledger("replay", promise)
    function = Ledger("function", "The functions give the same for the same, and do nothing else.")
    _side_effects(evidence, function)
    tell("the replay")
    calm = evidence.replay(1)
    if isinstance(calm, str):
        ledger.unknown("the replay", calm)
        return [ledger.check(), function.check()]
    found = _differences(evidence, evidence.root, calm, ledger)
    if found:
        tell("a second replay")
        _explain(evidence, calm, found, ledger, function)
    return [ledger.check(), function.check()]


def _differences(evidence: Evidence, ours: Root, calm: Root, ledger: Ledger) -> list[Difference]:
    scratch = evidence.folder / f"scratch-{evidence.root.chance.unique()[:8]}"
    comparison = Comparison(ours, calm, scratch, ledger)
    unlike = comparison.differences(recorded(ours), recorded(calm))
    return list(islice(unlike, DIFFERENCES_MAX))


def _explain(
    evidence: Evidence,
    calm: Root,
    found: Sequence[Difference],
    ledger: Ledger,
    function: Ledger,
) -> None:
    """Whose fault it is: a second replay that differs from the first acquits the faults."""
    for suspect in suspects(evidence.topology):
        function.note(str(suspect))
    again = evidence.replay(2)
    if isinstance(again, str):
        ledger.unknown("a second replay", again)
    elif unlike := _differences(evidence, again, calm, Ledger("", "")):
        why = "two runs without a fault differ as well: the function is not deterministic"
        for each in unlike:
            function.wrong("function", each.subject, f"{each.found}; {why}", each.epoch)
        ledger.unknown("what faults have done", "the function gives other results each time")
        return
    for each in found:
        ledger.wrong(each.invariant, each.subject, each.found, each.epoch)


def _side_effects(evidence: Evidence, ledger: Ledger) -> None:
    """What a function does outside is done again with every try. It is wrong where that has
    happened, and unknown where it has not yet."""
    for effect in effects(str(evidence.folder)):
        ledger.count("side effects", effect.times)
        if effect.doubled:
            ledger.wrong("function", f"operator {effect.operator}", str(effect))
        else:
            ledger.unknown(f"operator {effect.operator}", str(effect))
