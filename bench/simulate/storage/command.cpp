// SPDX-License-Identifier: Apache-2.0
// tandem-bench simulate storage
#include <fmt/format.h>
#include <time.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/commands.hpp"
#include "bench/simulate/storage/model.hpp"
#include "cli/option_table.hpp"

namespace tandem::bench {

using namespace cli;

namespace {

using namespace storage;
using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

constexpr const char *kFooter =
    "Strategies:\n"
    "  raid0         no parity\n"
    "  standard      each write updates the parity of its stripe\n"
    "  avoid         each write goes where nothing was written, so that no old data is read (WCL of the report)\n"
    "  delayed       an application's clients write data alone; at the end of their window the parity is computed\n"
    "  delayed-move  the same, and then the data is moved to its final place\n"
    "\n"
    "Devices: hdd is a Seagate Constellation ST9500430SS, ssd an Intel DC S3700 800 GB; constant takes --service for\n"
    "each read and each write. --fio FILE takes the latencies that fio measured (--output-format=json+, or json),\n"
    "one job for each block size and direction.\n"
    "\n"
    "Weak scaling: --clients with several counts. Strong scaling: --total with several --size, and as many clients\n"
    "as that takes. docs/internals/STORAGE.md describes the model.\n"
    "\n"
    "  tandem-bench simulate storage --clients 1000,10000,100000 --device hdd,ssd --parity 1,2\n"
    "  tandem-bench simulate storage --total 4096000000 --size 8KiB,64KiB,1MiB --seeds 3 --json";

struct Named {
  const char *name;
  Strategy value;
};
constexpr Named kStrategies[] = {{"raid0", Strategy::raid0},
                                 {"standard", Strategy::standard},
                                 {"avoid", Strategy::avoid},
                                 {"delayed", Strategy::delayed},
                                 {"delayed-move", Strategy::delayed_move}};

struct StorageFlags {
  Options options;  // what all runs share
  std::vector<std::string> devices, strategies = {"raid0", "standard", "avoid", "delayed"};
  std::vector<std::uint32_t> clients, parities = {1};
  std::vector<std::uint64_t> sizes;
  std::uint64_t total_bytes = 0;
  std::uint32_t seeds = 1, channels = 0;
  std::string fio, placement = "scattered", parity_servers = "rotated", service, latency = "50us";
  bool mix = false;
  double link = 1.25, client_link = 1.25;
  OutputFlags output;

  StorageFlags() {
    options.server_count = 512;
    options.confidence = 0.01;
  }
  std::uint32_t width() const { return options.width == 0 ? options.server_count : options.width; }
};

double time_of(const std::string &text, const char *flag) {
  try {
    if (const double seconds = seconds_of(text); seconds <= 1e6) return seconds;
  } catch (const std::invalid_argument &error) {
    throw Failure{kExitWrongUsage, fmt::format("{}: {}", flag, error.what())};
  }
  throw Failure{kExitWrongUsage, fmt::format("{}: {} is more than 1e6 seconds", flag, text)};
}

// ---- fio

struct Measured {
  std::vector<Latency> points;
  std::uint32_t depth = 0;
};

[[noreturn]] void refuse_fio(const std::string &path, const std::string &why) {
  throw Failure{kExitWrongUsage, fmt::format("{}: {}", printable(path), why)};
}

// fio writes the options of a job as strings.
std::uint32_t option_of(const std::string &path, const nlohmann::json &job, const nlohmann::json &globals,
                        const char *name) {
  std::string text = "1";  // fio's default
  for (const nlohmann::json *options : {&globals, job.contains("job options") ? &job["job options"] : nullptr})
    if (options && options->is_object() && options->contains(name)) {
      const nlohmann::json &value = (*options)[name];
      text = value.is_string() ? value.get<std::string>() : value.dump();
    }
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0 || value > 65536)
    refuse_fio(path, fmt::format("{} of a job is {}", name, printable(text)));
  return value;
}

// Quantiles and seconds from the histogram, which json+ has, or from the percentiles.
std::vector<std::pair<double, double>> distribution_of(const std::string &path, const nlohmann::json &latency) {
  std::vector<std::pair<double, double>> points;  // nanoseconds and a count, or a percentile
  const bool bins = latency.contains("bins");
  const char *name = bins ? "bins" : "percentile";
  if (!latency.contains(name) || !latency[name].is_object() || latency[name].empty())
    refuse_fio(path, "a job has neither bins nor percentiles of clat_ns: run fio with --output-format=json+");
  for (const auto &[key, value] : latency[name].items()) {
    double first = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), first);
    if (error != std::errc() || end != key.data() + key.size() || !value.is_number() || !std::isfinite(first) ||
        first < 0 || value.get<double>() < 0)
      refuse_fio(path, fmt::format("{} of clat_ns has \"{}\": {}", name, printable(key), value.dump()));
    if (bins)
      points.emplace_back(first, value.get<double>());
    else
      points.emplace_back(value.get<double>(), first / 100);
  }
  std::sort(points.begin(), points.end());
  double all = 0, sum = 0;
  for (const auto &[nanoseconds, count] : points) all += count;
  if (all <= 0) refuse_fio(path, fmt::format("{} of clat_ns are all 0", name));
  std::vector<std::pair<double, double>> found;
  for (const auto &[nanoseconds, weight] : points) {
    sum += weight;
    const double quantile = bins ? sum / all : weight, seconds = nanoseconds / 1e9;
    if (quantile > 1) refuse_fio(path, fmt::format("clat_ns has the percentile {}", 100 * quantile));
    if (!found.empty() && quantile <= found.back().first) continue;
    found.emplace_back(quantile, seconds);
  }
  return found;
}

