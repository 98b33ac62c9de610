// SPDX-License-Identifier: Apache-2.0
// The last error message of each thread.
#include <algorithm>
#include <cstring>
#include <new>

#include "base/last_error.hpp"
#include "base/thread_key.hpp"

namespace tandem::base {
namespace {

constexpr std::size_t kMessageBytes = 512;

// Only pointers are thread_local: the library is linked for static TLS, and dlopen has little of that left. The text is
// in a heap block, made at a thread's first failure. A pthread key holds it and frees it.
thread_local const char *last_message = nullptr;

void free_block(void *block) {
  last_message = nullptr;
  delete[] static_cast<char *>(block);
}

constinit ThreadKey block_key(free_block);

// This thread's block; nullptr if there is no memory for one.
char *message_block() {
  pthread_key_t key;
  if (!block_key.find(&key)) return nullptr;
  if (void *block = pthread_getspecific(key); block != nullptr) return static_cast<char *>(block);
  char *made = new (std::nothrow) char[kMessageBytes];
  if (made == nullptr || pthread_setspecific(key, made) == 0) return made;
  delete[] made;
  return nullptr;
}

// The start and the end of a text that is too long: long paths are in the middle, and the reason is at the end.
std::size_t shorten(std::string_view message, char *block) {
  constexpr std::string_view kGap = " ... ";
  constexpr std::size_t kStartBytes = 160, kEndBytes = kMessageBytes - 1 - kStartBytes - kGap.size();
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(message[at]) & 0xC0) == 0x80; };
  std::size_t start = kStartBytes, end = message.size() - kEndBytes;
  while (start > 0 && continues(start)) --start;  // no character is cut in two
  while (end < message.size() && continues(end)) ++end;
  char *at = std::copy_n(message.data(), start, block);
  at = std::ranges::copy(kGap, at).out;
  at = std::copy(message.begin() + static_cast<std::ptrdiff_t>(end), message.end(), at);
  return static_cast<std::size_t>(at - block);
}

const char *message_without_block(tandem_status status) {
  return status == TANDEM_ERROR_OUT_OF_MEMORY || status == TANDEM_OK ? "out of memory" : tandem_status_name(status);
}

}  // namespace

tandem_status keep_last_error(tandem_status status, std::string_view message) noexcept {
  char *block = message_block();
  if (block == nullptr) {
    last_message = message_without_block(status);
    return status;
  }
  std::size_t bytes = message.size();
  if (bytes < kMessageBytes) {
    std::memmove(block, message.data(), bytes);  // the message may be the last one
  } else {
    bytes = shorten(message, block);
  }
  block[bytes] = 0;
  last_message = block;
  return status;
}

const char *last_error_message() noexcept { return last_message != nullptr ? last_message : ""; }

}  // namespace tandem::base
