# Reads lines "VARIANT JSON" of bench/workers.sh; writes the tables, with the goal of each result.

function value(key) {
    if (!match($0, "\"" key "\": (\"[^\"]*\"|[-+.0-9a-z]+)"))
        return ""
    text = substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4)
    gsub(/"/, "", text)
    return text
}

function judge(ratio, limit) {
    return ratio == "" ? "not measured" : ratio >= limit ? "within" : "short"
}

# Speedup of `one` over `other`; "" if one of them was not measured.
function times(row, one, other) {
    return (row, one) in best && (row, other) in best ? best[row, other] / best[row, one] : ""
}

function line(row, what, ratio, limit) {
    printf "%-22s %-46s %8s  at least %-5s %s\n", row, what, ratio == "" ? "-" : sprintf("%.2f", ratio), limit, \
        judge(ratio, limit)
}

function smaller(a, b) {
    return a == "" ? b : b == "" ? a : a < b ? a : b
}

function training(row,    ddp, last, tf) {
    ddp = times(row, "workers", "pytorch-ddp")
    last = times(row, "workers", "pytorch-ddp-channels-last")
    tf = times(row, "workers", "tensorflow-workers")
    if (row == "resnet50") {
        line(row, "times DDP in its default layout", ddp, 1.4)
        line(row, "times DDP with channels_last", last, 1)
    } else
        line(row, "times the best peer", smaller(smaller(ddp, last), tf), 3)
    line(row, "two workers to one process with two cores", times(row, "workers", "process"), 0.91)
}

{
    row = value("row")
    if (row == "allreduce")
        row = sprintf("%.4g M floats, %d", value("floats") / 1e6, value("workers"))
    kind[row] = value("row")
    if (!(row in seen)) {
        seen[row] = 1
        order[++rows] = row
    }
    if (!($1 in known)) {
        known[$1] = 1
        variants[++count] = $1
    }
    seconds = value("seconds") + 0
    if (seconds > 0 && (!((row, $1) in best) || seconds < best[row, $1]))
        best[row, $1] = seconds
}

END {
    printf "\nSeconds, best of %d rounds%s\n", rounds, quick ? "; QUICK: sizes are tiny, the results mean nothing" : ""
    for (i = 1; i <= rows; i++) {
        printf "%-22s", order[i]
        for (k = 1; k <= count; k++)
            if ((order[i], variants[k]) in best)
                printf "  %s %.6g", variants[k], best[order[i], variants[k]]
        print ""
    }
    print ""
    for (i = 1; i <= rows; i++)
        if (kind[order[i]] == "allreduce")
            line(order[i], "times the faster of gloo and Open MPI", \
                smaller(times(order[i], "ours", "gloo"), times(order[i], "ours", "openmpi")), 1)
        else
            training(order[i])
}
