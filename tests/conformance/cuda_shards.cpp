// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/cuda_shards.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "core/mismatch_ranges.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/conformance/work.hpp"
#include "tests/support/mismatch_ranges.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using core::Mode;

constexpr Mode kModes[] = {Mode::assign, Mode::accumulate, Mode::compare};
constexpr const char *kTechniques[] = {"tables", "compiled"};
constexpr std::uint64_t kMargin = 64;

// A stripe in one allocation on the device, its shards at offsets from multiples of 64, and the host's image of all of
// it: the bytes between the shards as well.
class DeviceStripe {
 public:
  DeviceStripe(CudaProgram &program, const core::Matrix &matrix, std::uint64_t bytes,
               const std::function<std::uint64_t(unsigned shard)> &offset_of, std::uint64_t seed = 1)
      : program_(program), matrix_(matrix), bytes_(bytes), random_(seed + bytes) {
    const std::uint64_t pitch = (bytes + 2 * kMargin + 79) / 64 * 64;
    image_.resize(pitch * (matrix.rows() + matrix.columns()));
    memory_ = program.allocate(image_.size());
    for (unsigned i = 0; i < matrix.rows() + matrix.columns(); ++i) {
      starts_.push_back(pitch * i + kMargin);
      auto *pointer = reinterpret_cast<std::byte *>(memory_ + starts_.back());
      offsets_.push_back(offset_of(i));
      starts_.back() += offsets_.back();
      i < matrix.columns() ? in_.push_back(pointer) : out_.push_back(pointer);
    }
    new_bytes();
  }
  ~DeviceStripe() { program_.free(memory_); }
  DeviceStripe(const DeviceStripe &) = delete;
  DeviceStripe &operator=(const DeviceStripe &) = delete;

  // Everything is new, on both sides.
  void new_bytes() {
    random_.fill(image_.data(), image_.size());
    write();
  }

  // The outputs are right on both sides, but for a few bytes: none of the first output, and of the others those at the
  // ends and some between.
  void almost_right() {
    const Shards right = product();
    for (unsigned r = 0; r < matrix_.rows(); ++r) {
      std::memcpy(output(r), right[r].data(), bytes_);
      if (r % 3 == 1) output(r)[0] ^= 1;
      if (r % 3 == 2) output(r)[bytes_ - 1] ^= 0x80;
      for (unsigned i = 0; r % 3 == 2 && i < 5; ++i) output(r)[random_.below(bytes_)] ^= 0x11;
    }
    write();
  }

  core::Task task(const core::Prepared &prepared, Mode mode, CUstream stream) {
    mismatches_.assign(matrix_.rows(), {});
    ranges_ = {};
    ranges_.capacity = 1'000'000;
    core::Task made = {&prepared, in_.data(), out_.data(), 0, bytes_, mode, mismatches_.data()};
    made.memory = core::MemoryKind::cuda;
    made.queue = stream;
    made.input_offsets = offsets_.data();
    made.output_offsets = offsets_.data() + matrix_.columns();
    if (mode == Mode::compare) made.ranges = &ranges_;
    return made;
  }

  // To be called before the run: what it has to leave.
  void expect(Mode mode) {
    want_ = image_;
    const Shards right = product();
    differs_.assign(matrix_.rows(), std::vector<std::uint8_t>(bytes_));
    for (unsigned r = 0; r < matrix_.rows(); ++r) {
      std::uint8_t *to = want_.data() + starts_[matrix_.columns() + r];
      for (std::uint64_t i = 0; i < bytes_; ++i) {
        differs_[r][i] = to[i] != right[r][i];
        if (mode == Mode::assign) to[i] = right[r][i];
        if (mode == Mode::accumulate) to[i] ^= right[r][i];
      }
    }
  }

