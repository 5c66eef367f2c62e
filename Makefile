# Everything here works on a machine that has Go, make and root; what is missing
# beyond that is fetched through Go's module proxy or, such as the C compiler that the
# race detector needs, installed with apt-get. `make` alone lists the targets.
#
# Versions of tools: test/tools/*/go.mod. Versions of the control plane and the
# reference CNI plugins that tests run against: test/rig/go.mod; of those whose own suites are
# run: test/rig/suites/go.mod. Of Multus and whereabouts, from which tests change over:
# test/rig/foreign/go.mod. Of CoreDNS: test/rig/dns/go.mod. Of DRANET: test/rig/dra/go.mod. Of other
# versions of Kubernetes: test/rig/kube/*/go.mod.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# How long each fuzz target runs.
FUZZTIME ?= 20s
# How long make soak loads the cluster, in minutes.
MINUTES ?= 10
# How long the tests of one package may take: some wait for real time to pass, and
# all share what processors there are.
TIMEOUT ?= 30m
# Further arguments of go test, for example ARGS='-run TestBridge -v'.
ARGS ?=
# The packages that test-unit and test-integration test.
UNIT ?= $(shell go list ./... | grep -v '/test/') ./test/imports ./test/programs
INTEGRATION ?= $(shell go list ./test/... | grep -v -e /test/imports -e /test/programs -e /test/neutron -e /test/ports -e /test/cluster -e /test/e2e -e /test/scale -e /test/soak -e /test/suites -e /test/simulation$$)
# The packages whose tests need OpenStack's Neutron.
NEUTRON ?= ./test/neutron ./test/ports
# Of those of test-integration, those that take longest.
LONGEST := %/test/nodes %/test/controller

LINT := bin/tools/golangci-lint
CONTROLLER_GEN := bin/tools/controller-gen
CRD_REF_DOCS := bin/tools/crd-ref-docs
HELM := bin/tools/helm
CRANE := bin/tools/crane
KUSTOMIZE := bin/tools/kustomize
CYCLONEDX := bin/tools/cyclonedx-gomod
GOTESTSUM := bin/tools/gotestsum
# Programs, tests and tools are compiled alike, so that what they have in common is compiled
# once. For this, too, helm and controller-gen have the main module's versions of libraries, and
# what nodes run has the control plane's. The race detector alone needs cgo. Debugging
# information takes a fifth of compiling, and the programs have none; garbage that is collected
# less often saves a tenth.
export CGO_ENABLED := 0
COMPILE := -trimpath -gcflags=all=-dwarf=false
export GOFLAGS := $(filter-out $(COMPILE),$(GOFLAGS)) $(COMPILE)
GO := env GOGC=400 go
GO_BUILD := $(GO) build -ldflags "-s -w"
# Without vet, which is a part of lint. -short leaves to make proof what measures, loads the machine
# or waits long: test/proof says so in each such test.
SHORT := -short
GO_TEST := env GOGC=400 $(GOTESTSUM) --format pkgname --format-hide-empty-pkg -- -vet=off -ldflags "-s -w" $(SHORT)
GO_RACE := CGO_ENABLED=1 $(GO_TEST) -race
# The plugins have Go's earlier garbage collector, as in deploy/image, where Go still has it:
# docs/decisions/0023-what-a-plugin-does-without.md says why.
PLUGINS := ./cmd/tenure ./cmd/tenure-attach
# What programs call themselves: the commit's tag, or the last one and how far away that is.
VERSION ?= $(shell git describe --tags --always --dirty --match 'v[0-9]*' 2>/dev/null || echo development)
NAMED = -ldflags "-s -w -X main.version=$(VERSION)"
COLLECTOR = $(shell GOEXPERIMENT=nogreenteagc go version >/dev/null 2>&1 && echo GOEXPERIMENT=nogreenteagc)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.DEFAULT:
	@echo "there is no target '$@': make alone lists them" >&2; exit 1

