// SPDX-License-Identifier: Apache-2.0
// Fuzzer of a folder with damaged and forged shard files, through the C API: recover, search, verify, decode, repair,
// verify, decode. The input is a list of edits of the files of a small set, beside the files of an older set of the
// same shape; checksums are corrected where an edit says so. The oracle: decoded content has the digest that the set
// names, and equals the encoded content if it has that content's digest; verify and decode agree; repair loses nothing;
// other files do not change; the memory bound holds for every claim of a header.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "files/format.hpp"
#include "files/names.hpp"
#include "tandem/files.h"
#include "tandem/tandem.h"
#include "tests/fuzz/input.hpp"
#include "tests/support/random.hpp"
#include "tests/support/structs.hpp"

// ---- memory is counted ----

namespace {
std::atomic<std::size_t> live_bytes{0}, peak_bytes{0};

void *counted(void *block) {
  if (block == nullptr) throw std::bad_alloc();
  const std::size_t now = live_bytes += malloc_usable_size(block);
  if (std::size_t peak = peak_bytes; now > peak) peak_bytes = now;  // near enough for a bound
  return block;
}

void release(void *block) noexcept {
  if (block != nullptr) live_bytes -= malloc_usable_size(block);
  std::free(block);
}
}  // namespace

void *operator new(std::size_t byte_count) { return counted(std::malloc(byte_count != 0 ? byte_count : 1)); }
void *operator new(std::size_t byte_count, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(step, (byte_count + step - 1) / step * step));
}
void *operator new(std::size_t byte_count, const std::nothrow_t &) noexcept {
  try {
    return operator new(byte_count);
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}
void operator delete(void *block) noexcept { release(block); }
void operator delete(void *block, const std::nothrow_t &) noexcept { release(block); }
void operator delete(void *block, std::size_t) noexcept { release(block); }
void operator delete(void *block, std::align_val_t) noexcept { release(block); }
void operator delete(void *block, std::size_t, std::align_val_t) noexcept { release(block); }

namespace tandem::files {
namespace {

using test::FuzzInput;
using test::sized;
using Bytes = std::vector<std::uint8_t>;
using Tree = std::map<std::string, Bytes>;

constexpr std::size_t kMemoryBoundBytes = (256u + 64u) << 20;  // of a call with one thread
constexpr std::uint32_t kK = 3, kM = 2, kBlockBytes = 128;
constexpr std::size_t kMostFileBytes = 20'000;
constexpr unsigned kMostEdits = 40;

[[noreturn]] void wrong(const std::string &what) {
  std::fprintf(stderr, "WRONG: %s (last message: %s)\n", what.c_str(), tandem_last_error_message());
  std::abort();
}

void check(tandem_status status, const char *what) {
  if (status != TANDEM_OK) wrong(what);
}

struct Original {
  Bytes content;
  std::vector<Bytes> files;  // by shard
  tandem_files_result result{};
};

// What is made once: the folder, two sets, a context.
class Workshop {
 public:
  Workshop() {
    const char *const base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    std::string pattern = std::string(base) + "/tandem-fuzz-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) wrong("mkdtemp");
    folder_ = pattern;
    auto options = sized<tandem_context_options>();
    options.expert = "executor=serial";
    options.thread_count = 1;
    check(tandem_context_create(&options, &context_), "tandem_context_create");
    memory_ = memfd_create("decoded", 0);
    test::Random random(3);
    for (Original &original : originals_) {
      original.content = random.bytes(1000);
      encode(&original);
    }
  }

  ~Workshop() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    tandem_context_destroy(context_);
    close(memory_);
  }

  const std::string &folder() const { return folder_; }
  tandem_context *context() const { return context_; }
  const Original &original(unsigned i) const { return originals_[i]; }
  int memory() const { return memory_; }

  void write(const Tree &tree) {
    for (const auto &[name, bytes] : on_disk_)
      if (!tree.contains(name)) std::filesystem::remove(path(name));
    for (const auto &[name, bytes] : tree) {
      const auto there = on_disk_.find(name);
      if (there == on_disk_.end() || there->second != bytes)
        std::ofstream(path(name), std::ios::binary)
            .write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    on_disk_ = tree;
  }

  // What calls made of it.
  const Tree &read() {
    on_disk_.clear();
    for (const auto &entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.file_size() > 1u << 24) wrong("a file has grown to " + std::to_string(entry.file_size()) + " bytes");
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      on_disk_[entry.path().filename()] = Bytes(bytes.begin(), bytes.end());
    }
    return on_disk_;
  }

 private:
  std::string path(const std::string &name) const { return folder_ + "/" + name; }

  void encode(Original *original) {
    lseek(memory_, 0, SEEK_SET);
    if (ftruncate(memory_, 0) != 0 || ::write(memory_, original->content.data(), original->content.size()) !=
                                          static_cast<ssize_t>(original->content.size()))
      wrong("memfd");
    lseek(memory_, 0, SEEK_SET);
    const char *const folder = folder_.c_str();
    auto options = sized<tandem_files_encode_options>();
    options.source_descriptor = memory_;
    options.k = kK;
    options.m = kM;
    options.block_bytes = kBlockBytes;
    options.folders = &folder;
    options.folder_count = 1;
    options.name = "set";
    options.no_sync = 1;
    const std::uint8_t set_id[16] = {
        static_cast<std::uint8_t>(original - originals_)};  // an input means the same again
    options.set_id = set_id;
    original->result.struct_bytes = sizeof original->result;
    check(tandem_files_encode(context_, &options, &original->result), "tandem_files_encode");
    for (std::uint32_t i = 0; i < kK + kM; ++i) original->files.push_back(read().at(shard_file_name("set", i)));
    write({});
  }

  std::string folder_;
  tandem_context *context_ = nullptr;
  int memory_ = -1;
  Original originals_[2];
  Tree on_disk_;
};

Workshop &workshop() {
  static Workshop made;
  return made;
}

// ---- edits ----

std::byte *bytes_of(Bytes &file) { return reinterpret_cast<std::byte *>(file.data()); }

void sum_record(Bytes &file, bool end) {
  if (file.size() < kRecordBytes) return;
  std::byte *const at = bytes_of(file) + (end ? file.size() - kRecordBytes : 0);
  store(at + kRecordBytes - 8, hash64(at, kRecordBytes - 8));
}

// Numbers at which things break.
std::uint64_t odd_number(FuzzInput &input) {
  const unsigned choice = input.byte();
  const unsigned shift = choice % 64;
  switch (choice / 64) {
    case 0:
      return std::uint64_t{1} << shift;
    case 1:
      return (std::uint64_t{1} << shift) - 1;
    case 2:
      return choice % 64;
    default:
      return input.number<std::uint64_t>();
  }
}

void set_field(Bytes &file, std::size_t offset, std::uint64_t value, bool wide, unsigned ends) {
  if (file.size() < kRecordBytes) return;
  for (const bool end : {false, true}) {
    if ((ends >> end & 1) == 0) continue;
    std::byte *const at = bytes_of(file) + (end ? file.size() - kRecordBytes : 0) + offset;
    if (wide) {
      store(at, value);
    } else {
      store(at, static_cast<std::uint32_t>(value));
    }
    sum_record(file, end);
  }
}

// Changes a payload byte of a block and makes its checksum right: a forgery that only the digest shows.
bool forge_block(Bytes &file, FuzzInput &input) {
  Record record;
  if (file.size() < kRecordBytes ||
      parse_record(std::span<const std::byte, kRecordBytes>(bytes_of(file), kRecordBytes), &record) !=
          ParseResult::record ||
      record.set.stripe_count() == 0)
    return false;
  const std::uint64_t stripe = input.byte() % record.set.stripe_count();
  const std::uint64_t offset = record.set.block_offset(stripe), payload = record.set.payload_bytes_of(stripe);
  if (payload == 0 || offset + payload + kCheckBytes > file.size()) return false;
  std::byte *const at = bytes_of(file) + offset;
  at[input.number<std::uint16_t>() % payload] ^= static_cast<std::byte>(input.byte());
  write_check(block_check(record.set.set_id, record.shard_index, stripe, at, payload), at + payload);
  return true;
}

// Makes its record say that the set replaced another one.
void list_another(Bytes &file, FuzzInput &input) {
  const unsigned flags = input.byte();
  Record record;
  const std::size_t at = flags & 1 ? 0 : file.size() - std::min(file.size(), kRecordBytes);
  if (file.size() < kRecordBytes) return;
  const std::span<std::byte, kRecordBytes> place(bytes_of(file) + at, kRecordBytes);
  if (parse_record(place, &record) != ParseResult::record) return;
  record.set.replaced.resize(1);
  std::copy_n(workshop().original(flags >> 1 & 1).result.set_id, 16, record.set.replaced[0].begin());
  write_record(record, place);
}

// Returns whether a block was forged.
bool edit(Tree &tree, FuzzInput &input) {
  constexpr std::size_t fields[] = {8, 12, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 16, 88, 92, 96};
  const unsigned what = input.byte() % 14;
  auto at = tree.begin();
  std::advance(at, input.byte() % tree.size());
  const std::string name = at->first;
  Bytes &file = at->second;
  switch (what) {
    case 0:
      if (tree.size() > 1) tree.erase(at);
      return false;
    case 1:
      file.resize(std::min<std::size_t>(file.size(), input.number<std::uint16_t>()));
      return false;
    case 2:
      file.insert(file.begin() + static_cast<std::ptrdiff_t>(input.byte() % 2 ? 0 : file.size()), input.byte() * 17u,
                  input.byte());
      return false;
    case 3:
      if (!file.empty())
        file[input.number<std::uint16_t>() % file.size()] ^= static_cast<std::uint8_t>(input.byte() | 1);
      return false;
    case 4: {
      const std::size_t field = fields[input.byte() % std::size(fields)];
      set_field(file, field, odd_number(input), field >= 64, input.byte() % 3 + 1u);
      return false;
    }
    case 5: {  // in every file alike
      const std::size_t field = fields[input.byte() % std::size(fields)];
      const std::uint64_t value = odd_number(input);
      for (auto &[other_name, other] : tree) set_field(other, field, value, field >= 64, 3);
      return false;
    }
    case 6:
      tree["copy-" + std::to_string(input.byte() % 4)] = file;
      return false;
    case 7: {  // left over from the other set
      const std::uint32_t index = input.byte() % (kK + kM);
      tree[input.byte() % 2 ? name : "other." + std::to_string(index)] = workshop().original(1).files[index];
      return false;
    }
    case 8: {  // a block somewhere else
      const Bytes from = workshop().original(input.byte() % 2).files[input.byte() % (kK + kM)];
      const std::size_t source = kRecordBytes + input.byte() % 3 * kBlockBytes,
                        to = kRecordBytes + input.byte() % 3 * kBlockBytes;
      if (to + kBlockBytes > file.size()) return false;
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source), kBlockBytes,
                  file.begin() + static_cast<std::ptrdiff_t>(to));
      return false;
    }
    case 9:
      return forge_block(file, input);
    case 10: {
      const OwnName own{static_cast<OwnKind>(input.byte() % 2), {}, input.byte() % (kK + kM)};
      OwnName named = own;
      std::copy_n(workshop().original(input.byte() % 2).result.set_id, 16, named.set_id.begin());
      Bytes moved = std::move(file);
      tree.erase(at);
      tree[own_name(named)] = std::move(moved);
      return false;
    }
    case 11:
      list_another(file, input);
      return false;
    case 12:
      sum_record(file, input.byte() & 1);
      return false;
    default: {
      Bytes raw(input.byte());
      input.take(raw.data(), raw.size());
      const std::size_t to = input.number<std::uint16_t>();
      if (to + raw.size() <= file.size())
        std::copy(raw.begin(), raw.end(), file.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }
  return false;
}

// ---- one folder ----

struct Destroy {
  void operator()(tandem_files_search *search) const { tandem_files_search_destroy(search); }
};
using Search = std::unique_ptr<tandem_files_search, Destroy>;

void expect(tandem_status status, std::initializer_list<tandem_status> allowed, const char *call) {
  if (std::find(allowed.begin(), allowed.end(), status) == allowed.end())
    wrong(std::string(call) + " returns status " + std::to_string(status));
  if (status != TANDEM_OK && *tandem_last_error_message() == 0) wrong(std::string(call) + " fails without a word");
  if (peak_bytes > kMemoryBoundBytes)
    wrong(std::string(call) + " took " + std::to_string(peak_bytes) + " bytes of memory");
}

Search search_folder() {
  const char *const path = workshop().folder().c_str();
  tandem_files_search *raw = nullptr;
  expect(tandem_files_search_create(&path, 1, &raw), {TANDEM_OK}, "search");
  return Search(raw);
}

// A set in a forged header can ask for a code that there is not.
constexpr auto kRefusals = {TANDEM_ERROR_INVALID_ARGUMENT, TANDEM_ERROR_UNSUPPORTED, TANDEM_ERROR_NOT_MDS,
                            TANDEM_ERROR_TOO_LARGE};

// A header can ask for a code that does not exist; that is damage, and the message says so.
bool is_refusal(tandem_status status) {
  if (status == TANDEM_ERROR_DAMAGED && std::strstr(tandem_last_error_message(), "asks for a code") != nullptr)
    return true;
  return std::find(kRefusals.begin(), kRefusals.end(), status) != kRefusals.end();
}

tandem_files_set set_at(const Search &search, std::size_t index) {
  auto set = sized<tandem_files_set>();
  check(tandem_files_search_set(search.get(), index, &set), "search_set");
  for (std::size_t i = 0; i < set.file_count; ++i) {
    auto shard = sized<tandem_files_shard>();
    check(tandem_files_search_shard(search.get(), index, i, &shard), "search_shard");
    if (shard.index >= set.k + set.m) wrong("a shard's index");
  }
  return set;
}

std::string id_of(const tandem_files_set &set) { return hexadecimal(set.set_id); }

bool ids_are_unique(const Search &search) {
  std::map<std::string, int> seen;
  for (std::size_t i = 0; i < tandem_files_search_set_count(search.get()); ++i)
    if (++seen[id_of(set_at(search, i))] > 1) return false;
  return true;
}

constexpr int kWrongDigest = 100;

// -1: verify refuses. kWrongDigest: every data block is intact, and the digest is another.
int verify(const Search &search, const std::string &id) {
  auto options = sized<tandem_files_verify_options>();
  options.set_id_prefix = id.c_str();
  auto result = sized<tandem_files_verify_result>();
  const tandem_status status = tandem_files_verify(workshop().context(), search.get(), &options, &result);
  if (is_refusal(status)) return -1;
  expect(status, {TANDEM_OK, TANDEM_ERROR_DAMAGED}, "verify");
  if (status == TANDEM_ERROR_DAMAGED) return kWrongDigest;
  return result.state;
}

// Section 4 of docs/format.md, said once more.
std::array<std::uint8_t, 16> digest_of(const Bytes &content, std::size_t k, std::size_t most_payload_bytes) {
  Bytes hashes;
  const auto append = [&](std::uint64_t number) {
    for (unsigned i = 0; i < 8; ++i) hashes.push_back(static_cast<std::uint8_t>(number >> (8 * i)));
  };
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t stripe = std::min(content.size() - at, k * most_payload_bytes),
                      payload_bytes = (stripe + k - 1) / k;
    for (std::size_t i = 0; i < k; ++i) {
      Bytes payload(payload_bytes);
      const std::size_t from = std::min(i * payload_bytes, stripe), to = std::min(from + payload_bytes, stripe);
      std::copy(content.begin() + static_cast<std::ptrdiff_t>(at + from),
                content.begin() + static_cast<std::ptrdiff_t>(at + to), payload.begin());
      const Hash128 hash = hash128(payload.data(), payload.size());
      append(hash.low);
      append(hash.high);
    }
    at += stripe;
  }
  append(content.size());
  return printed_order(hash128(hashes.data(), hashes.size()));
}

// The status, and a check of what came out.
tandem_status decode(const Search &search, const tandem_files_set &set) {
  const std::string id = id_of(set);
  const int memory = workshop().memory();
  lseek(memory, 0, SEEK_SET);
  if (ftruncate(memory, 0) != 0) wrong("ftruncate");
  auto options = sized<tandem_files_decode_options>();
  options.set_id_prefix = id.c_str();
  options.output_descriptor = memory;
  const tandem_status status = tandem_files_decode(workshop().context(), search.get(), &options, nullptr);
  if (is_refusal(status)) return status;
  expect(status, {TANDEM_OK, TANDEM_ERROR_NOT_RECOVERABLE, TANDEM_ERROR_DAMAGED}, "decode");
  if (status != TANDEM_OK) return status;
  Bytes content(static_cast<std::size_t>(lseek(memory, 0, SEEK_CUR)));
  if (pread(memory, content.data(), content.size(), 0) != static_cast<ssize_t>(content.size())) wrong("pread");
  if (content.size() != set.content_bytes) wrong("decoded another length than the set says");
  if (!std::equal(std::begin(set.digest), std::end(set.digest),
                  digest_of(content, set.k, set.block_bytes - 16).begin()))
    wrong("decoded bytes do not have the set's digest");
  for (const unsigned i : {0u, 1u}) {
    const Original &original = workshop().original(i);
    if (std::equal(std::begin(set.digest), std::end(set.digest), original.result.digest) && content != original.content)
      wrong("wrong bytes with TANDEM_OK");
  }
  return status;
}

bool is_original(const tandem_files_set &set) {
  const tandem_files_result &made = workshop().original(0).result;
  return std::equal(std::begin(set.set_id), std::end(set.set_id), made.set_id) && set.k == made.k && set.m == made.m &&
         set.matrix == made.matrix && set.content_bytes == made.content_bytes && set.block_bytes == made.block_bytes &&
         std::equal(std::begin(set.digest), std::end(set.digest), made.digest);
}

// Verify and decode agree. Returns what decode said.
tandem_status look_at(const Search &search, std::size_t index, bool forged) {
  const tandem_files_set set = set_at(search, index);
  const int state = verify(search, id_of(set));
  const tandem_status status = decode(search, set);
  const bool is_refused = is_refusal(status);
  if (is_refused != (state < 0)) wrong("verify and decode disagree on whether there is such a code");
  if (state == kWrongDigest && status != TANDEM_ERROR_DAMAGED) wrong("verify has another digest than decode");
  if (state >= 0 && (state == TANDEM_FILES_LOST) != (status == TANDEM_ERROR_NOT_RECOVERABLE))
    wrong("verify says " + std::to_string(state) + ", decode " + std::to_string(status));
  if (!forged && !is_refused && is_original(set) && status == TANDEM_ERROR_DAMAGED)
    wrong("a bad block was taken for a good one");
  return status;
}

void repair(const Search &search, std::size_t index, bool forged) {
  const tandem_files_set set = set_at(search, index);
  // What a forged header claims would fill the disk; that repair does not write it is for the tests of repair.
  if (set.shard_file_bytes > kMostFileBytes) return;
  const tandem_status before = decode(search, set);
  const std::string id = id_of(set);
  auto options = sized<tandem_files_repair_options>();
  options.set_id_prefix = id.c_str();
  options.no_sync = 1;
  auto result = sized<tandem_files_repair_result>();
  const tandem_status status = tandem_files_repair(workshop().context(), search.get(), &options, &result);
  if (is_refusal(status)) return;
  expect(status, {TANDEM_OK, TANDEM_ERROR_IO}, "repair");
  const Search again = search_folder();
  for (std::size_t i = 0; i < tandem_files_search_set_count(again.get()); ++i) {
    const tandem_files_set now = set_at(again, i);
    if (id_of(now) != id || !std::equal(std::begin(now.digest), std::end(now.digest), set.digest) ||
        now.content_bytes != set.content_bytes || now.k != set.k || now.m != set.m)
      continue;
    if (!ids_are_unique(again)) return;
    const tandem_status after = look_at(again, i, forged);
    // A forged block has a checksum that holds, and repair may compute a missing block from it: only the digest tells,
    // and repair does not compare it.
    if (before == TANDEM_OK && after != TANDEM_OK && !(forged && after == TANDEM_ERROR_DAMAGED))
      wrong("repair lost what could be decoded");
    if (is_original(set) && status == TANDEM_OK && before == TANDEM_OK && result.state == TANDEM_FILES_INTACT) {
      const int state = verify(again, id);
      if (state != TANDEM_FILES_INTACT && !(forged && state == kWrongDigest))
        wrong("repair says intact, verify does not");
    }
    return;
  }
  if (before == TANDEM_OK) wrong("the set is gone after repair");
}

void run(FuzzInput input) {
  const unsigned flags = input.byte();
  Tree tree;
  for (std::uint32_t i = 0; i < kK + kM; ++i) tree[shard_file_name("set", i)] = workshop().original(0).files[i];
  bool forged = false;
  for (unsigned i = 0; i < kMostEdits && !input.empty(); ++i) forged |= edit(tree, input);
  for (auto &[name, file] : tree) file.resize(std::min(file.size(), kMostFileBytes));
  tree["notes.txt"] = {'m', 'i', 'n', 'e'};
  workshop().write(tree);

  peak_bytes = live_bytes.load();
  if (flags & 1) {
    const char *const path = workshop().folder().c_str();
    expect(tandem_files_recover(&path, 1, nullptr, nullptr), {TANDEM_OK}, "recover");
    const Tree now = workshop().read();
    for (const auto &[name, file] : now)  // it renames and removes, and writes nothing
      if (std::none_of(tree.begin(), tree.end(), [&bytes = file](const auto &entry) { return entry.second == bytes; }))
        wrong("recover made " + name);
  }
  {
    const Search search = search_folder();
    const std::size_t count = tandem_files_search_set_count(search.get());
    if (ids_are_unique(search)) {
      for (std::size_t i = 0; i < count; ++i) look_at(search, i, forged);
      if ((flags & 2) != 0 && count != 0) {
        repair(search, flags / 4 % count, forged);
        workshop().read();
      }
    } else {
      for (std::size_t i = 0; i < count; ++i) set_at(search, i);
    }
  }
  if (const Tree &now = workshop().read(); !now.contains("notes.txt") || now.at("notes.txt") != tree["notes.txt"])
    wrong("a foreign file was changed");
}

}  // namespace
}  // namespace tandem::files

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  tandem::files::run(tandem::test::FuzzInput(data, size));
  return 0;
}
