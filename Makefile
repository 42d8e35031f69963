# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Quix Streams wants older packages than ours: it is measured from an environment of its own.
QUIX   := $(VENV)/quix
SEEDS  ?= 50000
LOG_SEEDS ?= 20000
LENGTH ?= 5
HOURS  ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup servers lint test demo leaders java sim sim-log crashpoints search mutants storm storm-log storm-spark storm-sinks storm-kafka bench bench-commit bench-state bench-log bench-sinks bench-kafka bench-audit bench-recovery chaos soak kafka torture clean lock

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(READY) java  ## Create .venv with the pinned dependencies

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Penstock needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV) with the pinned dependencies; this takes a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

java:  ## Say whether the Java that Spark needs is here
	@tools/check-java

servers:  ## Install Postgres, Redis and Chromium for the tests (Debian, as root); they start them
	@tools/get-servers

lint: $(READY)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(READY) java  ## Every test, and the built wheel in a clean environment
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

demo: $(READY) java  ## A job that loses an executor, its state and its driver, and no event
	$(BIN)/python examples/demo.py

leaders: $(READY)  ## Three leaders, one root: what the core promises, in seconds
	$(BIN)/python examples/three_leaders.py

sim: $(READY)  ## Simulate SEEDS schedules (default 50000), or tell the story of SEED
ifdef SEED
	$(BIN)/python -m penstock.chaos replay $(SEED)
else
	$(BIN)/python -m penstock.chaos sim --seeds $(SEEDS)
endif

sim-log: $(READY)  ## The same for the embedded log (default 20000)
ifdef SEED
	$(BIN)/python -m penstock.chaos replay-log $(SEED)
else
	$(BIN)/python -m penstock.chaos sim-log --seeds $(LOG_SEEDS)
endif

crashpoints: $(READY)  ## Fail every request of a small job in every way: singles, zombies, pairs
	$(BIN)/python -m penstock.chaos crashpoints

search: $(READY)  ## Try every sequence of LENGTH actions (default 5) on a small root, with every table and state judged
	$(BIN)/python -m penstock.chaos search --length $(LENGTH)

mutants: $(READY)  ## Plant every known bug in turn; each must be caught
	$(BIN)/python -m tests.mutants

storm: $(READY)  ## Eight processes fight for one root, for 30 seconds on each kind of store
	PENSTOCK_STORM_S=30 $(BIN)/pytest -q tests/stories/test_eight_processes.py

storm-log: $(READY)  ## Eight producers, five million rows, kills and zombies
	PENSTOCK_LOG_ROWS=5000000 $(BIN)/pytest -q tests/stories/test_eight_producers.py
	PENSTOCK_LOG_MACHINE_EXAMPLES=1000 $(BIN)/pytest -q tests/sources/test_log_machine.py

bench: $(READY) java  ## The runtime against Spark's own streaming, with a plot; about 35 minutes
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks.w1

bench-commit: $(READY)  ## Commits per second, and restarts after a long life
	$(BIN)/python -m benchmarks.commit

bench-state: $(READY)  ## State against bare RocksDB, its memory, restores and uploads
	$(BIN)/python -m benchmarks.state

bench-log: $(READY)  ## The embedded log against bare Arrow files, and opening a long one
	$(BIN)/python -m benchmarks.log

bench-sinks: $(READY)  ## Every sink with and without exactly-once, with a plot; about 15 minutes
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks.sinks

bench-kafka: $(READY) java  ## From topic to topic beside Quix Streams and Spark, with a plot; about 15 minutes
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@test -x $(QUIX)/bin/python || $(PYTHON) -m venv $(QUIX)
	$(QUIX)/bin/pip install --quiet --disable-pip-version-check -r benchmarks/kafka_quix.txt
	$(BIN)/python -m benchmarks.kafka

kafka: $(READY) java  ## A Kafka broker to play with, until Ctrl-C; it says where it listens
	$(BIN)/python -m tests.support.kafka

storm-sinks: $(READY) java  ## One job, six kinds of sink, twenty kills, every server away once; 6 minutes
	PENSTOCK_KILLS=20 $(BIN)/pytest -q tests/spark/test_six_sinks.py
	PENSTOCK_KILLS=25 $(BIN)/pytest -q tests/sinks/test_delta_kills.py

storm-spark: $(READY) java  ## Ten drivers and five executors killed, and the machines of state with 2,000 runs each
	PENSTOCK_DRIVER_KILLS=10 PENSTOCK_EXECUTOR_KILLS=5 $(BIN)/pytest -q tests/spark/test_same_results.py
	PENSTOCK_MACHINE_EXAMPLES=2000 $(BIN)/pytest -q tests/state/test_engine_machine.py tests/checkpoint/test_partition_machine.py

storm-kafka: $(READY) java  ## From topic to topic: twenty kills, three brokers killed, 200,000 messages
	PENSTOCK_KILLS=20 $(BIN)/pytest -q tests/spark/test_kafka_kills.py

bench-audit: $(READY)  ## An audit of ten million rows: how fast, in how much memory
	$(BIN)/python -m benchmarks.audit

bench-recovery: $(READY) java  ## How long a job needs after each kind of fault; about half an hour
	$(BIN)/python -m benchmarks.recovery

chaos: $(READY) java  ## A job with five sinks under every fault there is, judged; about 12 minutes
	$(BIN)/pytest -q -s tests/spark/chaos_whole.py

soak: $(READY) java  ## Chaos runs with new seeds for HOURS (default 1), one line each in scratch/soak.jsonl
	$(BIN)/python -m tests.soak --hours $(HOURS)

torture: $(READY)  ## Kill -9 a process working on state 500 times; nothing may be torn
	$(BIN)/python -m tests.torture

lock: $(READY)  ## Write the versions installed now into constraints.txt
	$(BIN)/pip freeze --exclude-editable | sort -f > constraints.txt

clean:  ## Remove everything that can be made again
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis scratch
