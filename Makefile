# make lab    set up, and run the main job: five kinds of replication, without and with 0.6 ms
# make test   set up, and run the whole test suite
# make test-kernel  the part of it that is about kernel netem, under a kernel that has it
# make test-kernel-lab  a lab of MySQL servers on kernel netem, under the same kernel
# make bench  benchmarks: start of a lab, load against sysbench, cost of the emulator
# make bench-netem  accuracy, throughput and scale of the emulator, for docs/netem.md

SHELL := /bin/bash
GO    ?= go
# What this machine may lack. sysbench and the rest are for tests and benchmarks.
LAB_PACKAGES  := mmdebstrap
TEST_PACKAGES := $(LAB_PACKAGES) iproute2 iputils-ping nftables iptables gcc libc6-dev sysbench docker.io
BENCH_PACKAGES := $(TEST_PACKAGES)

.PHONY: lab test unit integration test-kernel test-kernel-lab bench bench-netem build servers machine clean

lab: PACKAGES := $(LAB_PACKAGES)
lab: machine build servers
	./faultlab run latency-0.6ms --profile quick

test: PACKAGES := $(TEST_PACKAGES)
test: machine build
	@$(MAKE) --no-print-directory -j2 --output-sync=target servers unit
	@$(MAKE) --no-print-directory integration test-kernel

unit:
	$(GO) vet ./... && $(GO) vet -tags integration,bench,kernel,kernellab ./...
	$(GO) test -race ./...

# One package at a time: they measure time, and start up to six servers each.
integration:
	@set -o pipefail; log=$$(mktemp); trap 'rm -f '$$log EXIT; \
	$(GO) test -tags integration -count=1 -p 1 -timeout 40m -v ./... | tee $$log | grep --line-buffered -vE '^=== |^\?|^    --- (PASS|SKIP)|no test files' ; \
	status=$${PIPESTATUS[0]}; .ci/ran $$log .ci/must-run && exit $$status

# Under user-mode-linux, whatever this machine's own kernel has: about 3 minutes.
test-kernel: PACKAGES := mmdebstrap
test-kernel: machine
	@set -o pipefail; dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; export CGO_ENABLED=0 GOTMPDIR=$$dir; \
	$(GO) build -o $$dir/uml ./internal/uml && \
	$(GO) test -tags integration,kernel -exec "$$dir/uml -timeout 8m -bind $$dir -dir ." -count=1 -timeout 9m -v ./netem/qdisc | \
		tee $$dir/log | grep --line-buffered -vE '^=== |^    --- (PASS|SKIP)' ; \
	status=$${PIPESTATUS[0]}; .ci/ran $$dir/log .ci/must-run-kernel && exit $$status

# A lab of MySQL servers on kernel netem, under the same kernel: about 4 minutes, 5 GB.
test-kernel-lab: PACKAGES := $(LAB_PACKAGES)
test-kernel-lab: machine build servers
	@dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; export CGO_ENABLED=0 GOTMPDIR=$$dir; cache=$${XDG_CACHE_HOME:-$$HOME/.cache}; \
	$(GO) build -o $$dir/uml ./internal/uml && \
	$(GO) test -tags kernellab -exec "$$dir/uml -timeout 14m -memory 5G -bind $$dir -bind $$cache/faultlab -env XDG_CACHE_HOME=$$cache -dir ." -count=1 -timeout 15m -v -run TheKernel .

# About 15 minutes on 2 processors; one, for a look: FAULTLAB_BENCH_ROUNDS=1
# FAULTLAB_BENCH_SECONDS=1 make bench. See bench_test.go for more sizes.
bench: PACKAGES := $(BENCH_PACKAGES)
bench: machine build servers
	$(GO) test -tags bench -count=1 -timeout 60m -run '^$$' -bench . -benchtime 1x .

# The strict figures of the emulator, asserted and written into docs/netem.md:
# about 4 minutes on a machine that does nothing else.
bench-netem: PACKAGES := iproute2
bench-netem: machine
	$(GO) test -tags bench -count=1 -timeout 20m -run '^$$' -bench . -benchtime 1x ./netem/netemtest/bench

build:
	$(GO) build -o faultlab .

servers:
	./faultlab servers install mysql mariadb

# Whether this machine will do, and what it lacks, before anything is built.
machine:
	@[ "$$(uname -s)" = Linux ] || { echo "make: this needs Linux, and this is $$(uname -s): use a virtual machine with Debian 12" >&2; exit 1; }
	@[ "$$(id -u)" = 0 ] || { echo "make: this makes network namespaces and needs root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }
	@command -v $(GO) >/dev/null || { echo "make: this needs Go, see https://go.dev/doc/install" >&2; exit 1; }
	@command -v apt-get >/dev/null || { echo "make: this needs apt, for server roots of Debian packages; elsewhere use ./faultlab run with --server-root" >&2; exit 1; }
	@lacking=$$(for p in $(PACKAGES); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	[ -z "$$lacking" ] || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$lacking >/dev/null && echo "installed:" $$lacking; }

clean:
	rm -f faultlab
