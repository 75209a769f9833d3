# overlapd: build, run, test. Every target does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

ORT_VERSION := 1.32.0
CACHE_DIR   ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/overlapd
ORT_DIR     := $(CACHE_DIR)/onnxruntime-$(ORT_VERSION)-cpu
ORT_LIB     := $(ORT_DIR)/libonnxruntime.so.1

HIGHS_VERSION := 1.15.1
SOLVER        := $(CACHE_DIR)/highs-$(HIGHS_VERSION)/highs

# Vector instructions for the predictor. Go has them as an experiment, and
# only here; without it the same is calculated, slower.
ifeq ($(shell go env GOARCH),amd64)
export GOEXPERIMENT ?= simd
endif

# The header of NVML deprecates calls that its Go binding still declares.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X github.com/overlapd/overlapd/internal/cli.commit=$(COMMIT)

.PHONY: help build lab demo run test short clients losses ledger numbers chaos soak fuzz conformance ort ort-notices solver lint bench bench-cpu bench-endpoint bench-text bench-compare gpu-bundle gpu-check release check-release deb check-deb check-units image-tree image check-image check-kubernetes clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# compile builds a program. Go compiles in silence, which a first build does for a minute or two, so it
# says every five seconds how far it is.
define compile
@[ -x bin/$(1) ] || echo 'Compiling $(1) and its libraries: one to three minutes the first time, seconds after that.'
@echo go build -o bin/$(1) ./cmd/$(1)
@go build -v -trimpath -ldflags '$(LDFLAGS)' -o bin/$(1) ./cmd/$(1) 2>&1 | { \
	n=0 said=0; while IFS= read -r line; do case "$$line" in \
		*[\ :\#]*) echo "$$line";; \
		*) n=$$((n + 1)); if [ $$SECONDS -ge $$((said + 5)) ]; then said=$$SECONDS; echo "  $$n packages compiled, the last one: $$line"; fi;; \
	esac; done; }
endef

build: ort ## bin/overlapd, which finds libonnxruntime by itself
	$(call compile,overlapd)

lab: ort ## bin/overlapd-lab, which compares policies, reproduces papers and measures costs
	$(call compile,overlapd-lab)

demo: ## what overlapping gains, within a second, on an emulated GPU; fetches no ONNX Runtime
	$(call compile,overlapd)
	bin/overlapd demo

run: build ## the daemon on the CPU with resnet50 and bert; prints a request to try
	bin/overlapd serve --embedded

# Packages that only calculate: the detector, under which they take ten times as long,
# has nothing to find there but in selection, whose scripts run under it.
CALCULATING := ./cmd/overlapd-lab ./executor/emulated/device ./lab/reproduce ./lab/sim/... ./lab/synthetic ./overlap ./planning/... ./test/structure ./training/...

test: export GORACE := atexit_sleep_ms=0
test: ort ## every test, under the race detector what does more than to calculate
	go test -vet=all -count=1 -timeout 20m $(CALCULATING)
	go test -race -vet=all -count=1 -timeout 20m $$(go list ./... | grep -vxFf <(go list $(CALCULATING)))

# Ten checks of each property: -short runs a fifth of them.
short: export RAPID_CHECKS := 50
short: ort ## the fast tests, without the race detector
	go test -short -count=1 ./...

numbers: ## docs/benchmarks against what prints it, in virtual time, with the data in OVERLAPD_SHARED_DATA; 100 minutes on two quiet cores (PAGE=shepherd: one page, some minutes; UPDATE=1: write it)
	$(call compile,overlapd)
	$(call compile,overlapd-lab)
	go test -count=1 -timeout 12h -v -run '^TestNumbers$$' ./test/numbers $(if $(UPDATE),-update,-check) -page '$(PAGE)'

conformance: ort ## every model of Debian's libonnx-testdata, cut at every node, against ONNX Runtime
	scripts/conformance

CLIENTS := kserve==0.21.0 tritonclient[all]==2.73.0 open-inference-openapi==2.0.0 open-inference-grpc==2.0.0 \
	cohere==7.3.1 langchain-openai==1.7.4 openai==3.57.0 tokenizers==0.23.3

