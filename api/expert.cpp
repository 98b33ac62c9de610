// SPDX-License-Identifier: Apache-2.0
#include "api/expert.hpp"

#include <algorithm>
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
                     *kDeviceTechniques[] = {"compiled", "tables", "transform"};

struct Key {
  const char *name;
  std::span<const char *const> values;
  std::string Expert::*member;
  bool is_of_devices = false;
};

constexpr Key kKeys[] = {{"executor", kExecutors, &Expert::executor},
                         {"pin", kSwitch, &Expert::pin},
                         {"technique", kTechniques, &Expert::technique},
                         {"device_technique", kDeviceTechniques, &Expert::device_technique, true}};

}  // namespace

void read_expert(std::string_view from, std::string_view text, Expert &expert) {
  const auto refuse = [&](const std::string &why) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text(from, " is \"", text, "\": ", why));
  };
  Expert read;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view pair = rest.substr(0, comma), name = pair.substr(0, pair.find('='));
    const auto key = std::ranges::find(kKeys, name, &Key::name);
    if (key == std::end(kKeys)) {
      std::vector<std::string_view> known;
      for (const Key &each : kKeys) known.push_back(each.name);
      refuse(base::text("no key is called \"", name, "\"; known are ", base::join(known, ", ")));
    }
    if (name.size() == pair.size()) refuse(base::text(name, " has no value; write ", name, "=", key->values[0]));
    const std::string_view value = pair.substr(name.size() + 1);
    if (std::ranges::find(key->values, value) == key->values.end())
      refuse(base::text(name, " is \"", value, "\"; known are ", base::join(key->values, ", ")));
    if (!(read.*key->member).empty()) refuse(base::text(name, " stands twice"));
    read.*key->member = expert.*key->member = value;
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
    if (rest.empty()) refuse("nothing follows the last comma");
  }
}

std::vector<std::string> given_values(const Expert &expert, bool of_devices) {
  std::vector<std::string> list;
  for (const Key &key : kKeys)
    if (key.is_of_devices == of_devices && !(expert.*key.member).empty())
      list.push_back(base::text(key.name, "=", expert.*key.member));
  return list;
}

}  // namespace tandem::api
