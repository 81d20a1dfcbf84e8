#!/bin/sh
# A file includes only its own layer and lower ones; src/run includes nothing of the CPU backend. Public headers
# (lockstep/<layer>.h) count as the layer they name. Folders of src/fabric and src/train are layers of their own, in this order.
# Symbols follow the same order, except those listed with their reason.
. "$(dirname "$0")/../support/lib.sh"

LAYERS="base graph device plan backend run fabric/transport fabric/start fabric/protocol fabric/mesh fabric/messages data nn train/job train/report
    train/callback train/checkpoint train/server train/fit tool"

# Prints each include under the tree $1 that goes upwards or leads nowhere known; succeeds when there is none.
violations() {
    (cd "$1" && find src include -name '*.[ch]' -o -name '*.def' | sort | xargs awk -v layers="$LAYERS" '
        BEGIN {
            n = split(layers, name, " ")
            for (i = 1; i <= n; i++)
                rank[name[i]] = i
        }
        # src/train/job/x.h is of train/job; lockstep/train.h and lockstep/cluster.h are of the first folders.
        function room(layer, next_part) {
            if (layer != "train" && layer != "fabric")
                return layer
            return layer "/" (next_part != "" ? next_part : layer == "train" ? "job" : "transport")
        }
        # Public headers that are not named like their layer.
        function layer_of(header) {
            if (header == "layer")
                return "nn"
            if (header == "text")
                return "data"
            if (header == "callback" || header == "loop")
                return "train"
            if (header == "backend")
                return "device" # the interface that devices are added by
            if (header == "strategy")
                return "run" # how runs are spread over devices
            if (header == "cluster")
                return "fabric" # how they are spread over processes
            return header == "cplusplus" ? "tool" : header
        }
        function bad(why) {
            print FILENAME ":" FNR ": includes " path ": " why
            found = 1
        }
        FNR == 1 {
            split(FILENAME, part, "/")
            own = part[2] # src/<layer>/..., include/lockstep/<layer>.h, include/lockstep.h
            if (part[1] == "include") {
                own = part[3]
                sub(/\.h$/, "", own)
                own = FILENAME == "include/lockstep.h" ? "tool" : layer_of(own)
            }
            own = room(own, part[1] == "src" ? part[3] : "")
            if (!(own in rank)) {
                print FILENAME ": is in no known layer"
                found = 1
            }
        }
        /^[ \t]*#[ \t]*include[ \t]*["<]/ {
            quoted = /^[ \t]*#[ \t]*include[ \t]*"/
            path = $0
            sub(/^[^"<]*["<]/, "", path)
            sub(/[">].*/, "", path)
            slash = index(path, "/")
            first = slash ? substr(path, 1, slash - 1) : ""
            if (path == "lockstep.h") {
                if (rank[own] < rank["tool"])
                    bad("the umbrella has every layer; include the one you need")
                next
            }
            if (first == "lockstep") {
                first = substr(path, slash + 1)
                sub(/\.h$/, "", first)
                first = room(layer_of(first), "")
                if (!(first in rank)) {
                    bad("no layer is named " first)
                    next
                }
            } else if ((first == "train" || first == "fabric") && split(path, piece, "/") == 3) {
                first = room(first, piece[2])
                if (!(first in rank))
                    bad("no folder is named " first)
            } else if (!(first in rank)) {
                # <sys/mman.h> belongs to the system; a quoted name without a folder is beside the file itself.
                if (quoted && first != "")
                    bad("no layer is named " first)
                next
            }
            if (rank[first] > rank[own])
                bad(first " is above " own)
            # The command is a program like any other. Its uses of base are in one place, with the reason.
            if (own == "tool" && FILENAME ~ /^src/ && path !~ /^lockstep\// && first != "tool" &&
                !(first == "base" && FILENAME == "src/tool/tool.h"))
                bad("the command uses the public headers alone; helpers of base are included by tool.h")
            # Folders of the command are closed: main.c knows their commands by tool.h.
            if (own == "tool" && split(path, piece, "/") == 3 && index(FILENAME, "src/tool/" piece[2] "/") != 1)
                bad("only files of src/tool/" piece[2] " include its headers; others use tool.h")
            if (own == "run" && path ~ /^backend\/cpu\//)
                bad("the CPU backend is known by its table alone: backend/host.h")
        }
        END { exit found }')
}

check "every include stays in its layer or goes down" violations "$ROOT"

# The check itself can fail: a small tree with one bad include each time.
refuses() {
    rm -rf "$TMP/tree"
    mkdir -p "$TMP/tree/src/train/job" "$TMP/tree/src/base" "$TMP/tree/src/tool" "$TMP/tree/src/graph" "$TMP/tree/src/backend/ref" "$TMP/tree/src/run" "$TMP/tree/include/lockstep"
    echo '#include "base/status.h"' >"$TMP/tree/src/graph/good.c"
    echo '#include <stdio.h>' >"$TMP/tree/src/base/good.c"
    printf '#include "lockstep.h"\n#include "base/text.h"\n' >"$TMP/tree/src/tool/tool.h"
    echo '#include "tool/tool.h"' >"$TMP/tree/src/tool/good.c"
    echo '#include "lockstep/base.h"' >"$TMP/tree/include/lockstep.h"
    violations "$TMP/tree" || { echo "a good tree is refused"; return 1; }
    echo "$2" >"$TMP/tree/$1"
    if violations "$TMP/tree" >"$TMP/found"; then
        echo "$2 in $1 passes"
        return 1
    fi
    grep -q "^$1:" "$TMP/found"
}
check "an include that goes up is refused" refuses src/base/bad.c '#include "graph/graph.h"'
check "a public header of a higher layer is refused" refuses src/base/bad.h '#include "lockstep/graph.h"'
check "angle brackets are also checked" refuses src/graph/bad.c '  #  include <run/runs.h>'
check "the umbrella is refused below the command" refuses src/graph/bad.c '#include <lockstep.h>'
check "a path out of the layer is refused" refuses src/base/bad.c '#include "../graph/graph.h"'
check "a folder below a layer belongs to it" refuses src/backend/ref/bad.c '#include "run/runs.h"'
check "public headers have layers too" refuses include/lockstep/base.h '#include "lockstep/graph.h"'
check "runs know the CPU backend by its table alone" refuses src/run/bad.c '#include "backend/cpu/simd.h"'
check "the command has no way into the library" refuses src/tool/bad.c '#include "device/context.h"'
check "helpers of base come by tool.h" refuses src/tool/bad.c '#include "base/text.h"'
check "a folder of the command is closed to the others" refuses src/tool/bad.c '#include "tool/launch/launch.h"'
check "an unknown layer is refused" refuses src/base/bad.c '#include "misc/things.h"'
check "a higher folder of a layer is refused" refuses src/train/job/bad.c '#include "train/fit/evaluate.h"'

# ---- Symbols ----

# The table by which a context calls the layers above it: it adds their kinds of devices and connects to the cluster.
UPWARD="ls_library_hooks"
symbols() {
    command -v nm >/dev/null || return 1
    (cd "$LS_BUILD/obj/src" && find . -name '*.o' ! -path './tool/*' | sort | xargs nm -A) | awk -v layers="$LAYERS" -v upward="$UPWARD" '
        BEGIN {
            n = split(layers, name, " ")
            for (i = 1; i <= n; i++)
                rank[name[i]] = i
            n = split(upward, name, " ")
            for (i = 1; i <= n; i++)
                allowed[name[i]] = 1
        }
        {
            file = substr($1, 3, index($1, ":") - 3)
            split(file, part, "/")
            layer = part[1] == "train" || part[1] == "fabric" ? part[1] "/" part[2] : part[1]
            if (!(layer in rank))
                next # an object of a file that is no longer there
            kind = $(NF - 1); symbol = $NF
            if (kind ~ /^[TDBRVW]$/) {
                home[symbol] = layer
                where[symbol] = file
            } else if (kind == "U") {
                users[++count] = file; of[count] = layer; what[count] = symbol
            }
        }
        END {
            for (i = 1; i <= count; i++) {
                symbol = what[i]
                if (!(symbol in home) || rank[home[symbol]] <= rank[of[i]])
                    continue
                seen[symbol] = 1
                if (!(symbol in allowed)) {
                    print users[i] " uses " symbol " of " where[symbol]
                    found = 1
                }
            }
            for (symbol in allowed)
                if (!(symbol in seen)) {
                    print symbol " goes up no more: take it off the list"
                    found = 1
                }
            if (count < 1000) {
                print "only " count " uses of symbols were found"
                found = 1
            }
            exit found
        }'
}
case $SANITIZE in
'') check "symbols stay in their layer or go down" symbols ;;
*) skip "symbols stay in their layer or go down" "once, in the plain build" ;;
esac
finish
