# `make test` is the one command: it installs what is missing and runs everything.
.PHONY: help run test chart image bench soak check fmt lint doc tools

# The one release build that tests use, made by `make image`.
export PALANG_RELEASE = $(CURDIR)/target/image/palang
CHART_TESTS = PALANG_BIN=$(PALANG_RELEASE) target/tools/python/bin/pytest -q -n auto --dist loadgroup tests/chart

help: ## What can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

run: ## Serve the example rules with counters in memory
	cargo run --release quickstart

test: image ## Install what is missing and run all tests
	cargo test --locked
	$(CHART_TESTS)

chart: image ## Test the chart, the image recipe and the examples
	$(CHART_TESTS)

image: tools ## Build what the Dockerfile builds, by its own steps, into target/image
	python3 scripts/image.py

bench: ## Measure against a bare tonic server, about 4 minutes (BENCH_ROUNDS, BENCH_SECONDS, BENCH_QUICK=1)
	scripts/tools.sh valgrind
	cargo bench --locked --bench ratios
	cargo bench --locked --bench script
	cargo bench --locked --bench instructions

soak: tools ## Mixed faults at load, 10 minutes or SOAK_SECONDS: answered, by policy, late, lost, memory
	SOAK_SECONDS=$${SOAK_SECONDS:-600} cargo test --locked --release --test suite -- --nocapture --exact failure_soak::soak

check: fmt lint doc ## Format, lints and docs, all of them strict

fmt:
	cargo fmt --all -- --check

lint:
	cargo clippy --locked --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

tools:
	scripts/tools.sh
