// File sets: some paths, each that of a file or, where that is allowed, of a folder of YAML files, which are read
// together; and when what lies there last changed, without reading it.
//
// Of a folder, the files named *.yaml and *.yml belong to the set, in bytewise order of their names. Links are
// followed; hidden entries, other names and what lies in folders below are left out. An empty path stands for no file.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace icache {

inline constexpr size_t kMaxFolderFiles = 10'000;     // of one folder
inline constexpr size_t kMaxFileSetBytes = 16 << 20;  // of all files together

// One file as it was read.
struct TextFile {
  std::string path;  // for messages
  std::string text;

  friend bool operator==(const TextFile& a, const TextFile& b) = default;
};

// Whether a path may be that of a folder. Where it may not, each path that is not empty is one file.
enum class Folders { kRefused, kRead };

// The files at `paths`, in that order. InvalidArgument when one cannot be read or they are too many or too large.
absl::StatusOr<std::vector<TextFile>> ReadFileSet(absl::Span<const std::string> paths,
                                                  Folders folders = Folders::kRefused);

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

struct FileSetStamp {
  std::vector<FileStamp> files;

  // The latest change of any file; InfinitePast() without files.
  absl::Time LastChange() const;

  friend bool operator==(const FileSetStamp& a, const FileSetStamp& b) = default;
};

// The stamps of `paths` themselves and of each file there. Never fails: what is missing is part of the stamp.
FileSetStamp StampFileSet(absl::Span<const std::string> paths, Folders folders);

}  // namespace icache
