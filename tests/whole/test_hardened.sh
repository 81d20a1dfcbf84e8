#!/bin/sh
# What is built is hardened: read-only relocations bound at start, no executable stack, a stack protector, checked copies
# (FORTIFY) and a position-independent command. SECURITY.md promises it.
. "$(dirname "$0")/../support/lib.sh"

if ! command -v readelf >/dev/null 2>&1; then
    skip "hardening" "no readelf here"
    finish
fi
LIBRARY=$LS_BUILD/liblockstep.so

# Whole outputs go to files: readelf into a grep that ends early would fail by a broken pipe.
segment() {
    readelf -lW "$1" >"$TMP/elf" && grep -E -q "$2" "$TMP/elf" || { echo "no $2 in $1"; return 1; }
}
dynamic() {
    readelf -dW "$1" >"$TMP/elf" && grep -E -q "$2" "$TMP/elf" || { echo "no $2 in $1"; return 1; }
}
symbol() {
    readelf --dyn-syms -W "$1" >"$TMP/elf" && grep -E -q "UND .*$2" "$TMP/elf" || { echo "no $2 in $1"; return 1; }
}
position_independent() {
    readelf -hW "$1" >"$TMP/elf" && grep -E -q 'Type: +DYN' "$TMP/elf"
}

for file in $LS_BUILD/lockstep $LIBRARY; do
    name=$(basename "$file")
    check "$name: relocations are read-only" segment "$file" GNU_RELRO
    check "$name: and bound at start" dynamic "$file" 'BIND_NOW|NOW'
    check "$name: no executable stack" segment "$file" 'GNU_STACK .* RW +0x'
    check "$name: position-independent" position_independent "$file"
    if [ -z "$SANITIZE" ]; then
        check "$name: stack protector" symbol "$file" __stack_chk_fail
        check "$name: checked copies" symbol "$file" '__[a-z]*(cpy|move|set|printf|read)_chk'
    fi
done
finish
