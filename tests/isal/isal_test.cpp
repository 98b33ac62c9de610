// SPDX-License-Identifier: Apache-2.0
// Compares the drop-in with the machine's own libisal: every function on the same random input, byte for byte. Without
// a libisal, and for behaviour that ISA-L does not define, compares with the slow reference.
//
// TANDEM_ISAL_KERNEL forces a kernel. TANDEM_TEST_SECONDS makes the random part last that long.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ucontext.h>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "isal/abi.hpp"
#include "isal/coding.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

// The functions of abi.hpp, from one library. A name that an older ISA-L lacks stays null.
struct Library {
  explicit Library(const char *path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) return;
#define TANDEM_FIND(name) name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name))
    TANDEM_FIND(gf_mul), TANDEM_FIND(gf_inv), TANDEM_FIND(gf_vect_mul_init), TANDEM_FIND(gf_vect_mul_init_base);
    TANDEM_FIND(ec_init_tables), TANDEM_FIND(ec_init_tables_base);
    TANDEM_FIND(gf_gen_rs_matrix), TANDEM_FIND(gf_gen_cauchy1_matrix), TANDEM_FIND(gf_invert_matrix);
    TANDEM_FIND(ec_encode_data), TANDEM_FIND(ec_encode_data_base);
    TANDEM_FIND(ec_encode_data_update), TANDEM_FIND(ec_encode_data_update_base);
    TANDEM_FIND(gf_vect_dot_prod), TANDEM_FIND(gf_vect_dot_prod_base);
    TANDEM_FIND(gf_vect_mad), TANDEM_FIND(gf_vect_mad_base);
    TANDEM_FIND(gf_vect_mul), TANDEM_FIND(gf_vect_mul_base);
    TANDEM_FIND(xor_gen), TANDEM_FIND(xor_gen_base), TANDEM_FIND(xor_check), TANDEM_FIND(xor_check_base);
    TANDEM_FIND(pq_gen), TANDEM_FIND(pq_gen_base), TANDEM_FIND(pq_check), TANDEM_FIND(pq_check_base);
    TANDEM_FIND(isal_get_version), TANDEM_FIND(isal_get_version_str);
#undef TANDEM_FIND
  }

  void *handle;
  decltype(&::gf_mul) gf_mul;
  decltype(&::gf_inv) gf_inv;
  decltype(&::gf_vect_mul_init) gf_vect_mul_init;
  decltype(&::gf_vect_mul_init_base) gf_vect_mul_init_base;
  decltype(&::ec_init_tables) ec_init_tables;
  decltype(&::ec_init_tables_base) ec_init_tables_base;
  decltype(&::gf_gen_rs_matrix) gf_gen_rs_matrix;
  decltype(&::gf_gen_cauchy1_matrix) gf_gen_cauchy1_matrix;
  decltype(&::gf_invert_matrix) gf_invert_matrix;
  decltype(&::ec_encode_data) ec_encode_data;
  decltype(&::ec_encode_data_base) ec_encode_data_base;
  decltype(&::ec_encode_data_update) ec_encode_data_update;
  decltype(&::ec_encode_data_update_base) ec_encode_data_update_base;
  decltype(&::gf_vect_dot_prod) gf_vect_dot_prod;
  decltype(&::gf_vect_dot_prod_base) gf_vect_dot_prod_base;
  decltype(&::gf_vect_mad) gf_vect_mad;
  decltype(&::gf_vect_mad_base) gf_vect_mad_base;
  decltype(&::gf_vect_mul) gf_vect_mul;
  decltype(&::gf_vect_mul_base) gf_vect_mul_base;
  decltype(&::xor_gen) xor_gen;
  decltype(&::xor_gen_base) xor_gen_base;
  decltype(&::xor_check) xor_check;
  decltype(&::xor_check_base) xor_check_base;
  decltype(&::pq_gen) pq_gen;
  decltype(&::pq_gen_base) pq_gen_base;
  decltype(&::pq_check) pq_check;
  decltype(&::pq_check_base) pq_check_base;
  decltype(&::isal_get_version) isal_get_version;
  decltype(&::isal_get_version_str) isal_get_version_str;
};

// The machine's; its handle is null where there is none. Before ours: both have the same SONAME, and a name without a
// path means the one that is there.
const Library &real() {
  static const Library library("libisal.so.2");
  return library;
}

const Library &ours() {
  real();
  static const Library library(TANDEM_TEST_LIBISAL);
  return library;
}

class Isal : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(ours().handle, nullptr) << dlerror();
    const char *kernel = std::getenv("TANDEM_ISAL_KERNEL");
    if (kernel != nullptr && *kernel != '\0' && cpu::select_kernel(cpu::cpu_features(), kernel) == nullptr)
      GTEST_SKIP() << "NOT RUN: this CPU lacks the kernel " << kernel;
  }
};