clients: build ## the clients of KServe, Triton, the Open Inference Protocol, OpenAI, Cohere and LangChain, from PyPI, against bin/overlapd
	python3 -m venv bin/clients
	bin/clients/bin/pip install --quiet $(CLIENTS)
	OVERLAPD_TEST_PYTHON='$(CURDIR)/bin/clients/bin/python' go test -count=1 -v -run '^Test(Repository)?Clients$$' ./test

losses: ## 3,000 made-up scenarios (LOSSES): where overlap does worse than the best baseline; OVERLAPD_FITTED adds fitted devices
	go test -count=1 -timeout 1h -v -run '^TestLosses$$' ./lab/sim -losses $(or $(LOSSES),3000)

ledger: ## what each rule of the policy overlap gains, on every mix; fails where a rule gains nothing or costs too much (OVERLAPD_FITTED adds the A100 of "overlapd-lab reproduce abacus"); 15 minutes on two quiet cores
	go test -count=1 -timeout 1h -v -run '^TestLedger$$' ./lab/ledger -ledger

chaos: ort ## two minutes under load while everything goes wrong around the daemon (CHAOS_TIME, CHAOS_SEED, CHAOS_OUT)
	CHAOS_TIME=$(or $(CHAOS_TIME),2m) go test -count=1 -timeout 30m -v -run '^TestChaos$$' ./test

soak: build ## thirty minutes under steady load (SOAK_TIME), then 10,000 loads of models (RESIDENT_CYCLES), and whether memory stays flat; its course in bin/soak
	mkdir -p bin/soak
	SOAK_TIME=$(or $(SOAK_TIME),30m) SOAK_OUT='$(CURDIR)/bin/soak' go test -count=1 -timeout 24h -v -run '^TestSoak$$' ./test
	RESIDENT_CYCLES=$(or $(RESIDENT_CYCLES),10000) go test -count=1 -timeout 24h -v -run '^TestModelsLeaveNothing$$' ./test

fuzz: ort ## each fuzz target for FUZZTIME (10m)
	scripts/fuzz $(or $(FUZZTIME),10m)

bench: lab ## what cutting models at every node costs
	bin/overlapd-lab bench engine --model resnet50 --batch 1,4,8 --threads 1,2
	bin/overlapd-lab bench engine --model bert --batch 1 --threads 1,2

TEXT_PEER := fastapi==0.165.0 numpy==2.4.6 onnxruntime==$(ORT_VERSION) tokenizers==0.23.3 uvicorn==0.54.0

bench-cpu bench-endpoint bench-text: CPUS ?= 0,1
bench-endpoint: export ENDPOINT_OUT := $(ENDPOINT_OUT)
bench-cpu bench-endpoint: export TRITON := $(or $(TRITON),$(wildcard $(CACHE_DIR)/triton))
bench-endpoint: ort ## what a query costs, beside other servers, on CPUS (0,1) in TURNS (6); ENDPOINT_OUT=FILE for JSON; see scripts/fetch-triton
	taskset -c $(CPUS) go test ./test -run XXX -bench '^BenchmarkEndpoint$$' -benchtime $(or $(TURNS),6)x -timeout 2h

bench-cpu: ort ## answers in time of resnet50 and bert on CPUS (0,1), beside Triton, in TURNS (3) of a WINDOW (10s) a load; CPU_OUT=DIR for JSON and a chart
	CPU_WINDOW='$(WINDOW)' CPU_OUT='$(abspath $(CPU_OUT))' taskset -c $(CPUS) go test ./test -run XXX -bench '^BenchmarkCPU$$' -benchtime $(or $(TURNS),3)x -timeout 2h

bench-text: ort ## embeddings a second on CPUS (0,1), beside a FastAPI server on ONNX Runtime from PyPI, in TURNS (3) of a WINDOW (5s) a load, and the part of tokenizing; TEXT_OUT=FILE for JSON
	python3 -m venv bin/text-peer
	bin/text-peer/bin/pip install --quiet $(TEXT_PEER)
	OVERLAPD_TEST_PYTHON='$(CURDIR)/bin/text-peer/bin/python' TEXT_WINDOW='$(WINDOW)' TEXT_OUT='$(and $(TEXT_OUT),$(abspath $(TEXT_OUT)))' \
		taskset -c $(CPUS) go test ./test -run XXX -bench '^Benchmark(Text|Tokenizing)$$' -benchtime $(or $(TURNS),3)x -timeout 2h

