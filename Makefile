# Two commands are enough on a fresh Debian 12: `make serve` and `make test`. Everything else is a part of those.
MODEL ?= smollm2-135m
HOST ?= 127.0.0.1
PORT ?= 8000
ARGS ?=
BUILD := build/release
JOBS ?= $(shell nproc)
SCHEDULES ?= 10000

.PHONY: all build serve test test-long deps check format unit asan tsan fuzz pytest bench clean help

all: build

help:
	@echo "make serve [MODEL=smollm2-135m] [HOST=127.0.0.1] [PORT=8000] [ARGS=...]   build, fetch the model, serve it"
	@echo "make test      everything CI runs: checks, unit tests (plain, asan, tsan), fuzzers, server tests"
	@echo "make test-long the exactness proof on SCHEDULES=10000 random schedules (make test: 500); minutes"
	@echo "make build     build/release/quire only"
	@echo "make check     formatting, layers, instruction-set symbols"
	@echo "make unit | asan | tsan | fuzz | pytest     one part of make test"
	@echo "make format    rewrite the sources with clang-format"

deps:
	@tools/install_deps.sh

build: deps
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target quire

serve: build
	$(BUILD)/quire pull $(MODEL)
	exec $(BUILD)/quire serve $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

test:
	@tools/run_tests.sh

test-long: deps
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target quire_engine_test
	QUIRE_SCHEDULES=$(SCHEDULES) $(BUILD)/quire_engine_test --gtest_filter='RandomSchedule.*'

check unit asan tsan fuzz pytest: deps
	@tools/run_tests.sh $@

format: deps
	@git ls-files -co --exclude-standard '*.h' '*.cc' | xargs clang-format-14 -i

clean:
	rm -rf build
