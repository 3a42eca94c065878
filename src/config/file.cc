#include "icache/config/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace icache {
namespace {

absl::Status CannotRead(int error) {
  return absl::InvalidArgumentError(absl::StrCat("cannot be read: ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return CannotRead(errno);
  const absl::Cleanup close_file = [file] { close(file); };
  struct stat status;
  if (fstat(file, &status) != 0) return CannotRead(errno);
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError("is not a regular file");

  // Not by the size that was reported: the file may grow meanwhile.
  std::string text;
  char buffer[64 << 10];
  const absl::Cleanup wipe_buffer = [&buffer] { explicit_bzero(buffer, sizeof(buffer)); };  // it may hold a secret
  for (;;) {
    const ssize_t count = read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(errno);
    if (count == 0) return text;
    if (text.size() + static_cast<size_t>(count) > max_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("is larger than ", max_bytes, " bytes"));
    }
    text.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace icache