  testing::AssertionResult is_as_expected(Mode mode) {
    program_.read(image_.data(), memory_, image_.size());
    if (image_ != want_) {
      const auto at = std::mismatch(image_.begin(), image_.end(), want_.begin()).first - image_.begin();
      return testing::AssertionFailure() << "byte " << at << " of " << image_.size() << " is wrong; output 0 begins at "
                                         << starts_[matrix_.columns()];
    }
    if (mode != Mode::compare) return testing::AssertionSuccess();
    for (unsigned r = 0; r < matrix_.rows(); ++r) {
      const auto first = std::find(differs_[r].begin(), differs_[r].end(), true);
      const auto count = static_cast<std::uint64_t>(std::count(first, differs_[r].end(), true));
      const core::Mismatch &found = mismatches_[r];
      if (found.byte_count != count)
        return testing::AssertionFailure() << "output " << r << ": " << found.byte_count << " of " << count << " found";
      if (count != 0 && found.first_bytes != static_cast<std::uint64_t>(first - differs_[r].begin()))
        return testing::AssertionFailure() << "output " << r << ": the first one is not at " << found.first_bytes;
    }
    if (!ranges_.is_filled) return testing::AssertionFailure() << "no ranges";
    std::vector<RangeOfRow> ranges;
    for (const core::MismatchRange &each : ranges_.list)
      ranges.push_back({each.output, each.begin_bytes, each.end_bytes, each.byte_count});
    if (ranges.size() != ranges_.count) return testing::AssertionFailure() << "ranges are missing";
    return are_ranges_of(ranges, ranges_.count, differs_);
  }

 private:
  std::uint8_t *output(unsigned row) { return image_.data() + starts_[matrix_.columns() + row]; }

  Shards product() const {
    std::vector<const std::uint8_t *> inputs;
    for (unsigned c = 0; c < matrix_.columns(); ++c) inputs.push_back(image_.data() + starts_[c]);
    return expected(matrix_.data(), matrix_.rows(), matrix_.columns(), inputs.data(), bytes_);
  }

  void write() { program_.write(memory_, image_.data(), image_.size()); }

  CudaProgram &program_;
  const core::Matrix &matrix_;
  const std::uint64_t bytes_;
  Random random_;
  CUdeviceptr memory_ = 0;
  Bytes image_, want_;
  std::vector<std::uint64_t> starts_, offsets_;
  std::vector<const std::byte *> in_;
  std::vector<std::byte *> out_;
  std::vector<std::vector<std::uint8_t>> differs_;
  std::vector<core::Mismatch> mismatches_;
  core::MismatchRanges ranges_;
};

class Stream {
 public:
  explicit Stream(CudaProgram &program) : program_(program), stream_(program.make_stream()) {}
  ~Stream() { program_.destroy(stream_); }
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  CUstream get() const { return stream_; }

 private:
  CudaProgram &program_;
  CUstream stream_;
};

std::unique_ptr<core::Ticket> submit(core::Backend &backend, const core::Task &task) {
  static core::Control control;  // no cancel
  return backend.submit({&task, 1}, control);
}

}  // namespace

// Only bytes of the result are written, for all addresses and lengths of shards.
TEST_P(CudaShards, EveryModeTechniqueOffsetAndLength) {
  const core::Matrix matrix = Work::random_matrix(3, 5);
  const Stream stream(*program_);
  for (const char *technique : kTechniques) {
    const auto backend = gpu::make_backend(program_->options(technique), program_->log());
    const auto prepared = backend->prepare(matrix);
    for (const std::uint64_t bytes : {1, 15, 16, 17, 4095, 4096, 4097}) {
      for (unsigned offset = 0; offset < 32; ++offset) {
        // Sixteen times all shards alike, then each at an offset of its own.
        DeviceStripe stripe(*program_, matrix, bytes,
                            [&](unsigned shard) { return offset < 16 ? offset : (offset + 7 * shard) % 16; });
        for (const Mode mode : kModes) {
          if (mode == Mode::compare && offset % 2 == 1) stripe.almost_right();
          stripe.expect(mode);
          submit(*backend, stripe.task(*prepared, mode, stream.get()))->wait();
          ASSERT_TRUE(stripe.is_as_expected(mode))
              << technique << ", mode " << static_cast<int>(mode) << ", " << bytes << " bytes, offsets " << offset;
        }
      }
    }
    EXPECT_GT(backend->kernel_calls(), 0u);
  }
}

