"""What must hold for the tree itself, whatever the code does.

Each rule is a generator over a tree: it yields one line per problem, `file:line: what is wrong`, and nothing when all is
well. docs/architecture.md tells why the arrows are as they are.
"""

import os
import pathlib
import re

# The rooms of src/, bottom up, and the rooms that each may use. What is not listed here does not exist.
CORE = {
    "base": set(),
    "access": {"base"},
    "fingerprint": {"base"},
    "index": {"base"},
    "events": {"base", "index"},
    "policy": {"base", "index"},
    "ranking": {"base", "index", "policy"},
    "routing": {"base", "fingerprint", "index", "policy", "ranking"},
    "engine": {"base", "fingerprint"},  # the bridge's core
}
NET = {"net": {"base"}}  # sockets, for the servers
ADAPTERS = {
    "config": set(CORE),
    "telemetry": set(CORE),
    "wire": set(CORE) | set(NET),
    "rpc": set(CORE) | set(NET),
    "http": set(CORE) | set(NET),
    "scrape": set(),
}
PROGRAMS = {
    "daemon": set(CORE) | set(NET) | set(ADAPTERS),
    "main": set(CORE) | set(ADAPTERS) | {"daemon"},  # src/main.cc
    # Of daemon, how it waits and ends.
    "bridge": {"base", "engine", "config", "telemetry", "http", "scrape", "wire", "daemon"},
    # Another client, which also judges policy files.
    "ctl": {"base", "fingerprint", "policy", "config", "scrape", "wire"},
    "load": {"base", "fingerprint", "wire"},  # a client: it knows the wire and how to hash, not the server
}
ROOMS = CORE | NET | ADAPTERS | PROGRAMS

# Foreign libraries by the room that may use them: prefixes of include paths and of CMake targets. Abseil and the
# threads library are everybody's, and outside core so is fmt.
WIRE = ("grpc/", "grpcpp/", "google/protobuf/", "inferencecache/")
WIRE_TARGETS = ("gRPC::", "protobuf::", "icache::proto")
FOREIGN_INCLUDES = {
    "base": ("malloc.h",),  # how large a block is that is to be wiped
    "access": ("openssl/",),
    "fingerprint": ("xxhash.h",),
    "index": ("emmintrin.h", "malloc.h"),  # vector comparisons, memory that goes back to the kernel
    "routing": ("openssl/sha.h", "openssl/evp.h"),
    "config": ("yaml-cpp/", "CLI/", "openssl/"),
    "wire": WIRE + ("openssl/ssl.h",),
    "rpc": WIRE,
    "telemetry": ("prometheus/", "spdlog/"),
    "http": ("microhttpd.h", "gnutls/"),
    "scrape": ("curl/curl.h",),
    "daemon": ("spdlog/", "nlohmann/"),
    "load": WIRE + ("CLI/", "nlohmann/"),
    "ctl": WIRE + ("CLI/", "nlohmann/"),
    "engine": ("xxhash.h", "msgpack.hpp", "openssl/evp.h"),
    "bridge": WIRE + ("zmq.hpp",),
}
FOREIGN_TARGETS = {
    "access": ("PkgConfig::CRYPTO",),
    "fingerprint": ("PkgConfig::XXHASH",),
    "routing": ("PkgConfig::CRYPTO",),
    "config": ("yaml-cpp", "CLI11::", "PkgConfig::CRYPTO", "PkgConfig::SSL"),
    "wire": WIRE_TARGETS + ("PkgConfig::SSL",),
    "rpc": WIRE_TARGETS,
    "telemetry": ("prometheus-cpp::", "spdlog::"),
    "http": ("PkgConfig::MICROHTTPD", "PkgConfig::GNUTLS"),
    "scrape": ("CURL::",),
    "daemon": ("spdlog::", "nlohmann_json::"),
    "load": WIRE_TARGETS + ("CLI11::", "nlohmann_json::"),
    "ctl": WIRE_TARGETS + ("CLI11::", "nlohmann_json::"),
    "engine": ("PkgConfig::CRYPTO", "PkgConfig::XXHASH", "msgpackc-cxx"),
    "bridge": WIRE_TARGETS + ("PkgConfig::ZEROMQ",),
}

