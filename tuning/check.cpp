// SPDX-License-Identifier: Apache-2.0
#include "tuning/check.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <new>
#include <span>

#include "base/error.hpp"
#include "base/rounding.hpp"
#include "core/gf.hpp"

namespace tandem::tuning {

constexpr std::uint64_t kLeastSmallBytes = 8 << 10, kTailBytes = 13, kMarginBytes = 64;  // of a small shard
constexpr std::uint64_t kCheckedColumns = 256;                                           // of a whole run
constexpr std::size_t kMostUnderWay = 32;  // runs in the queue of a device

Shards::Shards(core::Backend &backend, bool on_device, unsigned count, std::uint64_t bytes) {
  const std::uint64_t pitch = (base::divide_up(bytes, kLine) | 1) * kLine;
  std::uint64_t total = 0;
  if (bytes > UINT64_MAX / 2 || __builtin_mul_overflow(pitch, std::uint64_t{count}, &total) || total > SIZE_MAX / 2)
    base::fail(TANDEM_ERROR_TOO_LARGE, count, " shards of ", bytes, " bytes do not fit memory");
  memory_.reset(static_cast<std::byte *>(::operator new (std::max<std::uint64_t>(total, 1), std::align_val_t{kLine})));
  for (unsigned i = 0; i < count; ++i) pointers_.push_back(memory_.get() + i * pitch);
  if (!on_device || total == 0) return;
  bytes_ = total;
  device_ = backend.device_memory(total);
  places_.assign(count, static_cast<std::byte *>(device_->shards()));
  for (unsigned i = 0; i < count; ++i) offsets_.push_back(i * pitch);
}

void Shards::send() {
  if (device_ != nullptr) device_->write(0, memory_.get(), bytes_);
}

void Shards::fetch() {
  if (device_ != nullptr) device_->read(0, memory_.get(), bytes_);
}

core::Task Shards::task(const core::Prepared &prepared, const Shards &inputs, const Shards &outputs,
                        std::uint64_t offset_bytes, std::uint64_t length_bytes, core::Mode mode) {
  if (outputs.device_ == nullptr)
    return {&prepared, inputs.pointers_.data(), outputs.pointers_.data(), offset_bytes, length_bytes, mode};
  core::Task task = {&prepared, inputs.places_.data(), outputs.places_.data(), offset_bytes, length_bytes, mode};
  task.memory = outputs.device_->kind();
  task.queue = outputs.device_->queue();
  task.input_offsets = inputs.offsets_.data();
  task.output_offsets = outputs.offsets_.data();
  return task;
}

Check::Check(core::Backend &backend, const core::Operator &what, const Case &at, const Options &options,
             std::uint64_t shard_bytes, std::uint64_t granularity_bytes)
    : backend_(backend),
      matrix_(what.dense()),
      at_(at),
      mode_(core::tuned_operation_mode(at.operation)),
      on_device_(options.on_device),
      granularity_bytes_(granularity_bytes),
      shard_bytes_(shard_bytes),
      inputs_(std::make_unique<Shards>(backend, on_device_, matrix_.columns(), shard_bytes)),
      outputs_(std::make_unique<Shards>(backend, on_device_, matrix_.rows(), shard_bytes)) {
  for (unsigned c = 0; c < matrix_.columns(); ++c) fill((*inputs_)[c], shard_bytes, c + 1);
  for (unsigned r = 0; r < matrix_.rows(); ++r) std::memset((*outputs_)[r], 0, shard_bytes);
  inputs_->send();
  outputs_->send();
  make_small_shards(options.check_stripe_bytes);
  if (mode_ != core::Mode::compare) return;
  assign(*backend.prepare(what));  // verify is timed with correct parity, the usual case
  outputs_->fetch();
  if (!columns_are_right()) fail_built_in();
}

bool Check::is_right(const core::Prepared &prepared) {
  if (!small_shards_are_right(prepared)) return false;
  if (mode_ != core::Mode::compare) {
    for (unsigned r = 0; r < matrix_.rows(); ++r)
      std::memset((*outputs_)[r], mode_ == core::Mode::assign ? 0xa5 : 0, shard_bytes_);
    outputs_->send();
  }
  if (!run(prepared, 1)) return false;  // a first run may compile or allocate
  outputs_->fetch();
  return mode_ == core::Mode::compare || columns_are_right();
}

bool Check::run(const core::Prepared &prepared, std::uint64_t calls) {
  std::vector<core::Mismatch> found(matrix_.rows());
  core::Control control;
  core::Task task = Shards::task(prepared, *inputs_, *outputs_, 0, shard_bytes_, mode_);
  task.mismatches = found.data();
  if (!on_device_) {
    for (std::uint64_t i = 0; i < calls; ++i) backend_.run(std::span(&task, 1), control);
  } else {
    std::deque<std::unique_ptr<core::Ticket>> under_way;
    for (std::uint64_t i = 0; i < calls || !under_way.empty();) {
      if (i < calls && under_way.size() < kMostUnderWay) {
        under_way.push_back(backend_.submit(std::span(&task, 1), control));
        ++i;
      } else {
        under_way.front()->wait();
        under_way.pop_front();
      }
    }
  }
  return std::ranges::all_of(found, [](const core::Mismatch &mismatch) { return mismatch.byte_count == 0; });
}

void Check::assign(const core::Prepared &prepared) {
  core::Control control;
  const core::Task task = Shards::task(prepared, *inputs_, *outputs_, 0, shard_bytes_, core::Mode::assign);
  backend_.run(std::span(&task, 1), control);
}

void Check::fail_built_in() const {
  base::fail(TANDEM_ERROR_INTERNAL, "backend ", backend_.traits().name, " computes wrong bytes for ",
             core::tuned_operation_name(at_.operation), " (", at_.k, ", ", at_.m, ") with its own values");
}

void Check::fill(std::byte *at, std::size_t count, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;  // Knuth's MMIX
    at[i] = static_cast<std::byte>(state >> 56);
  }
}

