#!/bin/sh
# Prints, as a makefile, the compiler and linker flags of the libraries we use: tools/config.sh NEED...
# The needs are those of tools/deps.sh, which has been run before.
set -eu

echo "CONFIGURED := yes"
PACKAGES="libssl libcrypto jansson zlib"
echo "PKG_CFLAGS := $(pkg-config --cflags $PACKAGES)"
# Decoders of images are optional; src/data/image_*.c reports what a build lacks.
IMAGES=
for row in PNG:libpng TURBOJPEG:libturbojpeg; do
    package=${row#*:}
    if pkg-config --exists "$package"; then
        echo "${row%:*}_CFLAGS := -DLS_WITH_${row%:*} $(pkg-config --cflags "$package")"
        IMAGES="$IMAGES $package"
    fi
done
echo "PKG_LIBS := $(pkg-config --libs $PACKAGES $IMAGES)"
echo "IMAGE_LIBS := $([ -z "$IMAGES" ] || pkg-config --libs $IMAGES)"
for need in "$@"; do
    if [ "$need" = test ]; then
        echo "CMOCKA_CFLAGS := $(pkg-config --cflags cmocka)"
        echo "CMOCKA_LIBS := $(pkg-config --libs cmocka)"
    fi
done
