#!/bin/sh
# What `make install` leaves is enough to build and run a program, found through pkg-config alone.
. "$(dirname "$0")/../support/lib.sh"

DEST=$TMP/root
export PKG_CONFIG_PATH=$DEST/opt/ls/lib/pkgconfig
SANITIZED=${SANITIZE:+-fsanitize=$SANITIZE}

cat >"$TMP/program.c" <<'END'
#include <lockstep.h>
int main(void)
{
    return puts(ls_status_name(LS_OK)) < 0;
}
END

run_make_install() {
    make --no-print-directory install CC="$CC" SANITIZE="$SANITIZE" DESTDIR="$DEST" PREFIX=/opt/ls
}

# Without DESTDIR the .pc file's paths are where the files are; here DESTDIR replaces pkg-config's sysroot.
flags() {
    pkg-config --define-variable=prefix="$DEST/opt/ls" --define-variable=libdir="$DEST/opt/ls/lib" \
        --define-variable=includedir="$DEST/opt/ls/include" "$@" lockstep
}

shared_program() {
    $CC -std=c11 $SANITIZED "$TMP/program.c" $(flags --cflags --libs) -o "$TMP/shared" &&
        LD_LIBRARY_PATH=$DEST/opt/ls/lib "$TMP/shared" | grep -x LS_OK
}

static_program() {
    $CC -std=c11 $SANITIZED "$TMP/program.c" $(flags --cflags) "$DEST/opt/ls/lib/liblockstep.a" \
        $(flags --static --libs | sed 's/-llockstep//') -o "$TMP/static" &&
        "$TMP/static" | grep -x LS_OK
}

needs_soname() {
    readelf -d "$TMP/shared" | grep 'NEEDED.*liblockstep\.so\.[0-9]*\]'
}

same_version() {
    version=$(sed -n 's/^#define LS_VERSION "\(.*\)"/\1/p' include/lockstep/base.h)
    echo "header: $version, lockstep.pc: $(pkg-config --modversion lockstep)"
    [ -n "$version" ] && [ "$(pkg-config --modversion lockstep)" = "$version" ]
}

all_headers() {
    for header in lockstep.h $(cd include && echo lockstep/*.h); do
        cmp "include/$header" "$DEST/opt/ls/include/$header" || return 1
    done
}

check "make install into a DESTDIR" run_make_install
check "a program builds and runs against the shared library" shared_program
check "it asks for the library by its soname" needs_soname
check "a program builds and runs against the static library" static_program
check "lockstep.pc has the headers' version" same_version
check "every public header is installed" all_headers
if [ -n "$(echo src/tool/*.c | grep -v '\*')" ]; then
    check "the command is installed" test -x "$DEST/opt/ls/bin/lockstep"
fi
finish
