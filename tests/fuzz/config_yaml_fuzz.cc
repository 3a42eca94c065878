// A config file: settings or a list of problems, whatever its bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "config/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  icache::DaemonOptions options;
  icache::Origins origins;
  icache::Problems problems;
  icache::ApplyConfigText(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.yaml", &options, &origins,
                          &problems);
  return 0;
}
