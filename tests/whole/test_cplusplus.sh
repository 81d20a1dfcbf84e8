#!/bin/sh
# C++20: every call that is a macro in C can be written, and two programs run, with every compiler there is.
. "$(dirname "$0")/../support/lib.sh"

FLAGS="-std=c++20 -Wall -Wextra -Wpedantic -Werror -Iinclude"

# A macro of the public headers that needs a compound literal has a function of its name in cplusplus.h, which is called in
# C++ here; the macro itself would not compile. ls_outputs and ls_callbacks are two options in one; in C++ both are written.
has_calls() {
    missing=
    for name in $(sed -n 's/^#define \(ls_[a-z0-9_]*\)(.*/\1/p' include/lockstep/*.h | sort -u | grep -vx -e ls_outputs -e ls_callbacks); do
        grep -qw "$name" tests/whole/cplusplus_calls.cc examples/*.cc || missing="$missing $name"
    done
    [ -z "$missing" ] || { echo "macros not called in C++ by any test:$missing"; return 1; }
}

# builds COMPILER PROGRAM
builds() {
    timeout 120 $1 $FLAGS "examples/$2.cc" "$LS_BUILD/liblockstep.so" -Wl,-rpath,"$PWD/$LS_BUILD" -o "$TMP/$2"
}

# refuses COMPILER STANDARD: names the needed standard, in one message and the line that ends the compilation
refuses() {
    ! timeout 120 $1 -std=$2 -Iinclude -fsyntax-only examples/taste.cc >"$TMP/out" 2>&1 || return 1
    grep -q 'Lockstep needs C++20' "$TMP/out" && [ "$(grep -c 'error:' "$TMP/out")" = 2 ] || { head -n 20 "$TMP/out"; return 1; }
}

# says PATTERN COMMAND...: the command ends well, and a line of its output matches.
says() {
    pattern=$1
    shift
    timeout 120 "$@" >"$TMP/out" 2>&1 || { cat "$TMP/out"; return 1; }
    grep -E -q "$pattern" "$TMP/out" || { cat "$TMP/out"; return 1; }
}

check "every macro is called in C++" has_calls
for compiler in g++ clang++; do
    if ! command -v $compiler >/dev/null; then
        skip "C++ with $compiler" "no $compiler"
        continue
    fi
    check "every call compiles with $compiler" timeout 120 $compiler $FLAGS -fsyntax-only tests/whole/cplusplus_calls.cc
    for standard in c++11 c++17; do
        check "$standard with $compiler is refused in one message" refuses $compiler $standard
    done
    if [ -n "$SANITIZE" ]; then
        skip "programs with $compiler" "a sanitized library wants its own compiler"
        continue
    fi
    check "README's taste builds with $compiler" builds $compiler taste
    check "README's taste runs, built with $compiler" says '^weights [0-9a-f]{64}$' "$TMP/taste" 1 2000
    check "a loop by hand builds with $compiler" builds $compiler custom_loop
    check "a loop by hand runs, built with $compiler" says '^epoch 1: loss [0-9.]+, accuracy [0-9.]+ %, test loss' \
        "$TMP/custom_loop" 1 2000 500
done
finish
