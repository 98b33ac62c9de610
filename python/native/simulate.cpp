// SPDX-License-Identifier: Apache-2.0
#include "simulate.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calls.hpp"
#include "raise.hpp"
#include "tandem/tools.h"

namespace nb = nanobind;

namespace tandem_ec {
namespace {

const char *or_null(const std::optional<std::string> &value) { return value ? value->c_str() : nullptr; }

nb::dict simulate(const std::vector<std::string> &workers, std::uint64_t work_bytes, std::uint64_t chunk_bytes,
                  const std::optional<std::string> &policy, const std::optional<std::string> &resources,
                  std::uint64_t seed, bool unknown_speeds, const std::optional<std::string> &timeline,
                  const std::optional<std::string> &links) {
  std::vector<const char *> descriptions;
  for (const std::string &worker : workers) descriptions.push_back(worker.c_str());
  tandem_simulate_options options{};
  options.struct_bytes = sizeof options;
  options.workers = descriptions.data();
  options.worker_count = descriptions.size();
  options.work_bytes = work_bytes;
  options.chunk_bytes = chunk_bytes;
  options.policy = or_null(policy);
  options.resources = or_null(resources);
  options.seed = seed;
  options.unknown_speeds = unknown_speeds;
  options.timeline = or_null(timeline);
  options.links = or_null(links);
  std::vector<tandem_simulated_worker> found(4096);  // the most that there can be
  tandem_simulate_result result{};
  result.struct_bytes = sizeof result;
  result.workers = found.data();
  result.worker_capacity = found.size();
  result.worker_stride_bytes = sizeof found[0];
  tandem_status status;
  {
    WithoutGil other_threads_run;
    status = tandem_simulate(&options, &result);
  }
  check(status);
  nb::list rows;
  for (std::size_t i = 0; i < result.worker_count && i < found.size(); ++i) {
    const tandem_simulated_worker &worker = found[i];
    rows.append(nb::make_tuple(worker.name, worker.description, worker.bytes, worker.task_count, worker.busy_seconds,
                               worker.idle_tail_seconds, worker.bytes_per_second));
  }
  nb::dict all;
  all["workers"] = rows;
  all["task_count"] = result.task_count;
  all["makespan_seconds"] = result.makespan_seconds;
  all["efficiency"] = result.efficiency;
  all["nominal_efficiency"] = result.nominal_efficiency;
  return all;
}

}  // namespace

void bind_simulate(nb::module_ &module) {
  module.def("simulate", &simulate, nb::arg("workers"), nb::arg("work_bytes"), nb::arg("chunk_bytes"),
             nb::arg("policy").none(), nb::arg("resources").none(), nb::arg("seed"), nb::arg("unknown_speeds"),
             nb::arg("timeline").none(), nb::arg("links").none());
}

}  // namespace tandem_ec
