// SPDX-License-Identifier: Apache-2.0
// tandem durability
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cli/commands.hpp"
#include "cli/markov.hpp"

namespace tandem::cli {
namespace {

constexpr std::uint32_t kMostDisks = 65536;
constexpr std::uint32_t kMostListed = 16;  // without --parity
constexpr double kYearSeconds = 365 * 86400.0, kLeastRebuildSeconds = 1;

constexpr const char *kDurabilityFooter =
    "Examples:\n"
    "  tandem durability -k 10 -m 4 --afr 1.5% --rebuild 24h\n"
    "  tandem durability -k 10 -m 4 --afr 1.5% --rebuild 24h --batch 0.1% --batch-share 20% --site 0.01%\n"
    "  tandem durability --disks 14 --afr 1.5% --rebuild 24h --sets 1000\n"
    "\n"
    "Model: disks fail independently at a constant rate. Each failed disk is rebuilt in the time of --rebuild on "
    "average, several at once in parallel. Data is lost when m + 1 disks of a set are down together. --batch, "
    "--unreadable and --site add causes that hit several disks, and sectors that no rebuild can read. Without them "
    "real sets lose data more often. The chain of states is solved exactly. "
    "docs/which-k-and-m.md has the formulas and sources.";

struct DurabilityFlags {
  std::uint32_t k = 0, m = 0, disks = 0;
  bool has_k = false, has_m = false, has_disks = false;
  std::string afr, rebuild, batch, batch_share, disk_size, site;
  double unreadable = 0;
  std::uint64_t sets = 1;
  OutputFlags output;
};

// What can be added to failures of single disks.
struct Cause {
  const char *name;
  double DiskSet::*rate;  // 0 without it
};
constexpr Cause kCauses[] = {{"batch", &DiskSet::batches_per_second},
                             {"unreadable", &DiskSet::unreadable_rebuilds},
                             {"site", &DiskSet::sites_per_second}};

struct Row {
  std::uint32_t k, m;
  double log_loss, log_loss_of_all, log_years;
  std::string most_by;  // the cause without which more than half of it is gone, "disks" or "several"
};

template <class Value>
Value parsed(const std::string &text, const char *flag, Value (*parse)(std::string_view)) {
  try {
    return parse(text);
  } catch (const std::invalid_argument &error) {
    fail(kExitWrongUsage, flag, ": ", error.what());
  }
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> codes_of(const DurabilityFlags &flags) {
  if (flags.has_disks ? flags.has_k && flags.has_m : !flags.has_k || !flags.has_m)
    fail(kExitWrongUsage, "give -k and -m, or --disks alone, or --disks with one of them");
  if (flags.has_disks && (flags.disks == 0 || flags.disks > kMostDisks))
    fail(kExitWrongUsage, "--disks ", flags.disks, " is not in range 1 to ", kMostDisks);
  if (flags.has_disks && (flags.has_k || flags.has_m)) {
    const std::uint32_t part = flags.has_k ? flags.k : flags.m;
    if (part > flags.disks || (flags.has_m && part == flags.disks))
      fail(kExitWrongUsage, "of ", flags.disks, " disks ", part, " cannot hold ", flags.has_k ? "data" : "parity");
  }
  const bool is_list = flags.has_disks && !flags.has_k && !flags.has_m;
  if (is_list) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> codes;
    for (std::uint32_t m = 0; m < flags.disks && m <= kMostListed; ++m) codes.emplace_back(flags.disks - m, m);
    return codes;
  }
  const std::uint32_t m = flags.has_m ? flags.m : flags.disks - flags.k, k = flags.has_k ? flags.k : flags.disks - m;
  if (k == 0) fail(kExitWrongUsage, "-k is 0, at least 1");
  if (m > kMostDurableParity) fail(kExitWrongUsage, "-m is ", m, ", at most ", kMostDurableParity);
  if (k > kMostDisks - m) fail(kExitWrongUsage, k, " data disks and ", m, " of parity are more than ", kMostDisks);
  return {{k, m}};
}

// The log of the probability that at least one of `sets` independent sets loses data.
double log_loss_of(std::uint64_t sets, double log_loss) {
  const double log_sets = std::log(static_cast<double>(sets));
  if (log_loss + log_sets < -40) return log_loss + log_sets;  // equal to the last digit
  if (log_loss == 0) return 0;
  return std::log(-std::expm1(static_cast<double>(sets) * std::log1p(-std::exp(log_loss))));
}

// The text of e^log_value, which may be too large or small for a double.
std::string number_text(double log_value) {
  const double log10 = log_value / std::log(10.0);
  if (std::abs(log10) < 300) return fmt::format("{:.3g}", std::exp(log_value));
  double exponent = std::floor(log10), digits = std::pow(10.0, log10 - exponent);
  if (digits >= 9.995) {  // would be printed as 10.00
    digits /= 10;
    ++exponent;
  }
  return fmt::format("{:.2f}e{:+.0f}", digits, exponent);
}

double log10_of(double log_value) { return log_value == 0 ? 0 : log_value / std::log(10.0); }
double nines(double log_loss) { return log_loss == 0 ? 0 : -log10_of(log_loss); }

double failures_per_second(double of_a_year) { return -std::log1p(-of_a_year) / kYearSeconds; }

// Needs the set's other fields.
void add_causes(const DurabilityFlags &flags, DiskSet *set) {
  const auto part = [](const std::string &text, const char *flag) {
    const double value = parsed(text, flag, part_of);
    if (!(value > 0 && value < 1)) fail(kExitWrongUsage, flag, ": ", text, " must be above 0% and below 100%");
    return value;
  };
  if (!flags.batch.empty()) {
    set->batches_per_second = failures_per_second(part(flags.batch, "--batch"));
    set->batch_share = part(flags.batch_share, "--batch-share");
  }
  if (!flags.disk_size.empty()) {
    if (!(flags.unreadable > 0 && flags.unreadable < 1))
      fail(kExitWrongUsage, "--unreadable: ", flags.unreadable, " is not between 0 and 1");
    const std::uint64_t bytes = parsed(flags.disk_size, "--disk-size", bytes_of);
    if (bytes == 0) fail(kExitWrongUsage, "--disk-size is 0, at least 1");
    const double bits = 8 * static_cast<double>(bytes) * set->k;
    set->unreadable_rebuilds = std::min(-std::expm1(bits * std::log1p(-flags.unreadable)), 1 - 1e-16);
  }
  if (!flags.site.empty()) set->sites_per_second = failures_per_second(part(flags.site, "--site"));
}

// What makes up more than half of all losses, as rates: a probability near 1 would hide it.
std::string most_of(const DiskSet &set, double log_mean_seconds) {
  const auto rate_of = [](const DiskSet &of) { return -log_mean_seconds_to_loss(of); };
  const double half = std::log(0.5) - log_mean_seconds;
  double least = half;
  std::string most_by;
  DiskSet disks_alone = set;
  for (const Cause &cause : kCauses) {
    if (set.*cause.rate == 0) continue;
    DiskSet other = set;
    other.*cause.rate = disks_alone.*cause.rate = 0;
    const double without = rate_of(other);
    if (without >= least) continue;
    least = without;
    most_by = cause.name;
  }
  if (!most_by.empty()) return most_by;
  return rate_of(disks_alone) >= half ? "disks" : "several";
}

bool has_causes(const DurabilityFlags &flags) {
  return !flags.batch.empty() || !flags.disk_size.empty() || !flags.site.empty();
}

void print_table(const DurabilityFlags &flags, const std::vector<Row> &rows) {
  fmt::print("{}, AFR {}, rebuild {}, parallel rebuilds\n", plural(rows[0].k + std::uint64_t{rows[0].m}, "disk"),
             flags.afr, flags.rebuild);
  if (!flags.batch.empty())
    fmt::print("batch failures {} a year, of {} of the disks\n", flags.batch, flags.batch_share);
  if (!flags.disk_size.empty()) fmt::print("unreadable bits {:g}, disks of {}\n", flags.unreadable, flags.disk_size);
  if (!flags.site.empty()) fmt::print("loss of the site {} a year\n", flags.site);
  fmt::print("\n");
  fmt::print("{:>5} {:>4} {:>11} {:>15} {:>7} {:>12}", "K", "M", "STORED/DATA", "LOSS IN A YEAR", "NINES",
             "MTTDL YEARS");
  fmt::print("{}", flags.sets == 1 ? "" : fmt::format(" {:>15}", fmt::format("OF {} SETS", flags.sets)));
  fmt::print("{}\n", has_causes(flags) ? "  MOST BY" : "");
  for (const Row &row : rows) {
    fmt::print("{:>5} {:>4} {:>11.3f} {:>15} {:>7.1f} {:>12}", row.k, row.m,
               (static_cast<double>(row.k) + row.m) / row.k, number_text(row.log_loss), nines(row.log_loss),
               number_text(row.log_years));
    fmt::print("{}", flags.sets == 1 ? "" : fmt::format(" {:>15}", number_text(row.log_loss_of_all)));
    fmt::print("{}\n", has_causes(flags) ? "  " + row.most_by : "");
  }
  std::string missing;
  const auto add = [&](bool given, const char *option) {
    if (!given) missing += (missing.empty() ? "" : ", ") + std::string(option);
  };
  add(!flags.batch.empty(), "--batch");
  add(!flags.disk_size.empty(), "--unreadable");
  add(!flags.site.empty(), "--site");
  if (!missing.empty())
    fmt::print("\nLeft out, because it was not given: {}; see `{} durability --help`\n", missing, program_name());
}

Json to_json(const DurabilityFlags &flags, double afr, double rebuild_seconds, const std::vector<Row> &rows) {
  Json object = {{"command", "durability"},
                 {"model", "markov-parallel-rebuilds"},
                 {"annual_failure_probability_of_a_disk", afr},
                 {"rebuild_seconds", rebuild_seconds},
                 {"sets", flags.sets}};
  if (!flags.batch.empty())
    object.update(
        {{"annual_probability_of_a_batch_failure", part_of(flags.batch)}, {"batch_share", part_of(flags.batch_share)}});
  if (!flags.disk_size.empty())
    object.update({{"unreadable_bits", flags.unreadable}, {"disk_bytes", bytes_of(flags.disk_size)}});
  if (!flags.site.empty()) object["annual_probability_of_a_site_failure"] = part_of(flags.site);
  object["codes"] = Json::array();
  for (const Row &row : rows) {
    const double years = std::exp(row.log_years);
    object["codes"].push_back({{"k", row.k},
                               {"m", row.m},
                               {"stored_over_data", (static_cast<double>(row.k) + row.m) / row.k},
                               {"annual_loss_probability", std::exp(row.log_loss)},
                               {"log10_annual_loss_probability", log10_of(row.log_loss)},
                               {"nines", nines(row.log_loss)},
                               {"mttdl_years", std::isfinite(years) ? Json(years) : Json(nullptr)},
                               {"log10_mttdl_years", log10_of(row.log_years)},
                               {"annual_loss_probability_of_any_set", std::exp(row.log_loss_of_all)},
                               {"log10_annual_loss_probability_of_any_set", log10_of(row.log_loss_of_all)},
                               {"most_by", row.most_by}});
  }
  return object;
}

int durability(const DurabilityFlags &flags) {
  const double afr = parsed(flags.afr, "--afr", part_of),
               rebuild_seconds = parsed(flags.rebuild, "--rebuild", seconds_of);
  if (!(afr > 0 && afr < 1)) fail(kExitWrongUsage, "--afr: ", flags.afr, " is not between 0% and 100%");
  if (!(rebuild_seconds >= kLeastRebuildSeconds && rebuild_seconds <= kYearSeconds))
    fail(kExitWrongUsage, "--rebuild: ", flags.rebuild, " is not between 1s and 365d");
  if (flags.sets == 0) fail(kExitWrongUsage, "--sets is 0, at least 1");
  std::vector<Row> rows;
  for (const auto &[k, m] : codes_of(flags)) {
    DiskSet set = {
        .k = k, .m = m, .failures_per_second = failures_per_second(afr), .rebuilds_per_second = 1 / rebuild_seconds};
    add_causes(flags, &set);
    const double log_loss = log_loss_probability(set, kYearSeconds), log_mean_seconds = log_mean_seconds_to_loss(set);
    rows.push_back({k, m, log_loss, log_loss_of(flags.sets, log_loss), log_mean_seconds - std::log(kYearSeconds),
                    most_of(set, log_mean_seconds)});
  }
  if (flags.output.json)
    print_json(to_json(flags, afr, rebuild_seconds, rows));
  else if (!flags.output.quiet)
    print_table(flags, rows);
  return kExitDone;
}

}  // namespace

void add_durability_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<DurabilityFlags>();
  CLI::App *command = app.add_subcommand("durability", "Compute how likely k + m disks lose data");
  command->footer(kDurabilityFooter);
  CLI::Option *k = command->add_option("-k,--data", flags->k, "Data disks of a set");
  CLI::Option *m = command->add_option("-m,--parity", flags->m, "Parity disks of a set: it survives the loss of any m");
  CLI::Option *disks = command->add_option(
      "--disks", flags->disks,
      fmt::format("Disks of a set, k + m. Without -k and -m: list every m, from 0 to {}", kMostListed));
  command->add_option("--afr", flags->afr, "Annual failure rate: how likely a disk fails within a year, such as 1.5%")
      ->type_name("PERCENT")
      ->required();
  command->add_option("--rebuild", flags->rebuild, "Mean time to replace and rebuild a failed disk, such as 24h or 7d")
      ->type_name("TIME")
      ->required();
  CLI::Option *batch =
      command->add_option("--batch", flags->batch,
                          "How likely within a year a cause hits several disks at once: power, firmware, a bad batch");
  CLI::Option *share = command->add_option("--batch-share", flags->batch_share, "How likely each disk fails then");
  CLI::Option *unreadable = command->add_option("--unreadable", flags->unreadable,
                                                "Bits that cannot be read, of those read: 1e-15 in many data sheets");
  CLI::Option *size =
      command->add_option("--disk-size", flags->disk_size, "Bytes that a rebuild reads of a disk: 20TB");
  command->add_option("--site", flags->site, "How likely all disks are lost at once within a year: a fire, a flood")
      ->type_name("PERCENT");
  batch->type_name("PERCENT")->needs(share->type_name("PERCENT"));
  share->needs(batch);
  unreadable->type_name("PART")->needs(size->type_name("SIZE"));
  size->needs(unreadable);
  command
      ->add_option("--sets", flags->sets,
                   "Independent sets, also of each other's batches and sites: how likely any loses data")
      ->capture_default_str();
  add_output_flags(*command, flags->output);
  command->callback([flags, k, m, disks, &invocation] {
    flags->has_k = k->count() != 0;
    flags->has_m = m->count() != 0;
    flags->has_disks = disks->count() != 0;
    invocation.run = [flags] { return durability(*flags); };
  });
}

}  // namespace tandem::cli
