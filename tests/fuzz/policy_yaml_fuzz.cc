// A policy file: a set of policies or a list of problems, whatever its bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "icache/config/policy_loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)icache::ParsePolicies(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.yaml");
  return 0;
}