Measured read_fio(const std::string &path) {
  std::ifstream file(path);
  if (!file) throw Failure{kExitInputOutput, fmt::format("{}: {}", printable(path), std::strerror(errno))};
  nlohmann::json root = nlohmann::json::parse(file, nullptr, false);
  if (file.bad()) throw Failure{kExitInputOutput, fmt::format("{}: cannot be read", printable(path))};
  if (root.is_discarded()) refuse_fio(path, "is not JSON");
  if (!root.is_object() || !root.contains("jobs") || !root["jobs"].is_array())
    refuse_fio(path, "is not what fio writes: it has no list \"jobs\"");
  const nlohmann::json globals = root.contains("global options") ? root["global options"] : nlohmann::json::object();
  Measured measured;
  std::vector<std::pair<bool, std::uint64_t>> seen;
  for (const nlohmann::json &job : root["jobs"]) {
    if (!job.is_object()) refuse_fio(path, "a job is no object");
    for (const bool write : {false, true}) {
      const char *name = write ? "write" : "read";
      if (!job.contains(name)) continue;
      const nlohmann::json &side = job[name];
      const auto count_of = [&](const char *field) {
        if (!side.is_object() || !side.contains(field) || !side[field].is_number_unsigned())
          refuse_fio(path, fmt::format("{} of a job has no number {}", name, field));
        return side[field].get<std::uint64_t>();
      };
      const std::uint64_t count = count_of("total_ios");
      if (count == 0) continue;
      const std::uint64_t bytes = count_of("io_bytes") / count;
      if (bytes == 0) refuse_fio(path, fmt::format("{} of a job has requests of 0 bytes", name));
      if (std::find(seen.begin(), seen.end(), std::pair{write, bytes}) != seen.end())
        refuse_fio(path, fmt::format("two jobs {} {} bytes at once: run fio with --group_reporting", name, bytes));
      seen.emplace_back(write, bytes);
      if (!side.contains("clat_ns") || !side["clat_ns"].is_object())
        refuse_fio(path, fmt::format("{} of a job has no clat_ns: fio 3.0 and later write it", name));
      const std::uint64_t depth =
          std::uint64_t{option_of(path, job, globals, "iodepth")} * option_of(path, job, globals, "numjobs");
      if (depth > 65536) refuse_fio(path, fmt::format("a job has {} requests at once, at most 65536", depth));
      if (measured.depth != 0 && measured.depth != depth)
        refuse_fio(path,
                   fmt::format("its jobs have {} and {} requests at once (iodepth x numjobs): one depth is needed",
                               measured.depth, depth));
      measured.depth = static_cast<std::uint32_t>(depth);
      for (const auto &[quantile, seconds] : distribution_of(path, side["clat_ns"]))
        measured.points.push_back({bytes, quantile, seconds, write});
    }
  }
  for (const bool write : {false, true})
    if (std::none_of(seen.begin(), seen.end(), [&](const auto &each) { return each.first == write; }))
      refuse_fio(path, fmt::format("no job {}", write ? "writes" : "reads"));
  return measured;
}

