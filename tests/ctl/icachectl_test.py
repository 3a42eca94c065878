"""icachectl against the real daemon: every verb in its three formats, and what a terminal shows of the live ones.

    icachectl_test.py --bin FOLDER [--update] [unittest's arguments]

Goldens lie in golden/, one file a verb and format, with what differs from run to run (times, ages, addresses) replaced by
words. --update writes them anew; look at the difference before committing it.
"""

import fcntl
import http.server
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

import yaml

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path()
UPDATE = False
PATIENCE_S = 60

CHAIN = ",".join(f"{i:016x}" for i in range(0xA1, 0xA5))
POLICY = """apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: chat, namespace: team-a}
spec: {evictionTTL: 1000h, minimumMatchedTokens: 32}
"""
NEW_POLICY = POLICY.replace("minimumMatchedTokens: 32", "minimumMatchedTokens: 128, affinityRouting: Disabled")
BAD_POLICY = POLICY.replace("minimumMatchedTokens: 32", "minimumMatchedTokens: -1, colour: blue")
STATS = {"hit_rate": 0.5, "pressure": 0.25, "cache_memory_bytes": 32 << 30, "client_version": "0.1.0"}
UPDATES = [
    {"replica_id": "vllm-0", "retains_all": True, "stats": STATS,
     "prefixes": [{"block_hashes_u64": CHAIN.split(","), "tokens_per_block": 16}]},
    {"replica_id": "vllm-1", "stats": {"hit_rate": 0.25, "pressure": 0.5},
     "prefixes": [{"block_hashes_u64": CHAIN.split(",")[:2], "tokens_per_block": 16}]},
    {"replica_id": "vllm-2", "prefixes": [{"block_hashes": ["a1"], "block_token_counts": [16]}]},
]

VARYING = [
    (r"unix:\S+?/grpc\.sock", "ADDRESS"),
    (r'[^\s"]*/icachectl-test-\w+/', "FOLDER/"),
    (r"\d[\d,]* µs in the daemon", "N µs in the daemon"),
    (r'("?(?:lookup_latency_us|\w*_?time_us|last_observation_us|lease_us|stats_reported_us|last_seen_us|age_us|'
     r'stats_age_us|resident_bytes|index_bytes)"?: ?)[1-9]\d*', r"\1N"),
    (r"\d\d:\d\d:\d\d", "TIME"),
    (r"(index|resident) [\d.]+ \w+", r"\1 SIZE"),
    (r"\b\d+(ms|s|m\d+s)\b", "AGE"),
]


def normalized(text, output):
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    if output == "table":
        # Ages differ in width, so columns are where they may; that they are aligned is TableTest's to see.
        return text if "AGE" not in text else re.sub(r"(?<=\S) {2,}", "  ", re.sub(r" +\n", "\n", text))
    # Freshness falls between a report and a question by what two decimals do not show.
    return re.sub(r"(?<=: )\d+\.\d+(?=,?\n)", lambda number: f"{float(number[0]):.2f}", text)


ACCESS = """name: operators
roles: [admin]
tokens: [only-for-admins-0123456789]
"""


class Daemon:
    """An icached of its own, reachable by a socket in `folder`."""

    def __init__(self, folder, *flags, policy=POLICY):
        self.folder = pathlib.Path(folder)
        (self.folder / "policies.yaml").write_text(policy, encoding="utf-8")
        self.address = f"unix:{folder}/grpc.sock"
        self.process = subprocess.Popen(
            [BIN / "icached", "--grpc-address", self.address, "--http-address", "127.0.0.1:0",
             "--policy-path", self.folder / "policies.yaml", *flags],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.http_port = None
        for line in self.process.stderr:
            started = re.search(r" started .*http_port=(\d+)", line)
            if started:
                self.http_port = started[1]
                break

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def environment(daemon, **more):
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TERM": "xterm", "TZ": "UTC",
           "ICACHECTL_TENANT": "team-a", "ICACHECTL_MODEL": "qwen"}
    if daemon is not None:
        env |= {"ICACHECTL_ADDRESS": daemon.address, "ICACHECTL_HTTP_ADDRESS": f"127.0.0.1:{daemon.http_port}"}
    return env | more


