// Wiping: memory that has held a secret is overwritten before it is given back, so that no later dump has it.
#pragma once

#include <string>

namespace icache {

// Overwrites what `text` holds and empties it.
void Wipe(std::string* text);

// While one lives, all heap memory that its thread gives back by `delete` is overwritten first: for secrets that pass
// through libraries, which copy what they read as they please. It takes in neither what C libraries free() nor what is
// freed later or elsewhere. Sanitizers bring a heap of their own, which is left as it is. May be nested.
class WipeFreedMemory {
 public:
  WipeFreedMemory();
  ~WipeFreedMemory();
  WipeFreedMemory(const WipeFreedMemory&) = delete;
  WipeFreedMemory& operator=(const WipeFreedMemory&) = delete;
};

}  // namespace icache
