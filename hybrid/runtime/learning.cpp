// What a runtime learns, what it makes of that, and what it tells: the log and the timeline.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hybrid/runtime/runtime.hpp"

namespace tandem::hybrid {
namespace {

constexpr double kStartUps = 2;  // so many times what a start costs is missed before it is made
// A run that nothing is known about is shared from here on; it takes some milliseconds.
constexpr std::uint64_t kShareUnknownBytes = 64 << 20;
// A run is worth looking at a device whose speed is unknown, if it takes so many times the device's latency.
constexpr double kLatencies = 20;
constexpr double kWorthRemembering = 0.1;   // how far a speed is off what was remembered, as a part of it
constexpr double kMostStartUpSeconds = 10;  // of what is remembered

core::TunedOperation operation_of(core::Mode mode) {
  return mode == core::Mode::assign    ? core::TunedOperation::encode
         : mode == core::Mode::compare ? core::TunedOperation::verify
                                       : core::TunedOperation::update;
}

// Bytes that are moved for each byte of data.
double moved_per_byte(const WorkKind &kind) {
  return static_cast<double>(kind.columns + kind.rows) / static_cast<double>(kind.columns);
}

bool is_far(double a, double b) { return std::abs(a - b) > kWorthRemembering * std::max(a, b); }

}  // namespace

// What earlier processes knew of the member.
void Runtime::recall(std::size_t index) {
  MemberState &state = *members_[index];
  for (const core::SpeedEntry &entry : options_.known) {
    if (entry.worker != state.member.name) continue;
    // It is of the longest runs that there were; for others it is better than nothing.
    WorkKind kind{core::tuned_operation_mode(entry.operation), entry.k, entry.m};
    const double moved = moved_per_byte(kind);
    for (kind.size_class = 0; kind.size_class < kSizeClasses; ++kind.size_class) {
      if (state.member.is_in_place) {
        speeds_.recall_cpu(index, kind, entry.bytes_per_second * moved, entry.alone_bytes_per_second * moved);
      } else {
        speeds_.recall_device(index, kind, entry.bytes_per_second * moved, state.member.lanes);
      }
    }
    if (!state.member.is_in_place) {
      if (entry.date < state.recalled_date) continue;
      state.recalled_date = entry.date;
      state.start_up_seconds = std::min(entry.start_up_seconds, kMostStartUpSeconds);
    }
  }
}

std::vector<core::SpeedEntry> Runtime::learned() const {
  const Lock lock(mutex_);
  std::vector<core::SpeedEntry> list;
  for (const auto &[of, estimate] : speeds_.estimates()) {
    const auto &[index, kind] = of;
    const MemberState &state = *members_[index];
    const double moved = moved_per_byte(kind), beside = speeds_.cpu_beside(kind);
    core::SpeedEntry entry;
    entry.machine = options_.machine;
    entry.worker = state.member.name;
    entry.operation = operation_of(kind.mode);
    entry.k = kind.columns;
    entry.m = kind.rows;
    entry.lanes = state.member.lanes;
    entry.bytes_per_second = estimate.bytes_per_second() / moved;
    if (state.member.is_in_place) {
      if (beside > 0) entry.bytes_per_second = beside / moved;
      entry.alone_bytes_per_second = speeds_.cpu_alone(kind) / moved;
    } else {
      entry.start_up_seconds = state.start_up_seconds;
      if (state.is_started && state.first_kind == kind) {
        const double usual = state.member.latency_seconds + state.first_bytes / estimate.bytes_per_second();
        entry.start_up_seconds = std::max(state.first_seconds - usual, 0.0);
      }
    }
    const auto known = std::find_if(options_.known.begin(), options_.known.end(),
                                    [&](const core::SpeedEntry &each) { return same_key(each, entry); });
    if (known == options_.known.end() || is_far(known->bytes_per_second, entry.bytes_per_second) ||
        is_far(known->alone_bytes_per_second, entry.alone_bytes_per_second) ||
        is_far(known->start_up_seconds, entry.start_up_seconds)) {
      // Longer runs come later.
      std::erase_if(list, [&](const core::SpeedEntry &each) { return same_key(each, entry); });
      list.push_back(std::move(entry));
    }
  }
  return list;
}

double Runtime::start_up_seconds(const MemberState &state) const noexcept {
  // Many short runs are worth it as well as one long: what was missed is at most what the start costs.
  const bool is_due = state.missed_seconds >= kStartUps * state.start_up_seconds;
  return state.is_started || is_due ? 0 : state.start_up_seconds;
}

Party Runtime::party(std::size_t index, double bytes_per_second) const {
  const MemberState &state = *members_[index];
  return {bytes_per_second, state.member.lanes, state.member.latency_seconds, start_up_seconds(state)};
}

bool Runtime::has_devices() const {
  const Lock lock(mutex_);
  return std::any_of(members_.begin(), members_.end(), [](const auto &each) { return !each->member.is_in_place; });
}

bool Runtime::is_worth_sharing(const WorkKind &kind, std::uint64_t bytes) {
  const Lock lock(mutex_);
  sync_resources();
  const CpuLanes lanes = cpu_lanes();
  const double alone = speeds_.cpu_alone(kind), beside = speeds_.cpu_beside(kind);
  const double latency = members_.front()->member.latency_seconds;
  const Party cpu_alone{alone, lanes.alone, latency};
  std::vector<Party> together = {{beside > 0 ? beside : alone, lanes.beside, latency}};
  const double alone_seconds = alone > 0 ? finish_seconds({&cpu_alone, 1}, static_cast<double>(bytes)) : 0;
  bool has_device = false, is_unknown = false, is_long = false;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const MemberState &state = *members_[i];
    if (state.member.is_in_place || state.is_out || state.lanes_given_up > 0) continue;
    const Needs needs = needs_of(state.member);
    if (!state.member.is_optional) pool_.check(needs);
    if (!pool_.can_ever_fit(needs)) continue;
    has_device = true;
    const double rate = speeds_.device(i, kind);
    is_unknown = is_unknown || rate == 0;
    if (rate > 0) together.push_back(party(i, rate / state.member.lanes));
    is_long = is_long ||
              alone_seconds > std::max(kLatencies * state.member.latency_seconds, kStartUps * start_up_seconds(state));
  }
  if (!has_device || lanes.alone == 0) return has_device;
  if (alone == 0) return bytes >= kShareUnknownBytes;
  if (!speeds_.is_worth_it(kind, lanes)) return is_long && speeds_.admits_devices(kind, lanes);
  return (is_unknown && is_long) || hybrid::is_worth_sharing(together, {&cpu_alone, 1}, static_cast<double>(bytes));
}

