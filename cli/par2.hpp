// SPDX-License-Identifier: Apache-2.0
// What `tandem par2` and the program `par2` have in common.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cli/commands.hpp"
#include "tandem/par2.h"

namespace tandem::cli {

// What tandem_par2_verify found. Owns the report.
class Par2Report {
 public:
  explicit Par2Report(tandem_par2_report *report) : report_(report) { read(); }

  // Again, after a repair.
  void read() {
    summary = sized<tandem_par2_summary>();
    check(tandem_par2_report_query(report_.get(), &summary));
    fill(tandem_par2_report_files, files);
    fill(tandem_par2_report_packet_files, packet_files);
    fill(tandem_par2_report_searched_files, searched_files);
  }
  tandem_par2_report *get() const noexcept { return report_.get(); }

  tandem_par2_summary summary;
  std::vector<tandem_par2_file> files;
  std::vector<tandem_par2_packet_file> packet_files;
  std::vector<tandem_par2_searched_file> searched_files;

 private:
  struct DestroyReport {
    void operator()(tandem_par2_report *report) const noexcept { tandem_par2_report_destroy(report); }
  };

  template <class Function, class Struct>
  void fill(Function function, std::vector<Struct> &list) {
    std::size_t count = 0;
    check(function(report_.get(), nullptr, 0, 0, &count));
    list.resize(count);
    check(function(report_.get(), list.data(), count, sizeof(Struct), &count));
  }

  std::unique_ptr<tandem_par2_report, DestroyReport> report_;
};

// Runs as the program `par2` of par2cmdline if argv[0] has its name or that of par2create, par2verify or par2repair.
// Returns the exit status; empty: argv[0] has another name.
std::optional<int> run_as_par2(int argc, char **argv);

}  // namespace tandem::cli
