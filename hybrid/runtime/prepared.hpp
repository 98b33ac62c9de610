// SPDX-License-Identifier: Apache-2.0
// An operator in the forms of a hybrid's members. Each form is made at its first use.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork.hpp"
#include "core/backend.hpp"

namespace tandem::hybrid {

class HybridPrepared final : public core::Prepared, public std::enable_shared_from_this<HybridPrepared> {
 public:
  HybridPrepared(const core::Operator &what, std::shared_ptr<const core::Prepared> small);

  std::vector<core::TechniqueCost> techniques() const override { return small->techniques(); }
  std::uint64_t out_of_cache_bytes(core::Mode mode) const override { return small->out_of_cache_bytes(mode); }

  const std::shared_ptr<const core::Prepared> small;  // by the first member

  // Any thread. Holds no lock while the member prepares, because a device may take long. Throws the exceptions of its
  // prepare.
  std::shared_ptr<const core::Prepared> of(std::size_t member, core::Backend &backend) const;

  // The CPU alone applied the operator to `input_bytes` bytes of inputs. A device counts them at its next use.
  void add_bytes_of_cpu(std::uint64_t input_bytes) const noexcept { bytes_of_cpu_ += input_bytes; }

 private:
  struct Form {
    std::shared_ptr<const core::Prepared> prepared;
    std::uint64_t bytes_of_cpu = 0;  // that it has counted
  };
  struct Forms {
    std::mutex mutex;
    std::vector<Form> of;
  };

  const core::Operator what_;
  mutable std::atomic<std::uint64_t> bytes_of_cpu_{0};
  mutable base::ForkLocal<Forms> forms_;
};

inline const HybridPrepared &hybrid_of(const core::Task &task) {
  return static_cast<const HybridPrepared &>(*task.prepared);
}

}  // namespace tandem::hybrid
