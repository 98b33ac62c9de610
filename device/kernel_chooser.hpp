// What the backends of devices share: which generated kernel runs a matrix, with which values, and from when on it pays
// to compile one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/log.hpp"
#include "core/backend.hpp"
#include "core/mismatch_ranges.hpp"
#include "core/tuning.hpp"
#include "device/disk_cache.hpp"
#include "device/kernel_text.hpp"

namespace tandem::device {

// The values that may be tuned.
struct DeviceSettings {
  KernelTuning kernel;
  std::uint64_t staging_bytes = 0;        // of a piece: inputs and outputs together
  std::uint64_t compile_after_bytes = 0;  // of inputs that a matrix was applied to
};

// Puts values in. One that no kernel can have is left out, and `refused` hears of it.
DeviceSettings with_values(DeviceSettings settings, const core::TuningValues &values, unsigned most_element_bytes,
                           Loads most_loads, const std::function<void(const std::string &)> &refused);

// Powers of two from `least` to `most`, and `value`: candidates of a tuning parameter.
std::vector<std::uint64_t> powers_of_two(std::uint64_t least, std::uint64_t most, std::uint64_t value);

// An operator as the backend of a device keeps it.
class DevicePrepared : public core::Prepared {
 public:
  DevicePrepared(const core::Operator &what, std::optional<DeviceSettings> forced);

  const core::Matrix matrix;
  const std::optional<DeviceSettings> forced;  // by prepare_tuned
  const std::uint64_t id;                      // unique in the process: a cache key

  // Of one mode; resolved by the first run.
  struct OfMode {
    std::optional<DeviceSettings> settings;
    std::optional<Technique> told;  // to the log
  };
  struct Text {
    Key key;
    std::optional<bool> on_disk;  // once somebody asked
    bool told_local = false;
  };
  using TextName = std::tuple<Technique, core::Mode, Access, Binding>;
  static TextName name_of(const KernelSpec &spec) { return {spec.technique, spec.mode, spec.access, spec.binding}; }

  mutable std::mutex mutex;  // of what follows
  mutable std::array<OfMode, 3> modes;
  mutable std::map<TextName, Text> texts;
  mutable std::uint64_t bytes_run = 0;
};

// Where programs are kept that were built from texts.
class KernelPrograms {
 public:
  // The key of a program, from what its text is made of, for this device and compiler.
  virtual Key key(const std::string &made_of) const = 0;
  // Whether it need not be compiled. The disk is asked only if `ask_disk`.
  virtual bool known(const Key &key, bool ask_disk) const = 0;
  // Why nothing can be compiled here; "" where it can.
  virtual std::string no_compiler() const { return {}; }

 protected:
  ~KernelPrograms() = default;
};

// What the choice depends on.
struct KernelDevice {
  std::string label;  // in messages: "OpenCL"
  std::string name;   // "opencl:0:1"
  core::TuningIdentity identity;
  Dialect dialect = Dialect::opencl_c;
  bool byte_lanes = false;
  unsigned architecture = 75;  // CUDA C: KernelSpec's
  std::uint64_t local_bytes = 0;
  unsigned most_element_bytes = 64;
  Loads most_loads = Loads::plain;                        // the last one that its kernels can have
  std::function<DeviceSettings(unsigned rows)> settings;  // that suit a device that nobody has measured
};

using GenerateKernel = std::function<KernelText(const core::Matrix &, const KernelSpec &)>;

// The name of the kernel in every text.
inline constexpr const char *kKernelName = "tandem_apply";

class KernelChooser {
 public:
  struct Choice {
    KernelSpec spec;
    Key key;
    std::uint64_t staging_bytes = 0;
  };

  // technique: "" or "auto": by the bytes run; "tables"; "compiled". `tuning` may be null and outlives the chooser.
  KernelChooser(KernelDevice device, std::string technique, const core::TuningSource *tuning, GenerateKernel generate,
                const base::Log &log);

  // Length of a run of what is going to be used often: a compile pays, however long the first one is.
  static constexpr std::uint64_t kUsedOften = UINT64_MAX;

  // For a run of `length_bytes`, which are counted. Throws Error (UNAVAILABLE) for a matrix that this device has no
  // technique for.
  Choice choose(const DevicePrepared &prepared, const KernelPrograms &programs, core::Mode mode, Access access,
                Binding binding, std::uint64_t length_bytes) const;

  std::string text(const DevicePrepared &prepared, const KernelSpec &spec) const;

  // Whether a text with the task's shape in it (Binding::arguments of OpenCL) is worth its compile: the bytes pay for
  // one, or it is there already. Tables with Binding::offsets have one text for all shapes.
  bool is_worth_arguments(const DevicePrepared &prepared, const KernelPrograms &programs, core::Mode mode,
                          Access access, std::uint64_t length_bytes) const;

  DeviceSettings settings(const DevicePrepared &prepared, core::Mode mode) const;
  core::TuningIdentity identity() const;
  const std::string &kernel_hash() const;
  bool is_forced() const noexcept { return technique_ == "tables" || technique_ == "compiled"; }

 private:
  Technique technique(const DevicePrepared &prepared, const KernelPrograms &programs, const KernelSpec &spec,
                      const DeviceSettings &settings, std::uint64_t length_bytes) const;
  KernelSpec spec_of(core::Mode mode, Access access, Binding binding, const DeviceSettings &settings) const;
  bool is_known(const DevicePrepared &prepared, const KernelPrograms &programs, const KernelSpec &spec) const;
  const std::string &generator_hash() const;
  Key text_key(const DevicePrepared &prepared, const KernelPrograms &programs, const KernelSpec &spec) const;
  bool tables_fit(const DevicePrepared &prepared) const noexcept;

  const KernelDevice device_;
  const std::string technique_;
  const core::TuningSource *tuning_;
  const GenerateKernel generate_;
  base::Log log_;
  mutable std::once_flag hashed_, generator_hashed_;
  mutable std::string kernel_hash_, generator_hash_;
};

inline constexpr std::uint64_t kRecordBytes = 8;  // of a compare: see KernelRange

// Merges what a compare found; `start_bytes` is where the range begins in the shards.
void merge_records(const KernelRange &range, std::span<const std::uint32_t> records, std::uint64_t start_bytes,
                   unsigned rows, core::Mismatch *mismatches);

// The same records as ranges: the tiles with a difference.
void merge_record_ranges(const KernelRange &range, std::span<const std::uint32_t> records, std::uint64_t start_bytes,
                         unsigned rows, core::MismatchRanges *ranges);

// A task on memory of the host whose matrix has no columns: the sum of nothing is zero.
void apply_nothing(const core::Task &task);

}  // namespace tandem::device
