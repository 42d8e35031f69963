"""Real Kafka brokers, in KRaft mode, each a process in a temporary folder that can be killed and
come back on the same ports.

    with kafka.cluster() as cluster:              one broker, in about three seconds
    with kafka.cluster(brokers=3) as cluster:     three, every topic on all of them

Each broker is a controller too, so three of them go on without any one. Every broker listens on
two ports: an open one, whose clients may do everything, and one that asks for a user and a
password (`secured`), whose clients may do what no rule forbids them (`restrict`).
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from penstock.clock import SystemChance, SystemClock
from tests.support.databases import Server
from tests.support.kafka_jars import VERSION, Program, kafka_program
from tests.support.servers import LEASH, free_port, wait_for_port

USER, PASSWORD = "etl", "correct horse $battery"
"""Who may log in where a broker asks. A job finds the password as ${KAFKA_PASSWORD}."""

CLUSTER_ID = "cGVuc3RvY2stdGVzdGluZw"
CALL_S_MAX = 60.0
POLL_S = 0.05
SHOWN_S_MAX = 10.0
"""How long a commit that was answered may take to be shown; a transaction that is open still is
left alone then."""
QUIET = {"log_level": 0}
"""For clients that must see brokers come and go."""


@dataclass
class Broker(Server):
    """One broker, which is a controller too."""

    number: int = 0
    secured_port: int = 0

    @property
    def address(self) -> str:
        """Where clients find it that need no password."""
        return f"127.0.0.1:{self.port}"

    @property
    def secured_address(self) -> str:
        """Where clients find it that log in."""
        return f"127.0.0.1:{self.secured_port}"

    def launch(self) -> None:
        """Start it, and do not wait: it is ready when enough others are."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=subprocess.STDOUT)

    def start(self) -> None:
        """Start it, and wait until the cluster counts on it.

        Whoever calls this from a thread must let the thread live: the broker ends with it.
        """
        self.launch()
        self.ready()

    def ready(self) -> None:
        """Wait until the cluster counts on it."""
        assert self.process is not None
        wait_for_port(self.process, self.port)
        with AdminClient({"bootstrap.servers": self.address, **QUIET}) as client:
            for _ in until(f"broker {self.number} takes part"):
                if self.process.poll() is not None:
                    raise RuntimeError(self.log.read_text()[-2000:])
                if self.number in _brokers(client):
                    return

    def restart(self) -> None:
        """kill -9, and back again."""
        self.kill()
        self.start()


