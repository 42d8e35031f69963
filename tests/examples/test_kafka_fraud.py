"""The example with Kafka, and what the README says of Kafka, run as a new user runs them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.loading import load_job
from tests.support import kafka
from tests.support.kafka import Cluster

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kafka_fraud.py"
PENSTOCK = [sys.executable, "-c", "from penstock.runtime.cli import main; main()"]
PAYMENTS = 3_000
LIMIT_S = 300
AT = "2026-01-01T12:00:00Z"
PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
ALERT = re.compile(r"\S+T\S+  card-\d{5}  too (?:many|much): \d+ payments, [\d,]+\.\d\d")


@pytest.fixture
def broker() -> Iterator[Cluster]:
    """A broker as `make kafka` starts one, and none that others use: topics go by their names."""
    with kafka.cluster(auto_create_topics_enable="true") as found:
        yield found


def run(command: list[str], folder: Path, broker: Cluster) -> str:
    """What a command prints, in a folder of its own, with the broker in its environment."""
    state = {"KAFKA_BROKERS": broker.bootstrap, "PENSTOCK_STATE_DIR": str(folder / "state")}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **state},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def values(broker: Cluster, topic: str) -> list[dict[str, Any]]:
    """The JSON objects of a topic, as a reader of what is committed sees them."""
    bodies = [message.value() or b"" for message in broker.read(topic)]
    return [json.loads(body) for body in bodies if body.startswith(b"{")]


def plainly(payments: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Cards and rules of the alerts, computed from all payments at once: they are all made within
    ten minutes, so every payment of a card counts, and a card is told of once."""
    found: dict[str, str] = {}
    paid: dict[str, list[int]] = {}
    for payment in sorted(payments, key=lambda each: int(each["number"])):
        amounts = paid.setdefault(payment["card"], [])
        amounts.append(payment["amount"])
        if len(amounts) > 5:
            found.setdefault(payment["card"], "too many")
        elif sum(amounts) > 200_000:
            found.setdefault(payment["card"], "too much")
    return sorted(found.items())


@pytest.mark.slow
def test_payments_become_alerts_each_once(broker: Cluster, tmp_path: Path) -> None:
    """What three terminals show: pay, and watch; and a second run has nothing left to do."""
    script = [sys.executable, str(EXAMPLE)]

    said = run([*script, "--produce", str(PAYMENTS)], tmp_path, broker)
    shown = run([*script, "--show", "3"], tmp_path, broker).splitlines()
    again = [*PENSTOCK, "run", str(EXAMPLE), "--root", "scratch/kafka_fraud/root"]
    nothing = run([*again, "--until", "caught-up"], tmp_path, broker)

    payments, alerts = values(broker, "payments"), values(broker, "alerts")
    expected = plainly(payments)
    assert len(payments) == PAYMENTS
    assert sorted((alert["card"], alert["rule"]) for alert in alerts) == expected
    assert said == f"{PAYMENTS:,} payments, {len(alerts)} alerts, 3 messages left out.\n"
    assert [bool(ALERT.fullmatch(line)) for line in shown] == [True] * 3
    assert ", 0 rows in, 0 out; " in nothing


@pytest.mark.slow
def test_the_job_of_the_readme_runs_on_a_broker(broker: Cluster, tmp_path: Path) -> None:
    """The README's code is run without a broker elsewhere, where its job is only described."""
    blocks = PYTHON_BLOCK.findall((ROOT / "README.md").read_text())
    [code] = [block for block in blocks if "ps.Kafka(" in block]
    (tmp_path / "spending.py").write_text(code)
    topic = broker.topic("payments")
    broker.topic("totals")
    paid = [{"card": "a", "amount": 5, "at": AT}, {"card": "b", "amount": 7, "at": AT}]
    broker.write(topic, [json.dumps(each).encode() for each in [*paid, *paid]] + [b"no payment"])

    command = [*PENSTOCK, "run", "spending.py", "--root", "root", "--until", "caught-up"]
    said = run([*command, "--master", "local[2]"], tmp_path, broker)
    letters = run([*PENSTOCK, "dead-letters", "list", "root"], tmp_path, broker)

    assert "4 rows in" in said
    assert sorted(values(broker, "totals"), key=str) == [
        {"card": "a", "payments": 2, "total": 10},
        {"card": "b", "payments": 2, "total": 14},
    ]
    assert "payments/0@4" in letters
    assert broker.committed("spending", topic)[0][0] == 5


def test_the_example_is_a_job_file() -> None:
    """An example that only runs as a script would not show how jobs are deployed."""
    assert load_job(str(EXAMPLE)).name == "fraud"
