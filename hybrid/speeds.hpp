// What a hybrid has learned about its members, from one run to the next: how fast each is at what, and whether those
// that share the CPUs' cores or memory bring more than they take.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "core/backend.hpp"
#include "hybrid/estimate.hpp"

namespace tandem::hybrid {

// Of what a speed is: the mode and the shape of the matrix.
struct WorkKind {
  core::Mode mode;
  unsigned columns, rows;
  auto operator<=>(const WorkKind &) const = default;
};

class Speeds {
 public:
  // The estimate for one lane of a member; unknown if it never did this kind.
  Estimate of(std::size_t member, const WorkKind &kind, double latency_seconds) const;
  void keep(std::size_t member, const WorkKind &kind, const Estimate &estimate);

  // A chunk of a CPU lane, done while devices were at work or not.
  void cpu_chunk(const WorkKind &kind, double bytes, double seconds, bool beside_devices);
  // A chunk of a lane of a device that has so many.
  void device_chunk(std::size_t member, const WorkKind &kind, double bytes, double seconds, unsigned lanes);

  // Whether enough was seen of the CPU's lanes by themselves: devices begin afterwards.
  bool knows_cpu_alone(const WorkKind &kind) const;

  // Whether devices may take part in this kind: unknown, or the CPU's lanes beside them and they do more together than
  // the lanes alone. What was found not to be worth it is tried again now and then: call once a run.
  bool admits_devices(const WorkKind &kind, unsigned cpu_lanes);
  // The same for a run under way.
  bool is_worth_it(const WorkKind &kind, unsigned cpu_lanes) const;
  // (lanes beside devices + devices) / lanes alone; 0: not known yet.
  double gain(const WorkKind &kind, unsigned cpu_lanes) const;

 private:
  // Of the latest chunks; older ones weigh less.
  struct Rate {
    double bytes = 0, seconds = 0;
    unsigned count = 0;
    void add(double more_bytes, double more_seconds) noexcept;
    double value() const noexcept { return seconds > 0 ? bytes / seconds : 0; }
  };
  struct Sharing {
    Rate alone, beside;
    std::map<std::size_t, Rate> devices;  // by member, all lanes of each
    std::uint64_t runs_left_out = 0, patience = 16;
  };

  std::map<std::pair<std::size_t, WorkKind>, Estimate> estimates_;
  std::map<WorkKind, Sharing> sharing_;
};

}  // namespace tandem::hybrid
