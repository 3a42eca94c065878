#!/usr/bin/env python3
"""icached is killed under load, again and again, and holds thousands of connections on which nothing happens.

    survival_test.py --bin DIR     DIR holds icached
"""

import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import grpc

BIN = None
PATIENCE_S = 60
PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto" / "inferencecache" / "v1alpha1" / "inferencecache.proto"
SERVICE = "/inferencecache.v1alpha1.InferenceCache/"
REASONS = {"PREFIX_MATCH", "NO_HINT", "AFFINITY_HINT", "TENANT_HOT", "UNKNOWN_TENANT", "UNKNOWN_MODEL",
           "UNKNOWN_HASH_SCHEME", "TIMEOUT", "POLICY_REQUIRES_CHAIN"}
# What a gateway gets of a daemon that is not there; it routes without a hint then.
GONE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
CHAIN = list(range(1, 17))


def load_wire():
    """The generated messages."""
    out = tempfile.mkdtemp(prefix="survival-test-")
    subprocess.run(["protoc", f"-I{PROTO.parent}", f"--python_out={out}", PROTO.name], check=True)
    sys.path.insert(0, out)
    import inferencecache_pb2  # pylint: disable=import-error,import-outside-toplevel
    return inferencecache_pb2


class Daemon:
    """One icached."""

    def __init__(self, address):
        self.process = subprocess.Popen(
            [BIN / "icached", "--grpc-address", address, "--http-address", "127.0.0.1:0"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.grpc_address = self.http_port = None
        for line in self.process.stderr:
            listening = re.search(r" grpc_listening .*address=(\S+)", line)
            if listening:
                self.grpc_address = listening[1]
            started = re.search(r" started .*http_port=(\d+)", line)
            if started:
                self.http_port = started[1]
            if " ready" in line:
                break

    def stop(self, number=signal.SIGKILL):
        """Its exit status."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        self.process.stderr.close()
        return status

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=PATIENCE_S) as page:
            return float(re.search(rf"^{name} (\S+)$", page.read().decode(), re.MULTILINE)[1])


class Client:
    """One connection."""

    def __init__(self, wire, address):
        self.wire = wire
        self.channel = grpc.insecure_channel(
            address, [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 100),
                      ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 50)])
        self.lookup_call = self.channel.unary_unary(
            SERVICE + "LookupRoute", request_serializer=wire.LookupRouteRequest.SerializeToString,
            response_deserializer=wire.LookupRouteResponse.FromString)
        self.report_call = self.channel.stream_unary(
            SERVICE + "ReportCacheState", request_serializer=wire.CacheStateUpdate.SerializeToString,
            response_deserializer=wire.Ack.FromString)

    def lookup(self, timeout, wait=False):
        request = self.wire.LookupRouteRequest(model_id="model", tenant_id="tenant", hash_scheme="scheme",
                                               block_hashes_u64=CHAIN, tokens_per_block=64)
        return self.lookup_call(request, timeout=timeout, wait_for_ready=wait)

    def report(self):
        update = self.wire.CacheStateUpdate(
            replica_id="replica", model_id="model", tenant_id="tenant", hash_scheme="scheme", retains_all=True,
            prefixes=[self.wire.PrefixEntry(block_hashes_u64=CHAIN, tokens_per_block=64)])
        return self.report_call(iter([update]), timeout=PATIENCE_S, wait_for_ready=True)


class SurvivalTest(unittest.TestCase):
    wire = None

    @classmethod
    def setUpClass(cls):
        cls.wire = load_wire()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="survival-test-")
        self.addCleanup(folder.cleanup)
        self.address = f"unix:{folder.name}/grpc.sock"

    def test_gateways_go_on_while_it_is_killed_and_comes_back(self):
        stop = threading.Event()
        answers, failures = [], []

        def gateway():
            client = Client(self.wire, self.address)
            while not stop.is_set():
                try:
                    answer = client.lookup(timeout=0.5)
                except grpc.RpcError as error:
                    if error.code() not in GONE:
                        failures.append(str(error))
                    continue
                answers.append(answer.reason_code)
                if answer.reason_code not in REASONS or any(
                        row.replica_id != "replica" for row in answer.replica_scores):
                    failures.append(str(answer))
            client.channel.close()

        gateways = [threading.Thread(target=gateway) for _ in range(3)]
        for thread in gateways:
            thread.start()
        try:
            for _ in range(8):
                daemon = Daemon(self.address)
                self.addCleanup(daemon.process.kill)
                self.assertIsNotNone(daemon.http_port, "the daemon does not start")
                client = Client(self.wire, self.address)
                # It knows nothing of its life before, and all that it is told now.
                self.assertNotEqual(client.lookup(PATIENCE_S, wait=True).reason_code, "PREFIX_MATCH")
                self.assertTrue(client.report().accepted)
                answer = client.lookup(PATIENCE_S)
                self.assertEqual(answer.reason_code, "PREFIX_MATCH")
                self.assertEqual([row.replica_id for row in answer.replica_scores], ["replica"])
                client.channel.close()
                self.assertEqual(daemon.stop(), -signal.SIGKILL)
        finally:
            stop.set()
            for thread in gateways:
                thread.join()
        self.assertEqual(failures, [])
        self.assertIn("PREFIX_MATCH", answers)

    def test_ten_thousand_idle_connections_keep_nobody_from_an_answer(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        count = min(10_000, hard - 500) if hard != resource.RLIM_INFINITY else 10_000
        daemon = Daemon("127.0.0.1:0")
        self.addCleanup(daemon.process.kill)
        host, port = daemon.grpc_address.rsplit(":", 1)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        client = Client(self.wire, daemon.grpc_address)
        self.assertTrue(client.report().accepted)

        connections = []
        for i in range(count):
            connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
            connection.sendall(preface)
            connections.append(connection)
            if i % 1000 == 0:
                self.assertEqual(client.lookup(PATIENCE_S).reason_code, "PREFIX_MATCH")
        for connection in connections:
            self.assertTrue(connection.recv(9), "a connection has been closed")  # the server's settings
        self.assertEqual(client.lookup(PATIENCE_S).reason_code, "PREFIX_MATCH")
        self.assertEqual(Client(self.wire, daemon.grpc_address).lookup(PATIENCE_S).reason_code, "PREFIX_MATCH")
        self.assertGreaterEqual(daemon.metric("process_open_fds"), count)

        for connection in connections:
            connection.close()
        give_up_at = time.monotonic() + PATIENCE_S
        while daemon.metric("process_open_fds") >= 500:
            self.assertLess(time.monotonic(), give_up_at, "descriptors of closed connections are kept")
        self.assertEqual(client.lookup(PATIENCE_S).reason_code, "PREFIX_MATCH")
        self.assertEqual(daemon.stop(signal.SIGTERM), 0)


if __name__ == "__main__":
    at = sys.argv.index("--bin")
    BIN = pathlib.Path(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    unittest.main()