// ---- runs

// One device, parity, size and number of clients, with one strategy, over all seeds.
struct Run {
  std::string device;
  const Named *strategy;
  std::uint32_t parity, clients;
  std::uint64_t size_bytes;
  std::vector<Result> results;
  std::vector<double> processor_seconds;

  double rate() const {
    double sum = 0;
    for (const Result &each : results) sum += each.bytes_per_second;
    return sum / static_cast<double>(results.size());
  }
  template <class Field>
  double mean(Field field) const {
    double sum = 0;
    for (const Result &each : results) sum += static_cast<double>(each.*field);
    return sum / static_cast<double>(results.size());
  }
  double operations() const {
    double sum = 0, writes = 0;
    for (const Result &each : results) {
      sum += static_cast<double>(each.data_read_count + each.parity_read_count + each.data_write_count +
                                 each.parity_write_count + each.move_write_count);
      writes += static_cast<double>(each.write_count);
    }
    return writes > 0 ? sum / writes : 0;
  }
};

struct Point {
  std::uint32_t clients;
  std::uint64_t size_bytes;
};

std::vector<Point> points_of(const StorageFlags &flags) {
  std::vector<std::uint64_t> sizes = flags.sizes;
  if (sizes.empty()) sizes.push_back(std::uint64_t{128} << 10);
  if (flags.mix) sizes = {*std::max_element(sizes.begin(), sizes.end())};
  std::vector<Point> points;
  for (const std::uint64_t size_bytes : sizes) {
    if (flags.total_bytes == 0) {
      for (const std::uint32_t clients : flags.clients.empty() ? std::vector<std::uint32_t>{10000} : flags.clients)
        points.push_back({clients, size_bytes});
      continue;
    }
    const std::uint64_t clients = size_bytes == 0 ? 0 : flags.total_bytes / size_bytes;
    if (clients == 0 || clients > UINT32_MAX)
      throw Failure{kExitWrongUsage, fmt::format("--total {} in writes of {} bytes would take {} clients",
                                                 flags.total_bytes, size_bytes, clients)};
    points.push_back({static_cast<std::uint32_t>(clients), size_bytes});
  }
  return points;
}

DeviceFigures device_of(const StorageFlags &flags, const std::string &name, const Measured &measured) {
  DeviceFigures device;
  if (name == "fio") {
    device.kind = Kind::measured;
    device.channel_count = measured.depth;
    device.latencies = measured.points;
  } else if (name == "constant") {
    device.read_seconds = device.write_seconds = time_of(flags.service, "--service");
  } else {
    device = name == "hdd" ? hdd() : ssd();
  }
  if (flags.channels != 0) device.channel_count = flags.channels;
  return device;
}

class Runner {
 public:
  Runner(const StorageFlags &flags, std::size_t count, const OutputFlags &output)
      : flags_(flags), options_(flags.options), count_(count), progress_("simulate", output) {
    options_.placement = flags.placement == "scattered" ? Placement::scattered : Placement::interleaved;
    options_.dedicated_parity = flags.parity_servers == "dedicated";
    if (flags.mix) options_.mixed_bytes = flags.sizes;
    options_.server_link_bytes_per_second = flags.link * 1e9;
    options_.client_link_bytes_per_second = flags.client_link * 1e9;
    options_.latency_seconds = time_of(flags.latency, "--latency");
    options_.progress = [this](double part, double simulated_seconds) { tick(part, simulated_seconds); };
  }

  void run(Run &run, const Device &device) {
    Options options = options_;
    options.strategy = run.strategy->value;
    options.parity_count = options.strategy == Strategy::raid0 ? 0 : run.parity;
    options.client_count = run.clients;
    options.write_bytes = run.size_bytes;
    for (std::uint32_t i = 0; i < flags_.seeds; ++i, ++options.seed) {
      text_ = fmt::format("{} {} {} clients", run.device, run.strategy->name, run.clients);
      const double begun = processor_seconds_now();
      run.results.push_back(Model(options, device).run());
      run.processor_seconds.push_back(processor_seconds_now() - begun);
      ++done_;
    }
  }

  void copy(const Run &from, Run &to) {
    to.results = from.results;
    to.processor_seconds = from.processor_seconds;
    done_ += flags_.seeds;
  }