// Many blocks, and more rows than a pass has.
TEST_P(CudaShards, LargeShardsAndMatrices) {
  const Stream stream(*program_);
  for (const auto &[rows, columns] : {std::pair{4u, 10u}, {9u, 20u}}) {
    const core::Matrix matrix = Work::random_matrix(rows, columns);
    for (const char *technique : kTechniques) {
      const auto backend = gpu::make_backend(program_->options(technique), program_->log());
      const auto prepared = backend->prepare(matrix);
      for (const unsigned offset : {0u, 5u, 16u}) {
        DeviceStripe stripe(*program_, matrix, program_->large_bytes(),
                            [&](unsigned shard) { return offset < 16 ? offset : (7 * shard) % 16; });
        for (const Mode mode : kModes) {
          if (mode == Mode::compare) stripe.almost_right();
          stripe.expect(mode);
          submit(*backend, stripe.task(*prepared, mode, stream.get()))->wait();
          ASSERT_TRUE(stripe.is_as_expected(mode)) << technique << ", mode " << static_cast<int>(mode) << ", " << rows
                                                   << " x " << columns << ", offset " << offset;
        }
      }
    }
  }
}

// Shapes that tuning may choose, and the bodies that only CUDA has. Each compile takes a GPU's suite a tenth of a
// second or more: each matrix has all the texts, one of them with one local_y and the other with the other.
TEST_P(CudaShards, EveryTunedShape) {
  constexpr std::uint64_t kBytes = 20'011;  // a few blocks and a rest
  const Stream stream(*program_);
  Slice slice(4);
  for (const auto &[rows, columns] : {std::pair{4u, 10u}, {9u, 20u}}) {
    const core::Matrix matrix = Work::random_matrix(rows, columns);
    DeviceStripe aligned(*program_, matrix, kBytes, [](unsigned) { return 0; });
    DeviceStripe unaligned(*program_, matrix, kBytes, [](unsigned shard) { return (7 * shard + 1) % 16; });
    std::set<std::tuple<device::Loads, unsigned, unsigned>> written;  // of aligned kernels; their texts
    for (const std::string technique : kTechniques) {
      gpu::Options options = program_->options(technique.c_str());
      options.generate = [&, generate = options.generate](const core::Matrix &of, const device::KernelSpec &spec) {
        if (of.rows() == matrix.rows() && spec.technique == device::Technique::compiled &&
            spec.access == device::Access::aligned)
          written.insert({spec.tuning.loads, spec.tuning.elements_per_item, spec.tuning.element_bytes});
        return generate(of, spec);
      };
      const auto backend = gpu::make_backend(options, program_->log());
      backend->prepare(matrix);
      std::vector<std::uint64_t> all_loads;  // that this device has
      for (const core::TuningParameter &each : backend->tunable()->tuning_parameters(rows, columns, Mode::assign))
        if (each.name == "loads") all_loads = each.candidates;
      ASSERT_FALSE(all_loads.empty());
      for (const std::uint64_t loads : all_loads) {
        for (const std::uint64_t elements_per_item : {1, 3}) {
          for (const std::uint64_t element_bytes : {4, 8, 16}) {
            for (const std::uint64_t local_y : {1, 2}) {
              // Tables have one kind of loads, and one element of a work item.
              const bool is_of_matrix = (loads + elements_per_item / 2 + element_bytes / 4 + local_y + rows) % 2 == 0;
              if (technique == "tables" ? loads != 0 || elements_per_item != 1 : !is_of_matrix) continue;
              if (!slice.takes()) continue;
              const auto prepared = backend->tunable()->prepare_tuned(matrix, {{"loads", loads},
                                                                               {"local_y", local_y},
                                                                               {"elements_per_item", elements_per_item},
                                                                               {"element_bytes", element_bytes},
                                                                               {"rows_per_pass", 4}});
              for (DeviceStripe *stripe : {&aligned, &unaligned}) {
                if (stripe == &unaligned && loads != 0) continue;  // for these there is one kind
                for (const Mode mode : kModes) {
                  if (mode == Mode::compare) stripe->almost_right();
                  stripe->expect(mode);
                  submit(*backend, stripe->task(*prepared, mode, stream.get()))->wait();
                  ASSERT_TRUE(stripe->is_as_expected(mode))
                      << technique << ", " << rows << " x " << columns << ", mode " << static_cast<int>(mode)
                      << ", loads " << loads << ", local_y " << local_y << ", elements_per_item " << elements_per_item
                      << ", element_bytes " << element_bytes << (stripe == &aligned ? ", aligned" : ", unaligned");
                }
              }
            }
          }
        }
      }
      if (technique == "compiled" && runs_every_case()) {
        EXPECT_EQ(written.size(), all_loads.size() * 2 * 3);
      }
    }
  }
}