void Check::make_small_shards(std::uint64_t stripe_bytes) {
  const unsigned columns = matrix_.columns(), rows = matrix_.rows();
  small_bytes_ =
      whole(std::max({kLeastSmallBytes, stripe_bytes / (rows + columns), 3 * granularity_bytes_}) + kTailBytes);
  const std::uint64_t bytes = small_bytes_ + kMarginBytes;
  small_inputs_ = std::make_unique<Shards>(backend_, on_device_, columns, bytes);
  small_outputs_ = std::make_unique<Shards>(backend_, on_device_, rows, bytes);
  products_.assign(rows, std::vector<std::byte>(bytes));
  for (unsigned c = 0; c < columns; ++c) {
    fill((*small_inputs_)[c], bytes, 1000 + c);
    for (unsigned r = 0; r < rows; ++r) {
      std::array<std::byte, 256> times;
      for (unsigned x = 0; x < 256; ++x)
        times[x] = std::byte{core::gf::multiply(matrix_.at(r, c), static_cast<std::uint8_t>(x))};
      for (std::uint64_t i = 0; i < bytes; ++i)
        products_[r][i] ^= times[std::to_integer<std::uint8_t>((*small_inputs_)[c][i])];
    }
  }
  small_inputs_->send();
}

std::uint8_t Check::product_at(const core::Matrix &matrix, const Shards &inputs, unsigned row, std::uint64_t at) {
  std::uint8_t sum = 0;
  for (unsigned c = 0; c < matrix.columns(); ++c)
    sum ^= core::gf::multiply(matrix.at(row, c), std::to_integer<std::uint8_t>(inputs[c][at]));
  return sum;
}

bool Check::columns_are_right() const {
  const std::uint64_t last = shard_bytes_ - 1, count = std::min(kCheckedColumns, last + 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    // Not last * i / count, which could overflow. The odd stride avoids multiples of every block size.
    const std::uint64_t at = i + 1 == count ? last : std::min(last, i * (last / count | 1));
    for (unsigned r = 0; r < matrix_.rows(); ++r)
      if (std::to_integer<std::uint8_t>((*outputs_)[r][at]) != product_at(matrix_, *inputs_, r, at)) return false;
  }
  return true;
}

bool Check::small_shards_are_right(const core::Prepared &prepared) {
  const std::uint64_t offset = whole(5 + granularity_bytes_ - 1), length = small_bytes_ - offset - 12;
  for (const bool last_too : {false, true}) {
    if (!range_is_right(prepared, 0, small_bytes_, last_too)) return false;
    if (!range_is_right(prepared, offset, whole(length), last_too)) return false;
    if (mode_ != core::Mode::compare) break;
  }
  return true;
}

std::vector<std::uint64_t> Check::flipped(std::uint64_t offset, std::uint64_t length, bool last_too) {
  if (!last_too) return {offset + length / 3};
  return {offset, offset + length / 3, offset + length - 1};
}

bool Check::range_is_right(const core::Prepared &prepared, std::uint64_t offset, std::uint64_t length, bool last_too) {
  constexpr std::byte kBefore{0xa5}, kFlip{0x40};
  const unsigned rows = matrix_.rows();
  const std::uint64_t bytes = small_bytes_ + kMarginBytes, end = offset + length;
  for (unsigned r = 0; r < rows; ++r) {
    if (mode_ != core::Mode::compare) {
      std::memset((*small_outputs_)[r], std::to_integer<int>(kBefore), bytes);
      continue;
    }
    std::memcpy((*small_outputs_)[r], products_[r].data(), bytes);
    for (const std::uint64_t i : flipped(offset, length, last_too)) (*small_outputs_)[r][i] ^= kFlip;
    (*small_outputs_)[r][end] ^= kFlip;  // outside: must not be found
    if (offset != 0) (*small_outputs_)[r][offset - 1] ^= kFlip;
  }
  std::vector<core::Mismatch> found(rows);
  core::Control control;
  small_outputs_->send();
  core::Task task = Shards::task(prepared, *small_inputs_, *small_outputs_, offset, length, mode_);
  task.mismatches = found.data();
  backend_.run(std::span(&task, 1), control);
  small_outputs_->fetch();

  for (unsigned r = 0; r < rows; ++r) {
    if (mode_ == core::Mode::compare) {
      const std::vector<std::uint64_t> places = flipped(offset, length, last_too);
      const core::Mismatch want = {places.size(), places.front()};
      if (found[r].byte_count != want.byte_count || found[r].first_bytes != want.first_bytes) return false;
      continue;
    }
    for (std::uint64_t i = 0; i < bytes; ++i) {
      const bool inside = i >= offset && i < end;
      const std::byte sum = mode_ == core::Mode::accumulate ? products_[r][i] ^ kBefore : products_[r][i];
      if ((*small_outputs_)[r][i] != (inside ? sum : kBefore)) return false;
    }
  }
  return true;
}

}  // namespace tandem::tuning
