// What a hybrid has learned about its members, from one run to the next: how fast each is at what, and whether those
// that share the CPUs' cores or memory bring more than they take.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "core/backend.hpp"
#include "hybrid/policy/estimate.hpp"

namespace tandem::hybrid {

// Of what a speed is: the mode and the shape of the matrix.
struct WorkKind {
  core::Mode mode;
  unsigned columns, rows;
  unsigned size_class = 0;  // of the run: caches make short ones faster, and nothing of them holds for long ones
  auto operator<=>(const WorkKind &) const = default;
};
inline constexpr unsigned kSizeClasses = 3;
unsigned size_class_of(std::uint64_t moved_bytes) noexcept;
std::string text_of(const WorkKind &kind);  // "assign 4x10": rows x columns

// How many lanes of the CPU work at once: by themselves, and beside devices, whose feeding takes some of the cores.
struct CpuLanes {
  unsigned alone, beside;
};

class Speeds {
 public:
  static constexpr std::uint64_t kFirstPatience = 16;

  // The estimate for one lane of a member; unknown if it never did this kind.
  Estimate of(std::size_t member, const WorkKind &kind, double latency_seconds) const;
  void keep(std::size_t member, const WorkKind &kind, const Estimate &estimate);

  // What an earlier process saw: bytes per second of one of the member's lanes; of the CPU also with no device at work,
  // if that is not 0.
  void recall_device(std::size_t member, const WorkKind &kind, double bytes_per_second, unsigned lanes);
  void recall_cpu(std::size_t member, const WorkKind &kind, double bytes_per_second, double alone_bytes_per_second);

  // A run that the CPU's lanes did by themselves, all of them.
  void cpu_run(const WorkKind &kind, double bytes, double seconds, unsigned lanes);
  // A chunk of a CPU lane, and for how long of its time any device was at work.
  void cpu_chunk(const WorkKind &kind, double bytes, double seconds, double seconds_beside_devices);
  // A chunk of a lane of a device that has so many.
  void device_chunk(std::size_t member, const WorkKind &kind, double bytes, double seconds, unsigned lanes);

  // Whether enough was seen of the CPU's lanes by themselves: devices begin afterwards.
  bool knows_cpu_alone(const WorkKind &kind) const;

  // Bytes per second of one lane of the CPU, with no device at work and beside devices; 0: not known.
  double cpu_alone(const WorkKind &kind) const;
  double cpu_beside(const WorkKind &kind) const;
  // Of a device, all lanes; 0: not known.
  double device(std::size_t member, const WorkKind &kind) const;

  // Whether devices may take part in this kind: unknown, or the CPU's lanes beside them and they do more together than
  // the lanes alone. What was found not to be worth it is tried again now and then: call once a run.
  bool admits_devices(const WorkKind &kind, CpuLanes lanes);
  // The same for a run under way.
  bool is_worth_it(const WorkKind &kind, CpuLanes lanes) const;
  // (lanes beside devices + devices) / lanes alone; 0: not known yet.
  double gain(const WorkKind &kind, CpuLanes lanes) const;

  const std::map<std::pair<std::size_t, WorkKind>, Estimate> &estimates() const noexcept { return estimates_; }

 private:
  // Of the latest chunks; older ones weigh less.
  struct Rate {
    double bytes = 0, seconds = 0;
    unsigned count = 0;
    void add(double more_bytes, double more_seconds) noexcept;
    void recall(double value) noexcept;
    double value() const noexcept { return seconds > 0 ? bytes / seconds : 0; }
  };
  struct Sharing {
    Rate alone, beside;
    std::map<std::size_t, Rate> devices;  // by member, all lanes of each
    std::uint64_t runs_left_out = 0, patience = kFirstPatience;
  };

  std::map<std::pair<std::size_t, WorkKind>, Estimate> estimates_;
  std::map<WorkKind, Sharing> sharing_;
};

}  // namespace tandem::hybrid