 private:
  // CPU time of this thread, so that other programs do not count.
  static double processor_seconds_now() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  void tick(double part, double simulated_seconds) {
    const double all = (static_cast<double>(done_) + part) / static_cast<double>(count_);
    if (progress_.tick(all, 0, fmt::format("{}, {:.1f} s simulated", text_, simulated_seconds)))
      throw Failure{exit_status_of(TANDEM_ERROR_CANCELLED), "interrupted"};
  }

  const StorageFlags &flags_;
  Options options_;
  const std::size_t count_;
  Progress progress_;
  std::size_t done_ = 0;
  std::string text_;
};

// ---- output

// A strategy without parity gives the same run for each number of parities. Null: there is no such run yet.
const Run *same_without_parity(const std::vector<Run> &runs, const Run &run) {
  for (const Run &each : runs)
    if (run.strategy->value == Strategy::raid0 && each.strategy == run.strategy && each.device == run.device &&
        each.clients == run.clients && each.size_bytes == run.size_bytes)
      return &each;
  return nullptr;
}

// The run of the standard strategy with the same device, parity and point. Null: the user did not ask for it.
const Run *standard_of(const std::vector<Run> &runs, const Run &run) {
  for (const Run &each : runs)
    if (each.strategy->value == Strategy::standard && each.device == run.device && each.parity == run.parity &&
        each.clients == run.clients && each.size_bytes == run.size_bytes)
      return &each;
  return nullptr;
}

double over_standard(const std::vector<Run> &runs, const Run &run) {
  const Run *standard = standard_of(runs, run);
  return standard && standard->rate() > 0 ? run.rate() / standard->rate() : 0;
}

double widest(const Run &run) {
  double most = 0;
  for (const Result &each : run.results) most = std::max(most, each.confidence);
  return most;
}

void print_table(const StorageFlags &flags, const std::vector<Run> &runs) {
  fmt::print("{}, rows of {}, units of {}, {} placement\n\n", plural(flags.options.server_count, "server"),
             flags.width(), exact_size(flags.options.unit_bytes), flags.placement);
  fmt::print("{:<8} {:>6} {:>8} {:>7} {:<12} {:>10} {:>6} {:>8} {:>6} {:>5} {:>9}\n", "DEVICE", "PARITY", "CLIENTS",
             "SIZE", "STRATEGY", "MB/S", "+-%", "OVER STD", "I/OS", "BUSY", "SIMULATED");
  for (const Run &run : runs) {
    const double over = over_standard(runs, run);
    fmt::print("{:<8} {:>6} {:>8} {:>7} {:<12} {:>10.1f} {:>6.1f} {:>8} {:>6.3f} {:>4.0f}% {:>7.1f} s\n", run.device,
               run.parity, run.clients, exact_size(run.size_bytes), run.strategy->name, run.rate() / 1e6,
               100 * widest(run), over > 0 ? fmt::format("{:.2f}", over) : "-", run.operations(),
               100 * run.mean(&Result::utilisation), run.mean(&Result::simulated_seconds));
  }
}

Json to_json(const DeviceFigures &device) {
  constexpr const char *kKinds[] = {"constant", "hdd", "ssd", "measured"};
  Json object = {{"kind", kKinds[static_cast<int>(device.kind)]},
                 {"channels", device.channel_count},
                 {"read_seconds", device.read_seconds},
                 {"write_seconds", device.write_seconds}};
  if (device.kind == Kind::hdd || device.kind == Kind::ssd) {
    object["read_bytes_per_second"] = device.read_bytes_per_second;
    object["write_bytes_per_second"] = device.write_bytes_per_second;
  }
  if (device.kind == Kind::hdd) {
    object["capacity_bytes"] = device.capacity_bytes;
    object["revolution_seconds"] = device.revolution_seconds;
    const auto seeks = [](const SeekSeconds &all) { return Json{all.track, all.average, all.full}; };
    object["read_seeks_seconds"] = seeks(device.read_seeks);
    object["write_seeks_seconds"] = seeks(device.write_seeks);
  }
  if (device.kind == Kind::measured) object["latencies"] = device.latencies.size();
  return object;
}

