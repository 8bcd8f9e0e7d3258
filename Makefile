# Two commands do everything on a fresh Debian or Ubuntu machine with Rust: `make demo` and `make test`.

# Build outputs stay outside of the clone, so that a fresh clone finds what an earlier one has built.
CACHE ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/everfold
export CARGO_TARGET_DIR ?= $(CACHE)/target
BIN := $(CARGO_TARGET_DIR)/release
EXAMPLES := $(BIN)/examples
DEMO := npb_ep npb_cg 05_survive_failure 07_come_back
DENY := $(CACHE)/tools/bin/cargo-deny
TIMELINES ?= $(CACHE)
SEEDS ?= 100000
MINUTES ?= 10

.DEFAULT_GOAL := help
.PHONY: help compiler setup build demo test verify check deny sim mutants fuzz sanitize bench bench-compare clean

help: ## This list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

compiler:
	@scripts/setup compiler
	@# Cargo tells the sources of two clones apart by nothing but their times: what another clone has built is out of date.
	@mkdir -p "$(CARGO_TARGET_DIR)"; clone="$(CARGO_TARGET_DIR)/clone"; echo "$(CURDIR)" | cmp -s - "$$clone" \
	  || { find . -name '*.rs' -exec touch {} +; echo "$(CURDIR)" >"$$clone"; }

setup: compiler ## Install what the build needs (compiler, libclang) where it is missing.
	@scripts/setup libclang

build: setup ## The command and the examples.
	cargo build --release -p everfold-cli -p everfold-examples --bins --examples

# Without RocksDB, whose C++ takes most of a first build: the demo keeps no copies on disk.
demo: compiler ## NAS EP class A, a 32 MiB reduction beside the bound, and processes that die; with pictures.
	cargo build --release -p everfold-cli -p everfold-examples --no-default-features --bins $(DEMO:%=--example %)
	@scripts/demo "$(EXAMPLES)" "$(BIN)" "$(TIMELINES)"

test: setup ## All tests, and the examples as a user runs them.
	cargo test --release --workspace --no-fail-fast
	cargo test --release -p everfold-storage -p everfold-runtime -p everfold --no-default-features --lib
	@$(MAKE) --no-print-directory verify

verify: build ## Run the examples and check the published answers of NAS kernels over both transports.
	@scripts/verify "$(EXAMPLES)" "$(BIN)"

check: setup deny ## What a change has to pass besides the tests; writes nothing.
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	cargo clippy --release -p everfold-cli -p everfold-examples --no-default-features -- -D warnings
	cargo clippy --release -p everfold-examples --no-default-features --features cuda --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps --quiet
	scripts/purity
	scripts/paper-map
	scripts/message-table

deny: $(DENY) ## Licences and sources of all dependencies.
	$(DENY) --workspace --all-features check --hide-inclusion-graph licenses bans sources

$(DENY):
	@echo "installing cargo-deny into $(CACHE)/tools"
	cargo install --quiet --locked cargo-deny --root $(CACHE)/tools --target-dir $(CACHE)/tools-target
	rm -rf $(CACHE)/tools-target

sim: setup ## Random worlds, many more than the tests run: SEEDS=100000.
	cargo run --release --quiet -p everfold-cli -- sim check --seeds 0..$(SEEDS)

mutants: setup ## Break the rules one at a time and see that the simulator notices.
	scripts/mutants

fuzz: compiler ## Any bytes where foreign ones come in, each target for MINUTES=10, or one: TARGET=frame.
	scripts/fuzz $(MINUTES) $(TARGET)

sanitize: compiler ## Tests of memory, transports, board and agents under the address and the thread sanitizer.
	scripts/sanitize

bench: setup ## Criterion benchmarks, then reductions by size and ranks beside the bound.
	cargo bench -p everfold-benches
	cargo run --release --quiet -p everfold-cli -- bench reduce

bench-compare: setup ## Beside Open MPI and MPICH, in turns, on one host and on namespaces (root): OPTIONS=--quick.
	cargo run --release --quiet -p everfold-cli -- bench compare $(OPTIONS)

clean: ## Remove all build outputs.
	rm -rf "$(CARGO_TARGET_DIR)"
