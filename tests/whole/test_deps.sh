#!/bin/sh
# Set-up, on systems that are not this one: package tools and os-release are stand-ins, so nothing is installed.
. "$(dirname "$0")/../support/lib.sh"

BIN=$TMP/bin
mkdir -p "$BIN"
printf 'ID=debian\nVERSION_ID="12"\n' >"$TMP/debian"
printf 'ID=fedora\nVERSION_ID=40\n' >"$TMP/fedora"

# stub NAME BODY: a command of that name comes first in the path.
stub() {
    printf '#!/bin/sh\n%s\n' "$2" >"$BIN/$1"
    chmod +x "$BIN/$1"
}
# Nothing of libjansson-dev and libcmocka-dev is there, as far as dpkg and pkg-config say.
stub dpkg-query 'for p; do :; done; case $p in libjansson-dev | libcmocka-dev) exit 1 ;; esac; echo installed'
stub pkg-config 'case $* in *jansson* | *cmocka*) exit 1 ;; esac'
stub apt-get "echo \"\$DEBIAN_FRONTEND apt-get \$*\" >>'$TMP/apt'"
stub sudo "echo sudo >>'$TMP/apt'; exec \"\$@\""
stub id 'echo 0'
# A gcc that is a link to ccache would look for the next gcc in PATH, and find the stub again.
real=$(for each in $(which -a gcc "$CC"); do [ "$(basename "$(readlink -f "$each")")" = ccache ] || { echo "$each"; break; }; done)
stub gcc "exec $real \"\$@\""

# deps OS EXPECTED_STATUS ARGUMENTS...: runs tools/deps.sh; its output is in $TMP/out, what apt was asked in $TMP/apt.
deps() {
    os=$1 expected=$2 status=0
    shift 2
    : >"$TMP/apt"
    CC=gcc OS_RELEASE=$TMP/$os PATH=$BIN:$PATH tools/deps.sh "$@" >"$TMP/out" 2>&1 || status=$?
    cat "$TMP/out" "$TMP/apt"
    [ $status = "$expected" ]
}
# said / asked PATTERN: in the output / of apt.
said() { grep -q -e "$1" "$TMP/out"; }
asked() { grep -q -x -e "$1" "$TMP/apt"; }

installs_missing() {
    deps debian 0 install build test && said "packages: libjansson-dev libcmocka-dev" &&
        asked ".*apt-get .*update" && asked "noninteractive apt-get .*install libjansson-dev libcmocka-dev"
}
through_sudo() {
    stub id 'echo 1000'
    deps debian 0 install build && asked sudo && said "through sudo" && asked "noninteractive apt-get .*install libjansson-dev"
    result=$?
    stub id 'echo 0'
    return $result
}
only_checks() {
    deps debian 1 check build && said "Missing packages: libjansson-dev" && said "make deps" && [ ! -s "$TMP/apt" ]
}
nothing_missing() {
    stub dpkg-query 'echo installed'
    deps debian 0 install build test && [ ! -s "$TMP/apt" ] && [ ! -s "$TMP/out" ]
}
refuses_elsewhere() {
    deps fedora 1 install build test && said "Not found: libjansson-dev libcmocka-dev" &&
        [ ! -s "$TMP/apt" ]
}
goes_on_elsewhere() {
    stub pkg-config 'exit 0'
    deps fedora 0 install build test && [ ! -s "$TMP/apt" ]
}
unknown_need() {
    deps debian 2 install biuld && said "unknown need 'biuld'"
}

check "missing packages are installed by name" installs_missing
check "through sudo when not root" through_sudo
check "a check installs nothing" only_checks
check "another system is refused with a list" refuses_elsewhere
check "another system with everything continues" goes_on_elsewhere
check "nothing missing, no output" nothing_missing
check "an unknown need is refused" unknown_need
finish
