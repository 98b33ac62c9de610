// The last error's sentence of each thread.
#include <algorithm>
#include <cstring>
#include <new>

#include "base/gate.hpp"
#include "base/thread_key.hpp"

namespace tandem::base {
namespace {

constexpr std::size_t kMessageBytes = 512;

// Only pointers are thread_local: the library is linked for static TLS, of which a dlopen has little left. The text is
// in a block of the heap, made at a thread's first failure; a pthread key holds it and frees it.
thread_local const char *last_message = nullptr;

void free_block(void *block) {
  last_message = nullptr;
  delete[] static_cast<char *>(block);
}

constinit ThreadKey block_key(free_block);

// This thread's block, or nullptr where there is no memory for one.
char *message_block() {
  pthread_key_t key;
  if (!block_key.find(&key)) return nullptr;
  if (void *block = pthread_getspecific(key); block != nullptr) return static_cast<char *>(block);
  char *made = new (std::nothrow) char[kMessageBytes];
  if (made == nullptr || pthread_setspecific(key, made) == 0) return made;
  delete[] made;
  return nullptr;
}

const char *message_without_block(tandem_status status) {
  return status == TANDEM_ERROR_OUT_OF_MEMORY || status == TANDEM_OK ? "out of memory" : tandem_status_name(status);
}

}  // namespace

tandem_status refuse(tandem_status status, std::string_view message) noexcept {
  char *block = message_block();
  if (block == nullptr) {
    last_message = message_without_block(status);
    return status;
  }
  const std::size_t bytes = std::min(message.size(), kMessageBytes - 1);
  std::memmove(block, message.data(), bytes);  // the message may be the last one
  block[bytes] = 0;
  last_message = block;
  return status;
}

const char *last_error_message() noexcept { return last_message != nullptr ? last_message : ""; }

}  // namespace tandem::base
