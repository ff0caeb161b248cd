# Meshpost: the words are the same at the desk and in CI.

PACKAGES := libsqlite3-dev libssl-dev libsodium-dev libdbus-1-3 libbluetooth-dev libpq-dev zlib1g-dev pkg-config ca-certificates
# What deploy/pages/pack makes the pages with.
PAGE_PACKAGES := esbuild python3
DEB_PACKAGES := debhelper dpkg-dev lintian $(PAGE_PACKAGES)
SITE_PACKAGES := mkdocs mkdocs-material mandoc
TEST_PACKAGES := python3 python3-venv curl openssl dbus-daemon mosquitto mosquitto-clients nats-server postgresql iproute2 tshark \
  openssh-server openssh-client groff-base man-db adduser zsh fish tmux nginx certbot python3-certbot-nginx pebble sqlite3 \
  patroni etcd-server pgbouncer chromium chromium-driver prometheus esbuild node-typescript
SWIFT ?= swift
PYTHON_ENV := .build/python
HOME_ASSISTANT := .build/home-assistant
RELEASE = $(shell ./deploy/release-flags)

.PHONY: run test quick simulate fuzz sanitize firmware test-arm64 build deb deb-arm64 container bench bench-fleet called-functions manual site format lint packages test-packages cross-packages bluez-bench machine clean

## run: the main job: a radio (an attached one, else the virtual one) → gateway → local hub
run: packages
	$(SWIFT) build
	./hardware/quickstart

## test: everything, with what it needs installed
test: packages test-packages $(PYTHON_ENV)/ready $(HOME_ASSISTANT)/ready lint bluez-bench machine
	@date '+%T: building the tests'
	./Tests/build
	@date '+%T: running the tests'
	./Tests/run

## quick: what has changed since the last commit, built, and tested by the suites that are about it: yes or no within a minute or two
quick: packages
	./Tests/quick

## simulate: invented weeks of gateways, radios and servers with faults, chosen by seeds: make simulate SEED=1 N=1000 DAYS=7, or HOURS=3, and FOR=600 seconds at most (docs/reliability.md)
SEED ?= 1
N ?= 100
DAYS ?= 7
HOURS ?=
FOR ?=
simulate: packages
	$(SWIFT) build $(RELEASE) --product meshpost-simulate
	.build/release/meshpost-simulate $(SEED) $(N) $(if $(HOURS),--hours $(HOURS),--days $(DAYS)) $(if $(FOR),--for $(FOR)) --shrink

## fuzz: libFuzzer looks for inputs that break a reader: TARGET=… (else all of Tests/Fuzzing), SECONDS=… for each (else 60)
fuzz: packages
	./Tests/fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(TARGET)

## sanitize: suites with a sanitizer that reports misuse of memory, or data shared between threads: SANITIZER=address|thread, SUITES=… (else all but whole programs)
SANITIZER ?= address
sanitize: packages test-packages $(PYTHON_ENV)/ready
	./Tests/sanitize $(SANITIZER) $(SUITES)

## test-arm64: the whole-program tests with what `make deb-arm64` has built, in an emulator
test-arm64: packages test-packages $(PYTHON_ENV)/ready
	$(call install_missing,qemu-user-static)
	./Tests/build whole
	programs=$$(./hardware/emulate-arm64) && \
	  MESHPOST_PROGRAMS=$$programs MESHPOST_TEST_PATIENCE=120 ./Tests/run WholeProgramTests

## firmware: the gateway in a mesh of MeshCore's own code: NODES=FOLDER has its programs, or NODES=virtual (hardware/firmware/run --help)
firmware: packages
	$(SWIFT) build
	./hardware/firmware/run $(NODES)

## build: the release programs
build: packages
	$(SWIFT) build $(RELEASE)