@dataclass
class Cluster:
    """Brokers that make up one Kafka, and what a test asks of it."""

    brokers: list[Broker]
    program: Program = field(repr=False)
    _admin: AdminClient | None = field(default=None, repr=False)

    @property
    def bootstrap(self) -> str:
        """What clients are given."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def secured(self) -> str:
        """The same for clients that log in."""
        return ",".join(broker.secured_address for broker in self.brokers)

    def secured_settings(self) -> dict[str, str]:
        """What a client needs to log in, with the password as a reference."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": "${KAFKA_PASSWORD}",
        }

    @property
    def admin(self) -> AdminClient:
        """For what a topic's owner does."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        return self._admin

    def topic(self, name: str | None = None, partitions: int = 1, **config: object) -> str:
        """Make a topic, with settings like `cleanup_policy="compact"`; its name, a new one
        unless it was given."""
        name = name or f"t-{SystemChance().unique()[:12]}"
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        new = NewTopic(name, partitions, len(self.brokers), config=settings)
        _result(self.admin.create_topics([new])[name])
        for _ in until(f"{name} has leaders"):
            if len(self.leaders(name)) == partitions:
                return name
        raise AssertionError("unreachable: the loop ends by returning or raising")

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Let a topic have so many."""
        _result(self.admin.create_partitions([NewPartitions(topic, partitions)])[topic])
        for _ in until(f"{topic} has {partitions} partitions"):
            if len(self.leaders(topic)) == partitions:
                return

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until every broker has forgotten it."""
        _result(self.admin.delete_topics([topic])[topic])
        for broker in self.alive():
            with AdminClient({"bootstrap.servers": broker.address, **QUIET}) as client:
                for _ in until(f"{topic} is gone"):
                    if topic not in client.list_topics(timeout=CALL_S_MAX).topics:
                        break

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Let a partition forget what lies before an offset, as retention does."""
        at = TopicPartition(topic, partition, before)
        _result(self.admin.delete_records([at])[at])

    def restrict(self, topic: str) -> None:
        """From now on, only clients that did not log in may use a topic."""
        kind, pattern = ResourceType.TOPIC, ResourcePatternType.LITERAL
        anyone = ("User:*", "*", AclOperation.ALL, AclPermissionType.DENY)
        rule = AclBinding(kind, topic, pattern, *anyone)
        _result(self.admin.create_acls([rule])[rule])

    def alive(self) -> list[Broker]:
        """The brokers that run."""
        return [b for b in self.brokers if b.process is not None and b.process.poll() is None]

    def leaders(self, topic: str) -> dict[int, Broker]:
        """Who leads each partition; those without a leader are left out."""
        known = {broker.number: broker for broker in self.alive()}
        found = self.admin.list_topics(topic, timeout=CALL_S_MAX).topics[topic].partitions
        return {n: known[each.leader] for n, each in found.items() if each.leader in known}

    def producer(self, **settings: object) -> Producer:
        """A producer with settings like `transactional_id="x"`. Nothing is lost quietly: look
        at what `flush` returns, or use `write`."""
        return Producer({"bootstrap.servers": self.bootstrap, **QUIET, **_dotted(settings)})

    def consumer(self, **settings: object) -> Consumer:
        """A consumer that commits nothing, unless the settings say otherwise."""
        defaults = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        return Consumer({**defaults, **QUIET, **_dotted(settings)})

    def write(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
    ) -> None:
        """Append messages to a partition; when this returns, they are there."""
        producer = self.producer(linger_ms=0)
        for number, value in enumerate(values):
            key = None if keys is None else keys[number]
            producer.produce(topic, value, key, partition, on_delivery=raise_error)
        assert producer.flush(CALL_S_MAX) == 0

    def read(self, topic: str, isolation: str = "read_committed") -> list[Message]:
        """Every message of a topic, partition by partition, as a reader with that isolation
        sees it now: what was committed before, also if it is just about to be shown."""
        if isolation == "read_committed":
            with suppress(TimeoutError):
                self.settle(topic, patience_s=SHOWN_S_MAX)
        with self.consumer(isolation_level=isolation, enable_partition_eof=True) as consumer:
            number = len(self.admin.list_topics(topic, timeout=CALL_S_MAX).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, each, 0) for each in range(number)])
            found: list[Message] = []
            ended: set[int | None] = set()
            while len(ended) < number:
                for message in _next(consumer):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.name() == "_PARTITION_EOF":
                        ended.add(message.partition())
                    else:
                        raise KafkaException(error)
        return sorted(found, key=lambda message: message.partition() or 0)

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str | None]]:
        """Where a consumer group stands in each partition of a topic, and what it noted there.

        Asked by a consumer: the admin client's own question can end the process with a
        segmentation fault while a coordinator moves (librdkafka 2.16).
        """
        places = [TopicPartition(topic, number) for number in self.leaders(topic)]
        with self.consumer(group_id=group) as consumer:
            found = consumer.committed(places, CALL_S_MAX)
        return {each.partition: (each.offset, each.metadata) for each in found if each.offset >= 0}

    def is_stable(self, topic: str) -> bool:
        """Whether no transaction holds up the readers of a topic."""
        wanted = {TopicPartition(topic, each): OffsetSpec.latest() for each in self.leaders(topic)}
        ends = []
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            asked = self.admin.list_offsets(wanted, isolation_level=isolation)
            ends.append([_result(asked[place]).offset for place in wanted])
        stable, every = ends
        return bool(stable == every)

    def settle(self, topic: str, *groups: str, patience_s: float = CALL_S_MAX) -> None:
        """Wait until the end of every transaction is written down in a topic, and beside the
        offsets that groups have of it: whoever commits is told before that.

        For those who kill the only broker. If it is killed in between it may forget to do it, and
        then readers and groups wait for ever (KAFKA-20734, in Kafka 4.3.1).
        """
        for _ in until(f"{topic} is stable", patience_s):
            if self.is_stable(topic):
                break
        for group in groups:
            self.committed(group, topic)  # which waits by itself

    def run(self, tool: str, *arguments: str) -> str:
        """What one of Kafka's own programs prints, like
        `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`."""
        return self.program.run(tool, "--bootstrap-server", self.bootstrap, *arguments)


@contextmanager
def cluster(brokers: int = 1, **settings: object) -> Iterator[Cluster]:
    """Brokers in folders of their own, with further settings like `log_retention_ms=1000`."""
    program = kafka_program()
    _learn(program)
    with _started(program, brokers, _dotted(settings)) as found:
        yield found


