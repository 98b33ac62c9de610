// SPDX-License-Identifier: Apache-2.0
#include "device/listing.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/patience.hpp"
#include "base/text.hpp"

namespace tandem::device {

Listing list_devices(const DeviceModule &module, std::chrono::milliseconds patience, bool given,
                     std::function<void(Listing &)> ask) {
  constexpr std::chrono::milliseconds kLater{100};  // where the driver was silent before
  if (module.silent) patience = std::min(patience, kLater);
  if (module.in_child()) return {{}, base::text("this process was forked by one that had used ", module.label)};
  const auto answer = base::answer_within<Listing>(patience, [&module, given, ask = std::move(ask)] {
    Listing listing;
    try {
      if (!given) module.check_installed();
      module.claim();
      ask(listing);
    } catch (const base::Error &error) {
      listing.missing = error.what();
    }
    return listing;
  });
  module.silent = !answer;
  return answer.value_or(Listing{{}, "the driver does not answer"});
}

}  // namespace tandem::device
