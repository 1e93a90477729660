# Sets up .venv on first use; afterwards each target starts at once, whatever PYTHON and TORCH say.
# Others go beside it: make VENV=.venv-3.12 PYTHON=python3.12 TORCH=torch==2.15.0 test
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
READY := $(VENV)/.ready
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip install --quiet --disable-pip-version-check --no-input
# Bytecode is kept, whatever the environment says: each worker of pytest had compiled every test anew, 11 of its first 21 s.
unexport PYTHONDONTWRITEBYTECODE
PROTOS := $(sort $(wildcard proto/esper/leyline/v1/*.proto))

.PHONY: demo test test-long test-system test-torchao test-web mutants soak bench bench-full bench-gpu bench-parts wheels check proto docs site format clean

demo: $(READY)
	$(RUN)/esper demo

test: $(READY)
	$(RUN)/python -m pytest tests --ignore=tests/long --ignore=tests/system -n 2 --dist worksteal

# What trains models, times them, or starts a process for each test. Of each area a test that is quick is in `make test`.
test-long: $(READY)
	$(RUN)/python -m pytest tests/long -n 2 --dist worksteal

# Three at once on two cores: a third of their time these tests wait, for heartbeats, leases and kills. The tests of a
# file stay with one worker: they share demos, clusters, and what git lists. On a machine that does other work: JOBS=2.
# tests/system/conftest.py says which files are begun first.
JOBS ?= 3
test-system: $(READY)
	$(RUN)/python -m pytest tests/system -n $(JOBS) --dist loadscope --no-loadscope-reorder

# What needs torchao: 8-bit state of the seeds' optimizers, int8 weights of teachers. It lies in a folder of its own, as
# transformers imports it wherever it finds it. Without it these tests would be fewer, so the import comes first.
TORCHAO := $(VENV)/torchao
test-torchao: $(TORCHAO)/.ready
	PYTHONPATH=$(TORCHAO) $(RUN)/python -c 'import torchao.optim, torchao.quantization'
	PYTHONPATH=$(TORCHAO) $(RUN)/python -m pytest -n 2 tests/test_optimizer_joint.py tests/test_teacher_checkpointing.py \
		tests/long/test_8_bit_seeds.py tests/long/test_8_bit_split.py tests/long/test_teacher_modes.py \
		tests/long/test_teacher_faults.py

$(TORCHAO)/.ready: $(READY)
	rm -rf $(TORCHAO)
	$(PIP) --no-deps --target $(TORCHAO) torchao -c constraints.txt
	@touch $@

# Drives a headless Chromium over the pages of `esper web`: the one on PATH, or CHROMIUM=/path/to/it.
test-web: $(VENV)/.browser
	$(RUN)/python -m pytest tests/system/test_web_browser.py

$(VENV)/.browser: $(READY)
	$(PIP) -e '.[browser]' -c constraints.txt
	@touch $@

# Plants each known bug in a copy of the source and runs the test that must find it. Some: make mutants MUTANTS="--sample 24"
MUTANTS ?=
mutants: $(READY)
	$(RUN)/python -m tests.mutants.run $(MUTANTS)

# What takes hours: the fault table and the simulation at full size. Stopped and begun anew, it goes on where it was.
soak: $(READY)
	$(RUN)/python bench/simulate.py --seeds 2000
	$(RUN)/python bench/faults.py --tier full --seed 1 --report soak.json

# What it costs, measured here: one row of each family, a few minutes on two cores. More in `esper bench --help`.
bench: $(READY)
	$(RUN)/esper bench run --quick --sample --out bench/out

# Every row, at the effort of figures that are published: hours. Stopped and begun anew, it goes on where it was.
bench-full: $(READY)
	$(RUN)/esper bench run --full --out bench/out

# On a CUDA machine without network: `make wheels` where there is a package index, with the same Python and system, then
# carry the checkout with its folder of wheels over, and there `make bench-gpu`.
WHEELS ?= wheels
wheels:
	$(PYTHON) -m pip wheel --wheel-dir $(WHEELS) -c constraints.txt "$(TORCH)" 'setuptools>=77' .

bench-gpu:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-index --find-links $(WHEELS) "$(TORCH)" 'setuptools>=77'
	$(PIP) --no-index --find-links $(WHEELS) --no-build-isolation -e .
	$(RUN)/python -c 'import torch; assert torch.cuda.is_available(), "torch sees no CUDA device"'
	$(RUN)/esper bench run --full --device cuda --out bench/out

# Rows of files: single parts, beside the bare client, torch alone, and peers. Less of it: make bench-parts BENCH=--quick.
BENCH ?= --full
PARTS := kasmina calibration scale checkpoints bus telemetry barrier peers/bus peers/steps
FAMILIES := kasmina calibration scale checkpoints bus tiers barrier peers
bench-parts: $(VENV)/.bench
	$(RUN)/esper bench run $(FAMILIES) $(PARTS:%=--from bench/%.py) $(BENCH) --out bench/out/parts

$(VENV)/.bench: $(READY)
	$(PIP) -e '.[peers]' -c constraints.txt
	@touch $@

check: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/python -m pytest tests/test_proto_in_sync.py

proto: $(READY)
	$(RUN)/python -m grpc_tools.protoc -I proto --python_out=. --pyi_out=. $(PROTOS)

# What pages quote: the controller script, tables, the pages of commands, messages, settings. Tests fail out of step.
docs: $(READY)
	$(RUN)/python scripts/fill_docs.py
	$(RUN)/python -m scripts.reference

# docs/ as pages to read in a browser, from a folder or a server: site/index.html. A dead link ends it.
site: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --quiet

$(VENV)/.docs: $(READY)
	$(PIP) -e '.[docs]' -c constraints.txt
	@touch $@

format: $(READY)
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# torch first: it decides which build of the rest fits. The stamp is written last, so a broken set-up is begun anew.
# The pip that Python 3.11 brings reads an index in more than twice the time, and does where there is no newer one.
# Modules are compiled when they are first imported, as most never are; torch's at once, on the other core, or both
# workers of pytest would compile them.
# What a shell has in its background hears no Ctrl-C, hence the trap: it would write on where `make clean` deletes.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is missing or too old; expected Python 3.11 or 3.12: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "Setting up $(VENV); this takes a few minutes, once."
	@$(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) can't make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 2; }
	-$(PIP) --no-compile --upgrade 'pip>=26' -c constraints.txt
	$(PIP) --no-compile "$(TORCH)" 'setuptools>=77' -c constraints.txt
	$(RUN)/python -m compileall -qq $(VENV)/lib/python3*/site-packages/torch & trap "kill $$!" INT TERM; \
		PYTHONWARNINGS=ignore $(PIP) --no-compile --no-build-isolation -e '.[dev]' -c constraints.txt; \
		status=$$?; wait; exit $$status
	@touch $@
