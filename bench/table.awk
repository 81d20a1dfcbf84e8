# Reads lines "VARIANT JSON" of bench/run.sh; writes the table of training rows, and all results as one JSON file.
# Set: json (its name), rounds, quick, date, cpu.

function value(key) {
    if (!match($0, "\"" key "\": (\"[^\"]*\"|[-+.0-9a-z]+)"))
        return ""
    text = substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4)
    gsub(/"/, "", text)
    return text
}

# Adds a result to both table and file. good: 1, 0, or "" if unknown.
function judge(good) {
    return good == "" ? "not measured" : good ? "within" : "short"
}

function record(row, what, measured, limit, good) {
    results = results (results == "" ? "" : ",\n") "    {\"row\": \"" row "\", \"what\": \"" what "\", \"value\": " \
        sprintf("%.4g", measured) ", \"limit\": " limit ", \"verdict\": \"" judge(good) "\"}"
}

function show(row, variant) {
    if (!((row, variant) in best))
        return "-"
    return row == "resnet50" ? sprintf("%.2f img/s", samples[row, variant] / best[row, variant]) \
                             : sprintf("%.2f s", best[row, variant])
}

# Speedup over `variant`; "" if one of them was not measured.
function times(row, variant) {
    return (row, "ours") in best && (row, variant) in best ? best[row, variant] / best[row, "ours"] : ""
}

function shown_times(ratio) {
    return ratio == "" ? "-" : sprintf("%.2fx", ratio)
}

function training(row,    tf, pt, better, good, limit, text) {
    tf = times(row, "tensorflow")
    pt = times(row, "pytorch")
    better = tf == "" ? pt : pt == "" || tf < pt ? tf : pt
    good = ""
    if (row == "cnn-4096") {
        text = "3.5x TensorFlow, 8x PyTorch"
        if (better != "")
            good = (tf == "" || tf >= 3.5) && (pt == "" || pt >= 8)
        if (tf != "")
            record(row, "times TensorFlow", tf, 3.5, tf >= 3.5)
        if (pt != "")
            record(row, "times PyTorch", pt, 8, pt >= 8)
    } else {
        limit = row == "cnn-256" ? 3.5 : row == "wide" ? 2 : 1.5
        text = limit "x the better" (row == "resnet50" ? " (aim: 2x)" : "")
        if (better != "") {
            good = better >= limit
            record(row, "times the better peer", better, limit, good)
        }
    }
    printf "%-9s %12s %12s %7s %12s %7s  %-27s  %s%s\n", row, show(row, "ours"), \
        show(row, "tensorflow"), shown_times(tf), show(row, "pytorch"), shown_times(pt), \
        text, judge(good), good != "" && (tf == "" || pt == "") ? " (one peer)" : ""
}

function cores(row,    ratio, limit) {
    ratio = times(row, "one-core")
    if (ratio == "")
        return
    limit = 0.9 * threads[row, "ours"]
    if (threads[row, "ours"] < 2) {
        print row ": needs two cores"
        return
    }
    printf "%s: 1 core %s, %d cores %s: %.2f times as fast (at least %.1f): %s\n", row, show(row, "one-core"), \
        threads[row, "ours"], show(row, "ours"), ratio, limit, judge(ratio >= limit)
    record(row, "times one core", ratio, limit, ratio >= limit)
}

function devices(row,    ratio) {
    ratio = times(row, "two-devices")
    if (ratio == "")
        return
    printf "%s: 1 device %s, 2 logical devices %s: %+.0f %% time (within 10 %%): %s\n", row, show(row, "ours"), \
        show(row, "two-devices"), 100 * (ratio - 1), judge(ratio <= 1.1)
    record(row, "time of two devices to one", ratio, 1.1, ratio <= 1.1)
}

function mirrored(row,    ratio) {
    if (!((row, "two-devices") in best && (row, "tensorflow-mirrored") in best))
        return
    ratio = best[row, "tensorflow-mirrored"] / best[row, "two-devices"]
    printf "%s: mirrored on 2 logical CPUs %s, TensorFlow's MirroredStrategy %s: %.2f times as fast (at least 2.5): %s\n", \
        row, show(row, "two-devices"), show(row, "tensorflow-mirrored"), ratio, judge(ratio >= 2.5)
    record(row, "times MirroredStrategy, two devices each", ratio, 2.5, ratio >= 2.5)
}

function beside(name, key) {
    if (key in best)
        printf "    compared with %s: first step after %.1f s, %.0f MB\n", name, first_step[key], memory[key]
}

{
    variant = $1
    row = value("row")
    key = row SUBSEP variant
    if (!(row in seen)) {
        seen[row] = 1
        order[++rows] = row
    }
    seconds = value("seconds") + 0
    if (!(key in best) || seconds < best[key])
        best[key] = seconds
    samples[key] = value("samples") + 0
    threads[key] = value("threads") + 0
    start = value("first_step") - value("unpacking")
    if (!(key in beyond) || start < beyond[key]) {
        beyond[key] = start
        first_step[key] = value("first_step") + 0
        unpacking[key] = value("unpacking") + 0
    }
    if (value("rss_mb") + 0 > memory[key] + 0)
        memory[key] = value("rss_mb") + 0
    runs = runs (runs == "" ? "" : ",\n") "    " substr($0, length(variant) + 2)
}

END {
    if (rows) {
        printf "\nOne epoch of training (resnet50: images per second), best of %d rounds%s\n", rounds, \
            quick ? "; QUICK: sizes are tiny, the figures mean nothing" : ""
        printf "%-9s %12s %12s %7s %12s %7s  %s\n", "row", "ours", "TensorFlow", "ratio", "PyTorch", "ratio", \
            "must reach"
    }
    for (i = 1; i <= rows; i++)
        training(order[i])
    print ""
    for (i = 1; i <= rows; i++)
        cores(order[i])
    for (i = 1; i <= rows; i++)
        devices(order[i])
    for (i = 1; i <= rows; i++)
        mirrored(order[i])
    key = "cnn-4096" SUBSEP "ours"
    if (key in best) {
        printf "cnn-4096: first step %.2f s after the process began, %.2f s of it unpacking: ", \
            first_step[key], unpacking[key]
        printf "%.2f s beyond (below 0.3): %s\n", beyond[key], judge(beyond[key] < 0.3)
        record("cnn-4096", "seconds to the first step beyond unpacking", beyond[key], 0.3, beyond[key] < 0.3)
        printf "cnn-4096: %.0f MB resident at most (below 300): %s\n", memory[key], judge(memory[key] < 300)
        record("cnn-4096", "resident MB", memory[key], 300, memory[key] < 300)
        beside("TensorFlow", "cnn-4096" SUBSEP "tensorflow")
        beside("PyTorch", "cnn-4096" SUBSEP "pytorch")
    }
    gsub(/[\\"]/, "", cpu)
    printf "{\n  \"date\": \"%s\",\n  \"cpu\": \"%s\",\n  \"rounds\": %d,\n  \"quick\": %s,\n", date, cpu, rounds, \
        quick ? "true" : "false" > json
    printf "  \"results\": [\n%s\n  ],\n  \"runs\": [\n%s\n  ]\n}\n", results, runs > json
    print "\nAll of it: " json
}
