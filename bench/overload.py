#!/usr/bin/env python3
"""What load at several times the capacity does to the lookups that are admitted.

icached gets one lookup thread. A closed loop finds how many lookups a second it answers; then open loops ask at a tenth of
that, and at --times as much. For each: how many a second it answered, the mean time of a lookup inside the
handler, which is what the histogram of /metrics grew by (lookups that are shed are in no histogram), and the share that was
shed. Every chain is held by thousands of replicas, of which the tenant's policy lets none into the answer: so a lookup costs
the daemon far more than the load generator, which has to outrun it on the same machine.

    bench/overload.py [--rounds N] [--seconds N] [--times X] [--in-flight N]
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build", "release", "bin")
WORKLOAD = ["--blocks", "8", "--chains", "16", "--replicas", "4096", "--holders", "4000", "--hit-ratio", "1", "--tenant",
            "bench"]
POLICY = """apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: nothing-is-enough, namespace: bench}
spec: {minimumMatchedTokens: 2147483647, affinityRouting: Disabled}
"""
SERIES = {
    "seconds": "inferencecache_lookup_route_latency_seconds_sum",
    "admitted": "inferencecache_lookup_route_latency_seconds_count",
    "shed": "inferencecache_lookups_shed_total",
}


class Daemon:
    def __init__(self, folder, in_flight):
        policy = os.path.join(folder, "policy.yaml")
        with open(policy, "w", encoding="ascii") as file:
            file.write(POLICY)
        self.process = subprocess.Popen(
            [os.path.join(BIN, "icached"), "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0",
             "--log-format", "text", "--grpc-lookup-threads", "1", "--limits-max-lookups-in-flight", str(in_flight),
             "--policy-path", policy],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if match := re.search(r"grpc_listening address=(\S+)", line):
                self.address = match[1]
            if match := re.search(r"http_port=(\d+)", line):
                self.page = f"http://127.0.0.1:{match[1]}/metrics"
            if " ready" in line:
                return
        sys.exit("icached did not start")

    def stop(self):
        self.process.terminate()
        self.process.communicate()

    def counts(self):
        """Each of SERIES, over all labels."""
        with urllib.request.urlopen(self.page) as answer:
            page = answer.read().decode()
        return {name: sum(float(value) for value in re.findall(rf"^{series}(?:{{.*}})? (\S+)$", page, re.MULTILINE))
                for name, series in SERIES.items()}

    def bench(self, flags):
        return json.loads(subprocess.run(
            [os.path.join(BIN, "icache-load"), "bench", "--address", self.address, "--connections", "8", "--json", "-",
             *WORKLOAD, *flags], check=True, stdout=subprocess.PIPE).stdout)

    def measure(self, rate, seconds):
        """(lookups answered a second, mean µs of those admitted, share of those shed)"""
        before = self.counts()
        done = self.bench(["--no-fill", "--warm-up", "0s", "--duration", f"{seconds}s", "--concurrency", "16384", "--rate",
                           str(int(rate))])
        grown = {name: value - before[name] for name, value in self.counts().items()}
        answered = grown["admitted"] + grown["shed"]
        return answered / done["seconds"], grown["seconds"] * 1e6 / grown["admitted"], grown["shed"] / answered


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--times", type=float, default=3, help="how many times the capacity is asked for")
    parser.add_argument("--in-flight", type=int, default=1024, help="limits.max_lookups_in_flight")
    arguments = parser.parse_args()

    folder = tempfile.TemporaryDirectory()
    daemon = Daemon(folder.name, arguments.in_flight)
    rows = []
    try:
        daemon.bench(["--requests", "1000", "--keep"])
        for _ in range(arguments.rounds):
            capacity = daemon.bench(["--no-fill", "--duration", f"{arguments.seconds}s",
                                     "--concurrency", "64"])["lookups_per_s"]
            rows.append((capacity, daemon.measure(capacity / 10, arguments.seconds),
                         daemon.measure(capacity * arguments.times, arguments.seconds)))
    finally:
        daemon.stop()

    def spread(values, digits=0):
        return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"

    print(f"one lookup thread, at most {arguments.in_flight} in flight; median (least-most) of {arguments.rounds} rounds")
    print(f"capacity                {spread([row[0] for row in rows])} lookups/s")
    for name, at in (("a tenth of it", 1), (f"{arguments.times:g} times it", 2)):
        print(f"{name:24}{spread([row[at][0] for row in rows])} answered/s, "
              f"{spread([row[at][1] for row in rows])} µs in the handler, "
              f"{spread([row[at][2] * 100 for row in rows], 1)} % shed")
    print(f"time in the handler, overloaded to idle: "
          f"{spread([row[2][1] / row[1][1] for row in rows], 1)}")


if __name__ == "__main__":
    main()
