// A matrix as this backend keeps it, and the choice of a kernel for it.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "core/backend.hpp"
#include "core/kernel_text.hpp"
#include "opencl/disk_cache.hpp"
#include "opencl/factory.hpp"
#include "opencl/programs.hpp"

namespace tandem::opencl {

// The values that may be tuned.
struct Settings {
  core::KernelTuning kernel;
  std::uint64_t staging_bytes = 0;        // of a piece: inputs and outputs together
  std::uint64_t compile_after_bytes = 0;  // of inputs that a matrix was applied to
};

// What suits a device that nobody has measured.
Settings default_settings(const Device &device);

// Puts values in. One that no kernel can have is left out, and `refused` hears of it.
Settings with_values(Settings settings, const core::TuningValues &values,
                     const std::function<void(const std::string &)> &refused);

std::vector<core::TuningParameter> parameters_of(const Settings &settings, const Device &device);

class OpenclPrepared final : public core::Prepared {
 public:
  OpenclPrepared(const core::Matrix &coefficients, std::optional<Settings> forced);

  const core::Matrix matrix;
  const std::optional<Settings> forced;  // by prepare_tuned
  const std::uint64_t id;                // unique in the process: a cache key

  // Of one mode; resolved by the first run.
  struct OfMode {
    std::optional<Settings> settings;
    std::optional<core::Technique> told;  // to the log
  };
  struct Text {
    Key key;
    std::optional<bool> on_disk;  // once somebody asked
    bool told_local = false;
  };
  using TextName = std::tuple<core::Technique, core::Mode, core::Access, core::Binding>;

  mutable std::mutex mutex;  // of what follows
  mutable std::array<OfMode, 3> modes;
  mutable std::map<TextName, Text> texts;
  mutable std::uint64_t bytes_run = 0;
};

inline const OpenclPrepared &prepared_of(const core::Task &task) {
  return static_cast<const OpenclPrepared &>(*task.prepared);
}

// A kernel chosen for a task.
struct Variant {
  core::KernelSpec spec;  // with a local size that the device runs
  std::shared_ptr<const Program> program;
  std::uint64_t staging_bytes = 0;
};

// The widest element.
inline constexpr std::uint64_t kAlignedBytes = 64;

class Chooser {
 public:
  Chooser(const Options &options, const Device &device, const core::Log &log);

  // Throws Error (UNAVAILABLE, INVALID_ARGUMENT) for forced values that the device cannot run.
  Variant choose(const OpenclPrepared &prepared, Programs &programs, core::Mode mode, core::Access access,
                 core::Binding binding, std::uint64_t length_bytes) const;

  // For shards that begin, or do not all begin, at multiples of kAlignedBytes in buffers that the driver placed.
  core::Access access(bool is_aligned) const noexcept;

  // Whether a text with the task's shape in it (Binding::arguments) is worth its compile: the bytes pay for one, or it
  // is there already. Tables with Binding::offsets have one text for all shapes.
  bool is_worth_arguments(const OpenclPrepared &prepared, Programs &programs, core::Mode mode,
                          std::uint64_t length_bytes) const;

  Settings settings(const OpenclPrepared &prepared, core::Mode mode) const;
  core::TuningIdentity identity() const;
  const std::string &kernel_hash() const;

 private:
  core::Technique technique(const OpenclPrepared &prepared, Programs &programs, const core::KernelSpec &spec,
                            const Settings &settings, std::uint64_t length_bytes) const;
  core::KernelSpec spec_of(core::Mode mode, core::Access access, core::Binding binding, const Settings &settings) const;
  bool is_known(const OpenclPrepared &prepared, Programs &programs, const core::KernelSpec &spec) const;
  const std::string &generator_hash() const;
  Key text_key(const OpenclPrepared &prepared, Programs &programs, const core::KernelSpec &spec) const;
  void fit_local_size(const OpenclPrepared &prepared, Variant &variant) const;

  const Options &options_;
  const Device &device_;
  core::Log log_;
  mutable std::once_flag hashed_, generator_hashed_;
  mutable std::string kernel_hash_, generator_hash_;
};

}  // namespace tandem::opencl
