// ChildProcess: a program of the project, run for one test. IcachedProcess: the real icached on free ports.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace icache::testing {

// Thread-compatible.
class ChildProcess {
 public:
  // Starts bin/`program` and waits until it logs the event `ready_event`; ready() says whether it came to that.
  ChildProcess(const std::string& program, std::vector<std::string> flags, const std::string& ready_event)
      : ready_event_(" " + ready_event) {
    flags.insert(flags.begin(), ICACHE_BINARY_DIR "/bin/" + program);
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // does not outlive a test that is killed
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    output_fd_ = ends[0];
    while (!ready() && ReadOutput()) {
    }
  }
  ~ChildProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(output_fd_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  bool ready() const { return output_.find(ready_event_) != std::string::npos; }
  const std::string& output() const { return output_; }
  // Waits until it has said `text`; false when it ends before.
  bool WaitForOutput(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      if (!ReadOutput()) return false;
    }
    return true;
  }
  int http_port() const { return std::stoi(Logged("http_port")); }

  // Resident memory.
  int64_t RssBytes() const {
    std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
    int64_t pages = 0;
    statm >> pages >> pages;  // the second number
    return pages * sysconf(_SC_PAGESIZE);
  }

  // Open file descriptors.
  size_t FdCount() const {
    const std::filesystem::directory_iterator fds("/proc/" + std::to_string(pid_) + "/fd");
    return static_cast<size_t>(std::distance(begin(fds), end(fds)));
  }
  // From now on it may have no more descriptors than that.
  void LimitFds(size_t most) const {
    rlimit limit;
    ASSERT_EQ(prlimit(pid_, RLIMIT_NOFILE, nullptr, &limit), 0);
    limit.rlim_cur = most;
    ASSERT_EQ(prlimit(pid_, RLIMIT_NOFILE, &limit, nullptr), 0);
  }
  void Signal(int number) { kill(pid_, number); }

  // Whether `text` is anywhere in what it may write to in its memory.
  bool MemoryHolds(const std::string& text) const {
    const std::string proc = "/proc/" + std::to_string(pid_);
    std::ifstream maps(proc + "/maps");
    std::ifstream memory(proc + "/mem", std::ios::binary);
    EXPECT_TRUE(maps && memory);
    for (std::string line; std::getline(maps, line);) {
      uint64_t begin = 0;
      uint64_t end = 0;
      char mode[5] = "";
      if (sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, mode) != 3 || mode[1] != 'w') continue;
      std::string piece(std::min<uint64_t>(end - begin, 16 << 20), '\0');  // of what is larger, the rest is reserved
      memory.clear();
      memory.seekg(static_cast<std::streamoff>(begin));
      memory.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      if (piece.find(text) != std::string::npos) return true;
    }
    return false;
  }

  // Asks it to end and returns its exit status, or minus the signal that ended it.
  int Terminate() {
    kill(pid_, SIGTERM);
    while (ReadOutput()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  // False at the end of the output.
  bool ReadOutput() {
    char buffer[4096];
    const ssize_t size = read(output_fd_, buffer, sizeof(buffer));
    if (size <= 0) return false;
    output_.append(buffer, size);
    return true;
  }

 protected:
  // The word after the first ` key=` in the output.
  std::string Logged(const std::string& key) const {
    const size_t begin = output_.find(" " + key + "=") + key.size() + 2;
    return output_.substr(begin, output_.find_first_of(" \n", begin) - begin);
  }

 private:
  const std::string ready_event_;
  pid_t pid_ = 0;
  int output_fd_ = -1;
  std::string output_;
};

class IcachedProcess : public ChildProcess {
 public:
  // `flags` go before the addresses.
  explicit IcachedProcess(std::vector<std::string> flags)
      : ChildProcess("icached", WithPorts(std::move(flags)), "ready") {}

  std::string grpc_address() const { return Logged("address"); }

 private:
  static std::vector<std::string> WithPorts(std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"});
    return flags;
  }
};

}  // namespace icache::testing
