// RETURN_IF_ERROR and ASSIGN_OR_RETURN: hand an absl::Status up the stack. (absl 20220623 ships neither.)
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define ICACHE_CONCAT_INNER(a, b) a##b
#define ICACHE_CONCAT(a, b) ICACHE_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression`, an absl::Status, is not OK.
#define RETURN_IF_ERROR(expression)                                                             \
  do {                                                                                          \
    if (::absl::Status icache_status = (expression); !icache_status.ok()) return icache_status; \
  } while (false)

// Moves the value of `expression`, an absl::StatusOr, into `target`, or returns its status.
#define ASSIGN_OR_RETURN(target, expression) \
  ICACHE_ASSIGN_OR_RETURN_INNER(ICACHE_CONCAT(icache_result_, __LINE__), target, expression)
#define ICACHE_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return result.status();                       \
  target = *std::move(result)
