// SPDX-License-Identifier: Apache-2.0
// What `tandem par2` and the program `par2` have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "tandem/par2.h"

namespace CLI {
class Option;
}

namespace tandem::cli {

// What tandem_par2_verify found. Owns the report.
class Par2Report {
 public:
  explicit Par2Report(tandem_par2_report *report) : report_(report) { read(); }

  // Again, after a repair.
  void read() {
    summary = sized<tandem_par2_summary>();
    check(tandem_par2_report_query(report_.get(), &summary));
    files = listed<tandem_par2_file>(TANDEM_PAR2_FILES);
    packet_files = listed<tandem_par2_packet_file>(TANDEM_PAR2_PACKET_FILES);
    searched_files = listed<tandem_par2_searched_file>(TANDEM_PAR2_SEARCHED_FILES);
    temporaries = listed<const char *>(TANDEM_PAR2_TEMPORARIES);
  }
  tandem_par2_report *get() const noexcept { return report_.get(); }

  tandem_par2_summary summary;
  std::vector<tandem_par2_file> files;
  std::vector<tandem_par2_packet_file> packet_files;
  std::vector<tandem_par2_searched_file> searched_files;
  std::vector<const char *> temporaries;

 private:
  struct DestroyReport {
    void operator()(tandem_par2_report *report) const noexcept { tandem_par2_report_destroy(report); }
  };

  template <class Element>
  std::vector<Element> listed(std::int32_t list) const {
    return all<Element>([&](auto... rest) { return tandem_par2_report_list(report_.get(), list, rest...); });
  }

  std::unique_ptr<tandem_par2_report, DestroyReport> report_;
};

// tandem_par2_verify and tandem_par2_repair with progress. The report of a repair is read again.
Par2Report verify_par2(tandem_par2_verify_options options, std::string_view action, const OutputFlags &output);
void repair_par2(Par2Report &report, tandem_par2_repair_options options, const ContextOwner &context,
                 std::string_view action, const OutputFlags &output);
// "a.vol03+4.par2" and "a.par2" -> "a"
inline std::string base_of_set(const std::string &path) {
  return path.substr(0, tandem_par2_base_length(path.c_str()));
}
// Whether a repair can make a file complete, though perhaps not all; or all are, and it can remove temporaries.
bool can_repair_some(const Par2Report &report);
int exit_status_of(const tandem_par2_summary &summary);
int exit_status_of(const Par2Report &report);
// On standard error, also with --quiet: what could not be read, and why.
void complain_of_unreadable(const Par2Report &report);
Json set_object(const tandem_par2_create_result &result);
Json report_object(const Par2Report &report, std::string_view command);
// "3 of 10 slices lost, 2 recovery slices: a repair is not possible"
std::string what_is_lost(const tandem_par2_summary &summary);
// Of --redundancy; "": the default.
double redundancy_percent(const std::string &redundancy);
void add_redundancy_flag(CLI::App &command, std::string &redundancy, CLI::Option *excluded = nullptr);
void add_memory_flag(CLI::App &command, std::uint64_t &memory_bytes);
void add_no_sync_flag(CLI::App &command, bool &no_sync);

void add_par2_sync(CLI::App &par2, Invocation &invocation);
void add_par2_scrub(CLI::App &par2, Invocation &invocation);

// Runs as the program `par2` of par2cmdline if argv[0] has its name or that of par2create, par2verify or par2repair.
// Returns the exit status; empty: argv[0] has another name.
std::optional<int> run_as_par2(int argc, char **argv);

}  // namespace tandem::cli
