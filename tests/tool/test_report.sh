#!/bin/sh
# lockstep report: pages from good logs and from torn, hostile and huge ones; then, where Chromium is installed, what a
# browser makes of them, at a phone's width and others.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"
PAGE=$TMP/page.html

train() { "$LOCKSTEP" train mlp --data $SMALL --batch-size 16 --epochs 3 --verbose 0 "$@" >"$TMP/trained" 2>&1; }
train --log "$TMP/one.log"
train --log "$TMP/two.log" --devices 2

# report LOG...: a page is written.
report() { ends 0 "$LOCKSTEP" report "$@" -o "$PAGE" && [ ! -s "$TMP/err" ] && [ -s "$PAGE" ]; }
# has TEXT...: the page has each of these texts; lacks TEXT...: it has none of them.
has() { for text; do grep -q -F -e "$text" "$PAGE" || { echo "no '$text'"; return 1; }; done; }
lacks() { for text; do ! grep -q -i -F -e "$text" "$PAGE" || { echo "there is '$text'"; return 1; }; done; }

# ---- good logs ----

whole_page() {
    report "$TMP/one.log" || return 1
    has '<title>mlp' '>done<' '<figcaption>loss' '<figcaption>accuracy' '<figcaption>learning rate' 'validation' 'compute' \
        'joins and updates' 'sparse_categorical_crossentropy' 'cpu:0' 'canary' '101,770' \
        "$(sed -n 's/^weights sha256: //p' "$TMP/trained")" 'name="viewport"' 'prefers-color-scheme' '</html>' &&
        [ "$(grep -c '<tr><td>' "$PAGE")" = 3 ] && grep -q '^written: .*/page.html$' "$TMP/out"
}
check "a page has curves, times, identity and a row for each epoch" whole_page
check "a page needs nothing beside itself" lacks '<script' '<link' '<img' '<iframe' 'src=' 'href=' 'url(' '@import' 'http:' 'https:'
check "numbers of a page are numbers" lacks 'nan' 'inf"' '-inf' ' inf'

two_runs() {
    report "$TMP/one.log" "$TMP/two.log" && has 'one.log: training' 'two.log: validation' '2 runs' 'cpu:0, cpu:1' \
        'All of these runs ended with the same weights, bit for bit.'
}
check "several logs are drawn over each other" two_runs

device_times() {
    sed -e 's/,"devices":\[{[^]]*\]//' -e 's/^\({"event":"e[a-z]*"\)/\1,"devices":[{"name":"gpu:7","busy":3,"data":1,"joins":0.5,"idle":0.5},{"name":"\/job:localhost\/replica:0\/task:0\/device:GPU:8","busy":1,"idle":3,"other":1}]/' \
        "$TMP/one.log" >"$TMP/devices.log"
    report "$TMP/two.log" && has '<h2>Devices' 'cpu:0' 'cpu:1' &&
        report "$TMP/devices.log" && has '<h2>Devices' 'gpu:7' '<span>GPU:8</span>' 'width="60.000"' && report "$TMP/one.log"
}
check "time of each device" device_times

# ---- confusion matrices ----

confusion() {
    cp "$TMP/one.log" "$TMP/confusion.log"
    ends 0 "$LOCKSTEP" evaluate mlp --data $SMALL --confusion --log "$TMP/confusion.log" || return 1
    # The numbers of the event are those that the command prints.
    sed -n '/^confusion matrix/,$p' "$TMP/out" | sed '1,2d' | awk '{ $1 = ""; print }' | tr -s ' \n' ',' | sed 's/^,//; s/,$//' >"$TMP/printed"
    tail -1 "$TMP/confusion.log" | sed -n 's/.*"event":"confusion".*"matrix":\[\(.*\)\]}$/\1/p' | tr -d '[]' >"$TMP/logged"
    [ -s "$TMP/logged" ] && [ "$(cat "$TMP/logged")" = "$(cat "$TMP/printed")" ] || { echo "the log has another matrix"; return 1; }
    report "$TMP/confusion.log" && has '<h2>Confusion matrix' 'on the diagonal' '<path class="p0" opacity=' && report "$TMP/one.log" &&
        lacks 'Confusion matrix'
}
check "a confusion matrix is drawn" confusion
named_classes() {
    echo '{"event":"confusion","set":"test","classes":["<b>cat","dog"],"matrix":[[3,1],[0,5]]}' >"$TMP/named.log"
    report "$TMP/named.log" && has '&lt;b&gt;cat' 'dog' '9 samples, 88.89 %' '>3</text>' '>5</text>' 'an evaluation alone' && lacks '<b>cat'
}
check "classes have names, and a log may have a matrix alone" named_classes
bad_matrices() {
    for matrix in '[]' '[[1,2],[3]]' '[[1,-2],[3,4]]' '[[1,"a"],[3,4]]' '{"a":1}' '7' '[[1,2,3],[4,5,6]]'; do
        { cat "$TMP/one.log"; echo "{\"event\":\"confusion\",\"matrix\":$matrix}"; } >"$TMP/bad.log"
        report "$TMP/bad.log" && lacks 'Confusion matrix' || { echo "matrix $matrix"; return 1; }
    done
}
check "a wrong matrix is left out" bad_matrices
check "a log without a matrix" refuses 2 '--log needs --confusion' evaluate mlp --data $SMALL --log "$TMP/x.log"

