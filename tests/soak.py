#!/usr/bin/env python3
"""icached under mixed load for a while: its memory must stay flat.

    soak.py --bin DIR [--seconds N]     DIR holds icached, icache-load and icachectl

Lookups come as calls and on streams, updates store and evict blocks, events clear a replica, observers watch; the index is
full, so it evicts all the time. The resident memory is sampled throughout, and in the second half its mean may be at most
a few per cent above what it was before: one burst of buffers moves it little, what grows steadily moves it much.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time

MAX_GROWTH = 1.03
SAMPLES = 200
# More entries than --max-entries holds: 1,024 chains of 64 blocks on 4 replicas each, twice, and what is ingested beside.
DAEMON = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--log-format", "text", "--max-entries",
          "200000", "--sweep-interval", "1s"]
UPDATE = '{"replica_id": "cleared", "prefixes": [{"block_hashes_u64": ["00000000000000a1"], "tokens_per_block": 16}]}'
NAMES = ["--tenant", "soak", "--model", "soak"]


class Soak:
    def __init__(self, folder):
        self.folder = folder
        self.running = []
        self.daemon = self.start("icached", *DAEMON, stderr=subprocess.PIPE, text=True)
        for line in self.daemon.stderr:
            if match := re.search(r"grpc_listening address=(\S+)", line):
                self.address = match[1]
            if " ready" in line:
                threading.Thread(target=self.daemon.stderr.read, daemon=True).start()  # it logs on
                return
        sys.exit("icached did not start")

    def start(self, program, *arguments, **options):
        process = subprocess.Popen([self.folder / program, *arguments], **{"stdout": subprocess.DEVNULL, **options})
        self.running.append(process)
        return process

    def load(self, seconds, *flags):
        return self.start("icache-load", "bench", "--address", self.address, "--duration", f"{seconds}s", *flags)

    def ctl(self, *arguments):
        subprocess.run([self.folder / "icachectl", *arguments, *NAMES, "--address", self.address], check=True,
                       stdout=subprocess.DEVNULL, timeout=60)

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def run(self, seconds):
        """Samples of the resident memory, in KiB, at even intervals."""
        loads = [self.load(seconds, "--ingest-blocks-per-s", "20000"),
                 self.load(seconds, "--mode", "stream", "--seed", "2")]
        self.start("icachectl", "watch", "--address", self.address, "-o", "json")
        samples = []
        begin = time.monotonic()
        for i in range(SAMPLES):
            self.ctl("report", UPDATE)
            self.ctl("clear", "--replica", "cleared")
            time.sleep(max(begin + (i + 1) * seconds / SAMPLES - time.monotonic(), 0))
            samples.append(self.resident_kib())
        for load in loads:
            if load.wait(600) != 0:
                sys.exit("a load failed")
        return samples

    def stop(self):
        for process in reversed(self.running):
            process.terminate()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=1200)
    arguments = parser.parse_args()

    soak = Soak(arguments.bin)
    try:
        samples = soak.run(arguments.seconds)
    finally:
        soak.stop()
    # The first quarter fills the index and the allocator's caches.
    before = statistics.mean(samples[SAMPLES // 4:SAMPLES // 2])
    after = statistics.mean(samples[SAMPLES // 2:])
    print(f"resident: {before:,.0f} KiB in the second quarter of {arguments.seconds} s, {after:,.0f} KiB in the second half "
          f"({(after / before - 1) * 100:+.1f} %)")
    if after > before * MAX_GROWTH:
        sys.exit(f"the memory grew: {samples}")


if __name__ == "__main__":
    main()