Json to_json(const StorageFlags &flags, const std::vector<Run> &runs,
             const std::vector<std::pair<std::string, DeviceFigures>> &devices) {
  Json object = {{"command", "simulate storage"},
                 {"schema_version", kSchemaVersion},
                 {"servers", flags.options.server_count},
                 {"width", flags.width()},
                 {"unit_bytes", flags.options.unit_bytes},
                 {"placement", flags.placement},
                 {"parity_servers", flags.parity_servers},
                 {"mixed_bytes", flags.mix ? flags.sizes : std::vector<std::uint64_t>{}},
                 {"read_part", flags.options.read_part},
                 {"clients_per_application", flags.options.clients_per_application},
                 {"writes_per_window", flags.options.writes_per_window},
                 {"total_bytes", flags.total_bytes},
                 {"link_bytes_per_second", flags.link * 1e9},
                 {"client_link_bytes_per_second", flags.client_link * 1e9},
                 {"latency_seconds", time_of(flags.latency, "--latency")},
                 {"most_seconds", flags.options.most_seconds},
                 {"confidence", flags.options.confidence},
                 {"first_seed", flags.options.seed},
                 {"devices", Json::object()},
                 {"runs", Json::array()}};
  for (const auto &[name, device] : devices) object["devices"][name] = to_json(device);
  for (const Run &run : runs) {
    Json each = {{"device", run.device},         {"parity", run.parity},           {"clients", run.clients},
                 {"size_bytes", run.size_bytes}, {"strategy", run.strategy->name}, {"bytes_per_second", run.rate()}};
    const double over = over_standard(runs, run);
    each["over_standard"] = over > 0 ? Json(over) : Json(nullptr);
    each["operations_per_write"] = run.operations();
    each["seeds"] = Json::array();
    for (std::size_t i = 0; i < run.results.size(); ++i) {
      const Result &result = run.results[i];
      each["seeds"].push_back({{"seed", flags.options.seed + i},
                               {"simulated_seconds", result.simulated_seconds},
                               {"measured_seconds", result.measured_seconds},
                               {"bytes_per_second", result.bytes_per_second},
                               {"confidence", result.confidence},
                               {"events", result.event_count},
                               {"processor_seconds", run.processor_seconds[i]},
                               {"writes", result.write_count},
                               {"write_seconds", result.write_seconds},
                               {"reads", result.read_count},
                               {"read_seconds", result.read_seconds},
                               {"data_reads", result.data_read_count},
                               {"parity_reads", result.parity_read_count},
                               {"data_writes", result.data_write_count},
                               {"parity_writes", result.parity_write_count},
                               {"move_writes", result.move_write_count},
                               {"parity_updates", result.parity_update_count},
                               {"windows", result.window_count},
                               {"requests", result.request_count},
                               {"request_seconds", result.request_seconds},
                               {"queue_length", result.queue_length},
                               {"utilisation", result.utilisation},
                               {"most_utilisation", result.most_utilisation}});
    }
    object["runs"].push_back(std::move(each));
  }
  return object;
}

const Named *strategy_of(const std::string &name) {
  return std::find_if(std::begin(kStrategies), std::end(kStrategies),
                      [&](const Named &each) { return each.name == name; });
}

int report(const StorageFlags &flags) {
  if (flags.total_bytes != 0 && !flags.clients.empty())
    throw Failure{kExitWrongUsage, "--total counts the clients: give one of --total and --clients"};
  if (flags.mix && (flags.sizes.size() < 2 || flags.total_bytes != 0))
    throw Failure{kExitWrongUsage, "--mix needs several --size, and no --total"};
  std::vector<std::string> names = flags.devices;
  if (names.empty() && flags.fio.empty()) names.push_back("hdd");
  if (!flags.fio.empty()) names.push_back("fio");
  if ((std::find(names.begin(), names.end(), "constant") != names.end()) == flags.service.empty())
    throw Failure{kExitWrongUsage, "--device constant and --service go together"};
  const Measured measured = flags.fio.empty() ? Measured() : read_fio(flags.fio);
  std::vector<std::pair<std::string, DeviceFigures>> devices;
  for (const std::string &name : names) devices.emplace_back(name, device_of(flags, name, measured));
  const std::vector<Point> points = points_of(flags);
  std::vector<Run> runs;
  {
    Runner runner(flags, names.size() * flags.parities.size() * points.size() * flags.strategies.size() * flags.seeds,
                  flags.output);
    for (const auto &[name, figures] : devices) {
      const Device device(figures);
      for (const std::uint32_t parity : flags.parities)
        for (const Point &point : points)
          for (const std::string &strategy : flags.strategies) {
            Run next{name, strategy_of(strategy), parity, point.clients, point.size_bytes, {}, {}};
            if (const Run *same = same_without_parity(runs, next)) {
              runner.copy(*same, next);
            } else {
              runner.run(next, device);
            }
            runs.push_back(std::move(next));
          }
    }
  }
  if (flags.output.json)
    print_json(to_json(flags, runs, devices));
  else if (!flags.output.quiet)
    print_table(flags, runs);
  return kExitDone;
}

}  // namespace

