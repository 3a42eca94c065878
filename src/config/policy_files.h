// Which files are policy files, and when they last changed, without reading them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace icache {

// The paths of the policy files at `path`, as ReadPolicyFiles (policy_loader.h) reads them.
absl::StatusOr<std::vector<std::string>> ListPolicyFiles(const std::string& path);

// What the file system knows about one file, links followed. Two stamps that are equal mean equal content, unless the
// file was written again within the same tick of the file system's clock.
struct FileStamp {
  std::string path;
  int error = 0;  // errno when it cannot be told; the rest is 0 then
  dev_t device = 0;
  ino_t inode = 0;
  int64_t size = 0;
  absl::Time modified;
  absl::Time changed;  // of the inode: unlike `modified`, nobody can set it back

  friend bool operator==(const FileStamp& a, const FileStamp& b) = default;
};

struct PolicyStamp {
  std::vector<FileStamp> files;

  // The latest change of any file; InfinitePast() without files.
  absl::Time LastChange() const;

  friend bool operator==(const PolicyStamp& a, const PolicyStamp& b) = default;
};

// The stamps of `path` itself and of each policy file there. Never fails: what is missing is part of the stamp.
PolicyStamp StampPolicyFiles(const std::string& path);

}  // namespace icache
