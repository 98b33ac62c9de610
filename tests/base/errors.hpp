// SPDX-License-Identifier: Apache-2.0
// The exceptions of calls inside the library.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/error.hpp"

namespace tandem::test {

// Status and message of the Error that `body` throws; TANDEM_OK and "": none.
template <class Body>
std::pair<tandem_status, std::string> status_of(const Body &body) {
  try {
    body();
    return {TANDEM_OK, ""};
  } catch (const base::Error &error) {
    EXPECT_STRNE(error.what(), "");
    return {error.status(), error.what()};
  }
}

// The message of the Error that `body` throws with this status.
template <class Body>
std::string refusal(tandem_status status, const Body &body) {
  const auto [got, message] = status_of(body);
  EXPECT_EQ(got, status) << message;
  return message;
}

}  // namespace tandem::test
