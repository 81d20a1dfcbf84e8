#!/bin/bash
# The text that people read is plain English (docs/STYLE.md). Counts turns of an old dialect (words.list) per 1,000 words in
# comments, in documents and in messages (string literals with a space) of each folder, and holds each to its bound
# (words.bounds). A bound may be lowered, never raised.
. "$(dirname "$0")/../support/lib.sh"

# Text of C comments.
comments() {
    cat "$@" | awk '
        { line = $0
          while (1) {
            if (!inside) {
                at = index(line, "/*"); slashes = index(line, "//")
                if (slashes && (!at || slashes < at)) { if (substr(line, slashes - 1, 1) != ":") print substr(line, slashes + 2); break }
                if (!at) break
                line = "@@" substr(line, at + 2); inside = 1 # where a comment begins
            }
            end = index(line, "*/")
            if (!end) { print line; break }
            print substr(line, 1, end - 1); line = substr(line, end + 2); inside = 0
          } }' | tr '\n' ' ' | sed 's/ \* / /g'
}
# Text of comments of scripts, on lines of their own.
remarks() { sed -n 's/^[[:space:]]*# //p' "$@" | tr '\n' ' '; }
# Text of Markdown without code.
prose() { awk '/^```/ { code = !code; next } !code && !/^    /' "$@" | sed 's/`[^`]*`/CODE/g' | tr '\n' ' '; }
# Text of string literals with a space: messages, lines of the log, help. Literals side by side are one; quotes in them become '.
messages() {
    cat "$@" | "$CC" -fpreprocessed -dD -E -P -w -x c - 2>/dev/null | sed -e "s/'\\\\\"'/0/g" -e "s/'\"'/0/g" -e "s/\\\\\"/'/g" | tr '\n' ' ' |
        sed -e 's/" *PRI[a-z]*[0-9]* *"/0/g' -e 's/" *"//g' | grep -oE '"[^"]*"' | grep ' ' | tr '\n' ' '
}

text_of() {
    case $1 in
    include) comments include/*.h include/lockstep/*.h ;;
    docs) prose docs/*.md ;;
    readme) prose README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md ;;
    tests | fuzz | bench | examples) comments $(find "$1" -name '*.[ch]' -o -name '*.cc') ;;
    scripts) remarks Makefile .ci/run tools/*.sh tests/*.sh tests/*/*.sh bench/*.sh ;;
    messages/*) messages $(find "src/${1#*/}" -name '*.[ch]' -o -name '*.def') ;;
    src/*) comments $(find "$1" -name '*.[ch]' -o -name '*.cl' -o -name '*.inc' -o -name '*.def') ;;
    esac
}

# Turns per 1,000 words, times ten.
density() {
    text_of "$1" >"$TMP/text"
    local words turns
    words=$(wc -w <"$TMP/text")
    turns=$(grep -oiE -f <(grep -v '^#' tests/whole/words.list) "$TMP/text" | wc -l)
    echo $((words > 0 ? turns * 10000 / words : 0))
}

is_plain() {
    local found
    found=$(density "$1")
    [ "$found" -lt $(($2 * 10)) ] || { echo "$((found / 10)).$((found % 10)) turns in 1,000 words, fewer than $2 are allowed"; return 1; }
}
if [ "${1:-}" = --print ]; then
    while read -r place bound; do echo "$place $(density "$place") $bound"; done < <(grep -v '^#' tests/whole/words.bounds)
    exit 0
fi
while read -r place bound; do
    check "$place" is_plain "$place" "$bound"
done < <(grep -v '^#' tests/whole/words.bounds)

# Prose of documents and of comments on lines of their own has at most 100 columns; tables, code and lists may be longer.
long_lines() {
    awk 'FNR == 1 { code = 0 } /^ *```/ { code = !code }
         !code && length > 100 && !/^ *\|/ && !/^    / { print FILENAME ":" FNR; found = 1 } END { exit found }' "$@"
}
long_comments() { awk 'length > 100 && /^ *(\/\*|\* [^ ]*[a-z])/ && !/   / && !/\\$/ && !/[^ -~]/ { print FILENAME ":" FNR; found = 1 } END { exit found }' "$@"; }
check "documents have lines of at most 100 columns" long_lines ./*.md docs/*.md
check "comments have lines of at most 100 columns" long_comments $(find src include tests bench fuzz examples ! -name math_tables.h -name '*.[ch]' -o -name '*.inc' -o -name '*.cl')

# The check can fail.
notices() {
    mkdir -p "$TMP/src"
    echo '/* Who is waited for is told, whoever that may be, and nobody else. */' >"$TMP/src/bad.c"
    text_of() { comments "$TMP/src/bad.c"; }
    ! is_plain bad 3
}
check "old phrases are noticed" notices
notices_messages() {
    printf '%s\n' 'int f(void) { return ls_fail(1, "%s: who is waited "' '"for is \"told\"; nobody else", "x"); }' >"$TMP/src/bad.c"
    text_of() { messages "$TMP/src/bad.c"; }
    text_of | grep -qx "\"%s: who is waited for is 'told'; nobody else\" " && ! is_plain bad 3
}
check "old phrases are noticed in messages" notices_messages
finish