class Page(http.server.BaseHTTPRequestHandler):
    """The answer of something that is no icached."""
    text = b"hello"

    def do_GET(self):  # pylint: disable=invalid-name
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


class CtlTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="icachectl-test-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def start(self, *flags, **options):
        daemon = Daemon(self.folder, *flags, **options)
        self.addCleanup(daemon.stop)
        self.assertIsNotNone(daemon.http_port, "the daemon does not start")
        return daemon

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return str(self.folder / name)

    def run_ctl(self, daemon, *arguments, stdin="", **env):
        """(exit status, standard output, standard error)"""
        done = subprocess.run([BIN / "icachectl", *arguments], input=stdin, capture_output=True, text=True,
                              timeout=PATIENCE_S, env=environment(daemon, **env), check=False)
        return done.returncode, done.stdout, done.stderr

    def report(self, daemon, updates=None):
        lines = "".join(json.dumps(update) + "\n" for update in updates or UPDATES)
        self.assertEqual(self.run_ctl(daemon, "report", "-", stdin=lines)[0], 0)

    def assert_golden(self, name, text):
        path = HERE / "golden" / name
        if UPDATE:
            path.write_text(text, encoding="utf-8")
        self.assertEqual(path.read_text(encoding="utf-8"), text, name)


class GoldenTest(CtlTest):
    """Each verb in each format."""

    def check(self, daemon, name, *arguments, status=0, stdin=""):
        for output in ("table", "json", "yaml"):
            got, text, problems = self.run_ctl(daemon, *arguments, "-o", output, stdin=stdin)
            self.assertEqual((got, problems), (status, ""), text)
            if output == "json" and name not in ("top", "watch"):
                json.loads(text)
            if output == "table":
                # "AGE" may be a character longer than the age in whose place it stands.
                widths = [len(line) - line.count("AGE") for line in normalized(text, "").splitlines()]
                self.assertLessEqual(max(widths, default=0), 80)
            self.assert_golden(f"{name}.{output}", normalized(text, output))

    def test_verbs(self):
        daemon = self.start("--ranker-tenant-hot-max-age", "1000h")  # so that recency, like freshness, stays what it is
        lines = "".join(json.dumps(update) + "\n" for update in UPDATES)
        self.check(daemon, "report", "report", "-", stdin=lines)
        self.check(daemon, "lookup", "lookup", "--hashes", CHAIN)
        self.check(daemon, "explain", "explain", "--hashes", CHAIN)
        self.check(daemon, "explain-tenant-hot", "explain", "--hash", "b1", "--prefix-tokens", "64")
        self.check(daemon, "explain-unknown", "explain", "--hashes", CHAIN, "--scheme", "sglang", status=1)
        self.check(daemon, "state", "state")
        self.check(daemon, "replicas", "replicas")
        self.check(daemon, "policies-show", "policies", "show")
        self.check(daemon, "doctor", "doctor", status=1)
        self.check(daemon, "watch", "watch", "--for", "100ms")
        self.check(daemon, "top", "top", "--count", "1", "--interval", "100ms")
        self.check(daemon, "evict", "evict", "--replica", "vllm-1", "00000000000000a2")
        self.check(daemon, "clear", "clear", "--replica", "vllm-2")
        self.check(daemon, "lookup-miss", "lookup", "--hashes", CHAIN, "--candidate", "nobody", status=1)

    def test_policy_files(self):
        daemon = self.start()
        new = self.write("new.yaml", NEW_POLICY)
        bad = self.write("bad.yaml", BAD_POLICY)
        old = str(self.folder / "policies.yaml")
        self.check(None, "policies-validate", "policies", "validate", old, bad, status=1)
        self.check(None, "policies-diff", "policies", "diff", old, new, status=1)
        self.check(daemon, "policies-diff-daemon", "policies", "diff", new, status=1)
        self.assertEqual(self.run_ctl(daemon, "policies", "diff", old)[:2], (0, "no difference\n"))

    def test_a_ttl_below_a_microsecond_is_not_the_default(self):
        tiny = self.write("tiny.yaml", POLICY.replace("1000h", "500ns"))
        daemon = self.start()
        status, text, _ = self.run_ctl(daemon, "policies", "diff", tiny, "-o", "json")
        self.assertEqual(status, 1)
        self.assertEqual(json.loads(text), [{"tenant": "team-a", "field": "evictionTTL", "old": "1000h", "new": "1us"}])

    def test_fingerprint(self):
        tokens = " ".join(map(str, range(1, 41)))
        self.check(None, "fingerprint", "fingerprint", "-", stdin=tokens)
        self.assertEqual(self.run_ctl(None, "fingerprint", "1,2,3")[0], 1)


