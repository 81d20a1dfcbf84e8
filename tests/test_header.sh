#!/bin/sh
# Public headers compile alone, as C11 and as C++, with every compiler there is, without a warning.
. "$(dirname "$0")/lib.sh"

WARNINGS="-Wall -Wextra -Wpedantic -Werror"

# compiles COMPILER LANGUAGE STANDARD HEADER
compiles() {
    printf '#include <%s>\n#include <%s>\nint main(void)\n{\n    return 0;\n}\n' "$4" "$4" >"$TMP/alone.c"
    $1 -x "$2" "-std=$3" $WARNINGS -Iinclude -fsyntax-only "$TMP/alone.c"
}

HEADERS=$(cd include && echo lockstep.h lockstep/*.h)
case $CC in
gcc | clang) COMPILERS="gcc clang" ;;
*) COMPILERS="$CC gcc clang" ;;
esac

for compiler in $COMPILERS; do
    if command -v ${compiler%% *} >/dev/null; then
        for header in $HEADERS; do
            check "$header alone as C11 with $compiler" compiles "$compiler" c c11 "$header"
        done
    else
        skip "headers as C11" "no $compiler"
    fi
done
for compiler in g++ clang++; do
    if command -v $compiler >/dev/null; then
        for header in $HEADERS; do
            check "$header alone as C++ with $compiler" compiles $compiler c++ c++11 "$header"
        done
    else
        skip "headers as C++" "no $compiler"
    fi
done
finish
