#!/bin/sh
# Makes sure that what a build needs is there: tools/deps.sh install|check NEED... (list NEED...: prints the packages)
# NEED is build, demo, test, format, clang, peers, starters, ucx, valgrind, opencl, images or browser. On Debian 12 missing packages are found by name and, with "install",
# installed as root or through sudo. Elsewhere nothing is installed: either everything is found, or a refusal lists it.
# Silent when nothing is missing. OS_RELEASE names another os-release file (the tests use it).
set -eu

OS_RELEASE=${OS_RELEASE:-/etc/os-release}
CC=${CC:-gcc}
DATASET=/usr/share/datasets/fashion-mnist

# Package, and how to find what it brings without a package manager: a command (or what came with one), a header, a
# pkg-config module, or a word of its own.
needs() {
    case $1 in
    build)
        cat <<END
gcc command:$CC
libc6-dev header:stdio.h
make command:make
pkg-config command:pkg-config
libssl-dev module:libssl
libjansson-dev module:jansson
zlib1g-dev module:zlib
END
        ;;
    demo) echo "dataset-fashion-mnist dataset" ;;
    test) printf '%s\n' "libcmocka-dev module:cmocka" "g++ command:g++" "clang command:clang++" ;; # the headers, in C++
    clang) printf '%s\n' "clang command:clang" "libclang-rt-14-dev with:clang" ;; # the second: its sanitizers
    format) echo "clang-format command:clang-format" ;;
    peers) echo "python3-venv python-venv" ;;
    # Programs that start workers, for tests/fabric/test_started.sh and test_slurm.sh, which are skipped without them: 33 MB, with
    # daemons. CI asks for them; no target does.
    starters) printf '%s\n' "openmpi-bin command:mpirun" "slurm-wlm command:srun" ;;
    # The transport ucx (docs/clusters.md), for fabrics that have RDMA: a build that finds its header has it, and others say
    # that they do not. CI asks for it; no target does.
    ucx) echo "libucx-dev header:ucp/api/ucp.h" ;;
    # Runs a sample of the bits on a processor without AVX-512, which it plays. CI asks for it; the test is skipped without.
    valgrind) echo "valgrind command:valgrind" ;;
    # OpenCL on the CPU, for test_opencl*, which are skipped without it: 120 MB. CI asks for it; no target does.
    opencl) printf '%s\n' "pocl-opencl-icd opencl-driver:pocl" "ocl-icd-libopencl1 library:libOpenCL.so.1" "opencl-headers header:CL/cl.h" ;;
    # Image folders and tar shards of images (docs/data.md): a build that finds them decodes JPEG and PNG, and others
    # name the package. CI asks for them; no target does, and tests are skipped without.
    images) printf '%s\n' "libturbojpeg0-dev module:libturbojpeg" "libpng-dev module:libpng" ;;
    # Looks at pages that `lockstep report` writes. No target asks for it: 300 MB for three tests, which are skipped
    # without it, and say so.
    browser) echo "chromium command:chromium" ;;
    *)
        echo "tools/deps.sh: unknown need '$1': build, demo, test, format, clang, peers, starters, ucx, valgrind, opencl, images or browser" >&2
        exit 2
        ;;
    esac
}

has_header() {
    echo "#include <$1>" | "$CC" -E -x c - >/dev/null 2>&1
}

is_found() {
    case $1 in
    command:* | with:*) command -v "${1#*:}" >/dev/null 2>&1 ;;
    header:*) has_header "${1#header:}" ;;
    module:*) pkg-config --exists "${1#module:}" 2>/dev/null ;;
    opencl-driver:*) grep -qs "${1#*:}" /etc/OpenCL/vendors/*.icd ;;
    library:*) /sbin/ldconfig -p 2>/dev/null | grep -q "${1#*:}" ;;
    dataset) [ -e "$DATASET/train-images-idx3-ubyte.gz" ] ;;
    python-venv) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
    esac
}

# A command may have come some other way than from its package; a library is asked for by name.
is_installed() {
    case $2 in
    command:* | python-venv) is_found "$2" && return 0 ;;
    esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

is_debian_12() {
    [ -r "$OS_RELEASE" ] && (
        ID= VERSION_ID=
        . "$OS_RELEASE"
        [ "$ID" = debian ] && [ "$VERSION_ID" = 12 ]
    )
}

install_packages() {
    as_root=
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "Missing packages: $*" >&2
            echo "Neither root nor sudo here: install them as root, with: apt-get install $*" >&2
            exit 1
        fi
        as_root=sudo
    fi
    echo "Installing the Debian packages${as_root:+ (through sudo)}: $*"
    # What went well is not worth a hundred lines; errors come on standard error.
    $as_root apt-get -qq update >/dev/null
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq --no-install-recommends install "$@" >/dev/null
    rm -f build/config-*.mk # the next make asks again which libraries there are
}

on_debian_12() {
    missing=
    while read -r package found_by; do
        [ -z "$package" ] || is_installed "$package" "$found_by" || missing="$missing $package"
    done <<END
$NEEDED
END
    if [ -n "$missing" ]; then
        if [ "$MODE" = check ]; then
            echo "Missing packages:$missing" >&2
            echo "\`make deps\` installs them (so do \`make test\` and \`make demo\`)." >&2
            exit 1
        fi
        install_packages $missing
    fi
}

elsewhere() {
    missing=
    while read -r package found_by; do
        if [ -z "$package" ] || is_found "$found_by"; then
            continue
        elif [ "$found_by" = dataset ]; then
            echo "Fashion-MNIST is not in $DATASET; what needs it will say so."
        else
            missing="$missing $package"
        fi
    done <<END
$NEEDED
END
    if [ -n "$missing" ]; then
        cat >&2 <<END
This is not Debian 12, so nothing is installed by itself. Not found:$missing
(Debian's names; your system may have others.) Everything that is needed:
$(echo "$NEEDED" | sed 's/^\([^ ]*\).*/    \1/')
END
        exit 1
    fi
}

MODE=${1:-}
case $MODE in
install | check | list) shift ;;
*)
    echo "usage: tools/deps.sh install|check|list NEED..." >&2
    exit 2
    ;;
esac

NEEDED=
for need in "$@"; do
    rows=$(needs "$need")
    NEEDED="$NEEDED${NEEDED:+
}$rows"
done

if [ "$MODE" = list ]; then
    echo "$NEEDED" | sed 's/ .*//'
elif is_debian_12; then
    on_debian_12
else
    elsewhere
fi