bench-compare: ort ## what a decision and a query cost at the commit BASE and now, in TURNS (10), by benchstat; half an hour on a quiet machine
	scripts/bench-compare '$(or $(BASE),$(error BASE names no commit: make bench-compare BASE=main))' '$(or $(TURNS),10)'

gpu-bundle: build ## bin/gpu-bundle: what a machine with a GPU needs to be checked, three files to carry (GPU_CUDA, GPU_ARCH), and all in pieces (GPU_LIBS)
	go test -c -trimpath -ldflags '-s -w' -o bin/gpu.test ./test/gpu
	go test -c -trimpath -ldflags '-s -w' -o bin/conformance.test ./test/conformance
	scripts/gpu-bundle bin/gpu-bundle bin/overlapd bin/gpu.test bin/conformance.test

gpu-check: gpu-bundle ## check this machine's GPU: correctness, speed, what overlapping gains (ARGS for the tests)
	GPU_CHECK_OUT=bin/gpu-check-results bin/gpu-bundle/gpu-check $(ARGS)

release: ort ort-notices ## a tarball and a Python wheel in bin/, with the program and ONNX Runtime
	scripts/release '$(ORT_DIR)' bin

check-release: release ## unpack and install both in empty places, start the daemon of each, and ask it
	scripts/check-release '$(ORT_DIR)' bin

deb: ort ort-notices ## a Debian package in bin/
	scripts/deb '$(ORT_DIR)' bin

check-deb: deb ## install, upgrade and remove that package in a clean Debian tree; as root
	scripts/check-deb bin

VARIANT  ?= cpu
TREE     ?= bin/image-$(VARIANT)/tree
ORT_CUDA := $(CACHE_DIR)/onnxruntime-image-cuda13

image-tree: $(if $(filter cuda,$(VARIANT)),$(ORT_CUDA)/notices/nvrtc/files,ort ort-notices) ## the layers of an image as folders in TREE; the Containerfile calls it
	scripts/image-tree '$(if $(filter cuda,$(VARIANT)),$(ORT_CUDA),$(ORT_DIR))' '$(TREE)'

$(ORT_CUDA)/notices/nvrtc/files:
	scripts/fetch-ort-gpu 13 '$(ORT_CUDA)' cublas cudart cudnn cufft curand nvjitlink nvrtc

image: image-tree ## a container image without an engine, and what is in it, in bin/image-VARIANT (cpu, cuda); as root
	cd deploy/image && go build -o '$(CURDIR)/bin/image' .
	bin/image Containerfile '$(TREE)' 'bin/image-$(VARIANT)/oci' "$$(git log -1 --format=%ct)" "$$(git rev-parse HEAD)"

check-image: image ## unpack that image, look at every file, and run it read-only as any user, as deploy/kubernetes does
	scripts/check-image bin/image 'bin/image-$(VARIANT)/oci'

check-kubernetes: ## deploy/kubernetes on a real control plane, built once into the cache (ten minutes), with nodes that are played
	scripts/check-kubernetes '$(CACHE_DIR)/kubernetes-1.36.3'

check-units: build ## let systemd verify and rate the units
	scripts/check-units bin/overlapd

lint: ## staticcheck, unparam, spelling and known vulnerabilities, and golangci-lint if it is installed; says what it skips
	scripts/lint

ort: $(ORT_LIB) ## fetch the pinned libonnxruntime into the user's cache

$(ORT_LIB) $(ORT_DIR)/ThirdPartyNotices.txt:
	scripts/fetch-ort '$(ORT_VERSION)' '$(ORT_DIR)'

solver: $(SOLVER) ## fetch the pinned solver HiGHS into the user's cache, where overlapd plan finds it

$(SOLVER):
	scripts/fetch-highs '$(HIGHS_VERSION)' '$(@D)'

ort-notices: $(ORT_DIR)/ThirdPartyNotices.txt ## the notices that packages carry with it

clean: ## remove what was built, not what was fetched
	rm -rf bin
