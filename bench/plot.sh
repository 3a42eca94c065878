#!/usr/bin/env bash
# Draws the pictures of docs/performance-index.md from the figures of bench/report.sh --json. Needs gnuplot.
#
#   bench/plot.sh FIGURES.json      writes docs/growth.svg and docs/memory.svg
set -euo pipefail
figures=$(realpath "${1:?usage: bench/plot.sh FIGURES.json}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v gnuplot >/dev/null || { echo "gnuplot is missing: apt-get install gnuplot-nox" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# growth: blocks, nanoseconds. memory: ours beside the peers' published bytes (shared table of the workloads).
python3 - "$figures" "$scratch" <<'PYTHON'
import json, sys
figures = json.load(open(sys.argv[1]))
with open(sys.argv[2] + "/growth", "w") as file:
    for blocks in ("1e4", "3e4", "1e5", "3e5", "1e6", "3e6", "1e7"):
        file.write(f"{float(blocks):.0f} {figures[f'growth_{blocks}_blocks_ns']}\n")
rows = (("M-u 10M, per block", figures["bytes_per_block_single_holder"], 55.0, 47.9),
        ("M-s8 10M, per pair", figures["bytes_per_pair_8_holders"], 29.3, 29.8),
        ("W3b, per pair", figures["w3b_bytes_per_pair"], 33.9, 35.3))
with open(sys.argv[2] + "/memory", "w") as file:
    for row in rows:
        file.write('"%s" %g %g %g\n' % row)
PYTHON

gnuplot <<GNUPLOT
set terminal svg size 720,400 font "sans-serif,13" background "white"
set grid ytics lc rgb "#dddddd"
set yrange [0:]

set output "docs/growth.svg"
set title "A lookup of 64 blocks, one holder, by the size of the index"
set xlabel "blocks held"
set ylabel "ns per lookup"
set logscale x
set format x "10^{%L}"
unset key
plot "$scratch/growth" using 1:2 title "ns per lookup" with linespoints lw 2 pt 7 lc rgb "#0072b2"

set output "docs/memory.svg"
set title "Resident bytes"
unset xlabel
unset logscale x
set format x
set ylabel "bytes"
set key top right
set style data histogram
set style histogram cluster gap 1
set style fill solid
plot "$scratch/memory" using 2:xtic(1) title "this index" lc rgb "#0072b2", \
     "" using 3 title "Dynamo CRTC" lc rgb "#d55e00", "" using 4 title "smg ChainIndex" lc rgb "#999999"
GNUPLOT
