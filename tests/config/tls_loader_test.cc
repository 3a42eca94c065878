#include "icache/config/tls_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "icache/base/status_macros.h"
#include "icache/config/watchers.h"
#include "tests/testing/certificates.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace icache::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

class TlsLoaderTest : public ::testing::Test {
 protected:
  TlsLoaderTest() {
    certificates_.Sign("one");
    certificates_.Sign("two");
  }

  TlsFiles Files(const std::string& certificate, const std::string& key) const {
    return {certificates_.Certificate(certificate), certificates_.Key(key), certificates_.ca()};
  }
  std::string Write(const std::string& name, const std::string& text) const {
    return certificates_.folder().Write(name, text);
  }

  // Watches the files by hand.
  absl::Status Watch(const TlsFiles& files) {
    ASSIGN_OR_RETURN(watcher_, WatchTlsIdentity(files, absl::Milliseconds(10), &identity_, &clock_,
                                                [this](const absl::Status& status) { reloads_.push_back(status); }));
    return absl::OkStatus();
  }
  // Looks until what lies there has been judged.
  void Settle() {
    while (watcher_->CheckOnce() == FileWatcher::CheckResult::kSettling) {
    }
  }

  const CertificateFolder certificates_;
  FakeClock clock_;  // stands before all file times, so every look reads the files
  Published<TlsIdentity> identity_;
  std::vector<absl::Status> reloads_;
  std::unique_ptr<FileWatcher> watcher_;
};

TEST_F(TlsLoaderTest, AMatchingPairIsTakenWithItsEnd) {
  const auto identity = LoadTlsIdentity(Files("one", "one"));
  ASSERT_THAT(identity, IsOk());
  EXPECT_EQ((*identity)->certificate_chain, TextOfFile(certificates_.Certificate("one")));
  EXPECT_EQ((*identity)->private_key, TextOfFile(certificates_.Key("one")));
  EXPECT_EQ((*identity)->client_ca, TextOfFile(certificates_.ca()));
  EXPECT_GT((*identity)->expires_at, absl::Now() + absl::Hours(24));
  EXPECT_LT((*identity)->expires_at, absl::Now() + absl::Hours(72));
  EXPECT_GT((*identity)->client_ca_expires_at, absl::Now() + absl::Hours(24));
}

TEST_F(TlsLoaderTest, OfAClientCaTheFirstEndIsKept) {
  certificates_.SignWith("old", "basicConstraints=CA:TRUE\n", -1);
  TlsFiles files = Files("one", "one");
  files.client_ca = Write("several.pem", TextOfFile(certificates_.ca()) + TextOfFile(certificates_.Certificate("old")));
  const auto identity = LoadTlsIdentity(files);
  ASSERT_THAT(identity, IsOk());
  EXPECT_LT((*identity)->client_ca_expires_at, absl::Now());
}

TEST_F(TlsLoaderTest, WithoutFilesThereIsNoIdentity) { EXPECT_EQ(LoadTlsIdentity({}).value(), nullptr); }

TEST_F(TlsLoaderTest, TheKeyOfAnotherCertificateIsRefused) {
  EXPECT_THAT(LoadTlsIdentity(Files("one", "two")),
              StatusIs(kBad, AllOf(HasSubstr("two.key: is not the key of"), HasSubstr("one.pem"))));
}

TEST_F(TlsLoaderTest, WhatIsNoPemIsRefusedByName) {
  TlsFiles files = Files("one", "one");
  files.certificate = Write("bad.pem", "nothing");
  EXPECT_THAT(LoadTlsIdentity(files), StatusIs(kBad, HasSubstr("bad.pem: holds no PEM certificates")));
  files = Files("one", "one");
  files.client_ca = Write("bad-ca.pem", "");
  EXPECT_THAT(LoadTlsIdentity(files), StatusIs(kBad, HasSubstr("bad-ca.pem: holds no PEM certificates")));
  files = Files("one", "one");
  files.key = certificates_.folder() / "missing.key";
  EXPECT_THAT(LoadTlsIdentity(files), StatusIs(kBad, HasSubstr("missing.key: cannot be read")));
}

TEST_F(TlsLoaderTest, AFolderInThePlaceOfAFileIsRefusedByName) {
  std::filesystem::create_directory(certificates_.folder() / "folder");
  TlsFiles files = Files("one", "one");
  for (std::string* const path : {&files.certificate, &files.key, &files.client_ca}) {
    const std::string file = std::exchange(*path, certificates_.folder() / "folder");
    EXPECT_THAT(LoadTlsIdentity(files), StatusIs(kBad, HasSubstr("folder: is not a regular file")));
    *path = file;
  }
  Write("folder/ca.yaml", TextOfFile(certificates_.ca()));
  files.client_ca = certificates_.folder() / "folder";
  EXPECT_THAT(LoadTlsIdentity(files), StatusIs(kBad, HasSubstr("folder: is not a regular file")));
}

