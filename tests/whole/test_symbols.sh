#!/bin/sh
# The libraries export only names with our prefix, so that they never clash with a program's own.
. "$(dirname "$0")/../support/lib.sh"

# Names defined in the symbol table of $2 (nm's options: $1), without the C runtime's. (DW.ref: how a C++ object refers to
# its runtime; hidden.)
names() {
    nm $1 --defined-only "$2" | awk 'NF == 3 && $3 !~ /^DW[.]ref[.]/ { print $3 }' | sort -u
}

only_ours() {
    names "$1" "$2" >"$TMP/names"
    grep -q '^ls_' "$TMP/names" || { echo "no ls_ symbol in $2"; return 1; }
    ! grep -v '^ls_' "$TMP/names"
}

# Internal functions are ls_ too, so a name does not tell: an exported one must be declared in a public header.
declared() {
    names -D "$LS_BUILD/liblockstep.so" >"$TMP/names"
    cat include/lockstep.h include/lockstep/*.h >"$TMP/headers"
    undeclared=$(while read -r name; do
        grep -qw "$name" "$TMP/headers" || echo "$name"
    done <"$TMP/names")
    [ -z "$undeclared" ] || { echo "exported, but in no public header: $undeclared"; return 1; }
}

# Every function is called with NULL for each of its pointers.
called_with_null() {
    names -D "$LS_BUILD/liblockstep.so" >"$TMP/names"
    forgotten=$(while read -r name; do
        grep -qw "${name%_with}\(_with\)\?" tests/whole/test_null_arguments.c || echo "$name"
    done <"$TMP/names")
    [ -z "$forgotten" ] || { echo "not in tests/whole/test_null_arguments.c: $forgotten"; return 1; }
}

if [ -n "$SANITIZE" ]; then
    skip "exported symbols" "sanitizers add their own"
    finish
fi
check "the shared library exports ls_ symbols and nothing else" only_ours -D "$LS_BUILD/liblockstep.so"
check "every exported symbol is declared in a public header" declared
check "every exported function is tried with NULL" called_with_null
check "the static library defines ls_ symbols and nothing else" only_ours -g "$LS_BUILD/liblockstep.a"
check "the shared library has a soname" sh -c "readelf -d '$LS_BUILD/liblockstep.so' | grep -q 'SONAME.*liblockstep\.so\.[0-9]'"

# The check itself can fail.
bad_library() {
    echo '__attribute__((visibility("default"))) int ls_good(void); __attribute__((visibility("default"))) int stray(void);
          int ls_good(void) { return 0; } int stray(void) { return 0; }' >"$TMP/bad.c"
    "$CC" -shared -fPIC "$TMP/bad.c" -o "$TMP/bad.so"
    if only_ours -D "$TMP/bad.so" >"$TMP/found"; then
        return 1
    fi
    [ "$(cat "$TMP/found")" = stray ]
}
check "a stray symbol is found" bad_library
finish
