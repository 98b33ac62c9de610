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
  constexpr std::chrono::milliseconds kLeast{100};
  const std::chrono::milliseconds waited(module.waited_ms.load());
  patience = std::max(patience - waited, std::min(patience, kLeast));
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
    module.waited_ms = 0;
    return listing;
  });
  if (answer) return *answer;
  const std::int64_t in_vain = (waited + patience).count();
  module.waited_ms = in_vain;
  return {{}, base::text("the driver has not answered in ", static_cast<double>(in_vain) / 1000.0, " s")};
}

}  // namespace tandem::device
