"""Holds the tree to rules.py, and rules.py to its word: each rule finds what it is meant to find."""

import pathlib
import tempfile
import unittest

import rules

TREE = pathlib.Path(__file__).resolve().parents[2]


class RuleTest(unittest.TestCase):
    """Runs a rule over the tree, or over a small tree made for one test."""

    maxDiff = None  # show every problem

    def assert_holds(self, rule):
        self.assertEqual([], list(rule(TREE)))

    def assert_finds(self, rule, files, *problems):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            self.assertEqual(list(problems), list(rule(pathlib.Path(folder))))


class ArrowsTest(RuleTest):
    def test_the_tree_keeps_its_arrows(self):
        self.assert_holds(rules.arrow_problems)

    def test_rooms_below_abseil_and_the_standard_library_are_free(self):
        self.assert_finds(rules.arrow_problems, {
            "src/routing/router.cc": '#include "icache/index/prefix_index.h"\n#include "routing/steps.h"\n'
                                     '#include <vector>\n#include "absl/time/time.h"\n',
            "src/routing/CMakeLists.txt": "icache_room(NAME routing SRCS router.cc DEPS icache::base absl::time)\n"})

    def test_no_room_looks_up(self):
        self.assert_finds(rules.arrow_problems, {"include/icache/index/a.h": '#include "icache/routing/router.h"\n'},
                          "include/icache/index/a.h:1: index may not use routing")

    def test_adapters_do_not_know_one_another(self):
        self.assert_finds(rules.arrow_problems, {"src/rpc/a.cc": '\n#include "icache/telemetry/metrics.h"\n'},
                          "src/rpc/a.cc:2: rpc may not use telemetry")

    def test_private_headers_stay_in_their_room(self):
        self.assert_finds(rules.arrow_problems, {"src/routing/a.cc": '#include "index/partition.h"\n'},
                          "src/routing/a.cc:1: index/partition.h is private to index")

    def test_core_knows_no_foreign_library_file_or_socket(self):
        self.assert_finds(rules.arrow_problems,
                          {"src/policy/a.cc": "#include <yaml-cpp/yaml.h>\n#include <fstream>\n#include <sys/socket.h>\n"},
                          "src/policy/a.cc:1: policy may not include yaml-cpp/yaml.h",
                          "src/policy/a.cc:2: policy is core and does no I/O: <fstream>",
                          "src/policy/a.cc:3: policy is core: <sys/socket.h>")

    def test_an_adapter_has_its_own_library_alone(self):
        self.assert_finds(rules.arrow_problems,
                          {"src/http/a.cc": "#include <microhttpd.h>\n#include <prometheus/registry.h>\n"},
                          "src/http/a.cc:2: http may not include prometheus/registry.h")

    def test_linking_follows_the_same_arrows(self):
        self.assert_finds(rules.arrow_problems,
                          {"src/index/CMakeLists.txt": "icache_room(NAME index SRCS a.cc DEPS icache::policy\n"
                                                       "  PRIVATE_DEPS spdlog::spdlog)\n"},
                          "src/index/CMakeLists.txt: index may not link icache::policy",
                          "src/index/CMakeLists.txt: index may not link spdlog::spdlog")

    def test_every_source_is_in_a_room(self):
        self.assert_finds(rules.arrow_problems, {"src/cellar/a.cc": ""}, "src/cellar/a.cc: belongs to no room")


class PathsTest(RuleTest):
    def test_the_tree_names_no_machine(self):
        self.assert_holds(rules.path_problems)

    def test_somebodys_folder_is_found(self):
        home = "/" + "home/ada"  # in two pieces, or this very file would be found
        self.assert_finds(rules.path_problems, {"a.sh": f"cd {home}/src\n", "build/log": home},
                          f"a.sh:1: machine path {home}")


class DocumentsTest(RuleTest):
    def test_every_link_resolves(self):
        self.assert_holds(rules.link_problems)

    def test_links_to_files_headings_and_the_outside_are_followed(self):
        self.assert_finds(rules.link_problems, {
            "README.md": "# Up and running\n[a](docs/a.md#one-two) [b](#up-and-running) [c](https://example.org) `docs/a.md`\n",
            "docs/a.md": "## One: two\n[up](../README.md)\n"})

    def test_dead_links_are_found(self):
        self.assert_finds(rules.link_problems, {"a.md": "[x](b.md)\n[y](#no)\n`src/c.cc`\n```\n./deploy/d.sh\n```\n"},
                          "a.md:1: link to b.md, which is not there",
                          "a.md:2: link to #no, which has no such heading",
                          "a.md:3: src/c.cc is not there",
                          "a.md:5: ./deploy/d.sh is not there")

    def test_sources_name_documents_that_exist(self):
        self.assert_finds(rules.link_problems, {"src/a.h": "// docs/b.md tells how.\n"},
                          "src/a.h:1: docs/b.md is not there")



class LogsTest(RuleTest):
    LOGGING = {"src/telemetry/logging.cc": 'Payload payload(json_, LogSeverity::kWarn, "lost");\n'
                                           'payload.Add({"count", dropped_});\n'}
    LOST = "## Both programs\n| `lost` | warn | `count` | x | |\n"

    def test_every_event_is_documented_as_it_is(self):
        self.assert_holds(rules.log_problems)

    def test_rows_and_events_that_lack_one_another_are_found(self):
        self.assert_finds(rules.log_problems, self.LOGGING | {
            "src/daemon/a.cc": '\nlogger_->Info(a ? "yes" : "no", {{"x", 1},\n {"y", 2}});\nlogger->Warn("told");\n',
            "src/bridge/a.cc": 'logger_->Info("yes");\nlogger_->Info(name);\nlogger_->Warn("yes");\n',
            "docs/logs.md": self.LOST + "## icached\n| `yes` | info | `x`, `y` | it is | |\n| `told` | info | | | |\n"
                                        "## icache-bridge\n| `never` | info | | | |\n"},
            "src/bridge/a.cc:2: the event of a log line must be a literal",
            "src/bridge/a.cc:3: yes is logged otherwise at src/bridge/a.cc:1",
            "docs/logs.md:5: told is logged at level warn with no fields",
            "docs/logs.md:7: icache-bridge never logs never",
            "src/bridge/a.cc:1: docs/logs.md has no row for yes of icache-bridge",
            "src/daemon/a.cc:2: docs/logs.md has no row for no of icached")


if __name__ == "__main__":
    unittest.main()
