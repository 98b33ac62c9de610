// SPDX-License-Identifier: Apache-2.0
#include "device/answer_check.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace tandem::device {
namespace {

using core::Mismatch;

constexpr std::uint64_t kLine = 64;

std::uint64_t first_of(std::span<const Mismatch> found) {
  std::uint64_t first = Mismatch::kNone;
  for (const Mismatch &each : found) first = std::min(first, each.first_bytes);
  return first;
}

// Whether a kernel has run with the same program and tables.
bool is_known(const DevicePrepared &of, const Variant &variant) {
  return std::any_of(of.checked.begin(), of.checked.end(), [&](const DevicePrepared::Checked &each) {
    return each.program.lock() == variant.program && each.tables.lock() == variant.tables;
  });
}

}  // namespace

std::uint64_t AnswerCheck::first_bytes(const core::Prepared &of, std::uint64_t length_bytes) noexcept {
  const std::uint64_t shards = std::uint64_t{of.rows()} + of.columns();
  return std::min(length_bytes, std::max(kBytes / shards / kLine * kLine, kLine));
}

std::uint64_t AnswerCheck::wanted_bytes(const DevicePrepared &of, const Variant &variant,
                                        std::uint64_t length_bytes) const {
  if (cpu_ == nullptr || of.forced.has_value()) return 0;
  if (all_) return length_bytes;
  const std::lock_guard lock(of.mutex);
  return is_known(of, variant) ? 0 : first_bytes(of, length_bytes);
}

