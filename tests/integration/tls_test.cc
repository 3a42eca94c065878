// The real icached over TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/daemon_testing.h"
#include "tests/integration/icached_process.h"
#include "tests/integration/secure_client.h"
#include "tests/telemetry/page_reader.h"
#include "tests/testing/certificates.h"

namespace icache::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    for (const char* const name : {"one", "two", "client"}) certificates_.Sign(name);
  }

  // Starts the daemon with the pair "one" on both listeners; clients need certificates if `mutual`.
  void Start(bool mutual) {
    pair_ = std::make_unique<MountedPair>(&certificates_, "one");
    std::vector<std::string> flags;
    for (const std::string listener : {"--grpc", "--http"}) {
      flags.insert(flags.end(),
                   {listener + "-tls-cert-file", pair_->certificate(), listener + "-tls-key-file", pair_->key()});
      if (mutual) flags.insert(flags.end(), {listener + "-tls-client-ca-file", certificates_.ca()});
    }
    icached_ = std::make_unique<IcachedProcess>(flags);
    ASSERT_TRUE(icached_->ready()) << icached_->output();
  }

  void TearDown() override {
    if (icached_ == nullptr) return;
    EXPECT_EQ(icached_->Terminate(), 0) << icached_->output();
  }

  // What openssl, as a client that reads `ca`, says of the server certificate: its subject.
  std::string SubjectAt(const std::string& address) const {
    const std::string out = certificates_.folder() / "subject";
    const std::string client = "openssl s_client -connect " + address + " -cert " +
                               certificates_.Certificate("client") + " -key " + certificates_.Key("client") +
                               " </dev/null 2>/dev/null";
    (void)std::system((client + " | openssl x509 -noout -subject > " + out + " 2>/dev/null").c_str());
    return TextOfFile(out);
  }
  // Whether a handshake comes about, by openssl with `flags`; and whether it resumes a session.
  struct Handshake {
    bool done = false;
    bool resumed = false;
  };
  Handshake HandshakeAt(const std::string& address, const std::string& flags) const {
    const std::string out = certificates_.folder() / "handshake";
    (void)std::system(
        ("openssl s_client -connect " + address + " -alpn h2 " + flags + " </dev/null >" + out + " 2>&1").c_str());
    const std::string said = TextOfFile(out);
    return {.done = said.find("Cipher is (NONE)") == std::string::npos, .resumed = said.find("Reused, ") != said.npos};
  }
  std::string HttpAddress() const { return "127.0.0.1:" + std::to_string(icached_->http_port()); }

  // The status of GET `path` by curl with `arguments`.
  std::string HttpStatus(const std::string& path, const std::string& arguments = "") const {
    const std::string out = certificates_.folder() / "status";
    (void)std::system(("curl -s -o /dev/null -w '%{http_code}' --cacert " + certificates_.ca() + " " + arguments +
                       " https://localhost:" + std::to_string(icached_->http_port()) + path + " > " + out)
                          .c_str());
    return TextOfFile(out);
  }
  std::string Metrics() const {
    const std::string out = certificates_.folder() / "metrics";
    (void)std::system(("curl -s --cacert " + certificates_.ca() +
                       " https://localhost:" + std::to_string(icached_->http_port()) + "/metrics > " + out)
                          .c_str());
    return TextOfFile(out);
  }
  std::string ClientPair() const {
    return "--cert " + certificates_.Certificate("client") + " --key " + certificates_.Key("client");
  }

  grpc::Status LookupAs(const ClientIdentity& identity) {
    return SecureClient(icached_->grpc_address(), identity).Lookup();
  }

  const CertificateFolder certificates_;
  std::unique_ptr<MountedPair> pair_;
  std::unique_ptr<IcachedProcess> icached_;
};

