#!/bin/sh
# The job of docs/clusters.md on a real Slurm: a slurmctld and two slurmd of this machine's own, started here and ended at
# the end. The weights are those of one process.
. "$(dirname "$0")/../support/lib.sh"

PATH=$PATH:/usr/sbin:/sbin
for need in slurmctld slurmd srun sbatch; do
    command -v $need >/dev/null || { skip "Slurm" "$need is not installed (tools/deps.sh install starters)"; finish; }
done
[ "$(id -u)" = 0 ] || { skip "Slurm" "its daemons without munge need root"; finish; }

# ---- A cluster of two nodes on this machine ----

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
PORT=$((21000 + $$ % 10000))
HOST=$(hostname -s)
cd "$TMP"
mkdir state bin
ln -s "$LOCKSTEP" bin/lockstep
export PATH="$TMP/bin:$PATH" SLURM_CONF="$TMP/slurm.conf"
cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
StateSaveLocation=$TMP/state
SlurmdSpoolDir=$TMP/spool-%n
SlurmctldPidFile=$TMP/slurmctld.pid
SlurmdPidFile=$TMP/slurmd-%n.pid
NodeName=n1 NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((PORT + 1)) CPUs=8
NodeName=n2 NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((PORT + 2)) CPUs=8
PartitionName=all Nodes=n1,n2 Default=YES State=UP OverSubscribe=FORCE:4
END
slurmctld -D >slurmctld.log 2>&1 &
daemons=$!
for node in n1 n2; do
    slurmd -D -N $node >slurmd-$node.log 2>&1 &
    daemons="$daemons $!"
done
trap 'kill $daemons 2>/dev/null; wait; rm -rf "$TMP"' EXIT
ready() {
    for i in $(seq 150); do
        [ "$(timeout 5 sinfo -h -o '%t %D' 2>/dev/null)" != "idle 2" ] || return 0
        sleep 0.1
    done
    timeout 5 sinfo
    tail -n 5 "$TMP"/slurm*.log
    return 1
}
if ! ready >why 2>&1; then
    skip "Slurm" "its daemons do not run here: $(tail -n 1 why)"
    finish
fi

# ---- Jobs ----

DATA="--data synthetic --take 200 --epochs 2"
train() { timeout -k 5 100 "$LOCKSTEP" train mnist-cnn $DATA --verbose 0 "$@"; }
train >alone && grep sha256 alone >wanted || { not_ok "one process trains" "$(cat alone)"; finish; }
right() { grep sha256 "$1" | cmp - wanted || { cat "$1"; return 1; }; }

by_srun() {
    timeout -k 5 100 srun -N 1 -n 4 "$LOCKSTEP" train mnist-cnn $DATA --verbose 0 --strategy multi-worker >out 2>err || { cat err; return 1; }
    right out
}
check "srun -n 4" by_srun

# The batch script of the documentation, with other data: its name is a variable there.
batch() {
    awk '/^#!\/bin\/sh$/ { on = 1 } /^```/ { on = 0 } on' "$ROOT/docs/clusters.md" >job.sh
    [ -s job.sh ] || return 1
    DATA=$DATA timeout -k 5 100 sbatch --wait --output=batch.out job.sh >submitted 2>&1 || { cat submitted batch.out; return 1; }
    right batch.out
}
check "the batch script of docs/clusters.md" batch

without_srun() {
    timeout -k 5 60 sbatch --wait -n 2 --output=batch.out --wrap "lockstep train mnist-cnn $DATA --strategy multi-worker" >submitted 2>&1 && return 1
    grep -q 'start the workers with srun' batch.out || { cat batch.out; return 1; }
}
check "a batch script without srun gets an error that names srun" without_srun
# Two nodes: for all that Slurm says they are two machines, so they need a key and a place to meet.
two_nodes() {
    found=0
    timeout -k 5 60 srun -N 2 -n 3 "$LOCKSTEP" train mnist-cnn $DATA --verbose 0 --strategy multi-worker >out 2>err || found=$?
    [ $found != 0 ] && grep -q 'lockstep key' err || { echo "without a key: $found"; cat out err; return 1; }
    mkdir meet && "$LOCKSTEP" key key >/dev/null || return 1
    LOCKSTEP_KEY_FILE=$TMP/key LOCKSTEP_RENDEZVOUS=file://$TMP/meet timeout -k 5 100 srun -N 2 -n 3 "$LOCKSTEP" train mnist-cnn $DATA \
        --verbose 0 --strategy multi-worker >out 2>err || { cat err; return 1; }
    right out
}
check "srun -N 2, with a key" two_nodes
finish
