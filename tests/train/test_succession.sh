#!/bin/bash
# The chief of three workers is killed (kill -9) at several moments, and its successor, too: the log, the checkpoints, the
# weights, the CSV file and what is printed are those of one undisturbed process. A chief that was only stopped
# writes nothing when it wakes.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
EPOCHS=6 STEPS=20 # of an epoch
arguments=(train "$TMP/model.json" --data synthetic:12x12x1,classes=4,count=400 --batch-size 20 --verbose 2 --log log
    --log-hash --checkpoint ck --csv csv --save w.safetensors --save-best b.safetensors --tensorboard tb)

small_model 4 >"$TMP/model.json"

# One process: the expected results, and those of one more epoch after it.
mkdir "$TMP/one" && cd "$TMP/one"
timeout 60 "$LOCKSTEP" "${arguments[@]}" --epochs $EPOCHS >out 2>err
cp -r "$TMP/one" "$TMP/more" && cd "$TMP/more"
timeout 60 "$LOCKSTEP" "${arguments[@]}" --epochs $((EPOCHS + 1)) --resume >out 2>err

# begin NAME ARGUMENTS...: three workers in the background, in a folder of that name
begin() {
    local name=$1 rank
    shift
    if [ "$name" = resumed ]; then cp -r "$TMP/one" "$TMP/$name"; else mkdir "$TMP/$name"; fi
    cd "$TMP/$name" || return 1
    [ "$name" != apart ] || mkdir d rank1 rank2
    jobs=()
    for rank in 0 1 2; do
        LOCKSTEP_RANK=$rank LOCKSTEP_WORLD_SIZE=3 LOCKSTEP_RENDEZVOUS=succession-$name-$$ timeout -s KILL 60 \
            sh -c 'echo $$ >pid.new && mv pid.new pid$LOCKSTEP_RANK && [ ! -d rank$LOCKSTEP_RANK ] || cd rank$LOCKSTEP_RANK
                exec "$0" "$@"' "$LOCKSTEP" "${arguments[@]}" --epochs $EPOCHS "$@" >out$rank 2>err$rank &
        jobs[rank]=$!
        until [ -e pid$rank ]; do sleep 0.01; done
    done
}

# until_log TEXT [LOG]: it has it
until_log() {
    until_text "$1" "${2:-log}" $(<pid0) $(<pid1)
}

signal() { kill "-$1" "$(<pid$2)"; }

# ends RANK...: these end with status 0
ends() {
    local rank
    for rank in "$@"; do
        wait "${jobs[rank]}" || { echo "worker $rank ended with $?"; cat err$rank; return 1; }
    done
}

# What of a log does not depend on the clock. Checkpoints are written beside training: the order of their lines varies.
timeless() {
    sed -e '/"event":"checkpoint"/d' -e 's/,"time":"[^"]*"//' -e 's/,"validation_seconds".*//' \
        -e 's/,"seconds":.*,"weights_sha256"/,"weights_sha256"/' "$1"
}

# same RANKS: files and lines are those of one process; this number of workers took over
same() {
    local one=$TMP/one more=$TMP/more
    timeless $one/log >wanted && timeless log >found && diff wanted found || { echo "other logs"; return 1; }
    cmp $one/csv csv && cmp $one/w.safetensors w.safetensors && cmp $one/b.safetensors b.safetensors || return 1
    cat out0 out1 out2 >out
    [ "$(grep -c 'because the old chief is lost' out)" = "$1" ] || { echo "not $1 successors"; cat out err?; return 1; }
    grep -h -e '^test loss' -e '^weights sha256' -e '^saved' out >found
    grep -h -e '^test loss' -e '^weights sha256' -e '^saved' $one/out >wanted
    cmp wanted found || { cat out; return 1; }
    [ "$(readlink ck/last)" = "$(readlink $one/ck/last)" ] && [ "$(readlink ck/best)" = "$(readlink $one/ck/best)" ] &&
        cmp ck/best/model.safetensors $one/ck/best/model.safetensors || { ls -l ck $one/ck; return 1; }
    [ "$(cat tb/train/* | grep -a -o epoch_loss | wc -l)" -ge $EPOCHS ] || { echo "TensorBoard lacks epochs"; return 1; }
    ! find . -name '*.lease' -o -name .lease -o -name '*.tmp' -o -name '*.old' -o -name '*.damaged' | grep . || return 1
    timeout 60 "$LOCKSTEP" "${arguments[@]}" --epochs $((EPOCHS + 1)) --resume >out 2>err || { cat err; return 1; }
    cmp $more/w.safetensors w.safetensors && cmp $more/csv csv || { echo "another end after --resume"; return 1; }
}