Runtime::AloneRun Runtime::begin_alone() {
  const Lock lock(mutex_);
  const bool is_quiet = alone_under_way_++ == 0 && jobs_.empty();
  ++runs_begun_;
  return {now(), is_quiet ? runs_begun_ : 0};
}

void Runtime::end_alone() noexcept {
  const Lock lock(mutex_);
  --alone_under_way_;
}

void Runtime::ran_alone(const AloneRun &run, const WorkKind &kind, std::uint64_t bytes) {
  const double took = now() - run.start_seconds, moved = static_cast<double>(bytes);
  if (took <= 0) return;
  const Lock lock(mutex_);
  // What several calls do at once says nothing of what one of them can have.
  if (run.number == runs_begun_) learn_from_cpu(kind, moved, took);
  alone_seconds_ += took;
}

void Runtime::learn_from_cpu(const WorkKind &kind, double moved, double took) {
  const CpuLanes lanes = cpu_lanes();
  speeds_.cpu_run(kind, moved, took, lanes.alone);
  const double latency = members_.front()->member.latency_seconds;
  if (!speeds_.of(0, kind, latency).is_known()) speeds_.keep(0, kind, Estimate(latency, moved / took / lanes.alone, 1));
  for (const auto &each : members_)
    if (!each->is_started) each->missed_seconds += took;
}

