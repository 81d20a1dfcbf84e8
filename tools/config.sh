#!/bin/sh
# Prints, as a makefile, the compiler and linker flags of the libraries we use: tools/config.sh NEED...
# The needs are those of tools/deps.sh, which has been run before.
set -eu

echo "CONFIGURED := yes"
PACKAGES="libssl libcrypto jansson zlib"
echo "PKG_CFLAGS := $(pkg-config --cflags $PACKAGES)"
echo "PKG_LIBS := $(pkg-config --libs $PACKAGES)"
for need in "$@"; do
    if [ "$need" = test ]; then
        echo "CMOCKA_CFLAGS := $(pkg-config --cflags cmocka)"
        echo "CMOCKA_LIBS := $(pkg-config --libs cmocka)"
    fi
done
