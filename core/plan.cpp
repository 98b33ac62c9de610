// SPDX-License-Identifier: Apache-2.0
#include "core/plan.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tandem::core {

namespace {

template <class Cell>
MatrixOf<Cell> twice(const MatrixOf<Cell> &column) {
  MatrixOf<Cell> both(column.rows(), 2);
  for (unsigned r = 0; r < both.rows(); ++r) both.at(r, 0) = both.at(r, 1) = column.at(r, 0);
  return both;
}

// As runs do: with the backend's kernels, on its threads.
SetupWork setup_work(Backend &backend, const std::function<bool()> &cancelled) {
  const auto check_cancelled = [&cancelled] {
    if (cancelled && cancelled()) base::fail(TANDEM_ERROR_CANCELLED, "the set-up of a decode was cancelled");
  };
  const auto multiply = [&backend, check_cancelled](const Matrix16 &factors, const std::byte *const *inputs,
                                                    std::byte *const *outputs, std::size_t columns) {
    // With AVX-512 a cancel waits for a tenth of a second.
    constexpr std::uint64_t kSteps = std::uint64_t{1} << 31, kUnit = 512;
    const std::uint64_t bytes = sizeof(Element) * columns, cells = std::uint64_t{factors.rows()} * factors.columns();
    std::shared_ptr<const Prepared> prepared;
    for (Task task{nullptr, inputs, outputs, 0, 0, Mode::accumulate};; task.offset_bytes += task.length_bytes) {
      check_cancelled();
      if (task.offset_bytes == bytes || cells == 0) return;
      if (!prepared)
        prepared = backend.prepare(
            Operator(Dense16{&gf16::Field::words(), Layout::words, std::make_shared<const Matrix16>(factors)}));
      task.prepared = prepared.get();
      task.length_bytes = std::min(bytes - task.offset_bytes,
                                   std::max(kSteps * sizeof(Element) / cells / kUnit, std::uint64_t{1}) * kUnit);
      Control control;
      backend.run({&task, 1}, control);
    }
  };
  return {multiply, check_cancelled};
}

}  // namespace

Operator update_of(const Operator &column) {
  if (const Dense16 *wide = std::get_if<Dense16>(&column.form()))
    return Operator(Dense16{wide->field, wide->layout, std::make_shared<const Matrix16>(twice(*wide->coefficients))});
  if (const BitMatrix *packets = std::get_if<BitMatrix>(&column.form())) {
    const Matrix &bits = *packets->bits;
    Matrix both(bits.rows(), 2 * bits.columns());
    for (unsigned r = 0; r < both.rows(); ++r)
      for (unsigned c = 0; c < both.columns(); ++c) both.at(r, c) = bits.at(r, c % bits.columns());
    return Operator(
        BitMatrix{packets->word_bits, packets->packet_bytes, std::make_shared<const Matrix>(std::move(both))});
  }
  return {twice(column.dense()), column.granularity_bytes()};
}

Plan::Plan(Backend &backend, std::shared_ptr<const Codec> codec, const Shape &shape,
           const std::function<bool()> &cancelled)
    : codec_(std::move(codec)), backend_(&backend), shape_(shape) {
  const auto take = [this](const Application &application, const Operator &what) {
    input_count_ = application.inputs.size();
    shards_.reserve(input_count_ + application.outputs.size());
    shards_.assign(application.inputs.begin(), application.inputs.end());
    shards_.insert(shards_.end(), application.outputs.begin(), application.outputs.end());
    memory_bytes_ = what.memory_bytes();
    backend_->check_technique(what);
    prepared_ = backend_->prepare(what);
  };
  switch (shape.operation) {
    case Operation::encode:
    case Operation::verify: {
      mode_ = shape.operation == Operation::verify ? Mode::compare : Mode::assign;
      const Application application = codec_->encode(shape.wanted);
      take(application, application.what);
      is_in_stripe_order_ = outputs().size() == codec_->m();
      break;
    }
    case Operation::decode: {
      const auto application = shape.read_costs.empty()
                                   ? codec_->decode(shape.present, shape.wanted, setup_work(backend, cancelled))
                                   : codec_->solve(shape.present, shape.wanted, shape.read_costs);
      take(*application, application->what);
      break;
    }
    case Operation::accumulate: {
      mode_ = shape.overwrite ? Mode::assign : Mode::accumulate;
      const Application application = codec_->column(shape.index, shape.wanted);
      take(application, application.what);
      break;
    }
    case Operation::update: {
      mode_ = Mode::accumulate;
      Application application = codec_->column(shape.index, shape.wanted);
      application.inputs.push_back(application.inputs.front());
      take(application, update_of(application.what));
      break;
    }
  }
}

}  // namespace tandem::core
