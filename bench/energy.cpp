// SPDX-License-Identifier: Apache-2.0
#include "bench/energy.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <thread>

namespace tandem::bench {
namespace {

using Path = std::filesystem::path;

constexpr unsigned kLeastSamples = 30;
constexpr double kSampleSeconds = 0.05;

[[noreturn]] void fail(const std::string &message) { throw std::runtime_error(message); }

// The first line of a small file. Throws std::runtime_error with the reason.
std::string line_of(const Path &path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char text[256];
  const ssize_t got = file < 0 ? -1 : read(file, text, sizeof text);
  const int error = errno;
  if (file >= 0) close(file);
  if (got < 0) {
    fail(fmt::format("{} cannot be read: {}{}", path.string(), std::strerror(error),
                     error == EACCES ? " (energy counters are for root alone, since CVE-2020-8694)" : ""));
  }
  const std::string all(text, static_cast<std::size_t>(got));
  return all.substr(0, all.find('\n'));
}

std::uint64_t number_in(const Path &path) {
  const std::string text = line_of(path);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    fail(fmt::format("{} has \"{}\", which is no number", path.string(), text));
  return number;
}

// ---- powercap ----

// Documentation/power/powercap/powercap.rst of Linux.
class PowercapMeter final : public EnergyMeter {
 public:
  explicit PowercapMeter(const Path &folder)
      : name_(name_of(folder)),
        counter_(folder / "energy_uj"),
        range_(number_in(folder / "max_energy_range_uj")),
        last_(number_in(counter_)) {}

  const std::string &name() const override { return name_; }

  double joules() override {
    const std::uint64_t now = number_in(counter_);
    sum_ += now >= last_ ? now - last_ : now + range_ - last_;
    last_ = now;
    return static_cast<double>(sum_) / 1e6;
  }

 private:
  // A part of a package, such as its memory, has a folder "intel-rapl:0:1" beside "intel-rapl:0".
  static std::string name_of(const Path &folder) {
    const std::string own = folder.filename().string(), package = own.substr(0, own.rfind(':'));
    const Path above = folder.parent_path() / package;
    const bool is_part = std::ranges::count(own, ':') > 1 && std::filesystem::exists(above / "name");
    return is_part ? line_of(above / "name") + "/" + line_of(folder / "name") : line_of(folder / "name");
  }

  const std::string name_;
  const Path counter_;
  const std::uint64_t range_;
  std::uint64_t last_, sum_ = 0;
};

void open_powercap(const Path &sysfs, EnergyMeters &meters) {
  std::error_code none;
  std::vector<Path> folders;
  for (const auto &entry : std::filesystem::directory_iterator(sysfs / "class/powercap", none))
    if (entry.path().filename().string().starts_with("intel-rapl:")) folders.push_back(entry.path());
  std::ranges::sort(folders);
  for (const Path &folder : folders) {
    const std::string name = line_of(folder / "name");
    if (name.starts_with("package") || name == "dram") meters.list.push_back(std::make_unique<PowercapMeter>(folder));
  }
  if (meters.list.empty()) {
    fail(fmt::format("{} has no counter of a package: no RAPL, or a virtual machine that hides it",
                     (sysfs / "class/powercap").string()));
  }
}

// ---- perf ----

// Events of the PMU "power": sysfs has their number, and how many joules a count is.
class PerfMeter final : public EnergyMeter {
 public:
  PerfMeter(std::string name, std::uint32_t type, std::uint64_t event, double joules_per_count, int cpu)
      : name_(std::move(name)), joules_per_count_(joules_per_count) {
    perf_event_attr attributes = {};
    attributes.size = sizeof attributes;
    attributes.type = type;
    attributes.config = event;
    file_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC));
    if (file_ < 0) fail(fmt::format("perf_event_open of {}: {}", name_, std::strerror(errno)));
  }
  ~PerfMeter() override { close(file_); }
  PerfMeter(const PerfMeter &) = delete;
  PerfMeter &operator=(const PerfMeter &) = delete;

  const std::string &name() const override { return name_; }

  double joules() override {
    std::uint64_t count = 0;  // of 64 bits: the kernel adds up a register that wraps around
    if (read(file_, &count, sizeof count) != sizeof count) fail(fmt::format("{} cannot be read", name_));
    return static_cast<double>(count) * joules_per_count_;
  }

 private:
  const std::string name_;
  const double joules_per_count_;
  int file_ = -1;
};

// "event=0x02" -> 2
std::uint64_t event_of(const std::string &text) {
  std::uint64_t event = 0;
  const std::string_view prefix = "event=0x";
  const char *const end = text.data() + text.size();
  if (!text.starts_with(prefix) || std::from_chars(text.data() + prefix.size(), end, event, 16).ptr != end)
    fail(fmt::format("\"{}\" is no event of the form event=0x02", text));
  return event;
}

void open_perf(const Path &sysfs, EnergyMeters &meters) {
  const Path folder = sysfs / "bus/event_source/devices/power";
  const auto type = static_cast<std::uint32_t>(number_in(folder / "type"));
  for (const char *const event : {"energy-pkg", "energy-ram"}) {
    const Path file = folder / "events" / event;
    if (!std::filesystem::exists(file)) continue;
    const double scale = std::stod(line_of(Path(file) += ".scale"));
    const std::uint64_t number = event_of(line_of(file));
    const std::string cpus = line_of(folder / "cpumask");  // one of each package: "0,32"
    for (const char *at = cpus.data(), *const end = at + cpus.size(); at < end; ++at) {
      int cpu = 0;
      at = std::from_chars(at, end, cpu).ptr;
      meters.list.push_back(
          std::make_unique<PerfMeter>(fmt::format("{} of CPU {}", event, cpu), type, number, scale, cpu));
    }
  }
  if (meters.list.empty()) fail(fmt::format("{} has no event of a package", folder.string()));
}

