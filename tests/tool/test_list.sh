#!/bin/sh
# lockstep list: docs/reference.md is its output, and the names of its first column exist in the headers.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

same_page() {
    "$LOCKSTEP" list >"$TMP/page" && diff "$ROOT/docs/reference.md" "$TMP/page" ||
        { echo "docs/reference.md differs: run make reference-page"; return 1; }
}
check "docs/reference.md is what the command prints" same_page

# Ops without a builder of their own are those that layers and gradients make.
names_exist() {
    for list in layers activations losses metrics optimizers schedules; do
        "$LOCKSTEP" list $list | sed -n 's/^| \([a-zA-Z_0-9]*\) .*/\1/p' | sed 1d >"$TMP/names"
        [ -s "$TMP/names" ] || { echo "$list: no names"; return 1; }
        while read -r name; do
            grep -q -w -e "$name" "$ROOT"/include/lockstep/*.h || { echo "$list: $name is in no header"; return 1; }
        done <"$TMP/names"
    done
}
check "names are those of the headers" names_exist
one_list() { prints '^\| ls_adamw +\| AdamW' list optimizers && ! grep -q 'ls_dense' "$TMP/out"; }
check "one list" one_list
check "an unknown list, the nearest is named" refuses 1 'there is no list layer; did you mean layers' list layer
check "an unknown list without a similar name" refuses 1 'there is no list fruit; there are layers, activations' list fruit
finish
