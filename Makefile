# What can be done here: `make help`.
SHELL := /bin/bash
SWIFT ?= swift
PREFIX ?= /usr/local
DESTDIR ?=
BUILT := .build/release

.DEFAULT_GOAL := build
.PHONY: help deps test-deps toolchain build release mount test fuzz tsan lint format demo programs bench bench-build bench-check soak
.PHONY: bench-fleet fleet-demo fleet-build
.PHONY: bare install uninstall clean deb dist journey

help:
	@echo 'make mount MANIFEST=urls.txt MOUNTPOINT=~/media [OPTIONS=...]'
	@echo '                installs what is missing, builds a release, mounts'
	@echo 'make deps       installs what building and mounting need (apt-get, with sudo if needed)'
	@echo 'make build      builds for debugging'
	@echo 'make release    builds optimised, with the Swift runtime linked in'
	@echo 'make test       lint, build and every test; installs what those need'
	@echo 'make bare [RELEASE=trixie]'
	@echo '                the commands of README in a bare Debian, made by debootstrap; as root'
	@echo 'make fuzz       random and mutated input, a million cases and more; FUZZ_SECONDS bounds it'
	@echo 'make tsan       the reading room and its threads under the thread sanitizer'
	@echo 'make lint       checks the format of the sources; make format mends it'
	@echo 'make demo       a media file served slowly, played while it downloads, and again without the origin'
	@echo 'make programs   what players, media servers, backups and exports of Debian get from a mount, in a table'
	@echo 'make bench      the figures of the design beside rclone, in 45 minutes, written to docs/BENCHMARKS.md, with charts'
	@echo 'make bench-check a short run, that fails where a figure is worse than what is kept (Benchmarks/floors.json)'
	@echo 'make bench-fleet the figures of mounts that share, in 10 minutes, written to docs/BENCHMARKS-FLEET.md'
	@echo 'make fleet-demo four mounts share a film of a slow origin; a chart of who fetched what: .build/fleet-demo.svg'
	@echo 'make soak       lets all go wrong at random under eight kinds of readers, for SOAK_SECONDS ($(SOAK_SECONDS))'
	@echo 'make install    installs under PREFIX ($(PREFIX)), below DESTDIR; make uninstall removes that'
	@echo 'make deb        builds Debian packages of what is here, and checks them (lintian): .build/deb'
	@echo 'make dist       archives of the sources at HEAD and of the built program, with SHA256SUMS: .build/dist'
	@echo 'make journey [RELEASE=trixie] [OLD=commits]'
	@echo '                the package in a bare Debian: installed, used, upgraded, removed; as root'
	@echo 'make clean      removes what was built'

# A build without network that has what it needs already (debian/rules) gives another program: `make release DEPS=true`.
DEPS ?= Scripts/deps
deps:
	@$(DEPS) build

test-deps:
	@Scripts/deps build test

# A toolchain may be anywhere; it is found through PATH.
toolchain:
	@command -v $(SWIFT) >/dev/null || { \
	  echo 'There is no "$(SWIFT)" in PATH. Swift 6.2 or later is needed: https://www.swift.org/install/linux/' >&2; \
	  echo 'If it is installed elsewhere: make $(or $(MAKECMDGOALS),build) SWIFT=/path/to/usr/bin/swift' >&2; \
	  exit 1; }

build: deps toolchain
	$(SWIFT) build

# Only what is installed: the tests' own programs are no part of a release.
release: deps toolchain
	MEDIAFS_COMMIT=$$(Scripts/commit) $(SWIFT) build -c release --static-swift-stdlib --disable-local-rpath --product mediafs
	SWIFT=$(SWIFT) Scripts/build-helper $(BUILT)/mount-helper

# Variables of the command line are in the environment of a recipe: nothing in a path needs quoting.
export MANIFEST MOUNTPOINT
mount: release
	@[ -n "$$MANIFEST" ] && [ -n "$$MOUNTPOINT" ] || { \
	  echo 'Say what and where: make mount MANIFEST=urls.txt MOUNTPOINT=~/media' >&2; exit 2; }
	@# Not every shell expands the tilde in VARIABLE=~/folder.
	@manifest=$${MANIFEST/#\~\//$$HOME/}; mountpoint=$${MOUNTPOINT/#\~\//$$HOME/}; \
	  $(BUILT)/mediafs mount "$$mountpoint" --manifest "$$manifest" $(OPTIONS) \
	  && echo "Mounted at $$mountpoint. Its state: $(CURDIR)/$(BUILT)/mediafs status \"$$mountpoint\""

test: test-deps toolchain
	@SWIFT=$(SWIFT) Scripts/test

bare: toolchain
	@SWIFT=$(SWIFT) Scripts/bare $(RELEASE)

fuzz: test-deps toolchain
	@SWIFT=$(SWIFT) Scripts/fuzz

# Built apart: the sanitizer wants all of it compiled its way.
tsan: test-deps toolchain
	$(SWIFT) test --sanitize thread --scratch-path .build/tsan --filter ReadingTests

lint: toolchain
	@SWIFT=$(SWIFT) Scripts/lint

format: toolchain
	$(SWIFT) format --in-place --parallel --recursive Package.swift Sources Tests

demo: release
	@Scripts/deps demo
	@BUILT=$(BUILT) Scripts/demo

programs: release
	@Scripts/deps programs
	@BUILT=$(BUILT) Scripts/programs

# The origin and the line of the benchmarks are optimised too: slow ones would be what is measured.
bench-build: release
	@Scripts/deps bench
	$(SWIFT) build -c release --static-swift-stdlib --product test-origin
	$(SWIFT) build -c release --static-swift-stdlib --product test-line
	@SWIFT=$(SWIFT) Benchmarks/prepare

bench: bench-build
	python3 Benchmarks/bench.py --output docs/BENCHMARKS.md
	@echo 'Written: docs/BENCHMARKS.md, docs/images'

bench-check: bench-build
	python3 Benchmarks/bench.py --quick --check

# SeaweedFS, and for the table of simulated fleets the tests.
fleet-build: bench-build
	@Scripts/deps fleet

# MiB of each of the eight files; counts do not depend on it.
export FLEET_MIB ?= 256
bench-fleet: fleet-build
	$(SWIFT) build --build-tests
	SWIFT=$(SWIFT) python3 Benchmarks/bench.py --fleet --output docs/BENCHMARKS-FLEET.md
	@echo 'Written: docs/BENCHMARKS-FLEET.md'

fleet-demo: fleet-build
	python3 Benchmarks/fleet_demo.py .build/fleet-demo.svg

SOAK_SECONDS ?= 300
SOAK_SEED ?= $(shell date +%s)
soak: bench-build
	$(SWIFT) build -c release --static-swift-stdlib --product disk-shim
	python3 Benchmarks/soak.py --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED)

# Builds only when nothing is built: `sudo make install` may have no toolchain in its PATH.
install:
	@[ -x $(BUILT)/mediafs ] && [ -x $(BUILT)/mount-helper ] || $(MAKE) release
	@Scripts/install-files install $(BUILT) "$(PREFIX)" "$(DESTDIR)"

uninstall:
	@Scripts/install-files uninstall $(BUILT) "$(PREFIX)" "$(DESTDIR)"

deb: deps toolchain
	@Scripts/deps package
	@SWIFT=$(SWIFT) Scripts/make-deb .build/deb

dist: release
	@Scripts/make-dist $(BUILT) .build/dist

journey: deb
	@SWIFT=$(SWIFT) Scripts/package-journey $(or $(RELEASE),bookworm) $(OLD)

clean:
	rm -rf .build
