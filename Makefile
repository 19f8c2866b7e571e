# stepd's commands. `make demo` and `make test` need Python 3.11 (or newer), make and a C++ compiler, nothing else.
PYTHON ?= python3
VENV   ?= build/venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RUNS   := $(VENV)/.runs
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: demo test lint protos test-container test-fidelity test-versions bench-hook bench-planners bench-prediction bench-switch bench-rollback bench-order bench-splits bench-equality bench-gpus soak clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[daemon,cpu,exact,plot,metis]" --group test --group lint
	touch $@

$(RUNS): pyproject.toml # what the demo needs, in two thirds of the time
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	test -e $(STAMP) || $(BIN)/python -m pip install --quiet --editable ".[daemon,cpu]"
	touch $@

install: $(STAMP) ## a virtual environment in build/venv with everything

demo: $(RUNS) ## an unmodified training script, plainly, hand-placed and under stepd, on two local devices
	@echo "compiling the planners and, for local devices, the native executor: once, a minute or two"
	@mkdir -p build; $(BIN)/python -m stepd.hook.order.native.build > build/native.log 2>&1 & $(BIN)/stepd warm-up; \
	  wait $$! || echo "orders will be kept by control edges: $$(tail -1 build/native.log)"
	$(BIN)/python docs/examples/demo.py --out build/demo

test: $(STAMP) ## all tests that a commit must pass
	$(BIN)/stepd warm-up > /dev/null # on all cores; tests would compile kernels on one
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

lint: $(STAMP) ## ruff, mypy strict, import-linter, drift of the generated protobuf code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH=$(BIN):$$PATH $(BIN)/lint-imports
	$(MAKE) --no-print-directory protos-check

PROTOC_VENV := build/protoc-venv
$(PROTOC_VENV)/.installed:
	$(PYTHON) -m venv $(PROTOC_VENV)
	$(PROTOC_VENV)/bin/python -m pip install --quiet grpcio-tools==1.62.3 mypy-protobuf==3.6.0 "setuptools<81"
	touch $@

protos: $(PROTOC_VENV)/.installed ## generate the Python code of the wire contract
	protos/generate.sh $(PROTOC_VENV)/bin/python

.PHONY: protos-check install
protos-check: $(PROTOC_VENV)/.installed
	@rm -rf build/protos && mkdir -p build/protos
	@protos/generate.sh $(PROTOC_VENV)/bin/python build/protos 2>/dev/null
	@for f in $$(cd build/protos && find . -name '*_pb2*'); do \
	  cmp -s build/protos/$$f protos/$$f || { echo "protos/$$f is not what the .proto files give: run make protos"; exit 1; }; done
	@echo "protos: no drift"

bench-hook: $(STAMP) ## what the hook adds to a no-op step
	$(BIN)/python tests/benchmarks/bench_hook_overhead.py

test-fidelity: $(STAMP) ## every program of the fidelity suite in every mode (tens of minutes)
	FIDELITY=full $(BIN)/python -m pytest -q tests/end_to_end/fidelity

CONTAINER ?=
test-container: $(STAMP) ## the daemon's image, built and run with a trainer beside it (podman or docker; CONTAINER='--build-option=...')
	$(BIN)/python tests/deploy/run_container.py $(CONTAINER)

test-versions: $(STAMP) ## the fidelity suite on TensorFlow 2.12, 2.15 and 2.21, in environments that it makes
	$(BIN)/python tests/end_to_end/versions.py

BENCH ?=
bench-planners: $(STAMP) ## every algorithm on every problem of the zoo and the workloads (hours; BENCH=--quick for a look)
	$(BIN)/python tests/benchmarks/build_zoo.py
	$(BIN)/python tests/benchmarks/bench_planners.py $(BENCH)

bench-order: $(STAMP) ## what enforcing execution order gains where it decides, and costs where it does not
	$(BIN)/python -m stepd.hook.order.native.build
	$(BIN)/python tests/benchmarks/bench_order.py
	$(BIN)/python tests/benchmarks/bench_order.py --workers

bench-splits: $(STAMP) ## stepd's splits on two local devices against one device and against what is written by hand
	$(BIN)/python tests/benchmarks/bench_splits.py $(BENCH)

bench-equality: $(STAMP) ## losses over 100 steps: in an order (equal in every bit) and in parts (equal up to rounding) against plain
	$(BIN)/python -m stepd.hook.order.native.build
	$(BIN)/python tests/benchmarks/order_equality.py
	$(BIN)/python tests/benchmarks/split_equality.py

bench-prediction: $(STAMP) ## real steps of several placements against what the execution model says
	$(BIN)/python tests/benchmarks/bench_prediction.py

bench-switch: $(STAMP) ## what a switch costs at 10k ops
	$(BIN)/python tests/benchmarks/bench_switch_cost.py --ops 10000

bench-rollback: $(STAMP) ## is the step time back after a bad strategy was undone, also with the daemon killed in between?
	$(BIN)/python tests/benchmarks/bench_rollback.py

bench-gpus: $(STAMP) ## on the machine's GPUs: plain TensorFlow and stepd, all losses compared (TensorFlow's GPU package must be installed)
	$(BIN)/python tests/benchmarks/bench_gpus.py

soak: $(STAMP) ## ten thousand random switches in one process
	$(BIN)/python tests/benchmarks/soak_switches.py --switches 10000

clean: ## remove everything that was built
	rm -rf build
