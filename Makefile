# Builds the library (static and shared), the command, the tests, the examples and the benchmarks. `make help` lists the
# targets. Sources are found by name: a new file in src/<layer>/ needs no line here. What must be installed first is
# known by tools/deps.sh; how the tests are run and counted, by tests/run.sh.

# ---- what the user may set --------------------------------------------------------------------------------------------

ifeq ($(origin CC),default)
CC := gcc
endif
CFLAGS   ?=
LDFLAGS  ?=
# Sanitizers for the compiler's -fsanitize=, as in `make test SANITIZE=address,undefined`.
SANITIZE ?=
# V=1 shows whole commands.
V        ?=
# Programs and scripts of tests/ to run, by name; all when empty, as in `make test TESTS="test_layers test_cpu"`.
TESTS    ?=
PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DESTDIR    ?=
# Where the peers that benchmarks are measured beside live: never inside the tree.
PEERS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lockstep/peers

# ---- how make itself behaves ------------------------------------------------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
# All cores, unless the user said how many or an outer make hands out the jobs.
ifeq ($(MAKELEVEL)$(filter -j% --jobserver%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
Q := $(if $(filter-out 0,$(V)),,@)
say = $(if $(Q),@printf '  %-4s %s\n' '$(1)' '$(2)')

# Each compiler and set of sanitizers has its own directory, so that going back and forth rebuilds nothing.
empty :=
comma := ,
space := $(empty) $(empty)
B := build$(if $(filter-out gcc,$(CC)),-$(subst $(space),_,$(notdir $(CC))))$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))

# ---- set-up -----------------------------------------------------------------------------------------------------------
# The configuration is a makefile that make itself makes: once, by checking (for `test` and `demo`: installing) the
# packages and asking pkg-config. While it is there, set-up costs nothing.

