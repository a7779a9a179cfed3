# A short front for Meson. `make help` lists what there is.
BUILD ?= build
PREFIX ?= /usr/local

# Which packages each target needs stands in tools/packages; they are installed
# by name, quietly, and only if missing.
.PHONY: all run run-command check test test-brokers test-clients test-install test-upgrade test-all bench fuzz pictures install deb clean help

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

help:
	@echo 'make          build into $(BUILD)/'
	@echo 'make run      see it work: a shop, a gateway before it, a retry (RUN_ONCE=1: and end)'
	@echo 'make run-command  the same with a command: done once, then replayed'
	@echo 'make check    the quick tests: less than a minute'
	@echo 'make test     the tests of the C system: with gcc, with the sanitizers, fuzzed with clang'
	@echo 'make test-brokers  RabbitMQ'
	@echo 'make test-clients  the browser client, in Node and in Chromium'
	@echo 'make test-install  make install, and the module in nginx'\''s own build'
	@echo 'make test-upgrade  this release and the one before it on one store'
	@echo 'make test-all all of these in their long form (an hour and more)'
	@echo 'make bench    measure (BENCH_QUICK=1: only see that it works); docs/benchmarks.md has the figures of one run'
	@echo 'make fuzz     fuzz each target for FUZZ_SECONDS (default 60)'
	@echo 'make pictures the pictures of README, from the running program'
	@echo 'make install  library, header, man pages, idem(1), the nginx module; PREFIX, DESTDIR'
	@echo 'make deb      Debian packages, into dist/ (DIST)'

$(BUILD)/build.ninja:
	@tools/packages build
	@meson setup $(BUILD) --prefix=$(PREFIX) >$(BUILD).log || { cat $(BUILD).log; exit 1; }

# A build that was set up before these packages were there has no such target.
run:
	@tools/packages build run
	@$(MAKE) -s $(BUILD)/build.ninja
	@ninja -C $(BUILD) -t targets all | grep -q '^demo:' || \
		meson setup --reconfigure $(BUILD) >$(BUILD).log || { cat $(BUILD).log; exit 1; }
	@ninja -C $(BUILD) demo >$(BUILD).log || { cat $(BUILD).log; exit 1; }
	@examples/shop/run.sh $(BUILD)/src/cli/idem $(BUILD)/examples/shop/shop

run-command: $(BUILD)/build.ninja
	@ninja -C $(BUILD) src/cli/idem >$(BUILD).log || { cat $(BUILD).log; exit 1; }
	@examples/once.sh $(BUILD)/src/cli/idem

# Some tests of root's run idem as another user.
check:
	@tools/packages build check
	@umask 022; $(MAKE) -s all
	@tests/repeat 1 --build $(BUILD) check

test:
	@tests/run

test-brokers test-clients test-install test-upgrade: test-%:
	@tests/run $*

test-all:
	@IDEM_LONG=1 tests/run

bench:
	@tools/packages build bench
	@bench/run

fuzz:
	@tools/packages build fuzz
	@tests/fuzz $(or $(FUZZ_SECONDS),60)

pictures:
	@tools/packages build run test
	@$(MAKE) -s all
	@tools/pictures $(BUILD)

install: $(BUILD)/build.ninja
	@meson configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD) installed
	@meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

# In a copy: nothing is written here but the packages.
deb:
	@tools/packages build deb
	@tools/deb $(or $(DIST),dist)

clean:
	@rm -rf $(BUILD) build-* build.log dist
