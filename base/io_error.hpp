// SPDX-License-Identifier: Apache-2.0
// Errors of the operating system.
#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace tandem::base {

// "cannot write shards/a.003.tandem: No space left on device (errno 28)". TANDEM_ERROR_IO, but OUT_OF_MEMORY for
// ENOMEM.
[[noreturn]] void fail_io(std::string_view what, const std::string &path, int error_number);

// The error says nothing about the file itself: it is not damaged.
bool is_out_of_resources(int error_number) noexcept;

// "No space left on device (errno 28)".
std::string error_text(int error_number);

}  // namespace tandem::base