## deb: Debian packages for this machine's architecture, in .build/packages, and lintian's judgement of them
deb: packages build
	$(call install_missing,$(DEB_PACKAGES))
	./deploy/package
	lintian --allow-root --fail-on error,warning .build/packages/*.changes

## deb-arm64: Debian packages for arm64, built on an amd64 machine
deb-arm64: packages
	$(call install_missing,$(DEB_PACKAGES) binutils-aarch64-linux-gnu)
	$(SWIFT) build --product meshpost
	./deploy/cross-arm64
	LIBRARIES=$(CURDIR)/.build/cross/sdk/meshpost.artifactbundle/arm64/sysroot/usr/lib/aarch64-linux-gnu SHLIBS=.build/cross/shlibs \
	  NATIVE_PROGRAMS=.build/debug ./deploy/package .build/cross/arm64 arm64
	lintian --allow-root --fail-on error,warning .build/packages/*_arm64.changes

## container: the hub's image, from Debian's packages alone (deploy/container)
container:
	./deploy/container/build

## bench: the measurements of docs/benchmarks.md, printed as one table
bench: packages test-packages $(PYTHON_ENV)/ready bluez-bench
	$(SWIFT) build $(RELEASE)
	./Benchmarks/run

## bench-fleet: a hub under the load of a fleet of gateways, as a table (Benchmarks/fleet)
bench-fleet: packages test-packages
	$(SWIFT) build $(RELEASE) --product meshpost-hub
	./Benchmarks/fleet/run

## called-functions: the order in which release programs have their functions, from one that runs (docs/decisions/0010)
called-functions: build
	./Benchmarks/memory.py .build/release --order .build/called-functions
	gzip -9cn .build/called-functions >deploy/called-functions.gz

## manual: man pages, docs/json.md and the requests of the control socket, made from the commands themselves
manual:
	$(SWIFT) build --product meshpost
	mkdir -p docs/man
	for page in $$(.build/debug/meshpost generate man); do .build/debug/meshpost generate man $$page >docs/man/$$page.1; done
	.build/debug/meshpost generate shapes >docs/json.md
	.build/debug/meshpost generate requests >docs/requests.md
	.build/debug/meshpost generate openapi >docs/control-socket.json

## site: the documents as a site that can be searched, in .build/site; a link that leads nowhere fails it
site:
	$(call install_missing,$(SITE_PACKAGES))
	mkdocs build --config-file deploy/site/mkdocs.yml
	./deploy/site/check .build/site

format:
	$(SWIFT) format format --in-place --recursive Sources Tests Benchmarks Package.swift

## lint: style, the rules that the repository keeps of itself, and the pages without a browser
lint:
	$(SWIFT) format lint --strict --recursive Sources Tests Benchmarks Package.swift
	./Tests/tidy
	./Tests/pages/check

# What is missing is installed by its Debian name; nothing is asked of the network when all is there.
define install_missing
	@missing=""; for package in $(1); do dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	if [ -n "$$missing" ]; then \
	  echo "installing$$missing"; \
	  sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$missing; \
	fi
endef

packages:
	$(call install_missing,$(PACKAGES))

test-packages:
	$(call install_missing,$(TEST_PACKAGES))

# With what deploy/cross-arm64 makes Debian folders.
cross-packages:
	$(call install_missing,mmdebstrap debian-archive-keyring)

# A real BlueZ in an emulated machine; where that cannot be had, its test says so and is skipped.
bluez-bench: .build/bluez-bench/initramfs.gz
.build/bluez-bench/initramfs.gz: hardware/bluez-bench/setup hardware/bluez-bench/guest-init
	@if [ "$$(uname -m)" = x86_64 ]; then ./hardware/bluez-bench/setup; \
	else echo "bluez-bench: needs an x86-64 machine; the Bluetooth tests are skipped"; fi

# A small Debian machine, and the gateway's package for it, built for release. Where that cannot be had, its test says so and is skipped.
machine:
	@if [ "$$(uname -m)" = x86_64 ]; then $(MAKE) --no-print-directory machine-x86_64; \
	else echo "machine: needs an x86-64 machine; its tests are skipped"; fi
machine-x86_64:
	$(call install_missing,debhelper dpkg-dev $(PAGE_PACKAGES))
	$(SWIFT) build $(RELEASE) --product meshpostd
	$(SWIFT) build $(RELEASE) --product meshpost
	./deploy/package
	./hardware/machine/setup

# Radios and clients that others wrote (PyPI), for the interoperability tests.
$(PYTHON_ENV)/ready: hardware/requirements.txt
	python3 -m venv $(PYTHON_ENV)
	$(PYTHON_ENV)/bin/pip install -q -r hardware/requirements.txt
	touch $@

# Home Assistant's schemas, which judge what is described to it. Without what they do not need, which is most of it. Where this
# version of it cannot be had (it wants Python 3.11 or 3.12), the tests that ask it say so and are skipped.
$(HOME_ASSISTANT)/ready: hardware/home-assistant.txt
	python3 -m venv $(HOME_ASSISTANT)
	@if $(HOME_ASSISTANT)/bin/pip install -q --no-deps -r hardware/home-assistant.txt; then touch $@; \
	else echo "home-assistant: not to be had here; tests that ask it are skipped"; fi

clean:
	rm -rf .build run