# ---- logs that end early, or go on ----

# The first lines of the log, and a part of the next.
torn() {
    { head -"$1" "$TMP/one.log"; sed -n "$(($1 + 1))p" "$TMP/one.log" | head -c 20; } >"$TMP/torn.log"
    report "$TMP/torn.log" && has 'no end event: still running, or killed' 'The last line is incomplete'
}
check "a log whose last line is torn" torn 9
check "a log of steps without an epoch" torn 3

resumed() {
    # Killed in the third epoch; it went on from the end of the first, to another loss.
    { head -13 "$TMP/one.log"; sed -n '1s/"epochs_done":0,"steps_done":0/"epochs_done":1,"steps_done":5/p' "$TMP/one.log"
      sed '1,7d' "$TMP/one.log"; } >"$TMP/resumed.log"
    report "$TMP/resumed.log" && has 'was started 2 times' '>done<' '<span>in 3 epochs</span>' && [ "$(grep -c '<tr><td>' "$PAGE")" = 3 ]
}
check "a run that was killed and continued has each epoch once" resumed

checkpoints() {
    { cat "$TMP/one.log"; echo '{"event":"checkpoint","step":5,"seconds":1,"waited_seconds":0.25,"bytes":7}'
      echo '{"event":"checkpoint","step":9,"seconds":1,"waited_seconds":0.5,"error":"full"}'
      printf '%s\n' '{"event":"resume","step":5,"from":"x"}' '{"event":"of another version"}'; } >"$TMP/saved.log"
    report "$TMP/saved.log" && has '1 checkpoints were saved; training waited for them for 0.50 s; 1 could not be written' &&
        lacks 'could not be read'
}
check "checkpoints are shown, unknown events are not errors" checkpoints

failed() {
    sed '$s/"reason":"done"/"reason":"failed","error":"step 4: <b>\&/' "$TMP/one.log" | sed '$s/&/\&"/' >"$TMP/failed.log"
    report "$TMP/failed.log" && has 'state bad' 'step 4: &lt;b&gt;&amp;'
}
check "a failure is shown" failed

# ---- hostile logs ----

# A name that would be a tag, a value that is none, numbers at the ends of their range, keys given twice, deep nesting.
hostile() {
    BAD='</title><script>alert(1)</script><img src=x onerror=alert(2)>\" onload=\"alert(3)'
    {
        echo "{\"event\":\"start\",\"model\":\"$BAD\",\"version\":\"$BAD\",\"losses\":[{\"output\":\"$BAD\",\"loss\":\"$BAD\"},7],\"devices\":[\"$BAD\",{}],\"seed\":\"$BAD\",\"bit_class\":\"$BAD\"}"
        echo '{"event":"step","step":1,"loss":null,"learning_rate":null}'
        echo '{"event":"step","step":2,"loss":1e308,"learning_rate":1e-300}'
        echo '{"event":"step","step":3,"loss":-1e308,"learning_rate":-1}'
        echo '{"event":"step","step":9223372036854775807,"loss":"x"}'
        echo '{"event":"step","step":-3,"loss":1}'
        echo "{\"event\":\"epoch\",\"epoch\":1,\"seconds\":-5,\"samples\":9223372036854775807,\"loss\":null,\"$BAD\":0.5,\"val_$BAD\":1e308,\"devices\":[{\"name\":\"$BAD\",\"busy\":1e300},{\"busy\":1},3]}"
        echo "{\"event\":\"epoch\",\"epoch\":2,\"seconds\":1e300,\"steps\":\"many\",\"samples\":9223372036854775807,\"$BAD\":-1e308,\"\":1}"
        printf '%s\n' '{"event":"epoch"}' '{"event":7}' '[]' '' 'null' 'no JSON' '{"event":"step","event":"step"}'
        printf '{"event":"epoch","epoch":3,"a\\u001b[2J\\u202ez":2,"\377":1}\n'
        awk 'BEGIN { for (i = 0; i < 5000; i++) printf "["; print "" }'
        awk 'BEGIN { printf "{\"event\":\"epoch\",\"epoch\":4"; for (i = 0; i < 300; i++) printf ",\"m%d\":%d", i, i; print "}" }'
        awk 'BEGIN { printf "{\"event\":\"step\",\"x\":\""; for (i = 0; i < 30000; i++) printf "aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd"; print "\"}" }'
        echo "{\"event\":\"end\",\"reason\":\"$BAD\",\"error\":\"$BAD\",\"weights_sha256\":\"$BAD\"}"
    } >"$TMP/hostile.log"
    report "$TMP/hostile.log" || return 1
    has '&lt;script&gt;alert(1)' 'lines could not be read' 'Some names or devices are not shown' &&
        lacks '<script' '<img' '"alert' 'nan' && ! grep -q "$(printf '\033')" "$PAGE" && [ "$(wc -c <"$PAGE")" -lt 1000000 ]
}
check "names are shown, not interpreted; unreadable lines are counted" hostile
cp "$PAGE" "$TMP/hostile.html" 2>/dev/null || true

