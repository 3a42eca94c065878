// CertificateFolder: a certificate authority of a test's own, and what it has signed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/config/temp_folder.h"

namespace icache::testing {

// The whole of a file.
inline std::string TextOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class CertificateFolder {
 public:
  CertificateFolder() {
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca -keyout " + Key("ca") +
        " -out " + Certificate("ca"));
  }

  // Makes a pair, `name`.pem and `name`.key, for a subject whose one alternative name is `dns_name`.
  void Sign(const std::string& name, const std::string& dns_name = "localhost") const {
    SignWith(name, "subjectAltName=DNS:" + dns_name + "\n");
  }
  // Likewise with `extensions` as openssl has them, which end in a newline, valid for `days`: none or fewer = expired.
  void SignWith(const std::string& name, const std::string& extensions, int days = 2) const {
    const std::string request = folder_ / (name + ".csr");
    const std::string extension = folder_.Write(name + ".ext", extensions);
    Run("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" + name + " -keyout " + Key(name) +
        " -out " + request);
    Run("x509 -req -in " + request + " -CA " + Certificate("ca") + " -CAkey " + Key("ca") + " -CAcreateserial -days " +
        std::to_string(days) + " -extfile " + extension + " -out " + Certificate(name));
  }

  // Makes a pair that has signed itself. `flags` are openssl's, and choose the key.
  void SelfSign(const std::string& name, const std::string& flags) const {
    Run("req -x509 " + flags + " -nodes -days 2 -subj /CN=" + name + " -keyout " + Key(name) + " -out " +
        Certificate(name));
  }

  std::string Certificate(const std::string& name) const { return folder_ / (name + ".pem"); }
  std::string Key(const std::string& name) const { return folder_ / (name + ".key"); }
  std::string ca() const { return Certificate("ca"); }
  const TempFolder& folder() const { return folder_; }

 private:
  static void Run(const std::string& arguments) {
    ASSERT_EQ(std::system(("openssl " + arguments + " 2>/dev/null").c_str()), 0) << arguments;
  }

  const TempFolder folder_;
};

// A pair as the kubelet mounts a Secret: cert.pem and key.pem are links through "..data", which is a link to the folder
// in force and is swapped in one step.
class MountedPair {
 public:
  MountedPair(const CertificateFolder* certificates, const std::string& pair) : certificates_(certificates) {
    Swap(pair);
    std::filesystem::create_symlink("..data/cert.pem", certificate());
    std::filesystem::create_symlink("..data/key.pem", key());
  }

  void Swap(const std::string& pair) {
    const std::string version = ".." + std::to_string(versions_++);
    folder_.Write(version + "/cert.pem", TextOfFile(certificates_->Certificate(pair)));
    folder_.Write(version + "/key.pem", TextOfFile(certificates_->Key(pair)));
    std::filesystem::create_symlink(version, folder_ / "..draft");
    std::filesystem::rename(folder_ / "..draft", folder_ / "..data");
  }

  std::string certificate() const { return folder_ / "cert.pem"; }
  std::string key() const { return folder_ / "key.pem"; }

 private:
  const CertificateFolder* const certificates_;
  const TempFolder folder_;
  int versions_ = 0;
};

}  // namespace icache::testing
