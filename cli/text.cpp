// SPDX-License-Identifier: Apache-2.0
// What the commands print: names, numbers, lines on standard error, JSON.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/utf8.hpp"
#include "cli/commands.hpp"

namespace tandem::cli {
namespace {

const char *name_of_program = "tandem", *name_of_command = "tandem";  // set before the first thread starts
std::atomic<bool> error_output_failed = false;
std::atomic<bool> silent = false;
std::atomic<bool> json_printed = false;

std::string escaped(std::string_view text, bool controls_too) {
  std::string result;
  while (!text.empty()) {
    const auto [length, is_valid] = base::first_utf8(text);
    const std::size_t bytes = is_valid ? length : 1;
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control = (bytes == 1 && (first < 0x20 || first == 0x7F)) ||
                         (bytes == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0);
    if (!is_valid || (control && controls_too)) {
      for (const char byte : text.substr(0, bytes))
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else if (first == '\\') {
      result += "\\\\";
    } else {
      result += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return result;
}

void escape_strings(Json &value) {
  if (value.is_string()) value = escaped(value.get_ref<const std::string &>(), false);
  if (value.is_structured())
    for (Json &each : value) escape_strings(each);
}

}  // namespace

std::string printable(std::string_view name) { return escaped(name, true); }

std::string shell_word(std::string_view text) {
  std::string result = "'";
  for (const char each : text) result += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return result + "'";
}

std::string word_for_shell(std::string_view text) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
  const bool is_plain = !text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos;
  return is_plain ? std::string(text) : shell_word(text);
}

void write_standard_error(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t now = write(STDERR_FILENO, text.data(), text.size());
    if (now >= 0) {
      text.remove_prefix(static_cast<std::size_t>(now));
    } else if (errno == EAGAIN) {  // another program made the terminal or pipe non-blocking
      pollfd waiting = {STDERR_FILENO, POLLOUT, 0};
      poll(&waiting, 1, -1);
    } else if (errno != EINTR) {
      error_output_failed = true;
      return;
    }
  }
}

std::size_t terminal_columns(int descriptor) noexcept {
  constexpr std::size_t kUsual = 80;
  winsize window = {};
  return ioctl(descriptor, TIOCGWINSZ, &window) == 0 && window.ws_col != 0 ? window.ws_col : kUsual;
}

void be_silent() noexcept { silent = true; }

bool is_silent() noexcept { return silent; }

void set_names(const char *program, const char *command) noexcept {
  name_of_program = program;
  name_of_command = command;
}

const char *program_name() noexcept { return name_of_program; }

const char *command_name() noexcept { return name_of_command; }

void complain(std::string_view sentence) noexcept {
  if (silent) return;
  try {
    write_standard_error(fmt::format("{}: {}\n", program_name(), printable(sentence)));
  } catch (const std::bad_alloc &) {
    write_standard_error(program_name());
    write_standard_error(": out of memory\n");
  }
}

bool standard_error_failed() noexcept { return error_output_failed; }

std::string json_text(Json object) {
  if (object.is_object()) {
    Json whole = {{"schema", kJsonSchema}};
    whole.update(object);
    object = std::move(whole);
  }
  escape_strings(object);
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

void print_json(const Json &object) {
  fmt::print("{}", json_text(object));
  json_printed = true;
}

bool json_was_printed() noexcept { return json_printed; }

std::string plural(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string colored(std::int32_t badness, std::string_view word) {
  static const bool on = [] {
    const char *const none = std::getenv("NO_COLOR"), *const terminal = std::getenv("TERM");  // https://no-color.org
    return isatty(STDOUT_FILENO) == 1 && (none == nullptr || *none == '\0') && terminal != nullptr &&
           std::string_view(terminal) != "dumb";
  }();
  constexpr int kGreenYellowRed[] = {32, 33, 31};
  return on ? fmt::format("\033[{}m{}\033[0m", kGreenYellowRed[badness], word) : std::string(word);
}

const char *operation_name(std::int32_t operation) {
  constexpr const char *kNames[] = {"encode", "decode", "verify", "update", "accumulate"};  // by value
  return operation >= 0 && static_cast<std::size_t>(operation) < std::size(kNames) ? kNames[operation] : "?";
}

}  // namespace tandem::cli
