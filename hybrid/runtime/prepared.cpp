#include "hybrid/runtime/prepared.hpp"

namespace tandem::hybrid {

HybridPrepared::HybridPrepared(const core::Operator &what, std::shared_ptr<const core::Prepared> of_small)
    : Prepared(what), small(std::move(of_small)), what_(what) {}

std::shared_ptr<const core::Prepared> HybridPrepared::of(std::size_t member, core::Backend &backend) const {
  Forms &forms = forms_.get();
  {
    const std::lock_guard lock(forms.mutex);
    if (member < forms.of.size() && forms.of[member] != nullptr) return forms.of[member];
  }
  std::shared_ptr<const core::Prepared> made = backend.prepare(what_);
  const std::lock_guard lock(forms.mutex);
  if (forms.of.size() <= member) forms.of.resize(member + 1);
  if (forms.of[member] == nullptr) forms.of[member] = std::move(made);
  return forms.of[member];
}

void HybridPrepared::ran_alone(std::size_t member, std::uint64_t input_bytes) const {
  Forms &forms = forms_.get();
  const std::lock_guard lock(forms.mutex);
  for (std::size_t i = 0; i < forms.of.size(); ++i)
    if (i != member && forms.of[i] != nullptr) forms.of[i]->add_bytes_elsewhere(input_bytes);
}

}  // namespace tandem::hybrid
