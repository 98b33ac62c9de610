// SPDX-License-Identifier: Apache-2.0
#include "hybrid/runtime/prepared.hpp"

#include <utility>

namespace tandem::hybrid {

HybridPrepared::HybridPrepared(const core::Operator &what, std::shared_ptr<const core::Prepared> of_small)
    : Prepared(what), small(std::move(of_small)), what_(what) {}

std::shared_ptr<const core::Prepared> HybridPrepared::of(std::size_t member, core::Backend &backend) const {
  if (member == 0) return small;
  Forms &forms = forms_.get();
  std::unique_lock lock(forms.mutex);
  if (forms.of.size() <= member) forms.of.resize(member + 1);
  if (forms.of[member].prepared == nullptr) {
    lock.unlock();
    std::shared_ptr<const core::Prepared> made = backend.prepare(what_);
    lock.lock();
    if (forms.of[member].prepared == nullptr) forms.of[member].prepared = std::move(made);
  }
  Form &form = forms.of[member];
  const std::uint64_t bytes = bytes_of_cpu_.load();
  if (const std::uint64_t counted = std::exchange(form.bytes_of_cpu, bytes); counted != bytes)
    form.prepared->add_bytes_elsewhere(bytes - counted);
  return form.prepared;
}

}  // namespace tandem::hybrid