// ---- NVML ----

// nvml.h of the CUDA toolkit: nvmlReturn_t is an int with 0 for success, nvmlDevice_t a pointer.
struct Nvml {
  int (*init)() = nullptr;
  int (*count)(unsigned *) = nullptr;
  int (*handle)(unsigned, void **) = nullptr;
  int (*energy)(void *, unsigned long long *millijoules) = nullptr;  // since the driver was loaded; Volta and later
};

class NvmlMeter final : public EnergyMeter {
 public:
  NvmlMeter(const Nvml &nvml, void *device, unsigned index)
      : name_(fmt::format("GPU {}", index)), nvml_(nvml), device_(device), first_(millijoules()) {}

  const std::string &name() const override { return name_; }
  double joules() override { return static_cast<double>(millijoules() - first_) / 1e3; }

 private:
  unsigned long long millijoules() const {
    unsigned long long value = 0;
    if (const int status = nvml_.energy(device_, &value); status != 0)
      fail(fmt::format("nvmlDeviceGetTotalEnergyConsumption of {}: error {}", name_, status));
    return value;
  }

  const std::string name_;
  const Nvml nvml_;
  void *const device_;
  const unsigned long long first_;
};

void open_nvml(EnergyMeters &meters) {
  void *const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed: the driver has threads
  if (library == nullptr) return;
  Nvml nvml;
  const auto get = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  unsigned count = 0;
  if (!get(nvml.init, "nvmlInit_v2") || !get(nvml.count, "nvmlDeviceGetCount_v2") ||
      !get(nvml.handle, "nvmlDeviceGetHandleByIndex_v2") || !get(nvml.energy, "nvmlDeviceGetTotalEnergyConsumption") ||
      nvml.init() != 0 || nvml.count(&count) != 0)
    return;
  for (unsigned i = 0; i < count; ++i) {
    void *device = nullptr;
    if (nvml.handle(i, &device) != 0) continue;
    try {
      meters.list.push_back(std::make_unique<NvmlMeter>(nvml, device, i));
    } catch (const std::runtime_error &) {  // a GPU without a counter
    }
  }
}

}  // namespace

EnergyMeters open_energy_meters(const std::string &sysfs) {
  EnergyMeters meters;
  try {
    open_powercap(sysfs, meters);
  } catch (const std::exception &powercap) {
    meters.list.clear();
    try {
      open_perf(sysfs, meters);
    } catch (const std::exception &perf) {
      meters.list.clear();
      meters.reason = fmt::format("{}; {}", powercap.what(), perf.what());
    }
  }
  open_nvml(meters);
  return meters;
}

Correlation correlation_of(const std::vector<double> &xs, const std::vector<double> &ys) {
  const std::size_t n = xs.size();
  if (n < 4) return {};
  double mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < n; ++i) {
    mean_x += xs[i] / static_cast<double>(n);
    mean_y += ys[i] / static_cast<double>(n);
  }
  for (std::size_t i = 0; i < n; ++i) {
    xx += (xs[i] - mean_x) * (xs[i] - mean_x);
    yy += (ys[i] - mean_y) * (ys[i] - mean_y);
    xy += (xs[i] - mean_x) * (ys[i] - mean_y);
  }
  if (xx == 0 || yy == 0) return {};
  const double r = std::clamp(xy / std::sqrt(xx * yy), -1.0, 1.0);
  const double half = 1.96 / std::sqrt(static_cast<double>(n) - 3);
  return {r, std::tanh(std::atanh(r) - half), std::tanh(std::atanh(r) + half)};
}

std::vector<EnergyOfDomain> measure_energy(EnergyMeters &meters, const Contestant &contestant, unsigned samples,
                                           double seconds_per_call, double idle_seconds) {
  if (meters.list.empty()) return {};
  const auto joules_now = [&] {
    std::vector<double> joules;
    for (const auto &meter : meters.list) joules.push_back(meter->joules());
    return joules;
  };
  std::vector<EnergyOfDomain> domains(meters.list.size());
  std::vector<double> before = joules_now();
  const double began = seconds_now(BenchClock::wall);
  std::this_thread::sleep_for(std::chrono::duration<double>(idle_seconds));
  const double idle = seconds_now(BenchClock::wall) - began;
  std::vector<double> after = joules_now();
  for (std::size_t d = 0; d < domains.size(); ++d) {
    domains[d].name = meters.list[d]->name();
    domains[d].idle_watts = (after[d] - before[d]) / idle;
  }
  const auto calls = static_cast<std::size_t>(std::ceil(kSampleSeconds / seconds_per_call));
  std::vector<double> seconds;
  std::vector<std::vector<double>> gross(domains.size());
  for (unsigned i = 0; i < std::max(samples, kLeastSamples); ++i) {
    before = joules_now();
    const double start = seconds_now(BenchClock::wall);
    contestant.run(calls);
    seconds.push_back(seconds_now(BenchClock::wall) - start);
    after = joules_now();
    for (std::size_t d = 0; d < domains.size(); ++d) {
      gross[d].push_back(after[d] - before[d]);
      const double own = gross[d].back() - domains[d].idle_watts * seconds.back();
      domains[d].joules.push_back(own / static_cast<double>(calls));
    }
  }
  for (std::size_t d = 0; d < domains.size(); ++d) {
    domains[d].with_time = correlation_of(seconds, gross[d]);
    domains[d].moves = std::ranges::any_of(gross[d], [](double joules) { return joules != 0; });
  }
  return domains;
}

}  // namespace tandem::bench