class BehaviourTest(CtlTest):
    def test_what_evict_and_clear_say_is_so(self):
        daemon = self.start()
        self.report(daemon)
        self.run_ctl(daemon, "evict", "--replica", "vllm-1", "00000000000000a1")
        self.run_ctl(daemon, "clear", "--replica", "vllm-2")
        document = json.loads(self.run_ctl(daemon, "explain", "--hashes", CHAIN, "-o", "json")[1])
        self.assertEqual([match["replica_id"] for match in document["matches"]], ["vllm-0"])
        self.assertEqual(document["scope"]["replicas_present"], 2)

    def test_a_question_comes_from_files_and_standard_input(self):
        daemon = self.start()
        self.report(daemon)
        path = self.write("hashes", CHAIN.replace(",", "\n"))
        for arguments, stdin in ((["--hashes", "@" + path], ""), (["--hashes", "-"], CHAIN)):
            status, text, _ = self.run_ctl(daemon, "lookup", *arguments, stdin=stdin)
            self.assertEqual(status, 0)
            self.assertIn("PREFIX_MATCH", text)

    def test_settings_come_from_flag_then_environment_then_file(self):
        daemon = self.start()
        self.report(daemon)
        config = self.write("ctl.yaml", f"address: '{daemon.address}'\ntenant: of-the-file\noutput: json\n")
        env = {"ICACHECTL_CONFIG": config}
        status, text, _ = self.run_ctl(None, "explain", "--hash", "b1", **env)
        self.assertEqual(json.loads(text)["scope"]["tenant_known"], True, "the environment's tenant")
        status, text, _ = self.run_ctl(None, "explain", "--hash", "b1", "--tenant", "of-the-flag", **env)
        self.assertEqual((status, json.loads(text)["because"]), (1, 'no prefix is held for tenant "of-the-flag"'))

    def test_wrong_command_lines_exit_with_2(self):
        bad_config = self.write("ctl.yaml", "address: 1.2.3.4:5\nadress: typo\n")
        for arguments, said in ((["lookup", "--bogus"], "--bogus"), ([], "subcommand"),
                                (["polices"], "polices: no such verb"),
                                (["lookup", "--hash", "zz"], '"zz" is no block hash'),
                                (["lookup", "--hash", "a1", "--tokens", "1"], "at most 1 options"),
                                (["state", "--config", bad_config], "ctl.yaml:2:1: adress: unknown key"),
                                (["state", "--timeout", "soon"], "timeout: must be a duration"),
                                (["state", "-o", "xml"], "must be table, json or yaml"),
                                (["report", '{"replica_id": "r", "prefixes": [{"block_hashes": ["zz"]}]}'],
                                 "line 1: prefixes[0].block_hashes[0]: must be hexadecimal digits"),
                                (["report", bad_config], f"is no update but a file: it is read as @{bad_config}"),
                                (["report", ""], "no update is given"),
                                (["watch", "--type", "SUNRISE"], '"SUNRISE" is no event type')):
            status, _, problems = self.run_ctl(None, *arguments)
            self.assertEqual(status, 2, arguments)
            self.assertIn(said, problems)
        status, _, problems = self.run_ctl(None, "state", ICACHECTL_TENANT="")
        self.assertEqual(status, 2)
        self.assertIn("needs --tenant NAME (or ICACHECTL_TENANT, or tenant: in the config file)", problems)

    def test_files_that_say_nothing_usable_are_named(self):
        for name, text, flag in (("two-lines", "token-one\ntoken-two\n", "--token-file"), ("odd", "a\x01b", "--token-file"),
                                 ("empty-token", "\n", "--token-file"), ("empty-ca", "", "--tls-ca"),
                                 ("junk-ca", "junk", "--tls-ca"), ("missing/ca", None, "--tls-ca")):
            path = str(self.folder / name) if text is None else self.write(name, text)
            status, _, problems = self.run_ctl(None, "lookup", "--hash", "a1", flag, path)
            self.assertEqual(status, 2, name)
            self.assertIn(path, problems)
        junk = self.write("junk", "junk")
        status, _, problems = self.run_ctl(None, "lookup", "--hash", "a1", "--tls-ca", "system", "--tls-cert", junk,
                                           "--tls-key", junk)
        self.assertEqual((status, problems), (2, f"icachectl: {junk}: holds no PEM certificates, or broken ones\n"))

    def test_text_that_is_no_utf_8_is_not_sent(self):
        daemon = self.start()
        for arguments, field in ((["lookup", "--hash", "a1", "--tenant", b"\xff"], "tenant_id"),
                                 (["lookup", "--hash", "a1", "--candidate", b"a\xff"], "candidate_replica_ids"),
                                 (["explain", "--text", b"\xff"], "prompt_text"),
                                 (["state", "--model", b"\xff"], "model_id"),
                                 (["watch", "--tenant", b"\xff"], "tenant_id"),
                                 (["clear", "--replica", b"\xff"], "replica_id"),
                                 (["report", '{"replica_id": "r"}', "--model", b"\xff"], "model_id")):
            status, _, problems = self.run_ctl(daemon, *arguments)
            self.assertEqual((status, problems), (2, f"icachectl: {field}: must be UTF-8\n"), arguments)

    def test_output_that_cannot_be_written_exits_with_2(self):
        daemon = self.start()
        self.report(daemon)
        for arguments in (["lookup", "--hashes", CHAIN], ["state", "-o", "json"], ["doctor", "-o", "yaml"], ["--help"],
                          ["--version"], ["completion", "bash"], ["top", "--count", "1"], ["fingerprint", "1"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([BIN / "icachectl", *arguments], stdin=subprocess.DEVNULL, stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, env=environment(daemon),
                                      check=False)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("standard output cannot be written: No space left", done.stderr)

    def test_a_config_file_out_of_reach_is_as_good_as_none(self):
        (self.folder / "loop").symlink_to(self.folder / "loop")
        for folder in (self.folder / "loop", "x" * 5000):
            status, text, problems = self.run_ctl(None, "fingerprint", "--block-size", "1", "1",
                                                  XDG_CONFIG_HOME=str(folder))
            self.assertEqual(status, 0, problems)
            self.assertIn("HASH", text)

    def test_an_empty_value_is_a_value(self):
        daemon = self.start()
        self.report(daemon)
        for arguments, said in ((["evict", "--replica=", "a1"], "--replica: must not be empty"),
                                (["evict", "--replica=vllm-2", ""], "no block hash is given"),
                                (["clear", "--replica", ""], "--replica: must not be empty")):
            status, _, problems = self.run_ctl(daemon, *arguments)
            self.assertEqual(status, 2, arguments)
            self.assertIn(said, problems)
        self.assertEqual(self.run_ctl(daemon, "lookup", "--adapter=", "--hash", "a1")[0], 0)

    def test_an_unreachable_daemon_exits_with_3(self):
        for verb in (["lookup", "--hash", "a1"], ["state"], ["doctor"], ["watch"], ["report", '{"replica_id":"r"}']):
            status, _, problems = self.run_ctl(None, *verb, "--address", f"unix:{self.folder}/nobody")
            self.assertEqual(status, 3, verb)
            self.assertIn("Check that icached runs", problems)
        daemon = self.start()
        status, _, problems = self.run_ctl(daemon, "top", "--http-address", "127.0.0.1:1")
        self.assertEqual(status, 3)
        self.assertIn("serves HTTP there", problems)

    def test_a_daemon_that_does_not_answer_exits_with_3_in_time(self):
        daemon = self.start()
        daemon.process.send_signal(signal.SIGSTOP)
        for verb in (["lookup", "--hash", "a1"], ["report", '{"replica_id":"r"}'], ["doctor"], ["top"]):
            status, _, problems = self.run_ctl(daemon, *verb, "--timeout", "300ms")
            self.assertEqual(status, 3, (verb, problems))
        self.assertIn("timed out", problems)

    def test_names_from_the_network_cannot_steer_a_terminal(self):
        daemon = self.start()
        self.report(daemon, [{"replica_id": "\x1b[2Jevil", "prefixes": [{"prefix_hash": "a1", "token_count": 64}]}])
        _, text, _ = self.run_ctl(daemon, "explain", "--hash", "a1")
        self.assertIn("\\x1b[2Jevil", text)
        self.assertNotIn("\x1b", text)

    def test_any_name_makes_json_and_yaml(self):
        daemon = self.start()
        name = "a\x7f\x80\x85\x9b\u2028\ufeff\ufffe\uffff\u6a21\U0001f600"
        self.report(daemon, [{"replica_id": name, "prefixes": [{"prefix_hash": "a1", "token_count": 64}]}])
        text = self.run_ctl(daemon, "replicas", "-o", "json")[1]
        self.assertEqual(json.loads(text)["replicas"][0]["replica_id"], name)
        self.assertNotRegex(text, "[\x7f-\x9f\ufffe]")
        text = self.run_ctl(daemon, "replicas", "-o", "yaml")[1]
        self.assertEqual(yaml.safe_load(text)["replicas"][0]["replica_id"], name)

    def test_top_of_what_is_no_daemon_exits_with_3(self):
        daemon = self.start()
        with http.server.HTTPServer(("127.0.0.1", 0), Page) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            status, text, problems = self.run_ctl(daemon, "top", "--count", "1", "--http-address",
                                                  f"127.0.0.1:{other.server_port}")
            other.shutdown()
        self.assertEqual((status, text), (3, ""))
        self.assertIn("is no page of icached's metrics", problems)

    def test_top_bears_labels_that_are_no_utf_8(self):
        daemon = self.start()
        self.addCleanup(setattr, Page, "text", Page.text)
        Page.text = (b"inferencecache_build_info 1\ninferencecache_index_entries 1\ninferencecache_index_holdings NaN\n"
                     b'inferencecache_lookup_route_calls_total{reason_code="\xff"} 1\n')
        with http.server.HTTPServer(("127.0.0.1", 0), Page) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            status, text, problems = self.run_ctl(daemon, "top", "--count", "1", "--interval", "100ms", "-o", "json",
                                                  "--http-address", f"127.0.0.1:{other.server_port}")
            other.shutdown()
        self.assertEqual(status, 0, problems)
        figures = json.loads(text)
        self.assertEqual((figures["prefixes"], figures["entries"]), (1, 0))
        self.assertEqual(figures["calls_per_s_by_reason"], {"\ufffd": 0})

    def test_top_shows_the_metrics_to_whom_the_state_is_refused(self):
        access = self.write("access.yaml", ACCESS)
        token = self.write("token", "only-for-admins-0123456789")
        daemon = self.start("--access-path", access)
        status, text, problems = self.run_ctl(daemon, "top", "--count", "1", "--interval", "100ms", "-o", "json",
                                              "--token-file", token)
        self.assertEqual(status, 0, problems)
        self.assertIn("GetCacheState", json.loads(text)["replicas_problem"])

    def test_a_narrow_table_is_stacked_and_loses_nothing(self):
        daemon = self.start()
        self.report(daemon)
        wide = self.run_ctl(daemon, "state")[1]
        narrow = self.run_ctl(daemon, "state", COLUMNS="30")[1]
        self.assertLessEqual(max(map(len, narrow.splitlines())), 30)
        self.assertEqual(sorted(set(wide.split())), sorted(set(narrow.split())))

    def test_completion_scripts_offer_verbs_and_flags(self):
        for shell in ("bash", "zsh", "fish"):
            status, script, _ = self.run_ctl(None, "completion", shell)
            self.assertEqual(status, 0)
            for word in ("explain", "doctor", "validate", "hashes", "tls-ca"):
                self.assertIn(word, script)
        script = self.write("completion.bash", self.run_ctl(None, "completion", "bash")[1])
        for typed, offered in (("icachectl exp", "explain"), ("icachectl policies v", "validate"),
                               ("icachectl lookup --hashe", "--hashes"), ("icachectl doctor --tok", "--token-file")):
            words = typed.split()
            shell = (f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _icachectl; "
                     'printf "%s\\n" "${COMPREPLY[@]}"')
            done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
            self.assertIn(offered, done.stdout.split(), typed)


class DoctorTest(CtlTest):
    """A daemon, or an operator, that is wrong in one way."""

    def findings(self, daemon, *arguments, **env):
        status, text, problems = self.run_ctl(daemon, "doctor", *arguments, "-o", "json", **env)
        self.assertIn(status, (0, 1), problems)
        found = {finding["check"]: finding for finding in json.loads(text)}
        self.assertEqual(status, int(any(finding["health"] != "ok" for finding in found.values())))
        for finding in found.values():
            self.assertEqual(finding["mend"] == "", finding["health"] == "ok", finding)
        return found

    def healthy(self, tokens=None):
        blocks = CHAIN.split(",")
        return [{"replica_id": "vllm-0", "retains_all": True, "stats": STATS,
                 "prefixes": [tokens or {"block_hashes_u64": blocks, "tokens_per_block": 16}]}]

    def hashes_of(self, block_size):
        text = self.run_ctl(None, "fingerprint", ",".join(map(str, range(64))), "--block-size", str(block_size), "-o",
                            "json")[1]
        return {"block_hashes_u64": json.loads(text)["block_hashes"], "tokens_per_block": block_size}

    def test_all_is_well(self):
        daemon = self.start()
        self.report(daemon, self.healthy(self.hashes_of(16)))
        found = self.findings(daemon, "--tokens", ",".join(map(str, range(64))), "--block-size", "16")
        self.assertEqual({finding["health"] for finding in found.values()}, {"ok"})
        self.assertIn("the first block of these tokens is held", found["blocks"]["found"])

    def test_not_ready(self):
        daemon = self.start("--warm-up", "1h")
        self.assertEqual(self.findings(daemon)["health"]["health"], "bad")

    def test_nothing_reported(self):
        self.assertIn("holds no prefix at all", self.findings(self.start())["names"]["found"])

    def test_wrong_names(self):
        daemon = self.start()
        self.report(daemon)
        self.assertIn("held are: vllm", self.findings(daemon, "--scheme", "sglang")["hash scheme"]["found"])
        self.assertIn("held are: qwen", self.findings(daemon, "--model", "llama")["model"]["found"])
        self.assertIn("held are: team-a", self.findings(daemon, "--tenant", "team-b")["tenant"]["found"])

    def test_wrong_block_size(self):
        daemon = self.start("--model-block-size", "qwen=32")
        self.report(daemon, self.healthy(self.hashes_of(16)))
        tokens = ",".join(map(str, range(64)))
        blocks = self.findings(daemon, "--tokens", tokens)["blocks"]
        self.assertIn("hold the first 16 of these tokens as a block; the daemon hashes blocks of 32", blocks["found"])
        self.assertIn("models.qwen.block_size to 16", blocks["mend"])
        self.assertEqual(self.findings(daemon, "--block-size", "16")["blocks"]["health"], "bad")

    def test_tokens_that_nobody_holds(self):
        daemon = self.start()
        self.report(daemon, self.healthy())
        self.assertEqual(self.findings(daemon, "--tokens", "1 " * 64)["blocks"]["health"], "warning")

    def test_a_policy_in_the_way_does_not_pass_for_tokens_that_nobody_holds(self):
        for spec, reason in (("strategy: {requireChain: true}", "POLICY_REQUIRES_CHAIN"),
                             ("minimumPrefixTokens: 100000, affinityRouting: Disabled", "NO_HINT"),
                             ("strategy: {enableChainMatching: false}", "AFFINITY_HINT")):
            daemon = self.start(policy=POLICY.replace("minimumMatchedTokens: 32", spec))
            self.report(daemon, self.healthy(self.hashes_of(16)))
            found = self.findings(daemon, "--tokens", ",".join(map(str, range(64, 200))))
            self.assertIn("is not held, in any of the sizes", found["blocks"]["found"], spec)
            found = self.findings(daemon, "--tokens", ",".join(map(str, range(64))))
            self.assertIn("the first block of these tokens is held", found["blocks"]["found"], spec)
            if reason != "AFFINITY_HINT":
                self.assertIn(f"these tokens get {reason}: ", found["answer"]["found"])
            daemon.stop()

    def test_tokens_that_have_expired_and_tokens_shorter_than_a_block(self):
        daemon = self.start(policy=POLICY.replace("1000h", "1ms"))
        self.report(daemon, self.healthy(self.hashes_of(16)))
        tokens = ",".join(map(str, range(64)))
        blocks = self.findings(daemon, "--tokens", tokens)["blocks"]["found"]
        self.assertTrue("has expired" in blocks or "is not held" in blocks, blocks)
        self.assertIn("these 3 tokens are fewer", self.findings(daemon, "--tokens", "1,2,3")["blocks"]["found"])

    def test_more_replicas_than_are_looked_at(self):
        daemon = self.start()
        self.report(daemon, [self.healthy()[0] | {"replica_id": f"vllm-{i}"} for i in range(300)])
        self.assertEqual(self.findings(daemon)["leases"]["found"],
                         "256 of 256 replicas that were looked at, out of 300, have a lease in force")

    def test_engines_that_fell_silent(self):
        daemon = self.start(policy=POLICY.replace("1000h", "1ms"))
        self.report(daemon)
        found = self.findings(daemon)
        self.assertEqual((found["reports"]["health"], found["leases"]["health"], found["stats"]["health"]),
                         ("bad", "warning", "warning"))

    def test_no_lease_and_no_stats(self):
        daemon = self.start()
        self.report(daemon)
        found = self.findings(daemon)
        self.assertEqual(found["leases"]["found"], "1 of 3 replicas has a lease in force")
        self.assertEqual(found["stats"]["found"], "2 of 3 replicas have stats in force")


class Terminal:
    """icachectl in a pseudo-terminal."""

    def __init__(self, daemon, *arguments, rows=24, columns=80, **env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(BIN / "icachectl", ["icachectl", *arguments], environment(daemon, **env))
        self.resize(rows, columns)
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def read_until(self, condition):
        """Whether `condition(text so far)` comes true before the program ends or patience does."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition(self.text):
            ready, _, _ = select.select([self.fd], [], [], max(give_up_at - time.monotonic(), 0))
            if not ready:
                return False
            try:
                piece = os.read(self.fd, 65536)
            except OSError:  # the program has ended
                return condition(self.text)
            self.text += piece.decode()
        return True

    def screen(self):
        """The lines of the last screen that was drawn whole, without colours."""
        whole = self.text.rpartition("\x1b[J")[0]
        frame = whole.rpartition("\x1b[H")[2]
        return [re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", line) for line in frame.split("\r\n")]

    def end(self):
        self.read_until(lambda text: False)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


class TerminalTest(CtlTest):
    def top(self, daemon, *arguments, **options):
        terminal = Terminal(daemon, "top", "--interval", "100ms", *arguments, **options)
        self.assertTrue(terminal.read_until(lambda text: "\x1b[J" in text), terminal.text)
        return terminal

    def test_top_is_refreshed_in_place_and_quits_on_q(self):
        daemon = self.start()
        self.report(daemon)
        self.run_ctl(daemon, "lookup", "--hashes", CHAIN)
        terminal = self.top(daemon)
        self.assertTrue(terminal.read_until(lambda text: text.count("\x1b[J") >= 4))
        screen = terminal.screen()
        self.assertIn(f"icached {daemon.address}", screen[0])
        self.assertIn("lookups 0.0/s", screen[1])
        self.assertIn("prefixes 5   entries 7", screen[3])
        self.assertIn("PREFIX_MATCH        0.0", screen)
        self.assertTrue(any(line.startswith("vllm-0") for line in screen), screen)
        terminal.type("q")
        self.assertEqual(terminal.end(), 0)
        self.assertTrue(terminal.text.startswith("\x1b[?1049h\x1b[?25l"))
        self.assertTrue(terminal.text.endswith("\x1b[?25h\x1b[?1049l"), "the screen is put back")

    def test_top_fits_the_terminal_as_it_is_resized(self):
        daemon = self.start()
        self.report(daemon)
        terminal = self.top(daemon, rows=24, columns=80)
        terminal.resize(6, 40)
        self.assertTrue(terminal.read_until(lambda text: "more lines; q quits" in text))
        self.assertEqual(len(terminal.screen()), 6)
        self.assertLessEqual(max(map(len, terminal.screen())), 40)
        terminal.type("q")
        self.assertEqual(terminal.end(), 0)

    def test_top_shows_lookups_as_they_happen(self):
        daemon = self.start()
        self.report(daemon)
        terminal = self.top(daemon)
        busy = re.compile(r"lookups (?!0\.0)[\d.,]+/s")
        give_up_at = time.monotonic() + PATIENCE_S
        while not busy.search(terminal.text) and time.monotonic() < give_up_at:
            self.run_ctl(daemon, "lookup", "--hashes", CHAIN)
            drawn = terminal.text.count("\x1b[J")
            terminal.read_until(lambda text: text.count("\x1b[J") > drawn)
        self.assertRegex(terminal.text, busy)
        terminal.type("q")
        self.assertEqual(terminal.end(), 0)

    def test_top_says_when_the_daemon_goes_and_stays(self):
        daemon = self.start()
        terminal = self.top(daemon)
        daemon.process.send_signal(signal.SIGKILL)
        self.assertTrue(terminal.read_until(lambda text: "/metrics: " in text))
        terminal.type("q")
        self.assertEqual(terminal.end(), 0)

    def test_top_puts_the_screen_back_whichever_signal_ends_it(self):
        daemon = self.start()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            terminal = self.top(daemon)
            os.kill(terminal.pid, number)
            self.assertEqual(terminal.end(), 0, number)
            self.assertTrue(terminal.text.endswith("\x1b[?25h\x1b[?1049l"), number)

    def test_top_can_be_interrupted_before_it_has_a_screen(self):
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            terminal = Terminal(None, "top", "--timeout", "1h", "--http-address", f"127.0.0.1:{deaf.getsockname()[1]}")
            connection, _ = deaf.accept()
            connection.recv(1)
            terminal.type("\x03")
            self.assertEqual(terminal.end(), -signal.SIGINT)
            connection.close()

    def test_watch_waits_until_it_is_interrupted(self):
        daemon = self.start()
        terminal = Terminal(daemon, "watch")
        self.assertTrue(terminal.read_until(lambda text: "Ctrl-C ends it" in text))
        terminal.type("\x03")
        self.assertEqual(terminal.end(), 0)

    def test_watch_shows_events_as_they_happen(self):
        daemon = self.start()
        terminal = Terminal(daemon, "watch", "--type", "PREFIX_ADDED")
        self.assertTrue(terminal.read_until(lambda text: "Ctrl-C ends it" in text))
        self.report(daemon)
        self.assertTrue(terminal.read_until(lambda text: text.count("PREFIX_ADDED") == len(CHAIN.split(",")) + 3))
        first = CHAIN.split(",")[0]
        self.assertRegex(terminal.text, rf"\d\d:\d\d:\d\d\.\d\d\d  PREFIX_ADDED     team-a / qwen / vllm-0  {first}")
        self.assertIn("team-a / qwen / vllm-2  a1", terminal.text)
        self.assertNotIn("REPLICA_UPDATED", terminal.text)
        terminal.type("\x03")
        self.assertEqual(terminal.end(), 0)

    def test_watch_ends_with_the_daemon(self):
        daemon = self.start()
        terminal = Terminal(daemon, "watch")
        self.assertTrue(terminal.read_until(lambda text: "Ctrl-C ends it" in text))
        daemon.process.terminate()
        self.assertEqual(terminal.end(), 3)

    def test_colours_are_for_terminals_that_want_them(self):
        daemon = self.start()
        self.report(daemon)
        for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            terminal = Terminal(daemon, "lookup", "--hashes", CHAIN, **env)
            self.assertEqual(terminal.end(), 0)
            self.assertEqual("\x1b[32mPREFIX_MATCH" in terminal.text, coloured, env)


if __name__ == "__main__":
    at = sys.argv.index("--bin")
    BIN = pathlib.Path(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    if "--update" in sys.argv:
        sys.argv.remove("--update")
        UPDATE = True
    unittest.main()
