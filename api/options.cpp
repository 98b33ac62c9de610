// SPDX-License-Identifier: Apache-2.0
#include "api/options.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"

namespace tandem::api {
namespace {

constexpr const char *kExecutors[] = {"serial", "pthread", "openmp"}, *kSwitch[] = {"0", "1"},
                     *kTechniques[] = {"matrix", "transform"},
                     *kDeviceTechniques[] = {"compiled", "tables", "transform"}, *kChecks[] = {"first", "all"};

using Given = tandem_context_options;
using Texts = OptionTexts;

struct Option {
  const char *name;
  unsigned readers;  // the backend must have all of them
  std::string Texts::*text;
  const char *variable;  // null: a key of `expert`
  const char *const Given::*member = nullptr;
  std::span<const char *const> values = {};
};

constexpr Option kOptions[] = {
    {"backend", 0, &Texts::backend, "TANDEM_BACKEND", &Given::backend},
    {"policy", kPolicy, &Texts::policy_name, "TANDEM_POLICY", &Given::policy},
    {"kernel", kCpuThreads, &Texts::kernel, "TANDEM_KERNEL", &Given::kernel},
    {"thread_count", kCpuThreads, &Texts::threads, "TANDEM_THREADS"},
    {"resources", 0, &Texts::resources, "TANDEM_RESOURCES", &Given::resources},
    {"timeline_file", 0, &Texts::timeline_file, "TANDEM_TIMELINE", &Given::timeline_file},
    {"TANDEM_CHECK_DEVICES", 0, &Texts::check_devices, "TANDEM_CHECK_DEVICES", nullptr, kChecks},
    {"executor", kCpuThreads | kExecutor, &Texts::executor, nullptr, nullptr, kExecutors},
    {"pin", kCpuThreads | kExecutor | kWorkers, &Texts::pin, nullptr, nullptr, kSwitch},
    {"technique", kCpuThreads, &Texts::technique, nullptr, nullptr, kTechniques},
    {"device_technique", kDevice, &Texts::device_technique, nullptr, nullptr, kDeviceTechniques}};

// Replaces the values that `text` names; `from` names the text in messages.
void read_expert(std::string_view from, std::string_view text, Texts &texts) {
  const auto refuse = [&](const auto &...why) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, from, " is \"", text, "\": ", why...);
  };
  Texts read;
  for (std::optional<std::string_view> rest = text; rest && !text.empty();) {
    if (rest->empty()) refuse("nothing follows the last comma");
    const std::string_view pair = base::cut(rest, ","), name = pair.substr(0, pair.find('='));
    const auto key = std::ranges::find_if(
        kOptions, [&](const Option &option) { return option.variable == nullptr && option.name == name; });
    if (key == std::end(kOptions)) {
      std::vector<std::string_view> known;
      for (const Option &option : kOptions)
        if (option.variable == nullptr) known.push_back(option.name);
      refuse("no key is called \"", name, "\"; known are ", base::join(known, ", "));
    }
    if (name.size() == pair.size()) refuse(name, " has no value; write ", name, "=", key->values[0]);
    const std::string_view value = pair.substr(name.size() + 1);
    if (std::ranges::find(key->values, value) == key->values.end())
      refuse(name, " is \"", value, "\"; known are ", base::join(key->values, ", "));
    if (!(read.*key->text).empty()) refuse(name, " stands twice");
    read.*key->text = texts.*key->text = value;
  }
}

// Why a backend with the readers `has` reads no option that needs one that it lacks.
const char *why_without(unsigned lacks, unsigned has, const std::string &backend) {
  if ((lacks & kPolicy) != 0)
    return backend == "auto" ? "it is the CPU alone here; a policy is for hybrids, such as hybrid:cpu+opencl:0:0"
                             : "a policy is for hybrids, such as hybrid:cpu+opencl:0:0";
  if ((lacks & kCpuThreads) != 0) return "it has no CPU threads";
  if ((lacks & kWorkers) != 0) return "its executor is not pthread, or it has one thread";
  return (has & kPolicy) != 0 ? "its devices choose their techniques" : "it is no device";
}

}  // namespace

OptionTexts read_texts(const tandem_context_options &given, bool with_environment) {
  const auto environment = [&](const char *variable) {
    const char *value = with_environment ? std::getenv(variable) : nullptr;
    return value != nullptr ? value : "";
  };
  OptionTexts texts;
  for (const Option &option : kOptions) {
    if (option.variable == nullptr) continue;
    const char *own = option.member != nullptr ? given.*option.member : nullptr;
    const std::string &text = texts.*option.text = own != nullptr ? own : environment(option.variable);
    if (!text.empty() && !option.values.empty() && std::ranges::find(option.values, text) == option.values.end())
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, option.variable, " is \"", text, "\"; known are ",
                 base::join(option.values, ", "));
  }
  if (given.thread_count != 0) texts.threads = std::to_string(given.thread_count);
  read_expert("TANDEM_EXPERT", environment("TANDEM_EXPERT"), texts);
  if (given.expert != nullptr) read_expert("expert", given.expert, texts);
  return texts;
}

void check_effects(const OptionTexts &given, const std::string &backend, unsigned readers) {
  for (const Option &option : kOptions) {
    const std::string &text = given.*option.text;
    const unsigned lacks = option.readers & ~readers;
    const bool is_off = option.values.data() == kSwitch && text == kSwitch[0];  // the default
    if (text.empty() || is_off || lacks == 0) continue;
    const std::string said = option.variable == nullptr ? base::text("expert ", option.name, "=", text)
                             : option.member == nullptr ? base::text(option.name, " ", text)
                                                        : base::text(option.name, " \"", text, "\"");
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, said, " has no effect on the backend \"", backend,
               "\": ", why_without(lacks, readers, backend));
  }
}

}  // namespace tandem::api
