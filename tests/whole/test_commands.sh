#!/bin/sh
# Scripts run only commands that a fresh Debian 12 has, or that tools/deps.sh installs: tools/commands.txt lists them with their
# packages. Otherwise a machine that has more than that hides what is missing elsewhere.
. "$(dirname "$0")/../support/lib.sh"

SCRIPTS="$(echo tests/*.sh tests/*/*.sh tests/support/*/*.sh tests/support/patient/* tools/*.sh bench/*.sh .ci/run)"
LIST=tools/commands.txt
BUILTINS=': . [ [[ break cd command continue declare echo eval exec exit export false jobs kill local mapfile printf pwd read
    return set shift shopt source test times trap true type typeset ulimit umask unset wait'

# The recipes of a makefile and what $(shell ...) runs, as a script with the same lines. Make's own expansions become words.
recipes() {
    awk '
        {
            if (/^define /) template = 1 # for $(eval): make reads it twice
            gsub(/\$\$/, template ? "$" : "\001")
            if (/^endef/) template = 0
            recipe = (recipe && joined) || /^\t/
            joined = /\\$/
            shells = ""
            while (match($0, /\$\(shell ([^()]|\([^()]*\))*\)/)) {
                shells = shells substr($0, RSTART + 8, RLENGTH - 9) "; "
                $0 = substr($0, 1, RSTART - 1) "V" substr($0, RSTART + RLENGTH)
            }
            while (gsub(/\$\(([^()]|\([^()]*\))*\)|\$[@<^*?]|\$\{[^{}]*\}/, "V")) ;
            sub(/^\t[@-]*/, "")
            sub(/^V /, "") # $(call say,...)
            sub(/^V/, "")  # $(Q)
            if (!recipe) $0 = ""
            $0 = shells $0
            gsub("\001", "$")
            print
        }' "$1"
}

# external FOUND: lines "FILE:LINE COMMAND" of what shell_commands.awk found, without builtins and functions. Functions are the
# script'"'"'s own, and those of lib.sh and command.sh.
external() {
    awk -v builtins="$BUILTINS" '
        BEGIN { n = split(builtins, list); for (i = 1; i <= n; i++) builtin[list[i]] = 1 }
        $3 == "function" { known[$1, $4] = 1 }
        $3 == "command" && !($4 in builtin) { found[++count] = $0 }
        END {
            for (i = 1; i <= count; i++) {
                split(found[i], part)
                if (!((part[1], part[4]) in known) && !(("tests/support/lib.sh", part[4]) in known) && !(("tests/support/command.sh", part[4]) in known))
                    print part[1] ":" part[2], part[4]
            }
        }' "$1"
}

# commands_of FILE...: what these run
commands_of() {
    awk -f tests/whole/shell_commands.awk "$@" >"$TMP/found" && external "$TMP/found"
}

# ---- The reader itself ----

reads_shell() {
    cat >"$TMP/sample.sh" <<'END'
#!/bin/bash
own() { one "$(two -x | three)" 'no' "no `four`"; } # comment no
case $(five) in no | "no") six ;; *) VALUE=no seven no >no 2>&1 ;; esac
for i in no no; do ! eight || nine; done; until ten; do :; done
timeout -k 5 $LIMIT eleven no; env -u NO A=1 twelve; exec thirteen <no
[[ no == no && ( -n no ) ]] && list=(no no $(fourteen)) && own
sh -c 'fifteen; echo "$(sixteen)"' no; trap 'seventeen' EXIT; find . -exec eighteen {} +
cat <<STOP <<'NO' | nineteen
no $(twenty)
STOP
no $(no)
NO
if command -v no; then (cd no && ./no && twentyone) < <(twentytwo); fi; $no; "$no" no; ((no < no))
check "no" twentythree "${no:-$(twentyfour)}" $((1 + $(twentyfive)))
END
    printf 'bash one two three four five six seven eight nine ten timeout eleven env twelve thirteen fourteen sh fifteen sixteen seventeen find eighteen cat nineteen twenty twentyone twentytwo check twentythree twentyfour twentyfive ' |
        tr ' ' '\n' | grep -vx check | sort >"$TMP/wanted"
    commands_of "$TMP/sample.sh" | sed 's/.* //' | grep -vx check | sort >"$TMP/read"
    diff "$TMP/wanted" "$TMP/read"
}
check "commands are found in every place of a script" reads_shell

reads_makefile() {
    printf 'V := $(shell one -a)\nall: no\n\t@two $(no) && \\\n\t    three $$(four)\n\t$(Q)five\nno:\n' >"$TMP/Makefile"
    recipes "$TMP/Makefile" >"$TMP/sample.sh"
    printf '%s\n' five four one three two >"$TMP/wanted"
    commands_of "$TMP/sample.sh" | sed 's/.* //' | sort | diff "$TMP/wanted" -
}
check "commands are found in a makefile" reads_makefile

# ---- The list ----

recipes Makefile >"$TMP/makefile.sh"
commands_of $SCRIPTS "$TMP/makefile.sh" | sed "s|^$TMP/makefile.sh|Makefile|" >"$TMP/used"
grep -v '^#' $LIST >"$TMP/rows"

all_are_listed() {
    awk 'NR == FNR { listed[$1] = 1; next }
        !($2 in listed) { print $1 ": " $2 " is not in tools/commands.txt: do without it, or let tools/deps.sh install its package"; bad = 1 }
        END { exit bad }' "$TMP/rows" "$TMP/used"
}
check "every command is of Debian's base system or of a package in tools/deps.sh" all_are_listed

none_is_unused() {
    awk 'NR == FNR { used[$2] = 1; next } !($1 in used) { print $1 " is used by no script"; bad = 1 } END { exit bad }' \
        "$TMP/used" "$TMP/rows"
}
check "the list has no command that nothing uses" none_is_unused

# A need other than essential and optional is one of tools/deps.sh, which has the package.
are_installed() {
    while read -r command package need; do
        case $need in
        essential | optional) continue ;;
        esac
        tools/deps.sh list "$need" | grep -qx "$package" || { echo "$command: tools/deps.sh has no $package for $need"; return 1; }
    done <"$TMP/rows"
}
check "tools/deps.sh has the packages of the list" are_installed

# Where make test does not install a command, scripts of tests/ can skip.
can_skip() {
    while read -r place command; do
        case $place:$(awk -v command="$command" '$1 == command { print $3 }' "$TMP/rows") in
        tests/*:essential | tests/*:build | tests/*:demo | tests/*:test) ;;
        tests/*) grep -q 'skip "' "${place%:*}" || { echo "$place: $command may be missing, but nothing is skipped"; return 1; } ;;
        esac
    done <"$TMP/used"
}
check "scripts that use an optional command skip without it" can_skip

# Debian knows the package of a command, and whether that is on every machine.
are_essential() {
    while read -r command package need; do
        [ "$need" = essential ] && path=$(command -v "$command") || continue
        path=$(readlink -f "$path")
        case $path in
        /usr/bin/* | /usr/sbin/* | /bin/* | /sbin/*) ;;
        *) continue ;;
        esac
        dpkg-query -S "$path" "${path#/usr}" 2>/dev/null | grep -q "^$package[:,]" || { echo "$command ($path) is not of $package"; return 1; }
        dpkg-query -W -f '${Priority}\n' "$package" | grep -qx required || { echo "$package is not on every machine"; return 1; }
    done <"$TMP/rows"
}
if dpkg-query -W coreutils >/dev/null 2>&1; then
    check "the list's essential packages are on every Debian" are_essential
else
    skip "the list's essential packages are on every Debian" "this is not Debian"
fi
finish
