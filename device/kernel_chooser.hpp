// SPDX-License-Identifier: Apache-2.0
// Shared by the backends of devices: the choice of the generated kernel for a matrix, of its values, and of the time
// from which on a compile pays.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/log.hpp"
#include "core/backend.hpp"
#include "core/mismatch_ranges.hpp"
#include "core/tuning.hpp"
#include "device/options.hpp"
#include "device/programs.hpp"

namespace tandem::device {

class DeviceSession;

// A kernel chosen for a task.
struct Variant {
  std::shared_ptr<DeviceSession> session;  // destroyed after what is in it
  KernelSpec spec;                         // with a local size that the device runs
  std::shared_ptr<const DeviceProgram> program;
  std::uint64_t staging_bytes = 0;
  std::shared_ptr<const void> tables;  // technique tables: on the device, as DeviceSession::tables() gives them
};

// An operator in the form of a device's backend.
class DevicePrepared : public core::Prepared {
 public:
  DevicePrepared(const core::Operator &what, std::optional<DeviceSettings> forced);

  // The technique of the latest run. Before the first run: the techniques that a run may use.
  std::vector<core::TechniqueCost> techniques() const override;
  void add_bytes_elsewhere(std::uint64_t input_bytes) const override { count(input_bytes); }
  void count(std::uint64_t input_bytes) const noexcept { bytes_run.fetch_add(input_bytes, std::memory_order_relaxed); }

  const core::Matrix matrix;
  const std::shared_ptr<const CauchyPoints> points;  // null: technique transform is not possible
  const std::optional<DeviceSettings> forced;        // by prepare_tuned
  const Key key;                                     // of matrix and points

  // When runs need a compiled kernel: when their bytes pay for it; soon, for a plan that will be used often; or runs
  // wait for it. It rises only.
  enum class Need { when_it_pays, soon, now };
  void raise(Need to) const noexcept {
    for (Need old = need; old < to && !need.compare_exchange_weak(old, to);) {
    }
  }
  mutable std::atomic<Need> need{Need::when_it_pays};
  mutable std::atomic<std::uint64_t> bytes_run{0};
  mutable std::atomic<bool> cannot_transform{false};      // its kernel does not compile, or its work-groups do not run
  mutable std::atomic<bool> has_told_local{false};        // already logged
  mutable std::atomic<const char *> technique{"tables"};  // for techniques()

  // The state of one mode; the first run fills it.
  struct OfMode {
    std::optional<DeviceSettings> settings;
    std::optional<Technique> told;  // already logged
  };
  mutable std::mutex mutex;  // of what follows
  mutable std::array<OfMode, 3> modes;
  mutable std::map<std::tuple<core::Mode, Access, Binding>, Variant> ready;  // Workplace::choose_and_keep()
  mutable std::vector<Variant> captured;  // graphs may launch them while the plan exists
  struct Checked {
    std::weak_ptr<const DeviceProgram> program;
    std::weak_ptr<const void> tables;
  };
  mutable std::vector<Checked> checked;  // kernels that gave a right answer: see AnswerCheck
};

inline const DevicePrepared &prepared_of(const core::Task &task) {
  return static_cast<const DevicePrepared &>(*task.prepared);
}

class KernelChooser {
 public:
  // The device outlives the chooser.
  KernelChooser(const Options &options, const Device &device, const base::Log &log);

  // For a run; without session and tables. Compiles in the background and returns tables meanwhile, unless the
  // technique or the values are forced, or the plan waits. If the compiler fails, nothing more is compiled, and
  // technique tables is used; if it fails with technique transform, technique compiled is used. Throws Error
  // (UNAVAILABLE) for a matrix that this device has no technique for, and for forced values that it cannot run.
  Variant choose(const DevicePrepared &prepared, DevicePrograms &programs, core::Mode mode, Access access,
                 Binding binding) const;

  // Begins the compile that choose() will wait for, if there is one.
  void begin(const DevicePrepared &prepared, DevicePrograms &programs, core::Mode mode, Access access,
             Binding binding) const;

  // The tuning parameters for a matrix of this shape.
  std::vector<core::TuningParameter> parameters(unsigned rows, unsigned columns) const;
  // Values as prepare_tuned() takes them. Throws Error: INVALID_ARGUMENT, UNAVAILABLE.
  DeviceSettings forced_settings(unsigned rows, unsigned columns, const core::TuningValues &values) const;
  DeviceSettings settings(const DevicePrepared &prepared, core::Mode mode) const;
  core::TuningIdentity identity() const;
  void describe(const DevicePrepared &prepared) const;  // for its techniques()
  bool is_forced() const noexcept { return !technique_.empty() && technique_ != "auto"; }

 private:
  // The technique of a run, and how it gets the program.
  struct Choice {
    KernelSpec spec;
    DevicePrograms::Wait wait = DevicePrograms::Wait::now;
    std::string reason;
  };
  Choice decide(const DevicePrepared &prepared, const DevicePrograms &programs, const KernelSpec &spec,
                const DeviceSettings &settings) const;
  // Whether it throws rather than takes another kernel.
  bool is_fixed(const DevicePrepared &prepared) const noexcept { return is_forced() || prepared.forced.has_value(); }
  bool waits(const DevicePrepared &prepared) const noexcept {
    return is_fixed(prepared) || prepared.need == DevicePrepared::Need::now || !tables_fit(prepared);
  }
  void tell(const DevicePrepared &prepared, core::Mode mode, const Choice &choice) const;
  core::TuningChoice known_values(const DevicePrepared &prepared, core::Mode mode) const;
  // false: the compile still runs.
  bool build(const DevicePrepared &prepared, DevicePrograms &programs, Variant &variant,
             DevicePrograms::Wait wait) const;
  void leave_transform(const DevicePrepared &prepared, std::string why) const;
  bool does_not_fit(const DevicePrepared &prepared, const Variant &variant) const;
  void fit_local_size(const DevicePrepared &prepared, Variant &variant) const;
  KernelSpec spec_of(core::Mode mode, Access access, Binding binding, const DeviceSettings &settings) const;
  // The specification of technique transform, if that takes the place of compiled, else of compiled. Throws Error
  // (UNAVAILABLE) if forced values ask for transform in vain.
  KernelSpec program_spec(const DevicePrepared &prepared, const DevicePrograms &programs, KernelSpec spec,
                          const DeviceSettings &settings) const;
  Key text_key(const DevicePrepared &prepared, const DevicePrograms &programs, const KernelSpec &spec) const;
  bool tables_fit(const DevicePrepared &prepared) const noexcept {
    return prepared.columns() * kTableBytesPerColumn <= device_.local_bytes;
  }

  const Device &device_;
  const std::string technique_;
  const core::TuningSource *tuning_;
  const GenerateKernel generate_;
  base::Log log_;
};

// Merges records of a compare, those of `tiles`. The range begins at `start_bytes` of the shards. `ranges`, which may
// be null, gets the tiles that have a mismatch.
void merge_found(const KernelRange &range, const FoundTiles &tiles, const std::uint32_t *records,
                 std::uint64_t start_bytes, unsigned rows, core::Mismatch *mismatches, core::MismatchRanges *ranges);
// Merges all records that the kernel wrote.
void merge_records(const KernelRange &range, const std::uint32_t *records, std::uint64_t start_bytes, unsigned rows,
                   core::Mismatch *mismatches);

}  // namespace tandem::device