GOALS := $(or $(MAKECMDGOALS),all)
# tests/ has a folder for each layer of src, and one for the whole; `make test-fabric` runs one of them.
TEST_FOLDERS := $(sort $(patsubst tests/%/,%,$(dir $(wildcard tests/*/test_*))))
FOLDER_GOALS := $(TEST_FOLDERS:%=test-%)
TESTING := test quick $(FOLDER_GOALS) surface verify faults kills schedules random-jobs soak-workers bits bits-program reference reference-layers reference-training tokenizers objects everything
NEEDS := build
ifneq ($(filter $(TESTING),$(GOALS)),)
NEEDS := build demo test
else ifneq ($(filter demo,$(GOALS)),)
NEEDS := build demo
endif
ifeq ($(CC),clang)
NEEDS += clang
endif
DEPS_MODE := $(if $(filter $(TESTING) demo,$(GOALS)),install,check)
CONFIG := build/config-$(subst $(space),-,$(NEEDS)).mk

ifneq ($(filter-out help clean deps format format-check bench-peers fuzz mutants,$(GOALS)),)
$(CONFIG): tools/deps.sh
	@CC='$(CC)' tools/deps.sh $(DEPS_MODE) $(NEEDS)
	@mkdir -p $(@D)
	@tools/config.sh $(NEEDS) > $@
include $(CONFIG)
endif

# ---- flags ------------------------------------------------------------------------------------------------------------

VERSION := $(shell sed -n 's/^.define LS_VERSION "\(.*\)"/\1/p' include/lockstep/base.h)
SONAME  := liblockstep.so.$(firstword $(subst ., ,$(VERSION)))

WARNINGS := -Wall -Wextra -Wpedantic
# Sanitizers confuse flow analysis (gcc then sees uninitialized values), and so do other optimizations: only in plain builds, without
# the user's own flags, is every warning an error.
WARNINGS += $(if $(SANITIZE),$(if $(findstring clang,$(CC)),,-Wno-maybe-uninitialized),$(if $(CFLAGS),,-Werror))
OPTIMIZE := $(if $(SANITIZE),-O1 -fno-omit-frame-pointer -fsanitize=$(SANITIZE) -fno-sanitize-recover=all,-O2)
# Writes past the end are caught where the compiler can see to it, and tables of addresses are read-only once the program
# runs. Sanitizers watch the stack themselves, and gcc's misalign vectors on it beside a stack protector; FORTIFY needs
# optimization.
HARDEN := $(if $(SANITIZE),,-fstack-protector-strong -fstack-clash-protection \
          $(if $(filter -O0,$(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
HARDEN_LD := -Wl,-z,relro,-z,now,-z,noexecstack
# No contraction: a*b+c must round the same on every compiler. PIC: one object serves both libraries.
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE $(WARNINGS) $(OPTIMIZE) $(HARDEN) -g -ffp-contract=off -fvisibility=hidden -fPIC -pthread \
              -Iinclude $(PKG_CFLAGS) $(CFLAGS)
ALL_LDFLAGS := $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -pthread $(HARDEN_LD) -Wl,--as-needed $(LDFLAGS)
LIBS := $(PKG_LIBS) -lm -ldl
AVX2_FLAGS   := -mavx2 -mfma
AVX512_FLAGS := -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma

# ---- sources ----------------------------------------------------------------------------------------------------------

SOURCES      := $(sort $(wildcard src/*/*.c src/*/*/*.c))
TOOL_SOURCES := $(filter src/tool/%,$(SOURCES))
LIB_SOURCES  := $(filter-out $(TOOL_SOURCES),$(SOURCES))
# Reference kernels are one source for several element types: *_real.c for two, *_number.c for four.
REAL_SOURCES   := $(filter src/backend/ref/%_real.c,$(LIB_SOURCES))
NUMBER_SOURCES := $(filter src/backend/ref/%_number.c,$(LIB_SOURCES))
PLAIN_SOURCES  := $(filter-out $(REAL_SOURCES) $(NUMBER_SOURCES),$(LIB_SOURCES))

object = $(patsubst %.c,$(B)/obj/%.o,$(1))
typed  = $(foreach t,$(2),$(patsubst %.c,$(B)/obj/%.$(t).o,$(1)))

LIB_OBJECTS  := $(call object,$(PLAIN_SOURCES)) $(call typed,$(REAL_SOURCES),f32 f64) \
                $(call typed,$(NUMBER_SOURCES),f32 f64 i32 i64)
TOOL_OBJECTS := $(call object,$(TOOL_SOURCES))

TEST_SOURCES   := $(sort $(wildcard tests/*/test_*.c))
HELPER_SOURCES := $(sort $(wildcard tests/support/*.c))
TEST_SCRIPTS   := $(sort $(wildcard tests/*/test_*.sh))
# All programs are in one folder: a test is called by its name alone.
test_program   = $(patsubst %.c,$(B)/tests/%,$(notdir $(1)))
TEST_PROGRAMS  := $(call test_program,$(TEST_SOURCES))
ifneq ($(words $(sort $(TEST_PROGRAMS))),$(words $(TEST_SOURCES)))
$(error two programs of tests/ have the same name)
endif
BENCH_SOURCES  := $(sort $(wildcard bench/bench_*.c))
BENCH_PROGRAMS := $(BENCH_SOURCES:bench/%.c=$(B)/bench/%)
BENCH_HELPERS  := $(filter-out $(BENCH_SOURCES),$(sort $(wildcard bench/*.c)))
FUZZ_SOURCES     := $(sort $(wildcard fuzz/fuzz_*.c))
FUZZ_PROGRAMS    := $(FUZZ_SOURCES:fuzz/%.c=$(B)/fuzz/%)
# libFuzzer brings a main of its own; so does driver.c, where there is none.
FUZZ_HELPERS     := fuzz/fuzz.c $(if $(findstring fuzzer,$(SANITIZE)),,fuzz/driver.c)
EXAMPLE_SOURCES  := $(sort $(wildcard examples/*.c))
EXAMPLE_PROGRAMS := $(EXAMPLE_SOURCES:examples/%.c=$(B)/examples/%)
CXX_EXAMPLES     := $(patsubst examples/%.cc,$(B)/examples/%_cc,$(sort $(wildcard examples/*.cc)))

OBJECTS := $(LIB_OBJECTS) $(TOOL_OBJECTS) \
           $(call object,$(TEST_SOURCES) $(HELPER_SOURCES) $(BENCH_SOURCES) $(BENCH_HELPERS) $(EXAMPLE_SOURCES) \
                          $(FUZZ_SOURCES) $(FUZZ_HELPERS) fuzz/faults.c)

STATIC  := $(B)/liblockstep.a
SHARED  := $(B)/liblockstep.so.$(VERSION)
COMMAND := $(if $(TOOL_SOURCES),$(B)/lockstep)

# ---- records: what a file's time alone does not tell --------------------------------------------------------------------
# $(B)/flags changes when any flag does, $(B)/objects when a source comes or goes; both are written while make reads this
# file, and only on a change, so that `make -n` also tells the truth. CONFIGURED comes from the configuration: while make is
# still making that one, the flags are not known.

ifdef CONFIGURED
FLAGS_RECORD := $(CC) $(ALL_CFLAGS) $(PNG_CFLAGS) $(TURBOJPEG_CFLAGS) $(ALL_LDFLAGS) $(LIBS) $(AVX2_FLAGS) $(AVX512_FLAGS)
OBJECTS_RECORD := $(LIB_OBJECTS) $(TOOL_OBJECTS)
ifeq ($(wildcard $(B)/),)
$(shell mkdir -p $(B))
endif
ifneq ($(strip $(file <$(B)/flags)),$(strip $(FLAGS_RECORD)))
$(file >$(B)/flags,$(FLAGS_RECORD))
endif
ifneq ($(strip $(file <$(B)/objects)),$(strip $(OBJECTS_RECORD)))
$(file >$(B)/objects,$(OBJECTS_RECORD))
endif
endif

# ---- library and command ------------------------------------------------------------------------------------------------

.PHONY: all
all: $(STATIC) $(B)/liblockstep.so $(COMMAND)

# Files that need more than the baseline instruction set; which of them run is chosen at run time.
arch_flags = $(if $(filter src/backend/cpu/%_avx2.c,$<),$(AVX2_FLAGS))$(if $(filter src/backend/cpu/%_avx512.c,$<),$(AVX512_FLAGS))
# Tiles of vector kernels are registers with -O2 only. With -O1 they are arrays, and the thread sanitizer looks at each access:
# three times as long. (The address sanitizer does not look into them, and gcc takes minutes for them with -O2 and both.)
vector_flags = $(if $(filter thread,$(SANITIZE)),$(if $(filter src/backend/cpu/gemm_%.c src/backend/cpu/simd_%.c,$<),-O2))
# src/ is not for examples: they see what users see.
include_flags = $(if $(filter examples/%,$<),,-Isrc)$(if $(filter tests/%,$<), -Itests/support $(CMOCKA_CFLAGS))$(if $(filter fuzz/%,$<), -Itests/support)
# ccache, if it is installed, keeps objects across folders and branches; `make CCACHE=` turns it off.
ifeq ($(origin CCACHE),undefined)
CCACHE := $(shell command -v ccache 2>/dev/null)
endif
# Most of a build is tests, each of which runs for seconds: compiling them fast is worth more than running them fast.
test_flags = $(if $(SANITIZE)$(CFLAGS),,$(if $(filter tests/%,$<),-O1))
# Decoders of images that tools/config.sh found.
image_flags = $(if $(filter src/data/image_png.c,$<),$(PNG_CFLAGS))$(if $(filter src/data/image_jpeg.c,$<),$(TURBOJPEG_CFLAGS))
compile = $(CCACHE) $(CC) $(ALL_CFLAGS) $(test_flags) $(include_flags) $(arch_flags) $(vector_flags) $(image_flags) -MMD -MP \
          -c $< -o $@

$(B)/obj/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(compile)

# Kernels of GPUs are part of the library as text, with what they share with it.
GPU_TEXTS := $(sort $(wildcard src/backend/gpu/*.cl)) src/backend/gpu/calls.h src/backend/ref/polynomials.h src/base/math_tables.h \
             src/graph/apply.def
$(B)/made/backend/gpu/texts.inc: $(GPU_TEXTS) $(B)/objects
	@mkdir -p $(@D)
	@for text in $(GPU_TEXTS); do \
	    printf 'static const char text_%s[] = {' "$$(basename $$text | tr . _)"; \
	    od -An -v -tx1 $$text | sed 's/ \(..\)/0x\1,/g'; \
	    echo '0 };'; \
	done > $@
$(B)/obj/src/backend/gpu/source.o: $(B)/made/backend/gpu/texts.inc
$(B)/obj/src/backend/gpu/source.o: include_flags += -I$(B)/made

define typed_rule
$(B)/obj/%.$(1).o: %.c $(B)/flags
	$$(call say,CC,$$< ($(1)))
	@mkdir -p $$(@D)
	$(Q)$$(compile) -DLS_REAL_$(2)
endef
$(eval $(call typed_rule,f32,F32))
$(eval $(call typed_rule,f64,F64))
$(eval $(call typed_rule,i32,I32))
$(eval $(call typed_rule,i64,I64))

# q, not r: two layers may have files of the same name, and r would keep only one of them.
$(STATIC): $(LIB_OBJECTS) $(B)/objects
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar qcs $@ $(LIB_OBJECTS)

$(SHARED): $(LIB_OBJECTS) $(B)/objects
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) $(if $(SANITIZE),,-Wl,-z,defs) $(ALL_LDFLAGS) $(LIB_OBJECTS) $(LIBS) -o $@

$(B)/liblockstep.so: $(SHARED)
	@ln -sf $(notdir $(SHARED)) $(B)/$(SONAME)
	@ln -sf $(SONAME) $@

link = $(CC) $(ALL_LDFLAGS) $(filter %.o,$^) $(STATIC) $(LIBS) $(1) -o $@

$(B)/lockstep: $(TOOL_OBJECTS) $(STATIC)
	$(call say,LD,$@)
	$(Q)$(call link)

# ---- tests, examples, benchmarks ----------------------------------------------------------------------------------------

$(foreach source,$(TEST_SOURCES),$(eval $(call test_program,$(source)): $(call object,$(source))))
$(TEST_PROGRAMS): $(call object,$(HELPER_SOURCES)) $(STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(call link,$(CMOCKA_LIBS))

# A stand-in for CUDA's driver and NVRTC (tests/support/standin_cuda/standin.h). Its kernels are those of the library, as NVRTC is
# given them: a program writes the modules' sources, and each is compiled as C++ behind kernel.h.
STANDIN  := $(B)/tests/standin_cuda
STANDIN_LIBRARIES := $(STANDIN)/libcuda.so.1 $(STANDIN)/libnvrtc.so $(STANDIN)/libnccl.so.2 $(STANDIN)/libcublas.so.13 \
                     $(STANDIN)/libcudnn.so.9
STANDIN_CXX := $(if $(findstring clang,$(CC)),clang++,g++)
STANDIN_FLAGS := -fPIC -g -ffp-contract=off -fvisibility=hidden -pthread $(OPTIMIZE) -Isrc -Itests/support/standin_cuda -I$(STANDIN) \
                 -DLS_VECTOR=1 -DLS_ROWS=4

$(STANDIN)/sources: $(B)/obj/tests/support/standin_cuda/sources.o $(STATIC)
	@mkdir -p $(@D)
	$(Q)$(call link)

# Written only when a source is another one: modules.inc has their hashes.
$(STANDIN)/modules.inc: $(STANDIN)/sources
	@mkdir -p $(STANDIN)/new
	$(Q)$< $(STANDIN)/new
	@cmp -s $(STANDIN)/new/modules.inc $@ || mv $(STANDIN)/new/* $(STANDIN)/

# <module>.cc: the source, then a table of the functions that are __global__ after preprocessing.
$(STANDIN)/kernels.stamp: $(STANDIN)/modules.inc tests/support/standin_cuda/kernels.sh tests/support/standin_cuda/kernel.h tests/support/standin_cuda/standin.h $(B)/flags
	$(call say,CXX,$(STANDIN)/*.cu)
	$(Q)tests/support/standin_cuda/kernels.sh '$(STANDIN)' $(STANDIN_CXX) -std=c++17 -w $(STANDIN_FLAGS)
	@touch $@

$(STANDIN)/libcuda.so.1: tests/support/standin_cuda/driver.c $(STANDIN)/kernels.stamp
	$(call say,LD,$@)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra $(STANDIN_FLAGS) -c $< -o $(STANDIN)/driver.o
	$(Q)$(STANDIN_CXX) -shared $(ALL_LDFLAGS) $(STANDIN)/*.o -o $@

$(STANDIN)/libnccl.so.2: tests/support/standin_cuda/nccl.c
$(STANDIN)/libcublas.so.13: tests/support/standin_cuda/cublas.c
$(STANDIN)/libcudnn.so.9: tests/support/standin_cuda/cudnn.c
$(STANDIN)/libnccl.so.2 $(STANDIN)/libcublas.so.13 $(STANDIN)/libcudnn.so.9: $(STANDIN)/libcuda.so.1 tests/support/standin_cuda/standin.h
	$(call say,LD,$@)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra $(STANDIN_FLAGS) -shared $(ALL_LDFLAGS) $(filter %.c,$^) -o $@ -L$(STANDIN) -l:libcuda.so.1 -Wl,-rpath,'$$ORIGIN'

$(STANDIN)/libnvrtc.so: tests/support/standin_cuda/nvrtc.c $(STANDIN)/modules.inc tests/support/standin_cuda/standin.h
	$(call say,LD,$@)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra $(STANDIN_FLAGS) -shared $(ALL_LDFLAGS) $< -o $@

$(EXAMPLE_PROGRAMS): $(B)/examples/%: $(B)/obj/examples/%.o $(STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(call link)

# Examples in C++ have names of their own, NAME_cc; they are built where there is a C++ compiler.
$(CXX_EXAMPLES): $(B)/examples/%_cc: examples/%.cc $(wildcard include/*.h include/lockstep/*.h) $(STATIC)
	$(call say,CXX,$@)
	@mkdir -p $(@D)
	$(Q)$(STANDIN_CXX) -std=c++20 $(WARNINGS) $(OPTIMIZE) -pthread -Iinclude $< $(ALL_LDFLAGS) $(STATIC) $(LIBS) -o $@

.PHONY: examples
examples: $(EXAMPLE_PROGRAMS) $(if $(filter examples,$(GOALS)),$(if $(shell command -v $(STANDIN_CXX) 2>/dev/null),$(CXX_EXAMPLES)))

$(BENCH_PROGRAMS): $(B)/bench/%: $(B)/obj/bench/%.o $(call object,$(BENCH_HELPERS)) $(STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(call link)

# Devices that are not CPUs are the tests'.
$(B)/fuzz/fuzz_devices: $(call object,$(sort $(wildcard tests/support/gpu*.c)))
# The report is the command's.
$(B)/fuzz/fuzz_report: $(filter-out %/main.o,$(TOOL_OBJECTS))
$(FUZZ_PROGRAMS): $(B)/fuzz/%: $(B)/obj/fuzz/%.o $(call object,$(FUZZ_HELPERS)) $(STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(call link,$(if $(findstring fuzzer,$(SANITIZE)),-fsanitize=fuzzer))

# Makes calls fail, by LD_PRELOAD.
$(B)/fuzz/libfaults.so: $(B)/obj/fuzz/faults.o
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) $< -ldl -o $@

# Every object there is, without linking programs: CI has clang compile them.
.PHONY: objects
objects: $(OBJECTS)

# Every program there is.
.PHONY: everything
everything: all $(TEST_PROGRAMS) $(EXAMPLE_PROGRAMS) $(BENCH_PROGRAMS) $(FUZZ_PROGRAMS) $(B)/fuzz/libfaults.so $(STANDIN_LIBRARIES)

RUN_TESTS := $(TEST_PROGRAMS) $(TEST_SCRIPTS)
ifneq ($(TESTS),)
named = $(strip $(filter %/$(1),$(TEST_PROGRAMS)) $(filter %/$(1).sh,$(TEST_SCRIPTS)))
RUN_TESTS := $(foreach t,$(TESTS),$(or $(call named,$(basename $(notdir $(t)))),$(error no test named $(t) in tests/)))
endif

ifneq ($(filter $(FOLDER_GOALS),$(GOALS)),)
in_folder = $(call test_program,$(filter tests/$(1)/%,$(TEST_SOURCES))) $(filter tests/$(1)/%,$(TEST_SCRIPTS))
RUN_TESTS := $(foreach folder,$(TEST_FOLDERS),$(if $(filter test-$(folder),$(GOALS)),$(call in_folder,$(folder))))
endif

# `make quick` runs the programs that need fewer than 5 seconds of a processor: tests/slow.list has the others.
ifneq ($(filter quick,$(GOALS)),)
RUN_TESTS := $(filter-out $(addprefix $(B)/tests/,$(file <tests/slow.list)),$(TEST_PROGRAMS))
endif

# Programs that a script runs again.
SCRIPT_PROGRAMS := $(if $(filter %/test_bits_matrix.sh,$(RUN_TESTS)),$(B)/tests/test_step_bits)
# Scripts that run examples.
EXAMPLE_SCRIPTS := $(if $(filter %.sh,$(RUN_TESTS)),$(shell grep -l LS_BUILD/examples $(filter %.sh,$(RUN_TESTS)) /dev/null))

.PHONY: test
test: all $(sort $(filter $(TEST_PROGRAMS),$(RUN_TESTS)) $(SCRIPT_PROGRAMS)) $(if $(EXAMPLE_SCRIPTS),$(EXAMPLE_PROGRAMS)) $(if $(filter %/test_fuzz.sh,$(RUN_TESTS)),$(FUZZ_PROGRAMS)) \
      $(if $(filter %/test_faults.sh,$(RUN_TESTS)),$(if $(SANITIZE),,$(B)/fuzz/libfaults.so)) \
      $(if $(findstring /test_cuda,$(RUN_TESTS))$(findstring /test_kinds,$(RUN_TESTS)),$(STANDIN_LIBRARIES))
	@LS_BUILD='$(B)' CC='$(CC)' SANITIZE='$(SANITIZE)' tests/run.sh $(RUN_TESTS)

.PHONY: quick $(FOLDER_GOALS)
quick $(FOLDER_GOALS): test

# Fuzzes every target for FUZZ_SECONDS: with libFuzzer where clang has it, otherwise with fuzz/driver.c; in both cases
# under sanitizers. Inputs that fail are kept in the build folder; FUZZ="npy graph" chooses targets.
FUZZ_SECONDS ?= 60
FUZZ ?= $(patsubst fuzz/fuzz_%.c,%,$(FUZZ_SOURCES))

.PHONY: fuzz fuzz-programs
fuzz:
	@tools/fuzz.sh '$(MAKE)' '$(FUZZ_SECONDS)' $(FUZZ)

fuzz-programs: $(FUZZ:%=$(B)/fuzz/fuzz_%)

# Every call of a kind fails once; `make test` runs a sample of it.
.PHONY: faults
faults: all $(B)/fuzz/libfaults.so
	@LS_BUILD='$(B)' CC='$(CC)' LS_FAULTS=all LS_TEST_TIMEOUT=7200 tests/run.sh tests/whole/test_faults.sh

# Runs that save checkpoints are killed at random moments; `make test` does so for a while.
.PHONY: kills
kills: all
	@LS_BUILD='$(B)' CC='$(CC)' LS_KILLS=100 LS_TEST_TIMEOUT=3600 tests/run.sh tests/train/test_checkpoint_kill.sh

# Seeded schedules of simulated workers; `make test` runs 400 of them.
SCHEDULES ?= 100000
.PHONY: schedules
schedules: $(B)/tests/test_worker_schedules
	@LS_BUILD='$(B)' CC='$(CC)' SANITIZE='$(SANITIZE)' LS_SCHEDULES='$(SCHEDULES)' LS_TEST_TIMEOUT=36000 tests/run.sh $<

# Random jobs, from seed RANDOM_JOBS_FIRST on, until one has two results or SEEDS of them had one; 0: no end. `make test` runs a
# few.
RANDOM_JOBS_FIRST ?= 0
SEEDS ?= 0
.PHONY: random-jobs
random-jobs: all $(B)/tests/test_random_jobs
	@LS_BUILD='$(B)' LS_FIRST_RANDOM_JOB='$(RANDOM_JOBS_FIRST)' LS_RANDOM_JOBS='$(SEEDS)' $(B)/tests/test_random_jobs

# Wrong versions of the library that tests must notice: those of tests/mutants.list, or MUTANTS="a b".
MUTANTS ?=
.PHONY: mutants
mutants:
	@tests/mutants.sh $(MUTANTS)

# Workers, transports, batches and models in every combination, and workers that are killed and stopped at every point of a
# step; `make test` runs a sample.
.PHONY: soak-workers
soak-workers: all $(B)/tests/test_worker_kills
	@LS_BUILD='$(B)' CC='$(CC)' SANITIZE='$(SANITIZE)' LS_WORKERS=all LS_WORKER_KILLS=all LS_REPLAYS=20 LS_TEST_JOBS=1 LS_TEST_TIMEOUT=36000 \
	    tests/run.sh tests/tool/test_launch_train.sh tests/tool/test_replay_command.sh $(B)/tests/test_worker_kills

# Every command at every size that test_surface.sh knows; `make test` runs a sample of it.
.PHONY: surface
surface: all $(B)/tests/test_ends
	@LS_BUILD='$(B)' CC='$(CC)' SANITIZE='$(SANITIZE)' LS_SURFACE=all LS_TEST_TIMEOUT=3600 tests/run.sh $(B)/tests/test_ends \
	    tests/tool/test_surface.sh

# Every model that test_verify.sh knows, under every strategy and number of devices; `make test` runs a sample of it.
.PHONY: verify
verify: all
	@LS_BUILD='$(B)' CC='$(CC)' SANITIZE='$(SANITIZE)' LS_VERIFY=all LS_TEST_TIMEOUT=10800 tests/run.sh tests/tool/test_verify.sh

# Whole training steps in builds of every compiler and optimization, with every instruction set and under valgrind: the bits are
# those written down. `make test` runs a sample of it.
.PHONY: bits bits-program
bits: all bits-program $(filter %/test_reference_bits,$(TEST_PROGRAMS))
	@LS_BUILD='$(B)' CC='$(CC)' LS_BITS=all LS_TEST_TIMEOUT=10800 tests/run.sh $(B)/tests/test_step_bits \
	    $(filter %/test_reference_bits,$(TEST_PROGRAMS)) tests/whole/test_bits_matrix.sh

bits-program: $(B)/tests/test_step_bits

# Keras's numbers: draws 200 configurations of every class of layers, losses, metrics, optimizers and schedules, and compares;
# `make test` compares a small sample of them. Also makes that sample again: it must be the one in the repository. Needs a
# Python with the Keras that the scripts name, and PyTorch.
PYTHON ?= python3
LAYER_SCRIPTS := $(filter-out %/layer_cases.py,$(shell grep -ls 'from layer_cases import' tests/reference/*.py))
TRAINING_TESTS := test_nn_losses test_nn_metrics test_nn_optimizers
.PHONY: reference reference-layers reference-training
reference: reference-layers reference-training
reference-layers: $(B)/tests/test_keras_layers
	@rm -rf '$(B)/reference/sample' '$(B)/reference/all' && for script in $(LAYER_SCRIPTS); do \
	    $(PYTHON) $$script '$(B)/reference/sample' && $(PYTHON) $$script --all '$(B)/reference/all' || exit 1; done
	@LS_BUILD='$(B)' CC='$(CC)' LS_LAYER_CASES='$(B)/reference/all' LS_TEST_TIMEOUT=3600 tests/run.sh $(B)/tests/test_keras_layers
	@for file in '$(B)'/reference/sample/*; do cmp $$file tests/reference/layers/$${file##*/} || exit 1; done
reference-training: $(TRAINING_TESTS:%=$(B)/tests/%)
	@mkdir -p '$(B)/reference/training' && $(PYTHON) tests/reference/make_training.py '$(B)/reference/training' 200
	@LS_BUILD='$(B)' CC='$(CC)' LS_REFERENCE='$(B)/reference/training' LS_TEST_TIMEOUT=3600 tests/run.sh $(TRAINING_TESTS:%=$(B)/tests/%)

# All networks of keras.applications: trains them beside Keras and loads the result into Keras.
.PHONY: applications
applications: $(COMMAND)
	@$(PYTHON) tests/reference/make_applications.py --compare $(COMMAND)

# Tokenizers beside Hugging Face's library (PYTHON has `tokenizers`) on 10,000 random lines for each rule.
.PHONY: tokenizers
tokenizers: $(B)/tests/test_tokenizers
	@rm -rf '$(B)/reference/tokenizers' && $(PYTHON) tests/reference/make_tokenizers.py '$(B)/reference/tokenizers' 10000
	@LS_BUILD='$(B)' CC='$(CC)' LS_TOKENIZER_CASES='$(B)/reference/tokenizers' LS_TEST_TIMEOUT=3600 tests/run.sh $<

# Writes the page of names from the tables of the code.
.PHONY: reference-page
reference-page: $(COMMAND)
	@./$(COMMAND) list >docs/reference.md

.PHONY: demo
demo: $(B)/examples/demo $(COMMAND)
	@$(B)/examples/demo
	@printf '\nTry next:\n  %s\n  %s\n' \
	    '$(B)/lockstep train mnist-cnn --data fashion-mnist --epochs 1 --devices 2 --save cnn.safetensors' \
	    '$(B)/lockstep evaluate mnist-cnn --data fashion-mnist --weights cnn.safetensors'

.PHONY: bench
bench: $(BENCH_PROGRAMS) $(COMMAND)
	@PEERS='$(PEERS)' BENCH_JSON='$(B)/bench.json' bench/run.sh $(BENCH_PROGRAMS)

.PHONY: bench-workers
bench-workers: $(BENCH_PROGRAMS) $(COMMAND)
	@PEERS='$(PEERS)' bench/workers.sh '$(B)'

.PHONY: bench-images
bench-images: $(B)/bench/bench_images
	@PEERS='$(PEERS)' bench/images.sh $(B)/bench/bench_images

.PHONY: bench-peers
bench-peers:
	@tools/peers.sh '$(PEERS)'

# ---- installing ---------------------------------------------------------------------------------------------------------

.PHONY: install
install: all
	install -d '$(DESTDIR)$(INCLUDEDIR)/lockstep' '$(DESTDIR)$(LIBDIR)/pkgconfig' '$(DESTDIR)$(BINDIR)'
	install -m 644 include/lockstep.h '$(DESTDIR)$(INCLUDEDIR)/'
	install -m 644 $(wildcard include/lockstep/*.h) '$(DESTDIR)$(INCLUDEDIR)/lockstep/'
	install -m 644 $(STATIC) '$(DESTDIR)$(LIBDIR)/'
	install -m 755 $(SHARED) '$(DESTDIR)$(LIBDIR)/'
	ln -sf $(notdir $(SHARED)) '$(DESTDIR)$(LIBDIR)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(LIBDIR)/liblockstep.so'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|' -e 's|@IMAGE_LIBS@|$(strip $(IMAGE_LIBS))|' tools/lockstep.pc.in > '$(DESTDIR)$(LIBDIR)/pkgconfig/lockstep.pc'
	$(if $(COMMAND),install -m 755 $(COMMAND) '$(DESTDIR)$(BINDIR)/')

# ---- the rest -----------------------------------------------------------------------------------------------------------

FORMATTED := $(wildcard include/*.h include/*/*.h src/*/*.[ch] src/*/*/*.[ch] tests/*/*.[ch] tests/*/*.cc tests/support/standin_cuda/*.[ch] bench/*.[ch] examples/*.[ch] examples/*.cc \
                        fuzz/*.[ch])

.PHONY: format
format:
	@tools/deps.sh install format
	$(Q)clang-format -i $(FORMATTED)

.PHONY: format-check
format-check:
	@tools/deps.sh install format
	$(Q)clang-format --dry-run -Werror $(FORMATTED)

.PHONY: deps
deps:
	@CC='$(CC)' tools/deps.sh install build demo test format clang

.PHONY: clean
clean:
	rm -rf build build-*

.PHONY: help
help:
	@cat tools/help.txt

-include $(OBJECTS:.o=.d) $(B)/obj/tests/support/standin_cuda/sources.d
