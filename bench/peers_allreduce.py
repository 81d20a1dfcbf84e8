"""All-reduce alone in other libraries, beside bench_allreduce: peers_allreduce.py gloo|mpi WORKERS [ROUNDS].

Processes of this machine, a core each. gloo is PyTorch's; mpi is Open MPI, started by mpirun, through its shared library.
Prints a line of JSON for each size: the best round's seconds.
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

SIZES = (12800, 5000000, 25000000)


def take_core(rank):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def measure(name, rank, workers, rounds, vector, reduce):
    """vector(count, value) makes a vector; reduce(vector) replaces it by the sum."""
    for count in SIZES:
        best = None
        for turn in range(-1, rounds * (100 if count < 100000 else 1)):
            one = vector(count, rank + 1)
            begun = time.perf_counter()
            reduce(one)
            seconds = time.perf_counter() - begun
            if turn >= 0:
                best = seconds if best is None else min(best, seconds)
        assert one[0] == one[count - 1] == workers * (workers + 1) / 2
        if rank == 0:
            print(json.dumps({"row": "allreduce", "framework": name, "workers": workers, "floats": count,
                              "seconds": round(best, 6)}), flush=True)


def gloo(rank, workers, rounds, meeting):
    import torch

    take_core(rank)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=workers)
    measure("gloo", rank, workers, rounds, lambda count, value: torch.full((count,), float(value)),
            torch.distributed.all_reduce)
    torch.distributed.destroy_process_group()


def mpi(rounds):
    """Open MPI's handles are addresses of these variables; MPI_IN_PLACE is 1."""
    import numpy

    rank, workers = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    take_core(rank)
    library = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    real, total, world = (ctypes.addressof(ctypes.c_char.in_dll(library, name))
                          for name in ("ompi_mpi_float", "ompi_mpi_op_sum", "ompi_mpi_comm_world"))
    library.MPI_Allreduce.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int] + [ctypes.c_void_p] * 3
    library.MPI_Init(None, None)
    measure("openmpi", rank, workers, rounds, lambda count, value: numpy.full(count, value, numpy.float32),
            lambda one: library.MPI_Allreduce(1, one.ctypes.data, one.size, real, total, world))
    library.MPI_Finalize()


def main():
    name, workers, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 5
    if name == "gloo" and len(sys.argv) > 4:
        gloo(int(sys.argv[4]), workers, rounds, sys.argv[5])
    elif name == "gloo":
        with tempfile.TemporaryDirectory() as folder:
            children = [subprocess.Popen([sys.executable, __file__, "gloo", str(workers), str(rounds), str(rank),
                                          folder + "/meeting"]) for rank in range(workers)]
            sys.exit(max(abs(child.wait()) for child in children))
    elif "OMPI_COMM_WORLD_RANK" in os.environ:
        mpi(rounds)
    else:
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        os.execvp("mpirun", ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(workers), sys.executable,
                             *sys.argv])


main()