TEST_F(TlsLoaderTest, AChainThatBreaksOffIsRefused) {
  const std::string whole = TextOfFile(certificates_.Certificate("one"));
  TlsFiles files = Files("one", "one");
  files.certificate = Write("torn.pem", whole + whole.substr(0, whole.size() / 2));
  EXPECT_THAT(LoadTlsIdentity(files), StatusIs(kBad, HasSubstr("torn.pem")));
}

TEST_F(TlsLoaderTest, APairThatOpenSslWouldNotServeWithIsRefused) {
  certificates_.SelfSign("short", "-newkey rsa:1024");
  EXPECT_THAT(LoadTlsIdentity(Files("short", "short")),
              StatusIs(kBad, HasSubstr("short.pem: OpenSSL refuses it: ee key too small")));
  certificates_.SelfSign("koblitz", "-newkey ec -pkeyopt ec_paramgen_curve:secp256k1");
  EXPECT_THAT(LoadTlsIdentity(Files("koblitz", "koblitz")), StatusIs(kBad, HasSubstr("koblitz.pem: OpenSSL refuses")));
  for (const char* const key : {"rsa:2048", "ed25519", "rsa-pss -pkeyopt rsa_keygen_bits:2048"}) {
    certificates_.SelfSign("good", std::string("-newkey ") + key);
    EXPECT_THAT(LoadTlsIdentity(Files("good", "good")), IsOk()) << key;
  }
  TlsFiles files = Files("one", "one");
  files.certificate =
      Write("chain.pem", TextOfFile(files.certificate) + TextOfFile(certificates_.Certificate("short")));
  EXPECT_THAT(LoadTlsIdentity(files), StatusIs(kBad, HasSubstr("chain.pem: OpenSSL refuses it: ca key too small")));
}

TEST_F(TlsLoaderTest, NamesThatCannotBeReadAreRefused) {
  certificates_.SignWith("five", "subjectAltName=DER:30:07:87:05:0a:01:02:03:04\n");  // an address of 5 bytes
  EXPECT_THAT(LoadTlsIdentity(Files("five", "five")), StatusIs(kBad, HasSubstr("five.pem: its common name or")));
}

TEST_F(TlsLoaderTest, AFurtherLibraryIsAskedToo) {
  const auto refuse = [](const TlsIdentity&) { return absl::InvalidArgumentError("too old"); };
  EXPECT_THAT(LoadTlsIdentity(Files("one", "one"), refuse), StatusIs(kBad, HasSubstr("one.pem: too old")));
}

TEST_F(TlsLoaderTest, MessagesDoNotQuoteTheFile) {
  TlsFiles files = Files("one", "one");
  files.key = Write("secret.key", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n");
  EXPECT_THAT(LoadTlsIdentity(files), StatusIs(kBad, Not(HasSubstr("c2VjcmV0"))));
}

TEST_F(TlsLoaderTest, AHalfReplacedPairLeavesTheOldOneInForce) {
  const TlsFiles files = {Write("live.pem", TextOfFile(certificates_.Certificate("one"))),
                          Write("live.key", TextOfFile(certificates_.Key("one"))), ""};
  ASSERT_THAT(Watch(files), IsOk());

  Write("live.pem", TextOfFile(certificates_.Certificate("two")));
  Settle();
  ASSERT_EQ(reloads_.size(), 1u);
  EXPECT_FALSE(reloads_[0].ok());
  EXPECT_EQ(identity_.Current()->certificate_chain, TextOfFile(certificates_.Certificate("one")));

  Write("live.key", TextOfFile(certificates_.Key("two")));
  Settle();
  ASSERT_EQ(reloads_.size(), 2u);
  EXPECT_THAT(reloads_[1], IsOk());
  EXPECT_EQ(identity_.Current()->certificate_chain, TextOfFile(certificates_.Certificate("two")));
}

TEST_F(TlsLoaderTest, WhateverTakesThePlaceOfAFileLeavesTheOldIdentityInForce) {
  const TlsFiles files = {Write("live.pem", TextOfFile(certificates_.Certificate("one"))),
                          Write("live.key", TextOfFile(certificates_.Key("one"))),
                          Write("live-ca.pem", TextOfFile(certificates_.ca()))};
  ASSERT_THAT(Watch(files), IsOk());

  size_t expected_reloads = 0;
  for (const std::string& path : {files.certificate, files.key, files.client_ca}) {
    const std::string text = TextOfFile(path);
    const std::shared_ptr<const TlsIdentity> in_force = identity_.Current();
    const auto expect_refused = [&] {
      Settle();
      ASSERT_EQ(reloads_.size(), ++expected_reloads) << path;
      EXPECT_THAT(reloads_.back(), StatusIs(kBad, HasSubstr(path)));
      EXPECT_EQ(identity_.Current(), in_force);
    };
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    expect_refused();
    std::filesystem::remove(path);
    std::ofstream(path) << "";
    expect_refused();
    std::ofstream(path) << text;
    Settle();
    ASSERT_EQ(reloads_.size(), ++expected_reloads) << path;
    EXPECT_THAT(reloads_.back(), IsOk());
  }
}

}  // namespace
}  // namespace icache::testing