# Core opens no file and no socket. Of the C library's own headers it needs only these.
CORE_FORBIDS = {"cstdio", "filesystem", "fstream", "iostream"}
CORE_C_HEADERS = {"pthread.h", "sys/mman.h", "arpa/inet.h"}  # of the last, how addresses are written
C_HEADERS = re.compile(r"(arpa|net|netinet|sys)/|(dirent|errno|execinfo|fcntl|limits|netdb|poll|pthread|sched|signal|termios|time|unistd)\.h$")

INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')
CMAKE_ROOM = re.compile(r"icache_room\s*\(([^)]*?)(?:PRECOMPILE[^)]*)?\)")
CMAKE_WORDS = {"NAME", "SRCS", "DEPS", "PRIVATE_DEPS"}

SKIPPED_FOLDERS = {".git", ".cache", "build", "__pycache__"}
DATA_FOLDERS = ("tests/data/", "tests/conformance/", "tests/fuzz/corpus/")  # kept as they came

MACHINE_PATH = re.compile(r"(?<![\w.<}*-])/(home|root|Users|work|mnt|srv|data)/[\w.-]+")

LOG_CALL = re.compile(r'\blog(?:ger)?_?(?:->|\.)(Debug|Info|Warn|Error)\(((?:"(?:\\.|[^"\\])*"|[^;"])*)\);')

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE_SPAN = re.compile(r"`([^`\n]+)`")
TREE_PATH = re.compile(r"(\./)?((?:\.ci|bench|cmake|config|deploy|docs|include|proto|src|tests)/[\w./-]*[\w/])")
DOCUMENT = re.compile(r"\bdocs/[\w/-]+\.md\b")
HEADING = re.compile(r"#{1,6}\s+(.*)")
FENCE = re.compile(r"\s*```")


def files(root, suffixes=()):
    """The files of the tree below `root` with one of the suffixes, or all of them; in order of their names."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        for name in sorted(names):
            if not suffixes or name.endswith(suffixes):
                yield pathlib.Path(folder, name)


def lines(path, root):
    """(place, line) for each line of a file; nothing for one that is not text."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        yield f"{path.relative_to(root)}:{number}", line


def arrow_problems(root):
    """Includes and CMake dependencies that point anywhere but down, or at a library that is another room's."""
    for top in ("src", "include/icache"):
        for path in files(root / top, (".h", ".cc")):
            room = path.relative_to(root / top).parts[0].removesuffix(".cc")
            if room not in ROOMS:
                yield f"{path.relative_to(root)}: belongs to no room"
                continue
            for place, line in lines(path, root):
                include = INCLUDE.match(line)
                problem = include and include_problem(room, include[1])
                if problem:
                    yield f"{place}: {problem}"
    for path in files(root / "src", ("CMakeLists.txt",)):
        room = path.parent.name
        text = path.read_text(encoding="utf-8")
        for call in CMAKE_ROOM.findall(text):
            for word in re.sub(r"#.*", "", call).split():
                problem = word not in CMAKE_WORDS and target_problem(room, word)
                if problem:
                    yield f"{path.relative_to(root)}: {problem}"


def include_problem(room, name):
    first = name.split("/")[0]
    if first == "icache" or (first in ROOMS and "/" in name):
        other = name.split("/")[1] if first == "icache" else first
        if other == room:
            return None
        if first != "icache":
            return f"{name} is private to {other}"
        return None if other in ROOMS[room] else f"{room} may not use {other}"
    if first == "absl" or (first == "fmt" and room not in CORE):
        return None
    if "/" not in name and "." not in name:
        return f"{room} is core and does no I/O: <{name}>" if room in CORE and name in CORE_FORBIDS else None
    if C_HEADERS.match(name):
        return f"{room} is core: <{name}>" if room in CORE and name not in CORE_C_HEADERS else None
    return None if name.startswith(FOREIGN_INCLUDES.get(room, ())) else f"{room} may not include {name}"


def target_problem(room, word):
    if word.startswith(FOREIGN_TARGETS.get(room, ())):
        return None
    if word.startswith("icache::"):
        other = word.removeprefix("icache::")
        return None if other in ROOMS.get(room, ()) else f"{room} may not link {word}"
    if word.startswith(("absl::", "Threads::")) or word == room or word.endswith((".cc", ".h")):
        return None
    if word.startswith("fmt::") and room not in CORE:
        return None
    return f"{room} may not link {word}"


