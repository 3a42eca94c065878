#!/usr/bin/env python3
"""icached is killed under load, again and again; it holds thousands of connections on which nothing happens, and streams
of clients that never read.

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

    def __init__(self, address, *flags):
        self.process = subprocess.Popen(
            [BIN / "icached", "--grpc-address", address, "--http-address", "127.0.0.1:0", *flags],
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
        self.lookup_stream = self.channel.stream_stream(
            SERVICE + "LookupRouteStream", request_serializer=wire.LookupRouteRequest.SerializeToString,
            response_deserializer=wire.LookupRouteResponse.FromString)
        self.event_stream = self.channel.unary_stream(
            SERVICE + "StreamCacheEvents", request_serializer=wire.StreamEventsRequest.SerializeToString,
            response_deserializer=wire.CacheEvent.FromString)
        self.metric_stream = self.channel.unary_stream(
            SERVICE + "StreamMetrics", request_serializer=wire.StreamMetricsRequest.SerializeToString,
            response_deserializer=wire.Metric.FromString)

    def request(self):
        return self.wire.LookupRouteRequest(model_id="model", tenant_id="tenant", hash_scheme="scheme",
                                            block_hashes_u64=CHAIN, tokens_per_block=64)

    def lookup(self, timeout, wait=False):
        return self.lookup_call(self.request(), timeout=timeout, wait_for_ready=wait)

    def update(self, replica="replica", chain=CHAIN):  # pylint: disable=dangerous-default-value
        return self.wire.CacheStateUpdate(
            replica_id=replica, model_id="model", tenant_id="tenant", hash_scheme="scheme", retains_all=True,
            prefixes=[self.wire.PrefixEntry(block_hashes_u64=chain, tokens_per_block=64)])

    def report(self, *updates):
        return self.report_call(iter(updates or [self.update()]), timeout=PATIENCE_S, wait_for_ready=True)


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

    def test_clients_that_never_read_cost_nobody_else_an_answer(self):
        daemon = Daemon(self.address, "--limits-max-observer-queue-events", "1000", "--limits-max-unsent-bytes",
                        str(1 << 20))
        self.addCleanup(daemon.process.kill)
        client = Client(self.wire, self.address)
        # So many holders that a few answers fill what lies between the daemon and a client that does not read; and others,
        # which they are told from.
        holders = [client.update(f"replica-{i:0100}") for i in range(500)]
        others = [client.update(f"other-{i}", [1]) for i in range(100)]
        self.assertTrue(client.report(*holders, *others).accepted)
        self.assertEqual(client.lookup(PATIENCE_S).reason_code, "PREFIX_MATCH")
        resident = daemon.metric("process_resident_memory_bytes")

        observer = Client(self.wire, self.address)
        events = observer.event_stream(self.wire.StreamEventsRequest(types=[self.wire.CacheEvent.PREFIX_ADDED]))
        events.initial_metadata()  # from here on it is told of everything
        metrics = [Client(self.wire, self.address).metric_stream(self.wire.StreamMetricsRequest()) for _ in range(10)]
        for stream in metrics:
            stream.initial_metadata()
        # More answers than lie anywhere between the daemon and a client that does not read.
        askers = [Client(self.wire, self.address) for _ in range(60)]
        answers = [asker.lookup_stream(iter([asker.request()] * 100)) for asker in askers]

        # The observer loses events once it is too far behind.
        long_chain = list(range(1000, 9000))
        added = 0
        give_up_at = time.monotonic() + PATIENCE_S
        while daemon.metric("inferencecache_observer_events_lost_total") == 0:
            self.assertLess(time.monotonic(), give_up_at, "the observer loses nothing")
            self.assertTrue(client.report(client.update("reporter", long_chain)).accepted)
            added += len(long_chain)
            self.assertEqual(client.lookup(PATIENCE_S).reason_code, "PREFIX_MATCH")

        self.assertLess(daemon.metric("process_resident_memory_bytes"), resident + (128 << 20))
        # What it gets and what it is told that it lost is all there was.
        told = 0
        for event in events:
            lost = event.type == self.wire.CacheEvent.TYPE_UNSPECIFIED
            told += int.from_bytes(event.prefix_hash, "big") if lost else 1
            if told >= added:
                break
        self.assertEqual(told, added)
        # A stream whose answers lay too long in the daemon, which may hold a few only, is told that it was given up.
        given_up = 0
        for stream in answers:
            count = 0
            try:
                for answer in stream:
                    self.assertEqual(answer.reason_code, "PREFIX_MATCH")
                    count += 1
                self.assertEqual(count, 100)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.CANCELLED)
                given_up += 1
        self.assertGreater(given_up, 0)
        self.assertEqual(client.lookup(PATIENCE_S).reason_code, "PREFIX_MATCH")
        for stream in [events, *metrics]:
            stream.cancel()
        self.assertEqual(daemon.stop(signal.SIGTERM), 0)


if __name__ == "__main__":
    at = sys.argv.index("--bin")
    BIN = pathlib.Path(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    unittest.main()