void add_simulate_storage_command(CLI::App &simulate, Invocation &invocation) {
  const auto flags = std::make_shared<StorageFlags>();
  CLI::App *command = simulate.add_subcommand(
      "storage", "Simulate the cost of parity in a storage system: clients write to servers with disks or SSDs");
  command->footer(kFooter);
  command->add_option("--servers", flags->options.server_count, "Servers, each with one device")->capture_default_str();
  command->add_option("--width", flags->options.width, "Servers of a row, data and parity; default: all");
  command->add_option("--parity,-m", flags->parities, "Of these, parity: 1 is RAID-5, 2 is RAID-6 (list)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--unit", flags->options.unit_bytes, "Stripe unit: bytes of a row on one server")
      ->transform(size_value())
      ->default_str("1MiB");
  command->add_option("--clients", flags->clients, "Clients (list); default: 10000")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--size", flags->sizes, "Bytes of each write (list); default: 128KiB")
      ->transform(size_value())
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_flag("--mix", flags->mix, "All sizes in one run, each as often, instead of a run for each");
  command->add_option("--reads", flags->options.read_part, "Part of each client's operations that reads, 0 to 0.99")
      ->capture_default_str();
  command
      ->add_option("--total", flags->total_bytes, "Data of one write of every client: there are TOTAL / SIZE clients")
      ->transform(size_value());
  command->add_option("--strategy", flags->strategies, "Strategies, as described below (list)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of({"raid0", "standard", "avoid", "delayed", "delayed-move"}))
      ->capture_default_str();
  command->add_option("--device", flags->devices, "hdd, ssd or constant (list); default: hdd")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of({"hdd", "ssd", "constant"}));
  command->add_option("--fio", flags->fio, "Latencies that fio measured, as one more device")->type_name("FILE.json");
  command->add_option("--service", flags->service, "Time of a read or write of the device constant")->type_name("TIME");
  command
      ->add_option("--channels", flags->channels,
                   "Requests that a device serves at once; default: the device's own number")
      ->group(kExpert);
  command->add_option("--application", flags->options.clients_per_application, "Clients of an application")
      ->capture_default_str();
  command
      ->add_option("--window", flags->options.writes_per_window,
                   "Delayed: writes of each client before the parity is computed")
      ->capture_default_str();
  command
      ->add_option("--placement", flags->placement,
                   "Strategies that are not delayed: writes go to scattered places, or one after the other into the "
                   "application's file (interleaved)")
      ->check(one_of({"scattered", "interleaved"}))
      ->capture_default_str();
  command
      ->add_option("--parity-servers", flags->parity_servers,
                   "Parity on other servers in each row, or of all rows on the same ones")
      ->check(one_of({"rotated", "dedicated"}))
      ->capture_default_str();
  command->add_option("--link", flags->link, "GB/s of a server's link, each way; 0: no limit")->capture_default_str();
  command->add_option("--client-link", flags->client_link, "GB/s of a client's link; 0: no limit")
      ->capture_default_str();
  command->add_option("--latency", flags->latency, "Time of each message")->type_name("TIME")->capture_default_str();
  command->add_option("--seconds", flags->options.most_seconds, "Simulated seconds of a run, at most")
      ->capture_default_str();
  command
      ->add_option("--confidence", flags->options.confidence,
                   "Stop a run when the 95 % interval of its rate is this part of the rate; 0: simulate all --seconds")
      ->capture_default_str()
      ->group(kExpert);
  command->add_option("--seed", flags->options.seed, "Seed of the first run")->capture_default_str()->group(kExpert);
  command->add_option("--seeds", flags->seeds, "Runs of each case, with successive seeds")
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{1000}))
      ->capture_default_str()
      ->group(kExpert);
  add_output_flags(*command, flags->output);
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return run_inside([&] { return report(*flags); }); }; });
}

}  // namespace tandem::bench