# Every length of a short log, and every byte of it spoilt: a page or one message, nothing else.
broken() {
    head -8 "$TMP/one.log" | cut -c 1-300 >"$TMP/short.log"
    bytes=$(wc -c <"$TMP/short.log")
    at=0
    while [ $at -lt "$bytes" ]; do
        head -c $at "$TMP/short.log" >"$TMP/broken.log"
        printf '\377' >>"$TMP/broken.log"
        tail -c +$((at + 2)) "$TMP/short.log" >>"$TMP/broken.log"
        for log in "$TMP/broken.log" "$TMP/cut.log"; do
            head -c $at "$TMP/short.log" >"$TMP/cut.log"
            status=0
            "$LOCKSTEP" report "$log" -o "$PAGE" >"$TMP/out" 2>"$TMP/err" || status=$?
            [ $status -le 1 ] && [ "$(wc -l <"$TMP/err")" = $status ] || { echo "at $at: $status"; cat "$TMP/err"; return 1; }
        done
        at=$((at + 53))
    done
}
check "a log that is cut or spoilt anywhere" broken

huge() {
    awk 'BEGIN {
        print "{\"event\":\"start\",\"model\":\"long\"}"
        for (e = 1; e <= 1500; e++) {
            for (s = 1; s <= 20; s++)
                printf "{\"event\":\"step\",\"step\":%d,\"loss\":%g,\"learning_rate\":0.1}\n", (e - 1) * 20 + s, 100 / (e * 20 + s)
            printf "{\"event\":\"epoch\",\"epoch\":%d,\"steps\":20,\"samples\":20,\"seconds\":1,\"loss\":%g}\n", e, 100 / (e * 20)
        }
    }' >"$TMP/huge.log"
    report "$TMP/huge.log" && has '30,000' 'mean of 32 steps' 'Of 1500 epochs, every 4th and the last are shown' '(logarithmic)' '<tr><td>1,500</td>' &&
        [ "$(wc -c <"$PAGE")" -lt 300000 ]
}
check "a huge log makes a page of bounded size, with its last epoch" huge

# ---- what is refused ----

: >"$TMP/empty.log"
echo 'hello' >"$TMP/other.log"
check "no LOG" refuses 2 'a LOG is needed' report -o "$PAGE"
check "no output" refuses 2 '--output is needed' report "$TMP/one.log"
check "an output with another ending" refuses 2 'ends in .html' report "$TMP/one.log" -o "$TMP/page.pdf"
cp "$TMP/one.log" "$TMP/log.html"
check "an output that is the log" refuses 2 'would overwrite' report "$TMP/log.html" -o "$TMP/../$(basename "$TMP")/log.html"
check "a missing log" refuses 1 "cannot open '.*none.log': No such file" report "$TMP/none.log" -o "$PAGE"
check "a log that is a folder" refuses 1 'Is a directory' report "$TMP" -o "$PAGE"
check "an empty log" refuses 1 'is empty' report "$TMP/empty.log" -o "$PAGE"
check "a file that is not a log" refuses 1 'is not a log of a training run' report "$TMP/one.log" "$TMP/other.log" -o "$PAGE"
check "nine logs" refuses 2 '9 logs: a page shows at most 8' report 1 2 3 4 5 6 7 8 9 -o "$PAGE"
check "a missing folder" refuses 1 'No such file' report "$TMP/one.log" -o "$TMP/none/page.html"