TEST_F(TlsTest, BothListenersServeOverTls) {
  Start(/*mutual=*/false);
  EXPECT_TRUE(LookupAs({.ca = certificates_.ca()}).ok());
  EXPECT_EQ(LookupAs({}).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(HttpStatus("/healthz"), "200");
  EXPECT_EQ(HttpGet(icached_->http_port(), "/healthz").status, 0);
  EXPECT_THAT(PageReader(Metrics()).Value("inferencecache_server_grpc_tls_enabled"), Optional(1));
}

TEST_F(TlsTest, WithAClientCaGrpcServesNobodyWithoutACertificate) {
  Start(/*mutual=*/true);
  CertificateFolder others;
  others.Sign("client");
  EXPECT_TRUE(LookupAs({.ca = certificates_.ca(),
                        .certificate = certificates_.Certificate("client"),
                        .key = certificates_.Key("client")})
                  .ok());
  EXPECT_FALSE(LookupAs({.ca = certificates_.ca()}).ok());
  EXPECT_FALSE(
      LookupAs({.ca = certificates_.ca(), .certificate = others.Certificate("client"), .key = others.Key("client")})
          .ok());
}

TEST_F(TlsTest, WithAClientCaProbesStayOpenAndOtherPathsDoNot) {
  Start(/*mutual=*/true);
  for (const char* const path : {"/healthz", "/readyz", "/metrics"}) EXPECT_EQ(HttpStatus(path), "200") << path;
  CertificateFolder others;
  others.Sign("client");
  EXPECT_EQ(HttpStatus("/other"), "401");
  EXPECT_EQ(HttpStatus("/other", "--cert " + others.Certificate("client") + " --key " + others.Key("client")), "401");
  EXPECT_EQ(HttpStatus("/other", ClientPair()), "404");
}

// A stranger's key is what the signature of its handshake is checked with, before anyone asks who it is.
TEST_F(TlsTest, HttpChecksNoSignatureWithAKeyThatTakesLong) {
  Start(/*mutual=*/true);
  certificates_.SelfSign("usual", "-newkey rsa:2048");
  certificates_.SelfSign("slow", "-newkey rsa:2048 -pkeyopt rsa_keygen_pubexp:36893488147419103233");  // 2^65 + 1
  const auto status_with = [&](const std::string& name, const std::string& version) {
    return HttpStatus("/healthz",
                      version + " --cert " + certificates_.Certificate(name) + " --key " + certificates_.Key(name));
  };
  for (const char* const version : {"--tls-max 1.2", "--tlsv1.3"}) {
    EXPECT_EQ(status_with("usual", version), "200") << version;
    EXPECT_EQ(status_with("slow", version), "000") << version;
  }
}

// The same certificates get in by gRPC and by HTTP.
TEST_F(TlsTest, BothListenersJudgeClientCertificatesAlike) {
  Start(/*mutual=*/true);
  std::string many = "subjectAltName=";
  for (int i = 0; i < 100; ++i) many += "DNS:n" + std::to_string(i) + ".test,";
  struct Row {
    std::string name;
    std::string extensions;
    int days;
    bool good;
  };
  for (const auto& [name, extensions, days, good] :
       {Row{"plain", "subjectAltName=DNS:a.test\n", 2, true}, Row{"many", many + "DNS:last.test\n", 2, true},
        Row{"client-use", "extendedKeyUsage=clientAuth\n", 2, true},
        Row{"server-use", "extendedKeyUsage=serverAuth\n", 2, false},
        Row{"no-signing", "keyUsage=keyEncipherment\n", 2, false},
        Row{"five-byte-address", "subjectAltName=DER:30:07:87:05:0a:01:02:03:04\n", 2, false},
        Row{"expired", "subjectAltName=DNS:a\n", -1, false}}) {
    certificates_.SignWith(name, extensions, days);
    EXPECT_EQ(
        LookupAs(
            {.ca = certificates_.ca(), .certificate = certificates_.Certificate(name), .key = certificates_.Key(name)})
            .ok(),
        good)
        << name;
    const std::string pair = "--cert " + certificates_.Certificate(name) + " --key " + certificates_.Key(name);
    EXPECT_EQ(HttpStatus("/other", pair) == "404", good) << name;
  }
}

TEST_F(TlsTest, FailedHandshakesAreCountedAndTold) {
  Start(/*mutual=*/true);
  EXPECT_FALSE(LookupAs({.ca = certificates_.ca()}).ok());
  EXPECT_EQ(HttpGet(icached_->http_port(), "/healthz").status, 0);  // without TLS
  for (const char* const listener : {"grpc", "http"}) {
    EXPECT_TRUE(Eventually([&] {
      return PageReader(Metrics())
                 .Value("inferencecache_tls_handshake_failures_total", {{"listener", listener}})
                 .value_or(0) >= 1;
    })) << listener;
  }
  EXPECT_EQ(icached_->Terminate(), 0);
  EXPECT_THAT(icached_->output(), HasSubstr("tls_handshake_failed listener=http client=127.0.0.1"));
  EXPECT_THAT(icached_->output(), HasSubstr("peer did not return a certificate"));
  icached_.reset();
}

TEST_F(TlsTest, AnExpiredCertificateIsServedAndTold) {
  certificates_.SignWith("old", "subjectAltName=DNS:localhost\n", -1);
  IcachedProcess icached(
      {"--grpc-tls-cert-file", certificates_.Certificate("old"), "--grpc-tls-key-file", certificates_.Key("old")});
  EXPECT_TRUE(icached.ready());
  EXPECT_EQ(icached.Terminate(), 0);
  EXPECT_THAT(icached.output(), HasSubstr("error tls_certificate_expired listener=grpc expires="));
}

TEST_F(TlsTest, APairSwappedUnderLoadFailsNoCall) {
  Start(/*mutual=*/true);
  const ClientIdentity identity = {
      .ca = certificates_.ca(), .certificate = certificates_.Certificate("client"), .key = certificates_.Key("client")};
  std::atomic<bool> stop = false;
  std::atomic<int> failures = 0;
  SecureClient steady(icached_->grpc_address(), identity);  // keeps its connection
  std::thread load([&] {
    while (!stop) {
      if (!LookupAs(identity).ok()) ++failures;  // a handshake each
      if (!steady.Lookup().ok()) ++failures;
    }
  });
  for (int swap = 1; swap <= 6; ++swap) {
    const std::string pair = swap % 2 == 1 ? "two" : "one";
    pair_->Swap(pair);
    EXPECT_TRUE(Eventually([&] { return SubjectAt(icached_->grpc_address()).find(pair) != std::string::npos; }));
    EXPECT_TRUE(Eventually([&] { return SubjectAt(HttpAddress()).find(pair) != std::string::npos; }));
  }
  stop = true;
  load.join();
  EXPECT_EQ(failures, 0);
  EXPECT_THAT(
      PageReader(Metrics()).Value("inferencecache_tls_reloads_total", {{"listener", "grpc"}, {"result", "success"}}),
      Optional(6));
}

TEST_F(TlsTest, ClientsThatStallInTheHandshakeHoldUpNobody) {
  Start(/*mutual=*/false);
  std::vector<int> sockets;
  for (const int port : {icached_->http_port(), std::stoi(icached_->grpc_address().substr(10))}) {
    for (int i = 0; i < 20; ++i) {
      sockets.push_back(socket(AF_INET, SOCK_STREAM, 0));
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ASSERT_EQ(connect(sockets.back(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
      ASSERT_EQ(send(sockets.back(), "\x16\x03\x01", 3, MSG_NOSIGNAL), 3);  // the beginning of a record
    }
  }
  EXPECT_TRUE(LookupAs({.ca = certificates_.ca()}).ok());
  EXPECT_EQ(HttpStatus("/healthz"), "200");
  for (const int fd : sockets) close(fd);
}

TEST_F(TlsTest, VersionsBelowOnePointTwoAreRefused) {
  Start(/*mutual=*/false);
  for (const std::string& address : {icached_->grpc_address(), HttpAddress()}) {
    for (const char* const version : {"-tls1", "-tls1_1"}) {
      EXPECT_FALSE(HandshakeAt(address, std::string(version) + " -cipher DEFAULT:@SECLEVEL=0").done) << version;
    }
    for (const char* const version : {"-tls1_2", "-tls1_3"}) {
      EXPECT_TRUE(HandshakeAt(address, version).done) << version;
    }
  }
}

// Resuming, a client is not asked for its certificate, which may have expired.
TEST_F(TlsTest, NoSessionIsResumedForLong) {
  Start(/*mutual=*/true);
  const std::string session = certificates_.folder() / "session";
  const std::string pair =
      "-tls1_2 -cert " + certificates_.Certificate("client") + " -key " + certificates_.Key("client");
  ASSERT_TRUE(HandshakeAt(icached_->grpc_address(), pair + " -sess_out " + session).done);
  EXPECT_TRUE(Eventually([&] {
    // Each time with the session of the time before.
    return !HandshakeAt(icached_->grpc_address(), pair + " -sess_in " + session + " -sess_out " + session).resumed;
  }));
}

TEST_F(TlsTest, AWeakPairLeavesTheOldOneInForce) {
  Start(/*mutual=*/true);
  certificates_.SelfSign("short", "-newkey rsa:1024");
  pair_->Swap("short");
  for (const char* const listener : {"grpc", "http"}) {
    EXPECT_TRUE(Eventually([&] {
      return PageReader(Metrics()).Value("inferencecache_tls_reloads_total",
                                         {{"listener", listener}, {"result", "failure"}}) == 1;
    }));
  }
  EXPECT_THAT(SubjectAt(icached_->grpc_address()), HasSubstr("one"));
}

TEST_F(TlsTest, AFolderInThePlaceOfTheClientCaEndsTheStartWithStatusTwo) {
  std::filesystem::create_directory(certificates_.folder() / "folder");
  for (const std::string listener : {"--grpc", "--http"}) {
    std::vector<std::string> flags = {listener + "-tls-cert-file",      certificates_.Certificate("one"),
                                      listener + "-tls-key-file",       certificates_.Key("one"),
                                      listener + "-tls-client-ca-file", certificates_.folder() / "folder"};
    for (const bool validate_only : {false, true}) {
      if (validate_only) flags.push_back("--validate-only");
      IcachedProcess icached(flags);
      EXPECT_FALSE(icached.ready());
      EXPECT_EQ(icached.Terminate(), 2);
      EXPECT_THAT(icached.output(), HasSubstr("folder: is not a regular file"));
    }
  }
}

TEST_F(TlsTest, ARequestWithoutACertificateIsCounted) {
  Start(/*mutual=*/true);
  EXPECT_EQ(HttpStatus("/other"), "401");
  EXPECT_THAT(PageReader(Metrics()).Value("inferencecache_calls_refused_total", {{"reason", "unauthenticated"}}),
              Optional(1));
}

TEST_F(TlsTest, AMismatchedPairEndsTheStartWithStatusTwo) {
  IcachedProcess icached(
      {"--grpc-tls-cert-file", certificates_.Certificate("one"), "--grpc-tls-key-file", certificates_.Key("two")});
  EXPECT_FALSE(icached.ready());
  EXPECT_THAT(icached.output(), HasSubstr("two.key: is not the key of the certificate in"));
  EXPECT_EQ(icached.Terminate(), 2);
}

}  // namespace
}  // namespace icache::testing