@contextmanager
def _started(
    program: Program, count: int, settings: Mapping[str, object], options: tuple[str, ...] = ()
) -> Iterator[Cluster]:
    ports = iter(_free_ports(3 * count))
    voters = {number: next(ports) for number in range(1, count + 1)}
    with ExitStack() as stack:
        made = []
        for number in voters:
            folder = Path(tempfile.mkdtemp(prefix=f"penstock-kafka-{number}-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            properties = str(folder / "server.properties")
            command = program.command("kafka.Kafka", properties, options=options)
            log = folder / "server.log"
            leashed = [sys.executable, str(LEASH), *command]
            broker = Broker(leashed, next(ports), folder, log, None, number, next(ports))
            _write_settings(broker, voters, {**_settings(count), **settings})
            program.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties)
            made.append(broker)
            stack.callback(_end, broker)
        for broker in made:
            broker.launch()
        for broker in made:
            broker.ready()
        yield Cluster(made, program)


def _free_ports(count: int) -> list[int]:
    """So many, no two of them alike."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return sorted(found)


def _write_settings(
    broker: Broker, voters: Mapping[int, int], settings: Mapping[str, object]
) -> None:
    own = {
        "node.id": broker.number,
        "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{p}" for n, p in voters.items()),
        "listeners": f"PLAINTEXT://{broker.address},SASL_PLAINTEXT://{broker.secured_address},"
        f"CONTROLLER://127.0.0.1:{voters[broker.number]}",
        "log.dirs": broker.folder / "data",
    }
    lines = [f"{name}={value}\n" for name, value in {**settings, **own}.items()]
    (broker.folder / "server.properties").write_text("".join(lines))


def _end(broker: Broker) -> None:
    """Its folder goes with it, so it need not put things in order."""
    if broker.process is not None and broker.process.poll() is None:
        broker.kill()


def _settings(brokers: int) -> dict[str, str]:
    """Few threads, small buffers, and no waiting for what a test waits for."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    in_sync = min(2, brokers)
    return {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(brokers),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.num.partitions": str(brokers),
        "offsets.topic.replication.factor": str(brokers),
        "transaction.state.log.num.partitions": str(brokers),
        "transaction.state.log.replication.factor": str(brokers),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "4000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "group.coordinator.threads": "1",
        "log.cleaner.threads": "1",
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "500",
    }


def _learn(program: Program) -> None:
    """Let Java write down what it learns of Kafka's classes: from then on brokers start in a
    third of the time. Where that fails they start slowly."""
    arriving = program.folder / "arriving.jsa"
    with program.alone():
        if program.archive.exists():
            return
        with _started(program, 1, {}, (f"-XX:ArchiveClassesAtExit={arriving}",)) as found:
            found.write(found.topic(), [b"x"])
            found.brokers[0].stop()
        if arriving.exists():
            arriving.rename(program.archive)


def until(what: str, patience_s: float = CALL_S_MAX) -> Iterator[None]:
    """Come round until the caller is content; complain if it takes too long."""
    clock = SystemClock()
    deadline_s = clock.monotonic() + patience_s
    while clock.monotonic() < deadline_s:
        yield
        clock.sleep(POLL_S)
    raise TimeoutError(f"waited {patience_s} s in vain until {what}")


def raise_error(error: object, _message: Message) -> None:
    """For `on_delivery`: what could not be delivered is told by the next `poll` or `flush`."""
    if error is not None:
        raise KafkaException(error)


def _next(consumer: Consumer) -> list[Message]:
    """Wait for one message, and take those that are there with it."""
    first = consumer.poll(CALL_S_MAX)
    return [] if first is None else [first, *consumer.consume(10_000, 0)]


def _dotted(settings: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def _brokers(client: AdminClient) -> set[int]:
    try:
        return set(client.list_topics(timeout=CALL_S_MAX).brokers)
    except KafkaException:
        return set()


def _result(future: Any) -> Any:
    return future.result(CALL_S_MAX)


def main() -> None:
    """Start one for a person to play with, until Ctrl-C."""
    with cluster(auto_create_topics_enable="true") as found:
        [broker] = found.brokers
        print(f"Kafka {VERSION} listens on {found.bootstrap}, and logs to {broker.log}.")
        print("Ctrl-C ends it, and with it all it holds.", flush=True)
        assert broker.process is not None
        with suppress(KeyboardInterrupt):
            broker.process.wait()


if __name__ == "__main__":
    main()