whole_or_not() {
    echo old >"$PAGE"
    (ulimit -f 1 && ends 1 "$LOCKSTEP" report "$TMP/one.log" -o "$PAGE") && grep -q 'File too large' "$TMP/err" &&
        [ "$(cat "$PAGE")" = old ] && [ -z "$(find "$TMP" -name 'page.html.*')" ]
}
check "a page that cannot be written leaves the old one" whole_or_not

# ---- in a browser ----

CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)

# browse FILE: the document, when its scripts have run; messages of the console in $TMP/console.
browse() {
    HOME=$TMP timeout -k 5 90 "$CHROMIUM" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
        --user-data-dir="$TMP/profile" --allow-file-access-from-files --enable-logging=stderr --virtual-time-budget=3000 \
        "$@" >"$TMP/dom" 2>"$TMP/console"
}

# The pages in frames of several widths; for each the widest thing that is in it and does not scroll by itself.
cat >"$TMP/frames.html" <<'END_OF_HTML'
<!DOCTYPE html><html><body><pre id="found"></pre><script>
const cases = [];
for (const page of ["good.html", "both.html", "hostile.html"])
  for (const width of [320, 360, 768, 1200])
    cases.push([page, width]);
let left = cases.length;
for (const [page, width] of cases) {
  const frame = document.createElement("iframe");
  frame.style = "width:" + width + "px;height:800px;border:0";
  frame.src = page;
  frame.onload = () => {
    const inside = frame.contentDocument, root = inside.documentElement;
    const beyond = [...inside.querySelectorAll("body *")].filter(e =>
      !e.closest(".scroll table") && e.getBoundingClientRect().right > width + 0.5).length;
    const strange = inside.querySelectorAll("script, img, iframe, link, object, [onload], [onerror]").length;
    const small = [...inside.querySelectorAll("svg.chart")].filter(e => e.getBoundingClientRect().height < 100).length;
    const charts = inside.querySelectorAll("svg.chart path.c0").length > 0;
    const good = root.scrollWidth <= width && beyond === 0 && strange === 0 && small === 0 && charts;
    found.textContent += page + " " + width + " " + (good ? "good" :
      "BAD: scrollWidth " + root.scrollWidth + ", beyond " + beyond + ", strange " + strange + ", small " + small) + " " +
      getComputedStyle(inside.body).backgroundColor + "\n";
    if (--left === 0)
      found.textContent += "all\n";
  };
  document.body.append(frame);
}
</script></body></html>
END_OF_HTML

in_frames() {
    report "$TMP/devices.log" && cp "$PAGE" "$TMP/good.html" && report "$TMP/one.log" "$TMP/two.log" && cp "$PAGE" "$TMP/both.html" || return 1
    browse --dump-dom "file://$TMP/frames.html" || { tail -5 "$TMP/console"; return 1; }
    sed -n '/<pre/,/<\/pre>/p' "$TMP/dom"
    grep -q -x all "$TMP/dom" && [ "$(grep -c ' good rgb(255, 255, 255)$' "$TMP/dom")" = 12 ] && ! grep 'CONSOLE' "$TMP/console"
}

dark() {
    browse --blink-settings=preferredColorScheme=0 --dump-dom "file://$TMP/frames.html" &&
        [ "$(grep -c ' good rgb(13, 17, 23)$' "$TMP/dom")" = 12 ]
}

# As it is on a phone: a picture, and no message of the console.
picture() {
    browse --hide-scrollbars --window-size=500,900 --screenshot="$TMP/phone.png" "file://$TMP/good.html" &&
        ! grep 'CONSOLE' "$TMP/console" && [ "$(wc -c <"$TMP/phone.png")" -gt 20000 ]
}

if [ -z "$CHROMIUM" ]; then
    skip "pages in a browser" "Chromium is not installed (tools/deps.sh install browser)"
elif ! browse --dump-dom "data:text/html,<p>here</p>" || ! grep -q here "$TMP/dom"; then
    skip "pages in a browser" "Chromium does not run here: $(tail -1 "$TMP/console" | head -c 200)"
else
    check "in Chromium nothing is wider than a phone, nothing foreign is in it, the console is silent" in_frames
    check "in Chromium a dark page is dark" dark
    check "in Chromium a picture at a phone's width" picture
fi
finish
