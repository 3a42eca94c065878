#include "icache/config/file_set.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "icache/base/status_macros.h"
#include "icache/config/file.h"

namespace icache {
namespace {

bool IsSetFileName(std::string_view name) {
  return !name.empty() && name.front() != '.' && (name.ends_with(".yaml") || name.ends_with(".yml"));
}

absl::Status CannotRead(const std::string& path, const std::error_code& error) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read: ", error.message()));
}

FileStamp StampFile(const std::string& path) {
  FileStamp stamp;
  stamp.path = path;
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    stamp.error = errno;
    return stamp;
  }
  stamp.device = status.st_dev;
  stamp.inode = status.st_ino;
  stamp.size = status.st_size;
  stamp.modified = absl::TimeFromTimespec(status.st_mtim);
  stamp.changed = absl::TimeFromTimespec(status.st_ctim);
  return stamp;
}

// The paths of the files at `path`, which may be that of anything where folders are refused.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& path, Folders folders) {
  if (path.empty()) return std::vector<std::string>();
  if (folders == Folders::kRefused) return std::vector<std::string>{path};
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error) return CannotRead(path, error);
  if (!std::filesystem::is_directory(status)) return std::vector<std::string>{path};

  std::vector<std::string> paths;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (!IsSetFileName(entry->path().filename().native())) continue;
    std::error_code unreadable;  // such a file is for ReadFileSet() to complain of
    if (entry->is_directory(unreadable)) continue;
    if (paths.size() == kMaxFolderFiles) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": has more than ", kMaxFolderFiles, " files"));
    }
    paths.push_back(entry->path().native());
  }
  if (error) return CannotRead(path, error);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

absl::Time FileSetStamp::LastChange() const {
  absl::Time last = absl::InfinitePast();
  for (const FileStamp& file : files) last = std::max(last, file.error == 0 ? file.changed : last);
  return last;
}

FileSetStamp StampFileSet(absl::Span<const std::string> paths, Folders folders) {
  FileSetStamp stamp;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    stamp.files.push_back(StampFile(path));
    const absl::StatusOr<std::vector<std::string>> files = ListFiles(path, folders);
    if (!files.ok()) continue;
    for (const std::string& file : *files) {
      if (file != path) stamp.files.push_back(StampFile(file));
    }
  }
  return stamp;
}

absl::StatusOr<std::vector<TextFile>> ReadFileSet(absl::Span<const std::string> paths, Folders folders) {
  std::vector<TextFile> files;
  size_t room = kMaxFileSetBytes;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles(path, folders));
    for (const std::string& file : names) {
      absl::StatusOr<std::string> text = ReadFile(file, room);
      if (!text.ok() && text.status().code() == absl::StatusCode::kResourceExhausted) {
        return absl::InvalidArgumentError(
            absl::StrCat(file, ": brings the files to more than ", kMaxFileSetBytes, " bytes"));
      }
      if (!text.ok()) return absl::InvalidArgumentError(absl::StrCat(file, ": ", text.status().message()));
      room -= text->size();
      files.push_back({file, *std::move(text)});
    }
  }
  return files;
}

}  // namespace icache
