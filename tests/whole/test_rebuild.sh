#!/bin/sh
# Make rebuilds what a change touches and nothing else, and compiles special files the way their names say.
# It is tried on a small tree of its own, so that a test does not rebuild real objects.
. "$(dirname "$0")/../support/lib.sh"

MAKEFLAGS= # the small tree has the plain flags, whatever the real one is being built with
T=$TMP/tree
mkdir -p "$T/src/base" "$T/src/graph" "$T/src/backend/ref" "$T/src/backend/cpu" "$T/src/tool" "$T/include/lockstep" "$T/tests"
cp Makefile "$T/"
cp -r tools "$T/tools"
cd "$T"
echo '#define LS_VERSION "7.8.9"' >include/lockstep/base.h
echo '#include "lockstep/base.h"' >include/lockstep.h
echo 'int ls_one(void);' >src/base/one.h
printf '#include "base/one.h"\nint ls_one(void)\n{\n    return 1;\n}\n' >src/base/one.c
printf '#include "base/one.h"\nint ls_both(void);\nint ls_both(void)\n{\n    return ls_one();\n}\n' >src/graph/both.c
printf 'int ls_alone(void);\nint ls_alone(void)\n{\n    return 3;\n}\n' >src/graph/one.c
# One symbol for each type a file is compiled for: a wrong set of -D makes two of one name, or none.
cat >src/backend/ref/f_real.c <<'END'
#if defined(LS_REAL_F32)
#define NAME(x) x##_f32
#elif defined(LS_REAL_F64)
#define NAME(x) x##_f64
#elif defined(LS_REAL_I32)
#define NAME(x) x##_i32
#elif defined(LS_REAL_I64)
#define NAME(x) x##_i64
#endif
#ifndef STEM
#define STEM ls_f
#endif
#define PASTE(x) NAME(x)
int PASTE(STEM)(void);
int PASTE(STEM)(void)
{
    return 0;
}
END
{ echo '#define STEM ls_g' && cat src/backend/ref/f_real.c; } >src/backend/ref/g_number.c
x86=$($CC -dM -E -x c /dev/null | grep -c __x86_64__ || true)
if [ "$x86" != 0 ]; then
    printf '#ifndef __AVX2__\n#error no AVX2\n#endif\n#ifdef __AVX512F__\n#error AVX-512\n#endif\nint ls_a(void);\nint ls_a(void)\n{\n    return 0;\n}\n' >src/backend/cpu/k_avx2.c
    printf '#if !defined(__AVX512F__) || !defined(__AVX512VL__)\n#error no AVX-512\n#endif\nint ls_b(void);\nint ls_b(void)\n{\n    return 0;\n}\n' >src/backend/cpu/k_avx512.c
    printf '#ifdef __AVX2__\n#error AVX2\n#endif\nint ls_c(void);\nint ls_c(void)\n{\n    return 0;\n}\n' >src/backend/cpu/k.c
fi
printf '#include "base/one.h"\nint main(void)\n{\n    return ls_one() - 1;\n}\n' >src/tool/main.c

run_make() {
    make --no-print-directory CC="$CC" "$@" >"$TMP/make.out" 2>&1 || { cat "$TMP/make.out"; return 1; }
}

# built FILE...: the last make compiled exactly these.
built() {
    awk '$1 == "CC" { print $2 }' "$TMP/make.out" | sort -u >"$TMP/built"
    for file in "$@"; do
        echo "$file"
    done | sort -u >"$TMP/expected"
    diff "$TMP/expected" "$TMP/built"
}

everything() {
    run_make && built $(find src -name '*.c')
}

nothing() {
    run_make && built && ! grep -E 'AR|LD' "$TMP/make.out"
}

header_change() {
    touch src/base/one.h
    run_make && built src/base/one.c src/graph/both.c src/tool/main.c
}

public_header_change() {
    echo '#include "lockstep/base.h"' >>src/graph/both.c
    run_make && built src/graph/both.c || return 1
    touch include/lockstep/base.h
    run_make && built src/graph/both.c
}

source_change() {
    touch src/graph/one.c
    run_make && built src/graph/one.c && grep -q 'AR ' "$TMP/make.out"
}

flags_change() {
    run_make CFLAGS=-DSOMETHING && built $(find src -name '*.c') && run_make && built $(find src -name '*.c')
}

symbols() {
    nm -g --defined-only build*/liblockstep.a | awk 'NF == 3 { print $3 }' | sort
}

types() {
    [ "$(symbols | grep -E '^ls_[fg]_' | tr '\n' ' ')" = "ls_f_f32 ls_f_f64 ls_g_f32 ls_g_f64 ls_g_i32 ls_g_i64 " ]
}

same_names() {
    symbols | grep -x ls_one && symbols | grep -x ls_alone
}

removed_header() {
    sed -i '/one\.h/d' src/base/one.c src/graph/both.c src/tool/main.c
    sed -i '1i int ls_one(void);' src/base/one.c src/graph/both.c src/tool/main.c
    rm src/base/one.h
    run_make && built src/base/one.c src/graph/both.c src/tool/main.c
}

removed_source() {
    rm src/graph/one.c
    run_make && built && ! symbols | grep -x ls_alone
}

command_outside() {
    ! symbols | grep -x main && build*/lockstep
}

versioned() {
    [ -e "$(echo build*/liblockstep.so.7.8.9)" ] && readelf -d build*/liblockstep.so | grep 'SONAME.*liblockstep\.so\.7\]'
}

# demo has a configuration of its own, for it needs more packages; the objects are the same.
other_goal() {
    mkdir -p examples && cp src/tool/main.c examples/demo.c
    run_make demo && built examples/demo.c
}

variants_apart() {
    run_make SANITIZE=undefined && built $(find src -name '*.c') && run_make && built
}

check "the first build compiles everything" everything
check "the second one does nothing" nothing
check "a changed header rebuilds what includes it, and only that" header_change
check "the same for a public header" public_header_change
check "a changed source rebuilds itself and the libraries" source_change
check "changed flags rebuild everything" flags_change
check "_real.c is compiled for 2 types and _number.c for 4" types
check "two files of one name are both in the archive" same_names
check "the command works and is not in the library" command_outside
check "the shared library has the headers' version" versioned
check "a removed header breaks nothing" removed_header
check "a removed source leaves the library" removed_source
check "another goal finds the objects up to date" other_goal
check "a sanitized build leaves the plain one alone" variants_apart
finish
