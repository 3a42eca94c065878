#!/usr/bin/env python3
"""What a LookupRoute costs the server over the wire, beside a server of the same shape that answers every call alike,
and how long icached takes from its start until it is ready.

Server CPU is what /proc/PID/stat says, so the load generator and the neighbours do not count; the two servers take turns
and the medians of all rounds are compared. Needs the release preset's icached, icache-load and constant_answer.

    bench/rpc_cost.py [--rounds N] [--requests N] [--json FILE]
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build", "release", "bin")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

# 64 blocks, 8 holders: the row of the table that the design sets.
WORKLOAD = ["--blocks", "64", "--chains", "1024", "--replicas", "16", "--holders", "8", "--hit-ratio", "1"]
ROWS = 8
# (name, flags of icache-load bench)
SHAPES = [
    ("unary, packed", ["--mode", "unary", "--packed"]),
    ("unary, bytes", ["--mode", "unary", "--bytes"]),
    ("stream, packed", ["--mode", "stream", "--packed"]),
]


def start_icached():
    """The process, its gRPC address, and the milliseconds until it was ready."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [os.path.join(BIN, "icached"), "--config", os.path.join(ROOT, "config", "icached.yaml"), "--grpc-address",
         "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--log-format", "text"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    address = None
    for line in process.stdout:
        if match := re.search(r"grpc_listening address=(\S+)", line):
            address = match.group(1)
        if " ready" in line:
            return process, address, (time.monotonic() - begin) * 1000
    sys.exit("icached did not start")


def start_constant():
    process = subprocess.Popen([os.path.join(BIN, "constant_answer"), "127.0.0.1:0", str(ROWS)],
                               stdout=subprocess.PIPE, text=True)
    return process, f"127.0.0.1:{process.stdout.readline().split()[1]}"


def stop(process):
    process.terminate()
    process.communicate()


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def bench(address, flags):
    command = [os.path.join(BIN, "icache-load"), "bench", "--address", address, "--connections", "4", "--concurrency",
               "16", "--warm-up", "0s", "--json", "-"] + WORKLOAD + flags
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def microseconds_per_call(pid, address, shape, requests):
    before = cpu_seconds(pid)
    result = bench(address, shape + ["--no-fill", "--requests", str(requests)])
    used = cpu_seconds(pid) - before
    if result["errors"] or result["lookups"] != requests:
        sys.exit(f"not every lookup was answered: {result['errors']}")
    return used * 1e6 / requests


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=50_000, help="of each round, shape and server")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()

    starts = []
    for _ in range(arguments.rounds + 2):
        process, _, milliseconds = start_icached()
        starts.append(milliseconds)
        stop(process)

    icached, address, _ = start_icached()
    constant, constant_address = start_constant()
    ours = {name: [] for name, _ in SHAPES}
    theirs = {name: [] for name, _ in SHAPES}
    try:
        bench(address, ["--requests", "1000", "--keep"])
        bench(constant_address, ["--requests", "1000", "--no-fill"])
        for _ in range(arguments.rounds):
            for name, flags in SHAPES:
                ours[name].append(microseconds_per_call(icached.pid, address, flags, arguments.requests))
                theirs[name].append(microseconds_per_call(constant.pid, constant_address, flags, arguments.requests))
    finally:
        stop(icached)
        stop(constant)

    print(f"server CPU of a LookupRoute, 64 blocks, {ROWS} holders; µs, median (least-most) of {arguments.rounds} rounds")
    print(f"{'':16} {'icached':>20} {'constant answer':>20} {'ratio':>6}")
    result = {}
    for name, _ in SHAPES:
        ratio = statistics.median(ours[name]) / statistics.median(theirs[name])
        print(f"{name:16} {spread(ours[name]):>20} {spread(theirs[name]):>20} {ratio:6.2f}")
        key = re.sub(r"\W+", "_", name)
        result[f"rpc_cpu_us_{key}"] = statistics.median(ours[name])
        result[f"rpc_cpu_us_constant_{key}"] = statistics.median(theirs[name])
        result[f"rpc_cpu_vs_constant_{key}"] = ratio
    result["rpc_cpu_vs_constant"] = result["rpc_cpu_vs_constant_unary_packed"]
    result["start_to_ready_ms"] = statistics.median(starts)
    print(f"start to ready: {spread(starts)} ms")
    if arguments.json:
        with open(arguments.json, "w", encoding="ascii") as file:
            json.dump(result, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
