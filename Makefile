# `make test` is the one command: it installs what is missing and runs everything.
.PHONY: help run test chart check fmt lint doc tools

help: ## What can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

run: ## Serve the example rules with counters in memory
	cargo run --release -- serve --rules examples/quickstart

test: tools ## Install what is missing and run all tests
	cargo test --locked --all-targets
	cargo build --locked
	target/tools/python/bin/pytest -q -n auto --dist loadgroup tests/chart

chart: ## Test the chart, the image recipe and the examples (with target/debug/palang)
	scripts/tools.sh chart
	target/tools/python/bin/pytest -q -n auto --dist loadgroup tests/chart

check: fmt lint doc ## Format, lints and docs, all of them strict

fmt:
	cargo fmt --all -- --check

lint:
	cargo clippy --locked --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

tools:
	scripts/tools.sh