// Technique transform: 38 inputs and 36 outputs at points from 3 on, with scales. There are two rounds of groups on
// either side, and a group that has both.
TEST_P(CudaShards, WideCodesByTransform) {
  Random random(74);
  core::CauchyTransform form = transform_of(points_from(3, 38), points_from(41, 36));
  form.input_scales = random_scales(random, 38);
  form.output_scales = random_scales(random, 36);
  const core::Operator what(form);
  const Stream stream(*program_);
  gpu::Options options = program_->options("transform");
  unsigned written = 0;
  options.generate = [&, generate = options.generate](const core::Matrix &of, const device::KernelSpec &spec) {
    written += of.rows() == what.output_count() && spec.technique == device::Technique::transform;
    return generate(of, spec);
  };
  const auto backend = gpu::make_backend(options, program_->log());
  const auto prepared = backend->prepare(what);
  for (const std::uint64_t bytes : {1, 1023, 1024, 70'001}) {
    for (const bool is_aligned : {true, false}) {
      DeviceStripe stripe(*program_, what.dense(), bytes,
                          [&](unsigned shard) { return is_aligned ? 0 : (7 * shard + 1) % 16; });
      for (const Mode mode : kModes) {
        if (mode == Mode::compare) stripe.almost_right();
        stripe.expect(mode);
        submit(*backend, stripe.task(*prepared, mode, stream.get()))->wait();
        ASSERT_TRUE(stripe.is_as_expected(mode)) << bytes << " bytes, mode " << static_cast<int>(mode);
      }
    }
  }
  EXPECT_EQ(written, 2u * 3) << "texts, for each access and mode";
}

// The first submit of a plan, wherever the shards lie: one that was made ready, and one that loads its kernels
// outside of the capture. The graph reads the bytes of its own time.
TEST_P(CudaShards, AGraphOfASubmitIsLaunchedAgainAndAgain) {
  const core::Matrix matrix = Work::random_matrix(3, 5);
  const Stream stream(*program_);
  for (const char *technique : kTechniques) {
    const auto backend = gpu::make_backend(program_->options(technique), program_->log());
    for (const Mode mode : {Mode::assign, Mode::accumulate}) {
      for (const unsigned offset : {0u, 3u, 16u}) {
        const auto prepared = backend->prepare(matrix);
        if (mode == Mode::accumulate) backend->make_ready(*prepared, mode, core::MemoryKind::cuda);
        DeviceStripe stripe(*program_, matrix, 30'001,
                            [&](unsigned shard) { return offset < 16 ? offset : (5 * shard) % 16; });
        program_->begin_capture(stream.get());
        submit(*backend, stripe.task(*prepared, mode, stream.get()))->wait();
        program_->end_capture(stream.get());
        for (unsigned launch = 0; launch < 3; ++launch) {
          stripe.new_bytes();
          stripe.expect(mode);
          program_->launch_graph(stream.get());
          program_->synchronize(stream.get());
          ASSERT_TRUE(stripe.is_as_expected(mode)) << technique << ", offset " << offset << ", launch " << launch;
        }
      }
    }
  }
}

// Stripes of one matrix and access go in one launch, also with different lengths; bytes around the outputs stay.
TEST_P(CudaShards, ManyStripesInOneLaunch) {
  const core::Matrix matrix = Work::random_matrix(3, 5);
  const Stream stream(*program_);
  for (const char *technique : kTechniques) {
    const auto backend = gpu::make_backend(program_->options(technique), program_->log());
    const auto prepared = backend->prepare(matrix);
    for (const bool is_captured : {false, true}) {
      std::vector<std::unique_ptr<DeviceStripe>> stripes;
      std::vector<core::Task> tasks;
      for (unsigned i = 0; i < 60; ++i) {
        const std::uint64_t bytes = i == 7 ? program_->large_bytes() : 1 + 97 * i % 5000;
        stripes.push_back(std::make_unique<DeviceStripe>(
            *program_, matrix, bytes, [&](unsigned shard) { return i % 2 == 0 ? 0 : (i + shard) % 16; }, i));
        tasks.push_back(stripes.back()->task(*prepared, Mode::assign, stream.get()));
      }
      core::Control control;
      const std::uint64_t before = backend->kernel_calls();
      std::unique_ptr<core::Ticket> ticket;
      // The aligned ones, then the others: a graph here has one kernel.
      for (const unsigned first : {0u, 1u}) {
        std::vector<core::Task> half;
        for (std::size_t i = first; i < tasks.size(); i += 2) half.push_back(tasks[i]);
        for (std::size_t i = first; i < tasks.size(); i += 2) stripes[i]->expect(Mode::assign);
        if (is_captured) program_->begin_capture(stream.get());
        ticket = backend->submit(half, control);
        ticket->wait();
        if (is_captured) {
          program_->end_capture(stream.get());
          program_->launch_graph(stream.get());
          program_->synchronize(stream.get());
        }
      }
      EXPECT_EQ(backend->kernel_calls(), before + 2);
      for (std::size_t i = 0; i < stripes.size(); ++i)
        ASSERT_TRUE(stripes[i]->is_as_expected(Mode::assign)) << technique << ", stripe " << i;
      if (is_captured) continue;
      for (const auto &each : stripes) {
        each->new_bytes();
        each->expect(Mode::assign);
      }
      backend->submit(tasks, control)->wait();
      EXPECT_EQ(backend->kernel_calls(), before + 4) << "all together: one launch for each access";
      for (const auto &each : stripes) ASSERT_TRUE(each->is_as_expected(Mode::assign)) << technique;
    }
  }
}

// More than a plan keeps parts for, on streams of their own and on one; waited for from the last to the first.
TEST_P(CudaShards, ManyJobsOfOnePlanInFlight) {
  constexpr unsigned kJobs = 12;
  const core::Matrix matrix = Work::random_matrix(2, 4);
  const Stream streams[] = {Stream(*program_), Stream(*program_), Stream(*program_)};
  for (const char *technique : kTechniques) {
    const auto backend = gpu::make_backend(program_->options(technique), program_->log());
    const auto prepared = backend->prepare(matrix);
    for (const Mode mode : kModes) {
      for (unsigned round = 0; round < 2; ++round) {
        std::vector<std::unique_ptr<DeviceStripe>> stripes;
        std::vector<std::unique_ptr<core::Ticket>> tickets;
        for (unsigned i = 0; i < kJobs; ++i) {
          stripes.push_back(std::make_unique<DeviceStripe>(
              *program_, matrix, 20'000 + i, [&](unsigned shard) { return i % 2 == 0 ? 0 : shard; }, i));
          if (i % 3 == 0) stripes.back()->almost_right();
          stripes.back()->expect(mode);
        }
        for (unsigned i = 0; i < kJobs; ++i)
          tickets.push_back(submit(*backend, stripes[i]->task(*prepared, mode, streams[i % 3].get())));
        for (unsigned i = kJobs; i-- > 0;) {
          tickets[i]->wait();
          ASSERT_TRUE(stripes[i]->is_as_expected(mode)) << technique << ", job " << i;
        }
      }
    }
  }
}

// The submit succeeds. Each wait returns the error. Then the device is given up.
TEST_P(CudaShardsDeathTest, AJobsErrorSurfacesAtItsWait) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto is_said = [this] {
    const core::Matrix matrix = Work::random_matrix(3, 5);
    const CUstream stream = program_->make_stream();
    const auto backend = gpu::make_backend(program_->options("tables"), program_->log());
    const auto prepared = backend->prepare(matrix);
    DeviceStripe stripe(*program_, matrix, 5000, [](unsigned) { return 0; });
    submit(*backend, stripe.task(*prepared, Mode::assign, stream))->wait();  // all is loaded now
    program_->break_stream(stream);
    const auto ticket = submit(*backend, stripe.task(*prepared, Mode::assign, stream));
    program_->let_fail();
    bool good = true;
    for (unsigned i = 0; i < 2; ++i) good = good && status_of([&] { ticket->wait(); }).first == TANDEM_ERROR_DEVICE;
    const auto [status, message] = status_of([&] { backend->prepare(matrix); });
    good = good && status == TANDEM_ERROR_DEVICE && message.find("was given up") != std::string::npos;
    std::_Exit(good ? 0 : 1);  // there is nothing left that could be put away
  };
  EXPECT_EXIT(is_said(), testing::ExitedWithCode(0), "");
}

}  // namespace tandem::test
