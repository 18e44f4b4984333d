# Tenure's task menu. `make` alone prints it; every task sets up what it needs.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Four test processes fill a small machine: one is Spark's, and half of the rest waits for disks and children.
JOBS ?= 4
# The extras whose rooms exist. A new room adds its own here, then `make lock`.
EXTRAS := dev metrics otel reload buffer delta redis faststream spark connect iceberg postgres
# Versions of Spark that are tested beside the one of .venv; the streaming sources need 4.2.
SPARKS := 3.5.9 4.0.5 4.1.4 4.3.0
SPARK_BATCH := $(addprefix tests/spark/test_,ingest.py file_table.py delta.py small_sinks.py)
SPARK_STREAMS := $(addprefix tests/spark/test_,source.py topics.py)
COMPILE := $(BIN)/python tools/venv.py uv pip compile --quiet --generate-hashes --universal --python-version 3.11 \
	--no-emit-index-url --no-annotate --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

# Tests start hundreds of processes, and each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run quick test test-full test-mutants lives worlds members soak failovers pytest lint types format bench bench-core bench-chain bench-failover bench-turns bench-upkeep bench-http bench-hostile bench-client bench-buffer bench-timers bench-console bench-spark bench-scale test-spark-matrix lock build clean
# One thing at a time, also under -j: the tools fill the cores by themselves.
.NOTPARALLEL:

help: ## Print this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Prepare .venv (the command line is then .venv/bin/tenure)
	@:

$(READY): pyproject.toml requirements/uv.txt requirements/dev.txt tools/venv.py
	@$(PYTHON) tools/venv.py
	@touch $@

run: $(READY) ## Run the tour, from the engine to Spark, then serve on port 4000 (with CI=true the tour alone)
	@$(BIN)/tenure tour --spark .tenure-tour
	@test "$$CI" = true || exec $(BIN)/tenure serve --data .tenure-data --port 4000

quick: $(READY) ## Run the units of every room, in less than a minute
	$(BIN)/python -m tests.quick -q -n 2 --dist load $(ARGS)

test: lint types pytest ## Lint, check types and run the tests

pytest: $(READY)
	$(BIN)/pytest -n $(JOBS) --dist load $(ARGS)

test-full: lint types ## As test, with the long suites and many more examples
	$(BIN)/pytest -n $(JOBS) --dist load -m "" --timeout 3600 --hypothesis-profile full $(ARGS)

test-mutants: $(READY) ## Change the engine in small ways and see that a test notices (ARGS="--minutes 10" stops, the next run goes on)
	nice -n 10 $(BIN)/python -m tools.mutants $(ARGS)

lives: $(READY) ## Live random lives of a broker until one goes wrong (ARGS="--seconds 1800 --seed 1")
	$(BIN)/python -m tests.lives $(ARGS)

worlds: $(READY) ## Play simulated worlds of a log's home until one goes wrong (ARGS="--worlds 100000 --seed 1")
	$(BIN)/python -m tests.chain.worlds $(ARGS)

members: $(READY) ## Play lives of whole servers that share a home until one goes wrong (ARGS="--lives 50000 --seed 1")
	$(BIN)/python -m tests.chain.members $(ARGS)

soak: $(READY) ## Work against a real server under a nemesis, and check the history (ARGS="--seconds 3600 --seed 1")
	$(BIN)/python -m tests.soak $(ARGS)

failovers: $(READY) ## Fail over a real cluster under a nemesis, and check the history (ARGS="--failovers 300 --seed 1 --state FILE")
	$(BIN)/python -m tests.cluster $(ARGS)

test-spark-matrix: $(SPARKS:%=test-spark-%) ## Run the batch mode on other versions of Spark, 3.5 to 4.3
	@:

test-spark-%: $(READY)
	directory=$$($(BIN)/python tools/sparks.py $*) && export PYTHONPATH=$$directory && \
		$(BIN)/pytest -n 1 -W default --timeout 900 $(SPARK_BATCH) $(if $(filter 4.2.% 4.3.%,$*),$(SPARK_STREAMS)) $(ARGS) \
		$(if $(filter 4.1.%,$*),&& TENURE_CRASH_SINKS=iceberg $(BIN)/pytest -n 1 --timeout 900 tests/spark/test_sinks_crash.py)

lint: $(READY) ## Check style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY) ## Check types
	$(BIN)/mypy

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## Measure Tenure beside its peers in one run (ARGS="--quick", "--only tenure,redis", "--cells produce")
	$(BIN)/python -m bench.peers $(ARGS)

bench-core: $(READY) ## Measure the engine, as ratios in one run
	$(BIN)/python -m bench.core $(ARGS)

bench-chain: $(READY) ## Measure a log whose home is a store, as ratios in one run
	$(BIN)/python -m bench.chain $(ARGS)

bench-failover: $(READY) ## Measure what clients wait for when a leader is lost, and a standby (ARGS="--rounds 20 --only kill,lag")
	$(BIN)/python -m bench.failover $(ARGS)

bench-upkeep: $(READY) ## Measure produces beside checkpoints and trimming, with a million live jobs
	$(BIN)/python -m bench.upkeep $(ARGS)

bench-turns: $(READY) ## Measure the longest turn of the loop at a million jobs (ARGS="--jobs 100000 --only expiry")
	$(BIN)/python -m bench.turns $(ARGS)

bench-http: $(READY) ## Measure the server, as ratios in one run
	@$(BIN)/python -m bench.http; code=$$?; $(BIN)/python -m bench.watchers && exit $$code

bench-hostile: $(READY) ## Measure an honest client beside a hostile one of each kind (ARGS=kind)
	$(BIN)/python -m bench.hostile $(ARGS)

bench-client: $(READY) ## Measure clients and workers, as ratios in one run
	$(BIN)/python -m bench.client

bench-buffer: $(READY) ## Measure the buffer on the local store, as ratios in one run
	@$(BIN)/python -m bench.buffer; code=$$?; $(BIN)/python -m bench.export && exit $$code

bench-timers: $(READY) ## Measure timers on Redis, as ratios in one run (ARGS=--quick is shorter)
	$(BIN)/python -m bench.timers $(ARGS)

bench-console: $(READY) ## Measure the console's page under load, as ratios in one run (ARGS=--quick is shorter)
	$(BIN)/python -m bench.console $(ARGS)

bench-spark: $(READY) ## Measure Spark on a buffer, as ratios in one run (ARGS=--quick is shorter)
	$(BIN)/python -m bench.spark $(ARGS)

bench-scale: $(READY) ## Bring 10,000,000 entries in 100,000 batches through buffer and Spark once (ARGS=--quick is shorter)
	$(BIN)/python -m bench.scale $(ARGS)

lock: ## Pin the requirements anew (UPGRADE=1 takes the newest versions)
	@test -x $(BIN)/uv || $(PYTHON) tools/venv.py
	$(COMPILE) requirements/uv.in --output-file requirements/uv.txt
	for version in $(SPARKS); do \
		echo "pyspark==$$version" | $(COMPILE) --output-file requirements/spark-$$version.txt - || exit; done
	$(COMPILE) pyproject.toml requirements/build.in $(EXTRAS:%=--extra %) --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml bench/peers/clients.in --output-file bench/peers/clients.txt
	$(COMPILE) --no-deps requirements/flights.in --output-file requirements/flights.txt
	$(COMPILE) requirements/build.in --constraint requirements/dev.txt --output-file requirements/build.txt

build: ## Build the wheel and the source archive into dist/, with the few packages that takes
	@$(PYTHON) tools/venv.py build

clean: ## Remove .venv and everything that was built or cached
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .mutants .bench
	find src tests tools bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
