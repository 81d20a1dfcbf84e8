#!/bin/bash
# Tests of the tests: changes one line of the library at a time and runs tests that must notice it.
#   tests/mutants.sh [NAME...]      those of tests/mutants.list, or all
#   tests/mutants.sh --check        only whether each text is where the list says
# Works on a copy of the tree in build/mutants/tree, which keeps its objects for the next time; this tree is not touched.
# build/mutants/logs has what the tests of each mutant printed.
# Each mutant is built, and its tests are run until one fails: then it is killed. A mutant that no test notices survives.
# A mutant whose text does not occur exactly once, or that does not compile, is an error, as is a test that fails without
# any mutant. Ends with "N killed, M survived, K errors" and with 0 when all were killed.
set -eu

cd "$(dirname "$0")/.."
skip() { echo "skip $1: $2"; }
ROOT=$PWD LIST=$PWD/tests/mutants.list WORK=$PWD/build/mutants
TREE=$WORK/tree CLEAN=$WORK/clean
export LS_TEST_TIMEOUT=${LS_TEST_TIMEOUT:-240}
unset MAKEFLAGS MFLAGS MAKELEVEL LS_BUILD

# ---- the list ----

# Reads the next mutant: its name, file, tests, old and new text. Fails at the end of the list.
read_mutant() {
    local line
    name= file= tests= old= new=
    while IFS= read -r line <&3; do
        case $line in
        '#'*) ;;
        '= '*) name=${line#= } ;;
        'file '*) file=${line#file } ;;
        'tests '*) tests=${line#tests } ;;
        '- '*) old+=${old:+$'\n'}${line#- } ;;
        '+ '*) new+=${new:+$'\n'}${line#+ } ;;
        '') [ -z "$name" ] || return 0 ;;
        *) echo "tests/mutants.list: cannot read '$line'" >&2; exit 2 ;;
        esac
    done
    [ -n "$name" ]
}

is_wanted() {
    local each
    [ $# -gt 1 ] || return 0
    for each in "${@:2}"; do [ "$each" != "$1" ] || return 0; done
    return 1
}

# ---- the copy ----

# Only what differs is copied, and is then newer than its object: make builds it again, and nothing else.
copy_tree() {
    local each
    command -v git >/dev/null || { skip "the mutants" "there is no git, which lists the files of the tree"; exit 0; }
    mkdir -p "$TREE"
    (cd "$TREE" && find . -path ./build -prune -o -type f -print0) | while IFS= read -r -d '' each; do
        [ -e "$each" ] || rm "$TREE/$each"
    done
    git ls-files -z -c -o --exclude-standard | while IFS= read -r -d '' each; do
        [ ! -e "$each" ] || cmp -s "$each" "$TREE/$each" || { mkdir -p "$TREE/$(dirname "$each")" && cp "$each" "$TREE/$each"; }
    done
    rm -rf "$CLEAN" "$WORK/logs"
    mkdir -p "$CLEAN" "$WORK/logs"
    cp -a "$TREE/src" "$CLEAN/"
}

# Where a test is, from its name: a script in one of the folders, or a program.
test_path() {
    local script=("$TREE"/tests/*/"$1.sh")
    [ -e "${script[0]}" ] && echo "${script[0]#"$TREE/"}" || echo "build/tests/$1"
}

# build_and_run TEST...: 0: all passed, 1: a test failed, 2: it could not be built
build_and_run() {
    local each programs=() log=$WORK/log
    for each in "$@"; do
        each=$(test_path "$each")
        [[ $each == *.sh ]] || programs+=("$each")
    done
    # NEEDS: the packages of `make test`, whose other programs are not built
    make -C "$TREE" NEEDS='build demo test' build/lockstep "${programs[@]}" >"$log" 2>&1 || return 2
    for each in "$@"; do
        if ! (cd "$TREE" && tests/run.sh "$(test_path "$each")") >"$log" 2>&1; then
            killer=$each
            return 1
        fi
    done
}

# ---- one mutant ----

# Writes the file with the new text in place of the old one, which must be there once.
apply() {
    local text rest
    text=$(cat "$from/$file"; echo .)
    rest=${text#*"$old"}
    [ "$rest" != "$text" ] || { echo "the text is not in $file"; return 1; }
    [ "${rest#*"$old"}" = "$rest" ] || { echo "the text is in $file more than once"; return 1; }
    text=${text%%"$old"*}$new$rest
    [ -n "$checks" ] || printf '%s' "${text%.}" >"$TREE/$file"
}

checks= from=$CLEAN killed=0 survivors=() errors=0
try_mutant() {
    local reason status=0 killer= slow
    if ! reason=$(apply); then
        echo "error     $name: $reason"
        errors=$((errors + 1))
        return
    fi
    [ -z "$checks" ] || return 0
    build_and_run $tests || status=$?
    cp "$CLEAN/$file" "$TREE/$file" # newer than its object: built again
    cp "$WORK/log" "$WORK/logs/$name"
    case $status in
    0)
        echo "SURVIVED  $name ($tests)"
        survivors+=("$name")
        ;;
    1)
        grep -q 'timed out after' "$WORK/log" && slow=', out of time' || slow=
        echo "killed    $name by $killer$slow"
        killed=$((killed + 1))
        ;;
    *)
        echo "error     $name: does not compile:"
        grep -m 3 error "$WORK/log" || true
        errors=$((errors + 1))
        ;;
    esac
}

# ---- all ----

if [ "${1:-}" = --check ]; then
    checks=1 from=$ROOT
    exec 3<"$LIST"
    while read_mutant; do try_mutant; done
    [ $errors = 0 ]
    exit
fi
mkdir -p "$WORK"
exec 9>"$WORK/lock"
flock -n 9 || { echo "another tests/mutants.sh is running" >&2; exit 2; }
copy_tree
needed=
exec 3<"$LIST"
while read_mutant; do
    ! is_wanted "$name" "$@" || needed+=" $tests"
done
[ -n "$needed" ] || { echo "no such mutant in tests/mutants.list" >&2; exit 2; }
if [ -z "${LS_MUTANTS_TRUST:-}" ]; then # the tests pass without a mutant
    build_and_run $(printf '%s\n' $needed | sort -u) || { echo "tests fail without any mutant:"; tail -n 20 "$WORK/log"; exit 2; }
fi
exec 3<"$LIST"
while read_mutant; do
    ! is_wanted "$name" "$@" || try_mutant
done
echo "$killed killed, ${#survivors[@]} survived, $errors errors"
[ $((${#survivors[@]} + errors)) = 0 ]