void AnswerCheck::require_trust() const {
  if (!is_out_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  device_.fail(TANDEM_ERROR_DEVICE, device_.name, " is not used any more in this context: ", why_out_);
}

std::vector<Mismatch> AnswerCheck::compare(const core::Matrix &matrix, const Answer &answer, std::uint64_t first_bytes,
                                           std::uint64_t bytes) const {
  std::vector<Mismatch> found(matrix.rows());
  const auto prepared = cpu_->prepare(matrix);
  core::Control control;
  const core::Task task = {prepared.get(), answer.inputs.data(), answer.outputs.data(), first_bytes,
                           bytes,          core::Mode::compare,  found.data()};
  const core::Need need = {core::Budget::kCpu, 1};
  core::Hold hold(resources_, {&need, 1}, true);  // this thread may hold other resources
  hold.next_task();
  cpu_->run({&task, 1}, control);
  return found;
}

std::vector<Mismatch> AnswerCheck::compare(const Answer &answer) const {
  return compare(answer.of.matrix, answer, 0, answer.bytes);
}

// A sum of all outputs, each times a random number that is not 0. One wrong output shows in any case, several at one
// place with a probability of 254/255. Output 0 takes the part of the one output of a matrix that the other shards are
// the inputs of.
std::vector<Mismatch> AnswerCheck::combine(const Answer &answer) const {
  const core::Matrix &matrix = answer.of.matrix;
  std::vector<std::uint8_t> factors(matrix.rows());
  base::random_bytes(factors);
  for (std::uint8_t &each : factors) each = static_cast<std::uint8_t>(1 + each % 255);
  factors[0] = 1;
  core::Matrix sum(1, matrix.columns() + matrix.rows() - 1);
  for (unsigned r = 0; r < matrix.rows(); ++r)
    core::multiply_add(sum.row(0).first(matrix.columns()), factors[r], matrix.row(r));
  Answer one = answer;
  for (unsigned r = 1; r < matrix.rows(); ++r) {
    sum.at(0, matrix.columns() + r - 1) = factors[r];
    one.inputs.push_back(one.outputs[r]);
  }
  return compare(sum, one, 0, answer.bytes);
}

std::vector<std::byte> AnswerCheck::shards_of_trial(const core::Prepared &of, std::uint64_t bytes) {
  std::vector<std::byte> shards((std::uint64_t{of.columns()} + of.rows()) * bytes);
  std::minstd_rand random;
  for (std::byte &each : shards) each = static_cast<std::byte>(random() >> 8);
  return shards;
}

void AnswerCheck::look_at_copies(const core::Task &task, const Variant &variant, std::byte *copies, std::uint64_t bytes,
                                 std::span<const Mismatch> found, std::uint64_t launch_bytes) {
  const unsigned columns = task.prepared->columns(), rows = task.prepared->rows();
  Answer answer{prepared_of(task), found.empty() ? bytes : std::min(bytes, launch_bytes)};
  answer.found = found;
  answer.launch_bytes = launch_bytes;
  for (unsigned i = 0; i < columns; ++i) answer.inputs.push_back(copies + i * bytes);
  for (unsigned i = columns; i < columns + rows; ++i) answer.outputs.push_back(copies + i * bytes);
  if (task.mode == core::Mode::accumulate) {
    const core::HostCopy before = {answer.outputs.front(), copies + (columns + rows) * bytes, rows * bytes, true};
    core::copy_here({&before, 1});
  }
  look(answer, variant);
}

// The first place where the device is wrong; kNone: it is right.
std::uint64_t AnswerCheck::first_fault(const Answer &answer) const {
  const core::Matrix &matrix = answer.of.matrix;
  const std::uint64_t bytes = first_bytes(answer.of, answer.bytes);
  const std::vector<Mismatch> own = compare(matrix, answer, 0, bytes);
  const bool has_more = answer.bytes > bytes;
  if (answer.found.empty()) {
    const std::uint64_t first = first_of(own);
    return first == Mismatch::kNone && has_more ? first_of(combine(answer)) : first;
  }
  std::uint64_t count = 0;
  for (unsigned r = 0; r < own.size(); ++r) {
    const Mismatch &device = answer.found[r];
    count += device.byte_count;
    const bool has_rest = answer.launch_bytes > bytes && device.byte_count >= own[r].byte_count;
    if (has_rest && own[r].byte_count == 0 && device.first_bytes >= bytes) continue;
    if (device.first_bytes != own[r].first_bytes || (!has_rest && device.byte_count != own[r].byte_count))
      return std::min({own[r].first_bytes, device.first_bytes, bytes - 1});
  }
  if (!has_more) return Mismatch::kNone;
  // A sum shows no difference that is not there, but may miss one.
  const std::uint64_t first = first_of(answer.found);
  const Mismatch sum = combine(answer).front();
  if (sum.byte_count > count || sum.first_bytes < first) return std::min(sum.first_bytes, first);
  const bool is_real = first >= answer.bytes || first_of(compare(matrix, answer, first, 1)) == first;
  return is_real ? Mismatch::kNone : first;
}

void AnswerCheck::look(const Answer &answer, const Variant &variant) {
  const std::uint64_t fault = first_fault(answer);
  const std::string kind =
      base::text(answer.of.rows(), " x ", answer.of.columns(), " ", name_of(variant.spec.mode), " by technique ",
                 kTechniqueNames[static_cast<std::size_t>(variant.spec.technique)]);
  if (fault == Mismatch::kNone) {
    const std::lock_guard lock(answer.of.mutex);
    std::erase_if(answer.of.checked, [&](const DevicePrepared::Checked &each) {
      const auto program = each.program.lock();
      return program == nullptr || program == variant.program;
    });
    answer.of.checked.push_back({variant.program, variant.tables});
    return device_.say(log_, TANDEM_LOG_DEBUG, kind, ": ", answer.bytes, " bytes of each shard are those of the CPU");
  }
  std::string why = base::text(device_.model(), " computes wrongly: ", kind, " differs from the CPU from byte ", fault,
                               " of a piece on");
  device_.say(log_, TANDEM_LOG_WARNING, why, "; the device is not used any more in this context");
  {
    const std::lock_guard lock(mutex_);
    if (why_out_.empty()) why_out_ = std::move(why);
  }
  is_out_.store(true, std::memory_order_relaxed);
  require_trust();
}

}  // namespace tandem::device