def path_problems(root):
    """Absolute paths of somebody's machine: the tree's own, or below a folder where people keep their work."""
    own = f"{root}/"
    for path in files(root):
        if str(path.relative_to(root)).startswith(DATA_FOLDERS):
            continue
        for place, line in lines(path, root):
            found = MACHINE_PATH.search(line)
            if found or own in line:
                yield f"{place}: machine path {found[0] if found else own}"


def link_problems(root):
    """Links of documents and paths of the tree that they name in code, and documents that sources name, which are not
    there."""
    for path in files(root, (".h", ".cc", ".cmake", ".txt", ".proto", ".yaml", ".sh")):
        for place, line in lines(path, root):
            for name in DOCUMENT.findall(line):
                if not (root / name).exists():
                    yield f"{place}: {name} is not there"
    for path in files(root, (".md",)):
        if str(path.relative_to(root)).startswith(DATA_FOLDERS[1:]):
            continue
        fenced = False
        for place, line in lines(path, root):
            if FENCE.match(line):
                fenced = not fenced
                continue
            if not fenced:
                for target in LINK.findall(line):
                    problem = link_problem(path, target)
                    if problem:
                        yield f"{place}: {problem}"
            for code in [line] if fenced else CODE_SPAN.findall(line):
                for word in code.split():
                    named = TREE_PATH.fullmatch(word)
                    if named and not (root / named[2]).exists():
                        yield f"{place}: {word} is not there"


def link_problem(document, target):
    if re.match(r"[a-z]+:", target):
        return None  # the outside world
    name, _, anchor = target.partition("#")
    path = (document.parent / name).resolve() if name else document
    if not path.exists():
        return f"link to {name}, which is not there"
    if anchor and anchor not in anchors(path):
        return f"link to {target}, which has no such heading"
    return None


def log_problems(root):
    """Log events whose row in docs/logs.md is missing, or has another level or other fields than the sources; and rows of
    events that do not exist."""
    logged = {}
    for path in files(root / "src", (".h", ".cc")):
        program = "icache-bridge" if path.is_relative_to(root / "src/bridge") else "icached"
        if path == root / "src/daemon/ending.cc":
            program = "Both programs"
        text = path.read_text(encoding="utf-8")
        for call in LOG_CALL.finditer(text):
            arguments, place = call[2], f"{path.relative_to(root)}:{text.count(chr(10), 0, call.start()) + 1}"
            names = re.findall(r'"(\w+)"', arguments.partition("{")[0])
            fields = re.findall(r'\{\s*"(\w+)",', arguments)
            if not names:
                yield f"{place}: the event of a log line must be a literal"
            for name in names:
                first = logged.setdefault((program, name), (place, call[1].lower(), fields))
                if first[1:] != (call[1].lower(), fields):
                    yield f"{place}: {name} is logged otherwise at {first[0]}"
    for call in re.finditer(r'Payload payload\(json_, LogSeverity::k(\w+), "(\w+)"\);\s*payload\.Add\(\{"(\w+)"',
                            (root / "src/telemetry/logging.cc").read_text(encoding="utf-8")):
        logged["Both programs", call[2]] = ("src/telemetry/logging.cc", call[1].lower(), [call[3]])
    document = root / "docs/logs.md"
    program = ""
    rows = set()
    for place, line in lines(document, root):
        program = line[3:] if line.startswith("## ") else program
        row = re.match(r"\| `(\w+)` \| (\w+) \|([^|]*)\|", line)
        if not row:
            continue
        key = (program, row[1])
        rows.add(key)
        if key not in logged:
            yield f"{place}: {program} never logs {row[1]}"
            continue
        _, level, fields = logged[key]
        if (level, fields) != (row[2], re.findall(r"`(\w+)`", row[3])):
            yield f"{place}: {row[1]} is logged at level {level} with {', '.join(fields) or 'no fields'}"
    for key, (place, _, _) in logged.items():
        if key not in rows:
            yield f"{place}: docs/logs.md has no row for {key[1]} of {key[0]}"


def anchors(document):
    """The anchors that a forge makes of a document's headings."""
    found = set()
    for _, line in lines(document, document.parent):
        heading = HEADING.match(line)
        if heading:
            text = re.sub(r"[^\w\s-]", "", heading[1].strip().lower())
            found.add(re.sub(r"\s", "-", text))
    return found
