// An operator in the forms of a hybrid's members. Each form is made at its first use.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/fork.hpp"
#include "core/backend.hpp"

namespace tandem::hybrid {

class HybridPrepared final : public core::Prepared, public std::enable_shared_from_this<HybridPrepared> {
 public:
  HybridPrepared(const core::Operator &what, std::shared_ptr<const core::Prepared> small);

  std::vector<core::Technique> techniques() const override { return small->techniques(); }
  std::uint64_t out_of_cache_bytes(core::Mode mode) const override { return small->out_of_cache_bytes(mode); }

  const std::shared_ptr<const core::Prepared> small;  // by the backend for small runs

  // Any thread. Holds no lock meanwhile, because a device may take long. Throws the exceptions of its prepare.
  std::shared_ptr<const core::Prepared> of(std::size_t member, core::Backend &backend) const;

  // This member alone applied the operator to so many bytes of inputs: the forms of the others count them too.
  void ran_alone(std::size_t member, std::uint64_t input_bytes) const;

 private:
  struct Forms {
    std::mutex mutex;
    std::vector<std::shared_ptr<const core::Prepared>> of;
  };

  const core::Operator what_;
  mutable base::ForkLocal<Forms> forms_;
};

inline const HybridPrepared &hybrid_of(const core::Task &task) {
  return static_cast<const HybridPrepared &>(*task.prepared);
}

}  // namespace tandem::hybrid
