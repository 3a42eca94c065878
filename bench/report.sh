#!/usr/bin/env bash
# Every figure of the benches: the index beside its anchors (index_report), and the figures of other benches that print
# JSON. Figures of one machine at one time; ratios are what to compare.
#
#   bench/report.sh [--json FILE] [--rounds N] [--trace FILE] [--merge FILE]...
#
#   --trace FILE   conversation_trace.jsonl of kvcache-ai/Mooncake 3b5a5941; without it the W1 rows are left out
#                  (default: $ICACHE_TRACE)
#   --merge FILE   a JSON object of figures that joins --json's (bench/rpc_cost.py --json writes one)
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/lib.sh"

json='' rounds=5 trace=${ICACHE_TRACE:-} merge=()
while (($# > 0)); do
  case $1 in
    --json) json=$2 ;;
    --rounds) rounds=$2 ;;
    --trace) trace=$2 ;;
    --merge) merge+=("$2") ;;
    *) echo "unknown flag $1" >&2; exit 2 ;;
  esac
  shift 2
done

build release index_report
figures=$scratch/figures.json
lscpu | grep -E '^(Model name|CPU\(s\)|L2|L3)'
build/release/bin/index_report --rounds "$rounds" --json "$figures" ${trace:+--trace "$trace"}
[[ -z $json ]] || python3 - "$json" "$figures" ${merge[@]+"${merge[@]}"} <<'PYTHON'
import json, sys
figures = {}
for path in sys.argv[2:]:
    with open(path) as file:
        figures.update(json.load(file))
with open(sys.argv[1], "w") as file:
    json.dump(figures, file, indent=2)
    file.write("\n")
PYTHON
