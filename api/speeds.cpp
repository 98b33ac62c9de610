// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "api/backends.hpp"
#include "base/gate.hpp"
#include "base/lists.hpp"
#include "cpu/factory.hpp"
#include "hybrid/factory.hpp"
#include "tandem/tools.h"

namespace tandem::api {
namespace {

using core::SpeedEntry;

bool is_same_work(const core::SpeedEntry &a, const core::SpeedEntry &b) {
  return a.machine == b.machine && a.operation == b.operation && a.k == b.k && a.m == b.m;
}

// The CPU in this kind of work. Without an entry its speeds are 0.
core::SpeedEntry cpu_of(const std::vector<core::SpeedEntry> &entries, const core::SpeedEntry &like) {
  const auto found = std::ranges::find_if(entries, [&](const core::SpeedEntry &each) {
    return each.worker == cpu_kind().name && is_same_work(each, like);
  });
  return found != entries.end() ? *found : core::SpeedEntry();
}

tandem_speed for_caller(const core::SpeedEntry &entry, const std::vector<core::SpeedEntry> &all,
                        const std::string &machine) {
  tandem_speed speed = {};
  base::copy_text(speed.machine, entry.machine);
  base::copy_text(speed.worker, entry.worker);
  base::copy_text(speed.date, entry.date);
  speed.operation = static_cast<std::int32_t>(entry.operation);
  speed.k = entry.k;
  speed.m = entry.m;
  speed.lane_count = entry.lanes;
  speed.bytes_per_second = entry.bytes_per_second * entry.lanes;
  speed.latency_seconds = entry.latency_seconds;
  speed.is_this_machine = entry.machine == machine;
  if (entry.worker == cpu_kind().name) return speed;
  const hybrid::Worth worth = hybrid::worth_of(cpu_of(all, entry), entry);
  speed.gain = worth.gain;
  speed.pays_from_bytes = worth.from_bytes;
  return speed;
}

}  // namespace

std::string machine_name() { return cpu::describe_cpu(); }

std::vector<core::SpeedEntry> speeds_of_this_machine(const tuning::Table &table) {
  std::vector<core::SpeedEntry> own;
  const std::string machine = machine_name();
  std::ranges::copy_if(table.speeds(), std::back_inserter(own),
                       [&](const core::SpeedEntry &each) { return each.machine == machine; });
  return own;
}

void remember_speeds(const std::string &path, std::vector<core::SpeedEntry> entries) {
  tuning::update_file(path, [&](tuning::Table &table) {
    for (core::SpeedEntry &each : entries) {
      each.date = tuning::date_now();
      table.replace(std::move(each));
    }
  });
}

}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_speeds(const char *file, tandem_speed *speeds_out, size_t capacity, size_t stride_bytes,
                            size_t *count_out) {
  return base::guarded([&] {
    const std::string path = tuning::file_path(file);
    const tuning::Table table = path.empty() ? tuning::Table() : tuning::read_file(path);
    const std::string machine = api::machine_name();
    std::vector<tandem_speed> list;
    for (const core::SpeedEntry &each : table.speeds()) list.push_back(api::for_caller(each, table.speeds(), machine));
    base::write_list(list, speeds_out, capacity, stride_bytes, count_out);
  });
}

}  // extern "C"