// Compares with the machine's own library.
class Differential : public Isal {
 protected:
  void SetUp() override {
    Isal::SetUp();
    if (IsSkipped() || HasFailure()) return;
    if (real().handle != nullptr) {
      ASSERT_NE(reinterpret_cast<void *>(real().ec_encode_data), reinterpret_cast<void *>(ours().ec_encode_data));
      return;
    }
    const char *ci = std::getenv("CI");
    ASSERT_FALSE(ci != nullptr && std::string(ci) == "true") << "libisal2 must be installed in CI";
    GTEST_SKIP() << "NOT RUN: no libisal.so.2 on this machine (Debian, Ubuntu: apt-get install libisal2)";
  }
};

// Vectors of one length, each at another alignment, between bytes that must not change.
class Vectors {
 public:
  Vectors(Random &random, unsigned count, std::size_t bytes, std::size_t alignment = 1)
      : bytes_(bytes), storage_(count, Bytes(bytes + 2 * kAround)) {
    for (Bytes &vector : storage_) {
      random.fill(vector.data(), vector.size());
      std::size_t shift = random.below(64) / alignment * alignment;
      shift += (kAround - reinterpret_cast<std::uintptr_t>(vector.data()) % kAround) % kAround;
      pointers_.push_back(vector.data() + shift);
    }
  }
  Vectors(const Vectors &other) : bytes_(other.bytes_), storage_(other.storage_) {
    for (std::size_t i = 0; i < storage_.size(); ++i)  // at other addresses, perhaps of another alignment
      pointers_.push_back(storage_[i].data() + (other.pointers_[i] - other.storage_[i].data()));
  }
  Vectors &operator=(const Vectors &) = delete;

  unsigned char **all() { return pointers_.data(); }
  void **array() { return reinterpret_cast<void **>(pointers_.data()); }
  unsigned char *at(unsigned i) { return pointers_[i]; }
  std::size_t bytes() const { return bytes_; }
  bool operator==(const Vectors &other) const { return storage_ == other.storage_; }

 private:
  static constexpr std::size_t kAround = 128;
  std::size_t bytes_;
  std::vector<Bytes> storage_;
  std::vector<unsigned char *> pointers_;
};

// Tables in the classic layout, from the definition.
Bytes classic_tables(const Bytes &coefficients) {
  Bytes tables;
  for (const std::uint8_t c : coefficients) {
    for (unsigned i = 0; i < 32; ++i)
      tables.push_back(reference::multiply(c, static_cast<std::uint8_t>(i < 16 ? i : (i - 16) << 4)));
  }
  return tables;
}

// By the same code, linked into this program: the library itself has no function to ask.
TEST_F(Isal, KernelIsTheOneAskedFor) {
  const char *wanted = std::getenv("TANDEM_ISAL_KERNEL");
  if (wanted == nullptr || *wanted == '\0') wanted = cpu::select_kernel(cpu::cpu_features(), nullptr)->name;
  EXPECT_STREQ(isal::kernel().name, wanted);
}

TEST_F(Isal, Arithmetic) {
  for (unsigned a = 0; a < 256; ++a) {
    const auto x = static_cast<unsigned char>(a);
    ASSERT_EQ(ours().gf_inv(x), a == 0 ? 0 : reference::inverse(x));
    for (unsigned b = 0; b < 256; ++b)
      ASSERT_EQ(ours().gf_mul(x, static_cast<unsigned char>(b)), reference::multiply(x, static_cast<std::uint8_t>(b)));
    Bytes one(34, 0x77), other(34, 0x77);
    ours().gf_vect_mul_init(x, one.data() + 1);
    ours().gf_vect_mul_init_base(x, other.data() + 1);
    Bytes want = classic_tables({x});
    want.insert(want.begin(), 0x77);
    want.push_back(0x77);
    ASSERT_EQ(one, want);
    ASSERT_EQ(other, want);
  }
}

TEST_F(Isal, TablesAreClassicAndSliceable) {
  Random random(1);
  for (const auto &[k, rows] : {std::pair{1, 1}, {10, 4}, {4, 10}, {255, 3}}) {
    Bytes coefficients = random.bytes(static_cast<std::size_t>(k * rows));
    for (const auto init : {ours().ec_init_tables, ours().ec_init_tables_base}) {
      Bytes tables(coefficients.size() * 32);
      init(k, rows, coefficients.data(), tables.data());
      EXPECT_EQ(tables, classic_tables(coefficients));
    }
    // One row out of the middle, copied elsewhere, is a table of its own.
    Bytes tables = classic_tables(coefficients);
    const std::size_t row_bytes = static_cast<std::size_t>(k) * 32, row = static_cast<std::size_t>(rows / 2);
    Bytes slice(tables.begin() + static_cast<std::ptrdiff_t>(row * row_bytes),
                tables.begin() + static_cast<std::ptrdiff_t>((row + 1) * row_bytes));
    Vectors data(random, static_cast<unsigned>(k), 777), coding(random, 1, 777);
    ours().ec_encode_data(777, k, 1, slice.data(), data.all(), coding.all());
    const Shards want = expected(coefficients.data() + row * static_cast<std::size_t>(k), 1,
                                 static_cast<std::size_t>(k), data.all(), 777);
    EXPECT_EQ(std::memcmp(coding.at(0), want[0].data(), 777), 0);
  }
}

