# `make test` is the one command: it installs what is missing and runs everything.
.PHONY: help run test chart bench soak check fmt lint doc tools

# With target/debug/palang, which `cargo test` has built.
CHART_TESTS = target/tools/python/bin/pytest -q -n auto --dist loadgroup tests/chart

help: ## What can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

run: ## Serve the example rules with counters in memory
	cargo run --release quickstart

test: tools ## Install what is missing and run all tests
	cargo test --locked
	$(CHART_TESTS)

chart: tools ## Test the chart, the image recipe and the examples
	cargo build --locked
	$(CHART_TESTS)

bench: ## Measure against a bare tonic server, about 4 minutes (BENCH_ROUNDS, BENCH_SECONDS, BENCH_QUICK=1)
	scripts/tools.sh valgrind
	cargo bench --locked --bench ratios
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
