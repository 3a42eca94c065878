// RaiseFileLimit: as many file descriptors as the process may have.
#pragma once

namespace icache {

// Raises the soft limit to the hard one. Each connection takes a descriptor, and the usual soft limit is that of
// programs that call select().
void RaiseFileLimit();

}  // namespace icache