TEST_F(Isal, Version) {
  EXPECT_STREQ(ours().isal_get_version_str(), "2.32.1");
  EXPECT_EQ(ours().isal_get_version(), 0x22001u);
}

// Counts and lengths below 1: nothing is read or written, with any pointers.
TEST_F(Isal, NothingToDoTouchesNothing) {
  const Library &of = ours();
  for (const int none : {0, -1, -64, INT_MIN}) {
    const int blocks = none / 32 * 32;
    for (const auto &[len, k, rows] : {std::tuple{none, 4, 2}, {100, none, 2}, {100, 4, none}}) {
      of.ec_encode_data(len, k, rows, nullptr, nullptr, nullptr);
      of.ec_encode_data_base(len, k, rows, nullptr, nullptr, nullptr);
      of.ec_encode_data_update(len, k, rows, 0, nullptr, nullptr, nullptr);
      of.ec_encode_data_update_base(len, k, rows, 0, nullptr, nullptr, nullptr);
    }
    unsigned char *no_coding[2] = {nullptr, nullptr};
    for (const int index : {none == 0 ? 4 : none, 5, INT_MAX}) {  // not of a source
      of.ec_encode_data_update(100, 4, 2, index, nullptr, nullptr, nullptr);
      of.ec_encode_data_update_base(100, 4, 2, index, nullptr, nullptr, no_coding);
      of.gf_vect_mad_base(100, 4, index, nullptr, nullptr, nullptr);
    }
    for (const auto &[len, k] : {std::pair{none, 4}, {100, none}}) {
      of.gf_vect_dot_prod(len, k, nullptr, nullptr, nullptr);
      of.gf_vect_dot_prod_base(len, k, nullptr, nullptr, nullptr);
    }
    for (const auto mad : {of.gf_vect_mad, of.gf_vect_mad_base}) mad(none, 4, 0, nullptr, nullptr, nullptr);
    for (const auto init : {of.ec_init_tables, of.ec_init_tables_base}) init(4, none, nullptr, nullptr);
    of.ec_init_tables(none, 4, nullptr, nullptr);
    for (const auto generate : {of.gf_gen_rs_matrix, of.gf_gen_cauchy1_matrix}) generate(nullptr, none, 4);
    of.gf_gen_rs_matrix(nullptr, 4, none);
    EXPECT_EQ(of.gf_vect_mul(blocks, nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(of.gf_vect_mul_base(blocks, nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(of.gf_invert_matrix(nullptr, nullptr, none), 0);
    EXPECT_EQ(of.xor_gen(none, 64, nullptr), 1);
    EXPECT_EQ(of.pq_gen(none, 64, nullptr), 1);
    for (const auto raid :
         {of.xor_gen, of.xor_gen_base, of.xor_check, of.xor_check_base, of.pq_gen_base, of.pq_check_base})
      EXPECT_EQ(raid(4, none, nullptr), 0);
    for (const auto raid : {of.pq_gen, of.pq_check}) EXPECT_EQ(raid(4, blocks, nullptr), 0);
  }
}

TEST_F(Isal, RefusesWhatIsaLRefuses) {
  for (const int length : {1, 8, 15, 16, 17, 31, 33, 48, 4112}) {  // before any pointer is read
    EXPECT_EQ(ours().pq_gen(4, length, nullptr), 1) << length;
    EXPECT_EQ(ours().gf_vect_mul(length, nullptr, nullptr, nullptr), 1) << length;
    EXPECT_EQ(ours().gf_vect_mul_base(length, nullptr, nullptr, nullptr), -1) << length;
    EXPECT_EQ(ours().pq_check(4, length % 16 == 0 ? 8 : length, nullptr), 1) << length;
  }
  for (int vects = 0; vects < 4; ++vects) {
    EXPECT_EQ(ours().pq_gen(vects, 64, nullptr), 1);
    EXPECT_EQ(ours().pq_check(vects, 64, nullptr), 1);
    EXPECT_EQ(ours().xor_gen(std::min(vects, 2), 64, nullptr), 1);
    EXPECT_EQ(ours().xor_check(std::min(vects, 1), 64, nullptr), 1);
  }
}

// Not one byte beyond the buffers, at lengths on both sides of every way through the code.
TEST_F(Isal, GuardPages) {
  Random random(2);
  for (const auto &[k, rows] : {std::pair{4u, 2u}, {10u, 4u}, {20u, 10u}, {3u, 7u}}) {
    Bytes coefficients = random.bytes(std::size_t{k} * rows);
    Bytes tables = classic_tables(coefficients);
    for (const std::size_t length : {1, 15, 31, 33, 63, 64, 65, 127, 129, 3071, 3072, 3073, 8191, 8192, 8193, 20001}) {
      for (const auto against : {Guarded::Against::front, Guarded::Against::back}) {
        std::vector<Guarded> shards;
        std::vector<unsigned char *> pointers;
        for (unsigned i = 0; i < k + rows; ++i) {
          shards.emplace_back(length, against);
          random.fill(shards.back().data(), length);
          if (i < k) shards.back().make_read_only();
          pointers.push_back(shards.back().data());
        }
        Shards want = expected(coefficients.data(), rows, k, pointers.data(), length);
        const int bytes = static_cast<int>(length), columns = static_cast<int>(k), row_count = static_cast<int>(rows);
        ours().ec_encode_data(bytes, columns, row_count, tables.data(), pointers.data(), pointers.data() + k);
        for (unsigned r = 0; r < rows; ++r) ASSERT_EQ(std::memcmp(pointers[k + r], want[r].data(), length), 0);
        for (unsigned c = 0; c < k; ++c)  // every source once more: all is cancelled
          ours().ec_encode_data_update(bytes, columns, row_count, static_cast<int>(c), tables.data(), pointers[c],
                                       pointers.data() + k);
        const Bytes zeros(length, 0);
        for (unsigned r = 0; r < rows; ++r) ASSERT_EQ(std::memcmp(pointers[k + r], zeros.data(), length), 0);
      }
    }
  }
}

// Without the optimiser, and with a sanitizer, functions take more stack than what users build.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = 16 << 10, kMostStackBytes = 4096;  // docs/isal.md
#else
constexpr std::size_t kStackBytes = 256 << 10, kMostStackBytes = kStackBytes;
#endif

// How many bytes of stack a body takes, beyond what an empty one does: run on a painted stack with a forbidden page
// below it.
std::size_t stack_bytes_of(const std::function<void()> &body) {
  constexpr std::uint8_t kPaint = 0xa7;
  static const std::function<void()> *entered;
  const auto depth_of = [&](const std::function<void()> &run) {
    const Guarded stack(kStackBytes, Guarded::Against::front);
    std::memset(stack.data(), kPaint, kStackBytes);
    ucontext_t here, there;
    if (getcontext(&there) != 0) std::abort();
    there.uc_stack.ss_sp = stack.data();
    there.uc_stack.ss_size = kStackBytes;
    there.uc_link = &here;
    entered = &run;
    makecontext(
        &there, [] { (*entered)(); }, 0);
    if (swapcontext(&here, &there) != 0) std::abort();
    std::size_t untouched = 0;
    while (untouched < kStackBytes && stack.data()[untouched] == kPaint) ++untouched;
    return kStackBytes - untouched;
  };
  return depth_of(body) - depth_of([] {});
}

TEST_F(Isal, LittleStackIsEnough) {
  Random random(6);
  std::size_t most = 0;
  const auto check = [&](const char *function, const std::function<void()> &body) {
    const std::size_t bytes = stack_bytes_of(body);
    EXPECT_LE(bytes, kMostStackBytes) << function;
    most = std::max(most, bytes);
  };
  for (const auto &[k, rows] : {std::pair{1u, 1u},
                                {4u, 2u},
                                {8u, 5u},
                                {10u, 4u},
                                {10u, 8u},
                                {20u, 10u},
                                {32u, 32u},
                                {128u, 32u},
                                {223u, 32u},
                                {2u, 254u}}) {
    for (const bool cauchy : {true, false}) {
      Bytes coefficients(std::size_t{k} * (k + rows));
      (cauchy ? ours().gf_gen_cauchy1_matrix : ours().gf_gen_rs_matrix)(coefficients.data(), static_cast<int>(k + rows),
                                                                        static_cast<int>(k));
      const std::uint8_t *parity_rows = coefficients.data() + std::size_t{k} * k;
      Bytes tables = classic_tables(Bytes(parity_rows, parity_rows + std::size_t{k} * rows));
      for (const std::size_t length : {100u, 4096u, 9000u, 33'000u}) {
        SCOPED_TRACE(testing::Message() << k << "+" << rows << ", " << length);
        Vectors data(random, k, length), coding(random, rows, length);
        const Shards want = expected(parity_rows, rows, k, data.all(), length);
        const int bytes = static_cast<int>(length), columns = static_cast<int>(k), row_count = static_cast<int>(rows);
        check("ec_encode_data",
              [&] { ours().ec_encode_data(bytes, columns, row_count, tables.data(), data.all(), coding.all()); });
        for (unsigned r = 0; r < rows; ++r) ASSERT_EQ(std::memcmp(coding.at(r), want[r].data(), length), 0);
        check("ec_encode_data_update", [&] {
          ours().ec_encode_data_update(bytes, columns, row_count, 0, tables.data(), data.at(0), coding.all());
        });
        check("gf_vect_dot_prod",
              [&] { ours().gf_vect_dot_prod(bytes, columns, tables.data(), data.all(), coding.at(0)); });
        check("gf_vect_mad", [&] { ours().gf_vect_mad(bytes, columns, 0, tables.data(), data.at(0), coding.at(0)); });
        check("gf_vect_mul", [&] { ours().gf_vect_mul(bytes / 32 * 32, tables.data(), data.at(0), coding.at(0)); });
        check("xor_gen", [&] { ours().xor_gen(columns, bytes, data.array()); });
        check("xor_check", [&] { ours().xor_check(columns, bytes, data.array()); });
        check("pq_gen", [&] { ours().pq_gen(columns, bytes / 32 * 32, data.array()); });
        check("pq_check", [&] { ours().pq_check(columns, bytes / 32 * 32, data.array()); });
        Vectors both(random, std::max(k, rows), length);
        check("ec_encode_data in place",
              [&] { ours().ec_encode_data(bytes, columns, row_count, tables.data(), both.all(), both.all()); });
        check("ec_encode_data_update in place", [&] {
          ours().ec_encode_data_update(bytes, columns, row_count, 0, tables.data(), both.at(0), both.all());
        });
      }
      Bytes inverse(std::size_t{k} * k);
      check("gf_invert_matrix",
            [&] { ours().gf_invert_matrix(coefficients.data(), inverse.data(), static_cast<int>(k)); });
    }
  }
  std::printf("no call took more than %zu bytes of stack\n", most);
}

// Outputs that are inputs: as though all of them were read first.
TEST_F(Isal, InPlaceCoding) {
  Random random(7);
  const auto once = [&](unsigned k, unsigned rows, std::size_t length) {
    const int bytes = static_cast<int>(length), columns = static_cast<int>(k), row_count = static_cast<int>(rows);
    SCOPED_TRACE(testing::Message() << k << "+" << rows << ", " << length << " bytes");
    Bytes coefficients = random.bytes(std::size_t{k} * rows);
    if (k + rows <= 256 && random.chance(70)) {
      Bytes whole(std::size_t{k} * (k + rows));
      (random.chance(50) ? ours().gf_gen_cauchy1_matrix : ours().gf_gen_rs_matrix)(whole.data(),
                                                                                   static_cast<int>(k + rows), columns);
      coefficients.assign(whole.begin() + static_cast<std::ptrdiff_t>(k) * k, whole.end());
    }
    Bytes tables = classic_tables(coefficients);
    Vectors data(random, k, length), spare(random, rows, length);
    std::vector<unsigned char *> coding(spare.all(), spare.all() + rows);
    std::vector<unsigned> from(k);
    for (unsigned c = 0; c < k; ++c) from[c] = c;
    for (unsigned c = k; c > 1; --c) std::swap(from[c - 1], from[random.below(c)]);
    const auto shared = random.between(1, std::min(k, rows));
    for (unsigned i = 0; i < shared; ++i) coding[(i * 5 + rows - 1) % rows] = data.at(from[i]);
    if (rows % 5 == 0)
      for (unsigned i = 0; i < rows; ++i) coding[i] = i < shared ? data.at(from[i]) : spare.at(i);
    const Shards want = expected(coefficients.data(), rows, k, data.all(), length);
    ours().ec_encode_data(bytes, columns, row_count, tables.data(), data.all(), coding.data());
    for (unsigned r = 0; r < rows; ++r)
      ASSERT_EQ(std::memcmp(coding[r], want[r].data(), length), 0) << "ec_encode_data, row " << r;

    const auto index = static_cast<unsigned>(random.below(k)), row = static_cast<unsigned>(random.below(rows));
    Vectors outputs(random, rows, length);
    Shards updated;
    for (unsigned r = 0; r < rows; ++r) {
      updated.emplace_back(outputs.at(r), outputs.at(r) + length);
      for (std::size_t i = 0; i < length; ++i)
        updated[r][i] ^= products()[coefficients[std::size_t{r} * k + index]][outputs.at(row)[i]];
    }
    ours().ec_encode_data_update(bytes, columns, row_count, static_cast<int>(index), tables.data(), outputs.at(row),
                                 outputs.all());
    for (unsigned r = 0; r < rows; ++r)
      ASSERT_EQ(std::memcmp(outputs.at(r), updated[r].data(), length), 0) << "ec_encode_data_update, row " << r;

    Vectors sources(random, k, length);
    const Shards product = expected(coefficients.data(), 1, k, sources.all(), length);
    unsigned char *const target = sources.at(index);
    ours().gf_vect_dot_prod(bytes, columns, tables.data(), sources.all(), target);
    ASSERT_EQ(std::memcmp(target, product[0].data(), length), 0) << "gf_vect_dot_prod";
    Bytes added(target, target + length);
    for (std::uint8_t &byte : added) byte ^= products()[coefficients[index]][byte];
    ours().gf_vect_mad(bytes, columns, static_cast<int>(index), tables.data(), target, target);
    ASSERT_EQ(std::memcmp(target, added.data(), length), 0) << "gf_vect_mad";
  };
  for (const std::size_t length : {1u, 31u, 63u, 64u, 65u, 127u, 192u, 1000u, 3071u, 3072u, 8191u, 8192u, 20'003u}) {
    for (unsigned rows = 1; rows <= 14; ++rows) {
      for (const unsigned k : {1u, 2u, 4u, 5u, 8u, 10u, 12u}) {
        once(k, rows, length);
        if (HasFailure()) return;
      }
    }
    if (length < 1000) once(100, 33, length), once(33, 100, length), once(40, 215, length), once(255, 255, length);
    if (HasFailure()) return;
  }
}

// The same of RAID: Ceph computes a difference into one of its two sources, by xor_gen with array[2] == array[0].
TEST_F(Isal, InPlaceRaid) {
  Random random(8);
  const auto once = [&](auto generate, unsigned outputs, unsigned count, std::size_t length) {
    Vectors data(random, count, length), spare(random, outputs, length);
    std::vector<void *> array(data.array(), data.array() + count);
    const auto p_from = static_cast<unsigned>(random.below(count)), q_from = (p_from + 1) % count;
    array.push_back(data.at(p_from));
    if (outputs == 2) array.push_back(random.chance(50) ? data.at(q_from) : spare.at(1));
    Bytes coefficients(std::size_t{outputs} * count, 1);
    for (unsigned c = 1; outputs == 2 && c < count; ++c)
      coefficients[count + c] = reference::multiply(2, coefficients[count + c - 1]);
    const Shards want = expected(coefficients.data(), outputs, count, data.all(), length);
    ASSERT_EQ(generate(static_cast<int>(count + outputs), static_cast<int>(length), array.data()), 0);
    for (unsigned r = 0; r < outputs; ++r)
      ASSERT_EQ(std::memcmp(array[count + r], want[r].data(), length), 0)
          << outputs << " outputs of " << count << ", " << length << " bytes, output " << r;
  };
  for (const unsigned count : {2u, 3u, 4u, 5u, 9u, 17u}) {
    for (const std::size_t words : {1u, 2u, 3u, 4u, 7u, 8u, 9u, 64u, 129u, 700u}) {
      for (const auto generate : {ours().xor_gen, ours().xor_gen_base}) {
        for (const std::size_t odd : {0u, 1u, 31u}) once(generate, 1, count, 32 * words - odd);
      }
      for (const auto generate : {ours().pq_gen, ours().pq_gen_base}) once(generate, 2, count, 32 * words);
      if (HasFailure()) return;
    }
  }
  once(ours().xor_gen, 1, 2, (std::size_t{16} << 20) + 5);  // not in the cache
  once(ours().pq_gen, 2, 3, std::size_t{16} << 20);
}

TEST_F(Isal, InPlace) {  // what ISA-L allows by reading a vector before it writes there
  Random random(3);
  for (const int length : {32, 64, 4096, 32768, 4 << 20}) {
    Bytes table = classic_tables({0x8e});
    Bytes buffer = random.bytes(static_cast<std::size_t>(length)), want = buffer;
    for (std::uint8_t &byte : want) byte = products()[0x8e][byte];
    EXPECT_EQ(ours().gf_vect_mul(length, table.data(), buffer.data(), buffer.data()), 0);
    EXPECT_EQ(buffer, want) << length;
  }
}

TEST_F(Differential, Matrices) {
  for (int k = 1; k <= 255; k = k < 20 ? k + 1 : k + 29) {
    for (const int m : {k, k + 1, k + 2, k + 4, k + 17, 255, 256}) {
      if (m < k || m > 256) continue;
      Bytes one(static_cast<std::size_t>(m * k)), other(one.size());
      ours().gf_gen_rs_matrix(one.data(), m, k);
      real().gf_gen_rs_matrix(other.data(), m, k);
      ASSERT_EQ(one, other) << k << " of " << m;
      ours().gf_gen_cauchy1_matrix(one.data(), m, k);
      real().gf_gen_cauchy1_matrix(other.data(), m, k);
      ASSERT_EQ(one, other) << k << " of " << m;
    }
  }
}

TEST_F(Differential, Inversion) {
  Random random(4);
  unsigned singular = 0, swapped = 0;
  for (unsigned trial = 0; trial < 330; ++trial) {
    const int n = trial < 300 ? static_cast<int>(random.between(1, 40)) : static_cast<int>(random.between(1, 255));
    const auto size = static_cast<std::size_t>(n);
    Bytes in = random.bytes(size * size);
    if (trial % 3 == 0) in[0] = 0, ++swapped;
    if (trial % 5 == 0)  // a row twice
      std::copy_n(in.begin(), n, in.end() - n);
    if (trial % 7 == 0)
      for (std::uint8_t &cell : in) cell &= 1;
    Bytes in_real = in, out(size * size, 7), out_real(size * size, 9);
    const int one = ours().gf_invert_matrix(in.data(), out.data(), n);
    const int other = real().gf_invert_matrix(in_real.data(), out_real.data(), n);
    ASSERT_EQ(one, other) << n;
    ASSERT_EQ(in, in_real) << n << ", result " << one;
    ASSERT_EQ(out, out_real) << n << ", result " << one;
    singular += one != 0;
  }
  EXPECT_GT(singular, 20u);
  EXPECT_GT(swapped, 20u);
}

// One random call of everything, with both libraries.
void compare_once(Random &random) {
  const auto k = static_cast<unsigned>(random.chance(80) ? random.between(1, 24) : random.between(1, 255));
  const auto rows = static_cast<unsigned>(random.chance(80) ? random.between(1, 8) : random.between(1, 32));
  std::size_t length = random.chance(70) ? random.between(1, 300) : random.between(1, 20'000);
  if (random.chance(3)) length = random.between(1, 1 << 20);
  length = std::min<std::size_t>(length, (16 << 20) / (k + rows));
  Bytes coefficients = random.bytes(std::size_t{k} * rows);
  if (random.chance(40) && k + rows <= 256) {  // matrices that have the blocks which kernels look for
    Bytes whole(std::size_t{k} * (k + rows));
    (random.chance(70) ? real().gf_gen_cauchy1_matrix : real().gf_gen_rs_matrix)(
        whole.data(), static_cast<int>(k + rows), static_cast<int>(k));
    coefficients.assign(whole.begin() + static_cast<std::ptrdiff_t>(k) * k, whole.end());
  }
  const int bytes = static_cast<int>(length), columns = static_cast<int>(k), row_count = static_cast<int>(rows);
  const int index = static_cast<int>(random.below(k));
  SCOPED_TRACE(testing::Message() << k << "+" << rows << ", " << length << " bytes, index " << index);

  Bytes tables(coefficients.size() * 32), tables_real(tables), tables_base(tables);
  ours().ec_init_tables(columns, row_count, coefficients.data(), tables.data());
  ours().ec_init_tables_base(columns, row_count, coefficients.data(), tables_base.data());
  real().ec_init_tables(columns, row_count, coefficients.data(), tables_real.data());
  ASSERT_EQ(tables, classic_tables(coefficients));
  ASSERT_EQ(tables_base, tables);

  Vectors data(random, k, length), coding(random, rows, length), coding_real(coding);
  ours().ec_encode_data(bytes, columns, row_count, tables.data(), data.all(), coding.all());
  real().ec_encode_data(bytes, columns, row_count, tables_real.data(), data.all(), coding_real.all());
  ASSERT_TRUE(coding == coding_real) << "ec_encode_data";
  ours().ec_encode_data_update(bytes, columns, row_count, index, tables.data(), data.at(0), coding.all());
  real().ec_encode_data_update(bytes, columns, row_count, index, tables_real.data(), data.at(0), coding_real.all());
  ASSERT_TRUE(coding == coding_real) << "ec_encode_data_update";
  if (length >= 64) {  // below its vectors' length ISA-L leaves these open
    ours().gf_vect_dot_prod(bytes, columns, tables.data(), data.all(), coding.at(0));
    real().gf_vect_dot_prod(bytes, columns, tables_real.data(), data.all(), coding_real.at(0));
    ASSERT_TRUE(coding == coding_real) << "gf_vect_dot_prod";
    ours().gf_vect_mad(bytes, columns, index, tables.data(), data.at(0), coding.at(0));
    real().gf_vect_mad(bytes, columns, index, tables_real.data(), data.at(0), coding_real.at(0));
    ASSERT_TRUE(coding == coding_real) << "gf_vect_mad";
  }
  if (length <= 2000) {
    ours().ec_encode_data_base(bytes, columns, row_count, tables.data(), data.all(), coding.all());
    real().ec_encode_data_base(bytes, columns, row_count, tables.data(), data.all(), coding_real.all());
    ASSERT_TRUE(coding == coding_real) << "ec_encode_data_base";
    ours().ec_encode_data_update_base(bytes, columns, row_count, index, tables.data(), data.at(0), coding.all());
    real().ec_encode_data_update_base(bytes, columns, row_count, index, tables.data(), data.at(0), coding_real.all());
    ASSERT_TRUE(coding == coding_real) << "ec_encode_data_update_base";
    ours().gf_vect_dot_prod_base(bytes, columns, tables.data(), data.all(), coding.at(0));
    real().gf_vect_dot_prod_base(bytes, columns, tables.data(), data.all(), coding_real.at(0));
    ASSERT_TRUE(coding == coding_real) << "gf_vect_dot_prod_base";
    ours().gf_vect_mad_base(bytes, columns, index, tables.data(), data.at(0), coding.at(0));
    real().gf_vect_mad_base(bytes, columns, index, tables.data(), data.at(0), coding_real.at(0));
    ASSERT_TRUE(coding == coding_real) << "gf_vect_mad_base";
  }
}

// RAID and gf_vect_mul ask for lengths and alignments of 32; lengths that are refused are tried too.
void compare_raid_once(Random &random) {
  const auto vects = static_cast<unsigned>(random.chance(85) ? random.between(0, 20) : random.between(0, 255));
  std::size_t length = 32 * (random.chance(80) ? random.between(0, 40) : random.between(0, 4000));
  if (random.chance(10)) length += random.between(1, 31);
  length = std::min<std::size_t>(length, (16 << 20) / (vects + 1) / 32 * 32);
  const int count = static_cast<int>(vects), bytes = static_cast<int>(length);
  SCOPED_TRACE(testing::Message() << vects << " vectors of " << length << " bytes");
  // As ISA-L asks: copies at the same alignment.
  std::vector<std::unique_ptr<Guarded>> storage;
  std::vector<void *> one, other;
  const std::size_t room = (length + 63) / 64 * 64 + 64;
  for (unsigned i = 0; i < 2 * vects; ++i) {
    storage.push_back(std::make_unique<Guarded>(room, Guarded::Against::front));
    (i < vects ? one : other).push_back(storage.back()->data());
  }
  for (unsigned i = 0; i < vects; ++i) {
    random.fill(one[i], room);
    std::memcpy(other[i], one[i], room);
  }
  const auto same = [&] {
    for (unsigned i = 0; i < vects; ++i)
      if (std::memcmp(one[i], other[i], room) != 0) return false;
    return true;
  };
  ASSERT_EQ(ours().xor_gen(count, bytes, one.data()), real().xor_gen(count, bytes, other.data()));
  ASSERT_TRUE(same()) << "xor_gen";
  ASSERT_EQ(ours().xor_check(count, bytes, one.data()), real().xor_check(count, bytes, one.data()));
  ASSERT_EQ(ours().pq_gen(count, bytes, one.data()), real().pq_gen(count, bytes, other.data()));
  ASSERT_TRUE(same()) << "pq_gen";
  ASSERT_EQ(ours().pq_check(count, bytes, one.data()), real().pq_check(count, bytes, one.data()));
  if (vects < 4) {  // the _base functions of ISA-L 2.30 do not look
    ASSERT_EQ(ours().pq_check_base(count, bytes, one.data()), 1);
    ASSERT_EQ(ours().pq_gen_base(count, bytes, one.data()), 1);
    ASSERT_EQ(ours().xor_gen_base(std::min(count, 2), bytes, one.data()), 1);
    ASSERT_EQ(ours().xor_check_base(std::min(count, 1), bytes, one.data()), 1);
    return;
  }
  ASSERT_EQ(ours().pq_check_base(count, bytes, one.data()), real().pq_check_base(count, bytes, one.data()));
  if (length > 0) {  // one byte wrong, anywhere
    static_cast<std::uint8_t *>(one[random.below(vects)])[random.below(length)] ^= 1;
    for (unsigned i = 0; i < vects; ++i) std::memcpy(other[i], one[i], room);
    ASSERT_EQ(ours().pq_check(count, bytes, one.data()), real().pq_check(count, bytes, one.data()));
    ASSERT_EQ(ours().pq_check_base(count, bytes, one.data()), real().pq_check_base(count, bytes, one.data()));
    ASSERT_NE(ours().pq_check_base(count, bytes, one.data()), 0);
  }
  ASSERT_EQ(ours().xor_gen_base(count, bytes, one.data()), real().xor_gen_base(count, bytes, other.data()));
  ASSERT_TRUE(same()) << "xor_gen_base";
  ASSERT_EQ(ours().xor_check_base(count, bytes, one.data()), real().xor_check_base(count, bytes, one.data()));
  ASSERT_EQ(ours().pq_gen_base(count, bytes, one.data()), real().pq_gen_base(count, bytes, other.data()));
  ASSERT_TRUE(same()) << "pq_gen_base";

  Bytes table = classic_tables({random.byte()});
  Bytes table_real(32);
  real().gf_vect_mul_init(table[1], table_real.data());
  if (length == 0 || length % 32 != 0) {  // ISA-L writes 32 bytes of 0, and 2.30 what it has done until it refuses
    ASSERT_EQ(ours().gf_vect_mul(bytes, table.data(), one[0], one[1]), length == 0 ? 0 : 1);
  } else {
    ASSERT_EQ(ours().gf_vect_mul(bytes, table.data(), one[0], one[1]), 0);
    ASSERT_EQ(real().gf_vect_mul(bytes, table_real.data(), other[0], other[1]), 0);
  }
  ASSERT_TRUE(same()) << "gf_vect_mul";
  if (length % 32 == 0) {  // void, and without a check, in ISA-L 2.30
    real().gf_vect_mul_base(bytes, table.data(), static_cast<unsigned char *>(other[0]),
                            static_cast<unsigned char *>(other[1]));
    ASSERT_EQ(ours().gf_vect_mul_base(bytes, table.data(), static_cast<unsigned char *>(one[0]),
                                      static_cast<unsigned char *>(one[1])),
              0);
    ASSERT_TRUE(same()) << "gf_vect_mul_base";
  } else {
    EXPECT_EQ(ours().gf_vect_mul_base(bytes, table.data(), nullptr, nullptr), -1);
  }
}

TEST_F(Differential, RandomCalls) {
  const char *wanted = std::getenv("TANDEM_TEST_SECONDS");
  const double seconds = wanted != nullptr ? std::atof(wanted) : 2;
  const auto began = std::chrono::steady_clock::now();
  Random random(wanted == nullptr ? 5 : static_cast<std::uint64_t>(seconds * 1000));
  unsigned rounds = 0;
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
  while (rounds < 200 || elapsed() < seconds) {
    compare_once(random);
    compare_raid_once(random);
    if (HasFailure()) return;
    ++rounds;
  }
  std::printf("%u rounds of random calls, all equal\n", rounds);
}

}  // namespace
}  // namespace tandem::test