.PHONY: build
build: ## Build Tenure's programs into bin/, static and stripped
	@[ -e bin/tenure-controller ] || echo "building Tenure: about three minutes on two cores the first time, then seconds"
	$(GO) build $(NAMED) -o bin/ $(filter-out $(PLUGINS),$(wildcard ./cmd/*))
	$(COLLECTOR) $(GO) build $(NAMED) -o bin/ $(PLUGINS)

.PHONY: rig
rig: ## Build the control plane and CNI plugins for tests into bin/rig: minutes at first, then nothing
	@cd test/rig && $(GO) run . ../../bin/rig

.PHONY: rig-local
rig-local:
	@[ -e bin/rig/bridge ] || echo "building the first scenes: half a minute on two cores the first time, then seconds"
	@cd test/rig && $(GO) run . -local ../../bin/rig

.PHONY: rig-nodes
rig-nodes: cc rig ## Build also what nodes run, kubelet and containerd, into bin/rig: minutes at first, then nothing
	@cd test/rig && $(GO) run . -nodes ../../bin/rig

.PHONY: rig-foreign
rig-foreign: rig ## Build also Multus and whereabouts into bin/rig, from which pods move to Tenure: half a minute
	@cd test/rig && $(GO) run . -foreign ../../bin/rig

.PHONY: rig-dns
rig-dns: ## Build also CoreDNS into bin/rig: a minute at first, then nothing
	@cd test/rig && $(GO) run . -dns ../../bin/rig

.PHONY: rig-dra
rig-dra: ## Build also DRANET, the driver of network devices, into bin/rig: minutes at first, then nothing
	@cd test/rig/dra && CGO_ENABLED=0 GOWORK=off GOFLAGS='-buildvcs=false -gcflags=all=-dwarf=false' \
		$(GO) build -trimpath -ldflags '-s -w' -o ../../../bin/rig/dranet sigs.k8s.io/dranet/cmd/dranet

# Of rig-kube: a folder of test/rig/kube.
KUBE ?= 1.32

.PHONY: rig-kube
rig-kube: rig-nodes rig-foreign ## Build also control plane and kubelet of Kubernetes KUBE=1.32 into bin/rig/kube: minutes at first, then nothing
	@cd test/rig && $(GO) run . -kube='$(KUBE)' ../../bin/rig/kube/'$(KUBE)'

.PHONY: rig-neutron
rig-neutron: ## Unpack OpenStack's Neutron into bin/rig, out of Debian packages: a minute at first, then nothing
	@cd test/rig && $(GO) run . -neutron ../../bin/rig

.PHONY: rig-site
rig-site: ## Unpack MkDocs and its theme into bin/rig, out of Debian packages: half a minute at first, then nothing
	@cd test/rig && $(GO) run . -site ../../bin/rig

.PHONY: rig-prometheus
rig-prometheus: ## Unpack Prometheus into bin/rig, out of a Debian package: some seconds at first, then nothing
	@cd test/rig && $(GO) run . -prometheus ../../bin/rig

.PHONY: rig-chromium
rig-chromium: ## Unpack a browser into bin/rig, out of Debian packages: half a minute at first, then nothing
	@cd test/rig && $(GO) run . -chromium ../../bin/rig

.PHONY: site
site: rig-site ## Render the documentation into bin/site/html, static pages with search
	@rm -rf bin/site; mkdir -p bin/site/pages; cp docs/site.py bin/site
	@git ls-files -co --exclude-standard '*.md' 'docs/*.svg' 'docs/*.png' docs/site.css LICENSE deploy/chart/values.yaml deploy/alerts/tenure.yaml | xargs cp --parents -t bin/site/pages
	@{ cat docs/mkdocs.yml; cd bin/site/pages; printf '  - %s\n' docs/decisions/*.md; } >bin/site/mkdocs.yml
	@bin/rig/mkdocs/python -m mkdocs --quiet build --config-file bin/site/mkdocs.yml
	@echo "the site is in bin/site/html: any web server can serve it, such as python3 -m http.server -d bin/site/html"

# Of push, manifest and install: what the images are called, REGISTRY/tenured:TAG and
# REGISTRY/tenure-controller:TAG, and whether the meta-plugin is installed in Multus's
# place. Of install and uninstall: which context of the kubeconfig, and whether to go on
# whatever is in use.
REGISTRY ?=
TAG ?= dev
ATTACH ?= no
CONTEXT ?=
FORCE ?=
KUBECTL = kubectl $(if $(CONTEXT),--context '$(CONTEXT)')

.PHONY: names force
names:
	@[ -n '$(REGISTRY)' ] || { echo "REGISTRY is empty, must say what your images' names begin with, such as registry.example/net; on the cluster of make cluster it is tenure.dev" >&2; exit 1; }
	@[[ '$(ATTACH)' =~ ^(yes|no)$$ ]] || { echo "ATTACH is '$(ATTACH)', must be yes or no" >&2; exit 1; }
force:
	@[[ '$(FORCE)' =~ ^1?$$ ]] || { echo "FORCE is '$(FORCE)', must be 1 or be left out" >&2; exit 1; }

# What manifest writes.
MANIFEST ?= bin/tenure.yaml

.PHONY: manifest
manifest: names $(KUSTOMIZE) ## Make one manifest for kubectl apply -f, bin/tenure.yaml; REGISTRY=, TAG=, ATTACH=yes
	@mkdir -p bin/install
	@printf '%s\n' 'apiVersion: kustomize.config.k8s.io/v1beta1' 'kind: Kustomization' 'resources: [../../deploy]' \
		$(if $(filter yes,$(ATTACH)),'components: [../../deploy/attach]') 'images:' \
		'- {name: tenured, newName: $(REGISTRY:%/=%)/tenured, newTag: "$(TAG)"}' \
		'- {name: tenure-controller, newName: $(REGISTRY:%/=%)/tenure-controller, newTag: "$(TAG)"}' >bin/install/kustomization.yaml
	$(KUSTOMIZE) build bin/install >$(MANIFEST).new
	@mv $(MANIFEST).new $(MANIFEST)

.PHONY: install
install: names $(HELM) ## Install or upgrade Tenure by Helm, in the kubeconfig's context; REGISTRY=, TAG=, ATTACH=yes, CONTEXT=
	$(KUBECTL) apply -f deploy/rbac/namespace.yaml
	@$(KUBECTL) --namespace tenure-system delete daemonset --selector=tenure.dev/uninstall
	$(HELM) upgrade --install tenure deploy/chart --namespace tenure-system $(if $(CONTEXT),--kube-context '$(CONTEXT)') \
		--set-string 'image.registry=$(REGISTRY),image.tag=$(TAG)' --set attach.enabled=$(if $(filter yes,$(ATTACH)),true,false) --wait $(ARGS)

.PHONY: uninstall
uninstall: force ## Remove it from there, if no pod or claim has an address; FORCE=1 even then; CONTEXT=, WAIT=3m
	@go run ./cmd/kubectl-tenure uninstall $(if $(FORCE),--force) $(if $(CONTEXT),--context '$(CONTEXT)') --timeout='$(or $(WAIT),3m)'
	$(KUBECTL) delete --ignore-not-found -k deploy

.PHONY: images
images: ## Make Tenure's container images into bin/images, without a container engine
	@mkdir -p bin/images
	go run ./deploy/image/build $(ARGS) bin/images

# What push makes the images for.
ARCH ?= amd64,arm64

.PHONY: push
push: names $(CRANE) ## Make the images and push them, as REGISTRY/tenured:TAG and …/tenure-controller:TAG; ARCH=amd64,arm64
	@mkdir -p bin/images
	go run ./deploy/image/build -prefix '$(REGISTRY)/' -tag '$(TAG)' -arch '$(ARCH)' bin/images
	@for image in tenured tenure-controller; do \
		layout=bin/images/$$image.layout; \
		rm -rf "$$layout"; mkdir "$$layout"; \
		tar -xf bin/images/$$image.tar -C "$$layout"; \
		$(CRANE) push "$$layout" '$(REGISTRY)'/$$image:'$(TAG)'; \
		rm -rf "$$layout"; \
	done

# Of release and verify-release: where the release is. Of release: what the images' names begin
# with, and for what processors it is.
DIR ?= dist
RELEASE_REGISTRY ?= ghcr.io/tenure-ipam
RELEASE_ARCH ?= amd64,arm64
# The file of a private key that signs it, if any.
RELEASE_KEY ?=

.PHONY: release
release: $(CYCLONEDX) ## Make the release of this commit in DIR=dist, the same bytes wherever it is made: VERSION=v0.9.0, RELEASE_KEY=
	@rm -rf bin/release; mkdir -p bin/release
	@$(MAKE) --no-print-directory manifest REGISTRY='$(RELEASE_REGISTRY)' TAG='$(VERSION)' ATTACH=no MANIFEST=bin/release/tenure.yaml
	@$(MAKE) --no-print-directory manifest REGISTRY='$(RELEASE_REGISTRY)' TAG='$(VERSION)' ATTACH=yes MANIFEST=bin/release/tenure-attach.yaml
	@cat deploy/crds/upstream/*.yaml >bin/release/upstream-definitions.yaml
	@$(GO) run ./deploy/release -registry '$(RELEASE_REGISTRY)' -arch '$(RELEASE_ARCH)' -key '$(RELEASE_KEY)' make '$(VERSION)' '$(DIR)' bin/release/*

.PHONY: verify-release
verify-release: ## Make the release in DIR=dist again from the commit that it names, and compare it byte for byte
	@$(GO) run ./deploy/release verify '$(DIR)'

# Each runs to the end, whatever fails, and prints a table of its parts.
CHECK := lint generate-check
TEST := test-unit test-suites test-neutron test-integration

.PHONY: test check ci
test: ## Unit and integration tests, in a table of their parts
	@test/parts $(TEST)

check: ## What needs no test: the linter, and that generated files are current
	@test/parts $(CHECK)

ci: ## What CI runs: check, test and e2e, in one table
	@test/parts $(CHECK) $(TEST) e2e

# Of one: which test of which package. What a package needs beside Go depends on its folder.
PKG ?=
RUN ?= .
KUBELETS := ./test/cluster ./test/e2e
SMALL := $(filter ./test/imports ./test/programs ./test/simulation,$(PKG)) $(filter-out ./test/%,$(PKG))
.PHONY: one
one: package $(if $(strip $(SMALL)),,$(if $(PKG),root rig $(HELM) $(CRANE))) $(if $(filter $(NEUTRON) ./test/networks $(KUBELETS),$(PKG)),rig-neutron) $(if $(filter $(KUBELETS),$(PKG)),rig-nodes rig-dns) $(if $(filter $(KUBELETS) ./test/controller,$(PKG)),rig-foreign) $(if $(filter ./test/monitoring ./test/nodes ./test/e2e,$(PKG)),rig-prometheus) $(if $(filter ./test/operator,$(PKG)),rig-chromium) $(if $(filter ./test/e2e,$(PKG)),rig-dra) ## One test, with what it needs: PKG=./test/controller RUN=TestMovingIn
	$(GO) test -vet=off -ldflags "-s -w" -count=1 -v -timeout 90m '$(PKG)' $(if $(filter ./test/e2e,$(PKG)),-ginkgo.v -ginkgo.focus='$(RUN)',-run '$(RUN)') $(ARGS)

.PHONY: test-unit
test-unit: cc $(HELM) $(GOTESTSUM) ## Unit, model and import tests with the race detector
	$(GO_RACE) -timeout $(TIMEOUT) $(ARGS) $(UNIT)
	cd test/rig && $(GO_TEST:bin/%=../../bin/%) ./...
	@# What a version of Go would need that does not let modules into its runtime.
	$(GO_TEST) -tags plainruntime $(ARGS) ./ipam/lean/quiet
	$(GO_BUILD) -tags plainruntime -o /dev/null $(PLUGINS)

.PHONY: test-integration
test-integration: root rig rig-foreign rig-neutron rig-site rig-prometheus rig-chromium $(HELM) $(CRANE) $(GOTESTSUM) ## Tests against a real control plane and network namespaces; as root
	@# Two packages at a time, each with a control plane of its own: they wait much. Those that
	@# take longest come first. The simulation only computes, and takes what they leave.
	set -m; nice -n 19 $(filter-out -short,$(GO_TEST)) -timeout 90m $(ARGS) ./test/simulation & simulation=$$!; \
	trap 'kill -- -$$simulation 2>/dev/null || true' EXIT; failed=0; \
	$(GO_TEST) -p 2 -timeout $(TIMEOUT) $(ARGS) $(filter $(LONGEST),$(INTEGRATION)) $(filter-out $(LONGEST),$(INTEGRATION)) || failed=1; \
	wait $$simulation && [ $$failed = 0 ]

.PHONY: test-neutron
test-neutron: root cc rig rig-neutron $(GOTESTSUM) ## Tests against a real server of OpenStack's Neutron; as root
	$(GO_RACE) -count=1 -timeout $(TIMEOUT) $(ARGS) $(NEUTRON)

# The suites of the reference plugins that have to do with addresses, or with those who ask for them.
SUITES := $(addprefix github.com/containernetworking/plugins/plugins/,main/bridge main/ptp main/macvlan main/ipvlan \
	main/vlan main/tap meta/bandwidth meta/portmap meta/firewall meta/sbr meta/vrf)

.PHONY: test-suites
test-suites: root suites-programs $(GOTESTSUM) ## The reference plugins' own suites, with host-local and with Tenure in its place; as root
	cd test/rig/suites && $(GO_BUILD) -o ../../../bin/suites/ tool && $(GO) test -vet=off -ldflags "-s -w" -c -o ../../../bin/suites/ $(SUITES)
	@# Suites build echo servers where there is no network. So all that this needs is fetched now.
	cd "$$(cd test/rig/suites && go list -m -f '{{.Dir}}' github.com/containernetworking/plugins)"; for side in server client; do \
		go build -o /dev/null ./pkg/testutils/echo/$$side; done
	$(COLLECTOR) $(GO_BUILD) -o bin/suites/tenure/ ./cmd/tenure
	$(GO_BUILD) -o bin/suites/tenure/host-local ./test/hostlocal
	$(subst pkgname,standard-verbose,$(GO_TEST)) -count=1 -timeout $(TIMEOUT) $(ARGS) ./test/suites

.PHONY: cluster
cluster: root bare build rig-nodes ## Bring up a real cluster with Tenure on this machine, to play with; ARGS=bare: without Tenure
	@$(GO_BUILD) -o bin/playground ./test/playground
	@bin/playground up $(ARGS)

.PHONY: cluster-down
cluster-down: root ## End the cluster of make cluster; nothing of it is left
	@[ ! -e bin/playground ] || bin/playground down

# The specs of test/e2e; each says what it does.
E2E := $(GO) test -vet=off -ldflags "-s -w" -count=1 -v -timeout 3h ./test/e2e -ginkgo.v

.PHONY: e2e
e2e: root rig-nodes rig-foreign rig-dns rig-neutron $(HELM) $(GOTESTSUM) ## Tests on a real cluster: kubelets, containerd, Tenure installed from deploy/; as root
	$(GO_TEST) -count=1 -timeout $(TIMEOUT) ./test/cluster
	$(E2E) -ginkgo.label-filter='!proof' $(ARGS)

# Of test-upgrade: any name of a commit. The last tag, or where there is none the commit before
# the first release's own.
FROM ?= $(or $(shell git describe --tags --abbrev=0 --match='v*' HEAD~ 2>/dev/null),f8eff20)

.PHONY: test-upgrade
test-upgrade: root commit rig-nodes rig-foreign rig-neutron $(HELM) ## On a real cluster, upgrade from the version FROM, the last tag if left out, while pods come and go; as root
	rm -rf bin/earlier; mkdir -p bin/earlier; trap 'rm -rf bin/earlier' EXIT; \
	git archive '$(FROM)' | tar -x -C bin/earlier; \
	TENURE_EARLIER_SOURCE='$(CURDIR)/bin/earlier' $(E2E) -ginkgo.focus='An upgrade from' $(ARGS)

.PHONY: soak
soak: root minutes rig ## Load a cluster for MINUTES with faults of all kinds, and look for a lost or doubled address
	TENURE_SOAK_MINUTES=$(MINUTES) go test -count=1 -v -timeout 0 $(ARGS) ./test/soak

# What is mistyped is said before anything is built.
.PHONY: bare minutes commit sizes seeds package
package:
	@case '$(PKG)' in ''|./*) ;; *) echo "PKG is $(PKG), must begin with ./, such as ./$(PKG)" >&2; exit 1;; esac
	@[ -n '$(PKG)' ] || { echo "PKG is empty, must be the test's package, such as ./claims or ./test/controller" >&2; exit 1; }
	@[ -d '$(PKG)' ] || { echo "PKG is $(PKG), and there is no such folder: go list ./... lists the packages" >&2; exit 1; }

bare:
	@[[ '$(ARGS)' =~ ^(bare)?$$ ]] || { echo "ARGS is '$(ARGS)', must be bare, for a cluster without Tenure, or nothing" >&2; exit 1; }

minutes:
	@[[ '$(MINUTES)' =~ ^[0-9]*[.]?[0-9]+$$ ]] || { echo "MINUTES is '$(MINUTES)', must be a number of minutes such as 10" >&2; exit 1; }

commit:
	@git rev-parse --verify --quiet '$(FROM)^{commit}' >/dev/null || { echo "FROM is '$(FROM)', must name a commit of this repository, such as HEAD~20" >&2; exit 1; }

sizes:
	@[[ '$(NODES)' =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$$ ]] || { echo "NODES is '$(NODES)', must be positive numbers with commas between them, such as 100,300" >&2; exit 1; }
	@[[ '$(PODS)' =~ ^[1-9][0-9]*$$ ]] || { echo "PODS is '$(PODS)', must be how many pods move, such as 10000" >&2; exit 1; }

seeds:
	@[[ '$(SEEDS)' =~ ^[1-9][0-9]*$$ ]] || { echo "SEEDS is '$(SEEDS)', must be how many seeds to play, such as 5000" >&2; exit 1; }
	@[[ '$(SEED)' =~ ^[0-9]+$$ ]] || { echo "SEED is '$(SEED)', must be the number of a seed, such as 1234" >&2; exit 1; }

# Of scale: of how many nodes, one run each; and how many pods of another IPAM a cluster
# has that moves to Tenure.
NODES ?= 100,300,1000
PODS ?= 10000

.PHONY: scale
scale: root sizes rig ## Run clusters of NODES agents on a real API server, and move PODS pods in: report what it costs
	TENURE_SCALE_NODES=$(NODES) TENURE_SCALE_PODS=$(PODS) TENURE_SCALE_IDLE=60s TENURE_SCALE_LEASES=30000 go test -count=1 -v -timeout 3h $(ARGS) ./test/scale

.PHONY: proof
proof: tools ## What takes long or measures, some two and a half hours, to the end whatever fails, and a table of its parts
	@# What only computes runs beside the rest, which waits much.
	@test/parts soak proof-integration proof-race proof-scale proof-e2e test-upgrade \
		$(addprefix proof-kube-,$(notdir $(wildcard test/rig/kube/*))) proof-ipv6 proof-dual \
		beside proof-simulate fuzz proof-release

# The parts of proof that have no target of their own: the tests that begin with proof.Only, the
# tests of controller and agents with the race detector, the specs of e2e that make e2e leaves out,
# a release that is made twice, and on other versions of Kubernetes (proof-kube-1.32) the tests of
# the API and some specs of e2e, which run on clusters of IPv6 and of both families too.
.PHONY: proof-release proof-simulate proof-integration proof-race proof-scale proof-e2e proof-ipv6 proof-dual
proof-release:
	$(MAKE) --no-print-directory release VERSION=v0.0.0-proof DIR=bin/proof-release
	$(MAKE) --no-print-directory verify-release DIR=bin/proof-release
proof-simulate:
	$(MAKE) --no-print-directory simulate SEEDS=30000
proof-integration: root rig rig-neutron $(HELM) $(CRANE) $(GOTESTSUM)
	@# Which tests these are: a line for each test, and one after it where that begins so.
	tests=$$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p; s/^\tproof\.Only(.*/only/p' test/*/*_test.go | grep -B1 '^only$$' | grep '^Test' | paste -sd '|'); \
	$(filter-out -short,$(GO_TEST)) -p 1 -timeout 90m -run "^($$tests)\$$" $(ARGS) $$(go list $$(grep -l 'proof\.Only(' test/*/*_test.go | xargs -n1 dirname | sort -u | grep -v test/scale | sed 's,^,./,'))
proof-race: root cc rig rig-foreign rig-prometheus rig-chromium $(HELM) $(CRANE) $(GOTESTSUM)
	$(GO_RACE) -p 1 -timeout 90m $(ARGS) ./test/controller ./test/nodes ./test/operator
proof-scale: root rig $(GOTESTSUM)
	$(filter-out -short,$(GO_TEST)) -p 1 -timeout 90m $(ARGS) ./test/scale
proof-e2e: root rig-nodes rig-foreign rig-dra rig-neutron rig-prometheus $(HELM)
	$(E2E) -ginkgo.label-filter=proof $(ARGS)
proof-kube-%: root rig-nodes rig-foreign rig-dns $(HELM) $(GOTESTSUM)
	$(MAKE) --no-print-directory rig-kube KUBE=$*
	TENURE_KUBE=$* $(GO_TEST) -count=1 -timeout $(TIMEOUT) ./test/api
	TENURE_KUBE=$* $(E2E) -ginkgo.label-filter=platforms $(ARGS)
proof-ipv6 proof-dual: proof-%: root rig-nodes rig-foreign rig-dns $(HELM)
	TENURE_FAMILIES=$* $(E2E) -ginkgo.label-filter=platforms $(ARGS)

.PHONY: fuzz
fuzz: ## Every fuzz target for FUZZTIME each
	@grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u | while read -r pkg; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$pkg"/*_test.go); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null; \
		done; \
	done

# Of simulate: how many seeds to play. Of replay: which one, and with which of the
# deliberate faults (M1, M2, ...).
SEEDS ?= 100000
SEED ?= 0
FAULT ?=

# A fault may be a mutant, a change to the product's text: then that is built in.
SIMULATE = go build -o bin/simulate ./test/simulate$(if $(FAULT), && go build -overlay $$(bin/simulate -overlay bin/mutants) -o bin/simulate ./test/simulate)

.PHONY: simulate
simulate: seeds ## Play the protocol's simulation for SEEDS seeds, until one breaks an invariant
	$(SIMULATE)
	bin/simulate -seeds $(SEEDS) $(if $(FAULT),-fault $(FAULT)) $(ARGS)

.PHONY: replay
replay: seeds ## Print what happens in SEED of the simulation, and its shortest form; FAULT=M7 adds a fault
	$(SIMULATE)
	@bin/simulate -replay -seed $(SEED) $(if $(FAULT),-fault $(FAULT)) $(ARGS)

# The scenes without a cluster need little. The demo has the rest built while it shows them.
DEMO_REST = $(MAKE) -s --no-print-directory demo-cluster

.PHONY: demo demo-cluster
demo: root rig-local ## See Tenure work: containers, nodes, pods and claims on this machine, gone afterwards. ARGS=--help
	@$(GO_BUILD) -o bin/ ./test/demo
	@$(COLLECTOR) $(GO_BUILD) $(NAMED) -o bin/ ./cmd/tenure
	@bin/demo $(ARGS) -- $(DEMO_REST)

demo-cluster: rig build
	@$(GO_BUILD) -o bin/demo-cluster ./test/demo/cluster

.PHONY: bench
bench: root build rig ## Measure Tenure on this machine
	go build -o bin/bench ./test/bench
	$(GO_BUILD) -o bin/recorder ./test/recorder
	bin/bench

.PHONY: lint
lint: $(LINT) ## gofmt, vet, staticcheck and house rules
	$(LINT) run ./...
	cd test/rig && ../../$(LINT) run -c ../../.golangci.yaml ./...

.PHONY: fix
fix: $(LINT) ## Have the linters repair what they can: formatting, imports, newer forms
	$(LINT) run --fix ./... || true

.PHONY: generate
generate: $(CONTROLLER_GEN) $(CRD_REF_DOCS) ## Make deepcopy functions, CRDs and their reference page from the API's types
	$(CONTROLLER_GEN) object crd paths=./api/... output:crd:dir=deploy/crds
	@$(CRD_REF_DOCS) --log-level=ERROR --source-path=api/v1alpha1 --config=test/tools/apidocs/config.yaml --renderer=markdown --output-path=docs/reference/api.md

# What generate makes, and must not change when it runs again.
GENERATED := api/v1alpha1/zz_generated.deepcopy.go deploy/crds/*.yaml docs/reference/api.md

.PHONY: generate-check
generate-check: ## Fail if generate had been forgotten
	@before=$$(sha256sum $(GENERATED)); \
	$(MAKE) --no-print-directory generate; \
	if [ "$$before" != "$$(sha256sum $(GENERATED))" ]; then \
		echo "generated files were not current; they are now: commit them" >&2; exit 1; \
	fi

.PHONY: clean
clean: ## Remove what make built into bin, but for bin/rig, which takes minutes
	@[ ! -e bin/cluster/pid ] || bin/playground down
	@mkdir -p bin
	find bin -mindepth 1 -maxdepth 1 ! -name rig -exec rm -rf {} +

$(LINT): test/tools/lint/go.mod test/tools/lint/go.sum
	@echo "building golangci-lint: about two minutes the first time"
	cd test/tools/lint && $(GO_BUILD) -o ../../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: tools
tools: $(LINT) $(CONTROLLER_GEN) $(CRD_REF_DOCS) $(HELM) $(CRANE) $(KUSTOMIZE) $(CYCLONEDX) $(GOTESTSUM) ## Build the tools of tests, and helm and crane for administrators, into bin/tools

$(HELM): test/tools/helm/go.mod test/tools/helm/go.sum
	@echo "building helm: about two minutes the first time"
	cd test/tools/helm && $(GO_BUILD) -o ../../../$@ helm.sh/helm/v4/cmd/helm
	@touch $@

$(CRANE): test/tools/crane/go.mod test/tools/crane/go.sum
	cd test/tools/crane && $(GO_BUILD) -o ../../../$@ github.com/google/go-containerregistry/cmd/crane
	@touch $@

$(KUSTOMIZE): test/tools/kustomize/go.mod test/tools/kustomize/go.sum
	cd test/tools/kustomize && $(GO_BUILD) -o ../../../$@ sigs.k8s.io/kustomize/kustomize/v5
	@touch $@

$(CYCLONEDX): test/tools/sbom/go.mod test/tools/sbom/go.sum
	cd test/tools/sbom && $(GO_BUILD) -o ../../../$@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
	@touch $@

$(GOTESTSUM): test/tools/gotestsum/go.mod test/tools/gotestsum/go.sum
	cd test/tools/gotestsum && $(GO_BUILD) -o ../../../$@ gotest.tools/gotestsum
	@touch $@

$(CONTROLLER_GEN): test/tools/generate/go.mod test/tools/generate/go.sum
	cd test/tools/generate && $(GO_BUILD) -o ../../../$@ sigs.k8s.io/controller-tools/cmd/controller-gen
	@touch $@

$(CRD_REF_DOCS): test/tools/apidocs/go.mod test/tools/apidocs/go.sum
	cd test/tools/apidocs && $(GO_BUILD) -o ../../../$@ github.com/elastic/crd-ref-docs
	@touch $@

.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "network namespaces and mounts need root: run make as root, for example sudo -E make" >&2; exit 1; }

# What the reference plugins and their suites run.
.PHONY: suites-programs
suites-programs:
	@for program in ip iptables nft ping; do command -v $$program >/dev/null || missing=yes; done; [ -z "$${missing:-}" ] || { \
		echo "installing ip, iptables, nft and ping, which the reference plugins and their suites run"; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends iproute2 iptables nftables iputils-ping; }

# The race detector needs cgo, and cgo a C compiler; runc needs both, and pkg-config.
.PHONY: cc
cc:
	@{ command -v gcc || command -v clang; } >/dev/null && command -v pkg-config >/dev/null || { \
		echo "installing a C compiler and pkg-config, for the race detector and runc"; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends gcc libc6-dev pkg-config; }