# killed MOMENT PATTERN ARGUMENTS...: worker 0, when MOMENT PATTERN returns. Where it was too late, and no worker had to take
# over, once more.
killed() {
    local moment=$1 pattern=$2 try
    for try in 1 2 3 4 5; do
        begin "$moment-${pattern//[^a-z0-9]/}-$try" "${@:3}" || return 1
        $moment "$pattern"
        signal KILL 0 2>/dev/null
        ends 1 2 || return 1
        ! grep -q 'because the old chief is lost' out1 || break
    done
    same 1
}
check "early" killed until_log '"event"'
check "in the middle of an epoch" killed until_log '"step":27,'
check "in validation" killed until_log "\"step\":$STEPS,"
check "between epochs" killed until_log '"event":"epoch","epoch":2'
check "at the end" killed until_log "\"step\":$((EPOCHS * STEPS))," # or in what follows the last step

# until_saving NAME: a checkpoint of that name is being written
until_saving() {
    local name=$1 chief=$(<pid0)
    until set -- ck/.$name.*.new.tmp && [ -e "$1" ]; do
        kill -0 "$chief" 2>/dev/null || return 0
    done
}
check "while it writes a checkpoint" killed until_saving 'step-*[3-9]?' --save-every 1 --keep 2
check "while it writes the best one" killed until_saving "$(readlink "$TMP/one/ck/best")"

killed_twice() {
    begin twice || return 1
    until_log '"step":15,'
    signal KILL 0
    until_log '"step":55,'
    signal KILL 1
    ends 2 && same 2
}
check "the successor as well" killed_twice

# In a run that goes on from a checkpoint, and with its log.
killed_resumed() {
    begin resumed --resume --epochs $((EPOCHS + 3)) || return 1
    until_log "\"step\":$((EPOCHS * STEPS + 30)),"
    signal KILL 0
    ends 1 2 || return 1
    cp -r "$TMP/one" "$TMP/more3" && cd "$TMP/more3" || return 1
    timeout 60 "$LOCKSTEP" "${arguments[@]}" --epochs $((EPOCHS + 3)) --resume >out 2>err || { cat err; return 1; }
    timeless log >wanted && timeless ../resumed/log | diff wanted - && cmp csv ../resumed/csv &&
        cmp w.safetensors ../resumed/w.safetensors && grep -q 'because the old chief is lost' ../resumed/out1
}
check "in a run that was resumed" killed_resumed

# A chief that is stopped is lost after the limit of silence; when it wakes it writes nothing.
stopped() {
    export LOCKSTEP_SILENCE_LIMIT=1
    begin stopped || return 1
    unset LOCKSTEP_SILENCE_LIMIT
    until_log '"step":30,'
    signal STOP 0
    ends 1 2 || return 1
    cp log log.before && cp -r ck ck.before && cp w.safetensors w.before && signal CONT 0 || return 1
    ! wait "${jobs[0]}" || { echo "the chief that was stopped ended well"; return 1; }
    cmp log log.before && diff -r ck ck.before && cmp w.safetensors w.before && ! grep sha256 out0 && same 1
}
check "a chief that was only stopped writes nothing more" stopped

# Folders that are not shared: each worker is in one of its own, and that of the log is not even there. The successor says
# so, once for each, and training goes on; what can be written is.
apart() {
    begin apart --log d/log --checkpoint d/ck || return 1
    until_log '"step":30,' d/log
    signal KILL 0
    ends 1 2 && cd rank1 || return 1
    [ "$(grep -c "cannot continue the log: cannot open the log 'd/log'.*all workers can reach" ../err1)" = 1 ] &&
        [ "$(grep -c "worker 1, which writes the checkpoints from now on, cannot see earlier ones in 'd/ck'" ../err1)" = 1 ] || { cat ../err1; return 1; }
    [ "$(readlink d/ck/last)" = "$(readlink "$TMP/one/ck/last")" ] && cmp csv "$TMP/one/csv" &&
        cmp w.safetensors "$TMP/one/w.safetensors" && ! [ -e ../rank2/csv ] && ! [ -s ../out2 ]
}
check "folders that are not shared are reported" apart

finish