void Runtime::tell(const Job &job) {
  if (!log_.hears(TANDEM_LOG_DEBUG)) return;
  std::vector<std::uint64_t> bytes(members_.size());
  for (const base::TimelineSpan &span : job.spans)
    if (span.committed) bytes[lanes_[span.row]->member] += span.bytes;
  std::string shares, feeding;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    shares += fmt::format("{}{} {:.1f} %", i == 0 ? "" : ", ", members_[i]->member.name,
                          100.0 * static_cast<double>(bytes[i]) / static_cast<double>(job.work.bytes()));
    if (members_[i]->feeding > 0)
      feeding += fmt::format("; a lane of {} takes {:.2f} of a core", members_[i]->member.name, members_[i]->feeding);
  }
  const double gain = speeds_.gain(job.kind, cpu_lanes());
  log_.say(TANDEM_LOG_DEBUG, fmt::format("hybrid: {}, {} bytes moved in {:.6f} s: {}{}{}", job.what, job.work.bytes(),
                                         now() - job.start_seconds, shares, feeding,
                                         gain == 0 ? "" : fmt::format("; with devices {:.2f} of the CPU alone", gain)));
}

// Whether devices are worth it for this kind of work, once it is known, and when it changes.
void Runtime::tell_worth(const WorkKind &kind) {
  const CpuLanes lanes = cpu_lanes();
  const double gain = speeds_.gain(kind, lanes);
  if (gain == 0 || options_.policy != Policy::automatic) return;
  const bool is_worth_it = speeds_.is_worth_it(kind, lanes);
  const auto [place, is_new] = told_.try_emplace(kind, is_worth_it);
  if (!is_new && place->second == is_worth_it) return;
  place->second = is_worth_it;
  std::string sizes = "they are left out";
  if (is_worth_it) {
    const double latency = members_.front()->member.latency_seconds;
    const Party alone{speeds_.cpu_alone(kind), lanes.alone, latency};
    std::vector<Party> together = {{speeds_.cpu_beside(kind), lanes.beside, latency}};
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const double rate = speeds_.device(i, kind);
      if (rate > 0) together.push_back(party(i, rate / members_[i]->member.lanes));
    }
    const std::uint64_t from = worth_sharing_from(together, {&alone, 1});
    if (from != UINT64_MAX)
      sizes = fmt::format("calls of {:.1f} MiB of data and more are shared",
                          static_cast<double>(from) / moved_per_byte(kind) / (1 << 20));
  }
  log_.say(TANDEM_LOG_INFO, fmt::format("hybrid: {}: the CPU and its devices do {:.2f} of what the CPU does alone: {}",
                                        text_of(kind), gain, sizes));
}

void Runtime::add_spans(const Job &job) {
  base::Timeline *timeline = options_.timeline.get();
  if (timeline == nullptr) return;
  for (base::TimelineSpan span : job.spans) {
    Lane &lane = *lanes_[span.row];
    const std::string &name = members_[lane.member]->member.name;
    span.row = timeline->row(fmt::format("{}/{}", name, lane.index), name.substr(0, name.find(':')));
    timeline->add(span);
    lane.timeline_bytes += span.committed ? static_cast<double>(span.bytes) : 0;
    lane.timeline_seconds += span.end_seconds - span.start_seconds;
  }
  // What was shared, at the speeds of all who took part; what was not counts as done well.
  double bytes = 0, speed = 0;
  for (const auto &lane : lanes_) {
    bytes += lane->timeline_bytes;
    if (lane->timeline_seconds > 0) speed += lane->timeline_bytes / lane->timeline_seconds;
  }
  const double least = alone_seconds_ + (speed > 0 ? bytes / speed : 0), elapsed = alone_seconds_ + shared_seconds_;
  if (elapsed > 0) timeline->set_efficiency(least / elapsed);
}

}  // namespace tandem::hybrid
