# A short front for Meson. `make help` lists what there is.
BUILD ?= build
PREFIX ?= /usr/local
MESON_TEST = meson test --no-rebuild --print-errorlogs

# Which packages each target needs stands in tools/packages; they are installed
# by name, quietly, and only if missing.
.PHONY: all run check test test-all bench fuzz install clean help

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

help:
	@echo 'make          build into $(BUILD)/'
	@echo 'make run      see it work: a command done once, then replayed'
	@echo 'make check    the tests that take less than a minute'
	@echo 'make test     all tests: with gcc, with the sanitizers, fuzzed with clang'
	@echo 'make test-all the same with the long forms (half an hour)'
	@echo 'make bench    measure; docs/benchmarks.md has the figures of one run'
	@echo 'make fuzz     fuzz each target for FUZZ_SECONDS (default 60)'
	@echo 'make install  library, header, pkg-config file, man page, idem(1); PREFIX, DESTDIR'

$(BUILD)/build.ninja:
	@tools/packages build
	@meson setup $(BUILD) --prefix=$(PREFIX) >$(BUILD).log || { cat $(BUILD).log; exit 1; }

run: $(BUILD)/build.ninja
	@ninja -C $(BUILD) installed >$(BUILD).log || { cat $(BUILD).log; exit 1; }
	@examples/once.sh $(BUILD)/src/cli/idem

check: all
	@$(MESON_TEST) -C $(BUILD) --suite check

test:
	@tests/run

test-all:
	@IDEM_LONG=1 tests/run

bench:
	@tools/packages build bench
	@bench/run

fuzz:
	@tools/packages build fuzz
	@tests/fuzz $(or $(FUZZ_SECONDS),60)

install: $(BUILD)/build.ninja
	@meson configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD) installed
	@meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

clean:
	@rm -rf $(BUILD) build-* build.log
