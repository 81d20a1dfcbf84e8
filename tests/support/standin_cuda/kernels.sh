#!/bin/sh
# Compiles the modules' sources in the folder $1 (<module>.cu) as C++, two at a time, with the compiler and flags behind it,
# and writes the table of all modules: modules.cc.
set -eu
folder=$1
shift

compile() {
    module=$1
    shift
    # What the preprocessor leaves of "KERNEL(name)(" is "__global__ void name(".
    names=$("$@" -x c++ -E -P "$folder/$module.cu" | grep -o '__global__ void [A-Za-z0-9_]*' | sed 's/.* //')
    [ -n "$names" ] || { echo "$module: no kernels found" >&2; return 1; }
    # A kernel may be in two modules.
    sed 's/extern "C" __global__ void/static __global__ void/' "$folder/$module.cu" >"$folder/$module.own"
    {
        echo '#include "kernel.h"'
        echo "#include \"$module.own\""
        echo "extern \"C\" const standin_kernel standin_$module[] = {"
        printf 'STANDIN_KERNEL(%s)\n' $names
        echo '};'
        echo "extern \"C\" const int standin_${module}_count = (int)(sizeof standin_$module / sizeof *standin_$module);"
    } >"$folder/$module.cc"
    "$@" -c "$folder/$module.cc" -o "$folder/$module.o"
}

rm -f "$folder"/*.o
modules=$(sed -n 's/^MODULE(\([a-z_]*\),.*/\1/p' "$folder/modules.inc")
for module in $modules; do
    if [ -n "${other:-}" ]; then
        compile "$module" "$@"
        wait "$other"
        other=
    else
        compile "$module" "$@" &
        other=$!
    fi
done
[ -z "${other:-}" ] || wait "$other"

{
    echo '#include "standin.h"'
    for module in $modules; do
        echo "extern \"C\" const standin_kernel standin_$module[];"
        echo "extern \"C\" const int standin_${module}_count;"
    done
    echo 'extern "C" const standin_module standin_modules[] = {'
    for module in $modules; do
        echo "{ \"$module\", standin_$module, standin_${module}_count },"
    done
    echo '};'
    echo "extern \"C\" const int standin_module_count = $(echo $modules | wc -w);"
} >"$folder/modules.cc"
"$@" -c "$folder/modules.cc" -o "$folder/modules.o"
