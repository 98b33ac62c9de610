// Status names, the last error's sentence, the version.
#include <algorithm>
#include <cstring>
#include <new>

#include "api/gate.hpp"
#include "api/thread_key.hpp"

namespace tandem::api {
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

}  // namespace tandem::api

namespace tandem::files {
// files/ sees include/ only, so it declares this and leaves it to us.
void keep_last_error(std::string_view message) noexcept;
void keep_last_error(std::string_view message) noexcept { api::refuse(TANDEM_OK, message); }
}  // namespace tandem::files

extern "C" {

const char *tandem_last_error_message(void) {
  return tandem::api::last_message != nullptr ? tandem::api::last_message : "";
}

const char *tandem_status_name(tandem_status status) {
  switch (status) {
#define TANDEM_NAME(value) \
  case value:              \
    return #value;
    TANDEM_NAME(TANDEM_OK)
    TANDEM_NAME(TANDEM_ERROR_INVALID_ARGUMENT)
    TANDEM_NAME(TANDEM_ERROR_UNSUPPORTED)
    TANDEM_NAME(TANDEM_ERROR_UNAVAILABLE)
    TANDEM_NAME(TANDEM_ERROR_OUT_OF_MEMORY)
    TANDEM_NAME(TANDEM_ERROR_TOO_LARGE)
    TANDEM_NAME(TANDEM_ERROR_OVERLAP)
    TANDEM_NAME(TANDEM_ERROR_NOT_MDS)
    TANDEM_NAME(TANDEM_ERROR_NOT_RECOVERABLE)
    TANDEM_NAME(TANDEM_ERROR_CANCELLED)
    TANDEM_NAME(TANDEM_ERROR_DEVICE)
    TANDEM_NAME(TANDEM_ERROR_IO)
    TANDEM_NAME(TANDEM_ERROR_DAMAGED)
    TANDEM_NAME(TANDEM_ERROR_INTERNAL)
#undef TANDEM_NAME
    default:
      return "TANDEM_STATUS_UNKNOWN";
  }
}

uint32_t tandem_version(void) { return TANDEM_VERSION_MAJOR << 16 | TANDEM_VERSION_MINOR << 8 | TANDEM_VERSION_PATCH; }

#define TANDEM_TEXT_OF(x) #x
#define TANDEM_TEXT(x) TANDEM_TEXT_OF(x)
const char *tandem_version_string(void) {
  return TANDEM_TEXT(TANDEM_VERSION_MAJOR) "." TANDEM_TEXT(TANDEM_VERSION_MINOR) "." TANDEM_TEXT(TANDEM_VERSION_PATCH);
}

}  // extern "C"
