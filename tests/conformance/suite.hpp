// SPDX-License-Identifier: Apache-2.0
// The conformance suite: tests that every backend keeps the promises of core/backend.hpp. A new backend needs a maker
// and
//
//     INSTANTIATE_TEST_SUITE_P(Name, BackendConformance, testing::ValuesIn(my_makers()), maker_name);
//     INSTANTIATE_TEST_SUITE_P(Name, FormConformance, testing::ValuesIn(my_makers()), maker_name);
//
// in a file linked with suite.cpp.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "core/backend.hpp"

namespace tandem::test {

struct BackendMaker {
  std::string name;  // letters, digits and underscores
  std::function<std::unique_ptr<core::Backend>()> make;
  std::string not_run;  // not empty: why this machine cannot run it
  // What the operators have that it is asked to run.
  std::uint64_t granularity_bytes = 1;
  bool reverses_groups = false;  // what it computes from: each group of so many bytes in reverse
  bool takes_any_count = false;  // of inputs and outputs; else it may refuse more than a field has elements
  bool takes_gf16 = false;       // every form over GF(2^16); else it may refuse
  bool takes_packets = false;    // the same of forms on packets
};

// The CPU, for device::Options. `before`: each run.
std::shared_ptr<core::Backend> cpu_reference(std::function<void()> before = nullptr);

inline std::string maker_name(const testing::TestParamInfo<BackendMaker> &test) { return test.param.name; }

class BackendConformance : public testing::TestWithParam<BackendMaker> {
 protected:
  void SetUp() override {
    if (!GetParam().not_run.empty()) GTEST_SKIP() << "NOT RUN: " << GetParam().not_run;
    backend_ = GetParam().make();
  }

  std::unique_ptr<core::Backend> backend_;
};

// The same of operators that are not matrices.
class FormConformance : public BackendConformance {};

}  // namespace tandem::test
