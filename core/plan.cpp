#include "core/plan.hpp"

namespace tandem::core {

Operator update_of(const Operator &column) {
  const Matrix &once = column.dense();
  Matrix both(once.rows(), 2);
  for (unsigned r = 0; r < once.rows(); ++r) both.at(r, 0) = both.at(r, 1) = once.at(r, 0);
  return {std::move(both), column.granularity_bytes()};
}

Plan::Plan(Backend &backend, std::shared_ptr<const Codec> codec, const Shape &shape)
    : codec_(std::move(codec)), backend_(&backend), shape_(shape) {
  const auto take = [this](const Application &application, const Operator &what) {
    inputs_ = application.inputs;
    outputs_ = application.outputs;
    prepared_ = backend_->prepare(what);
  };
  switch (shape.operation) {
    case Operation::encode:
    case Operation::verify: {
      mode_ = shape.operation == Operation::verify ? Mode::compare : Mode::assign;
      const Application application = codec_->encode(shape.wanted);
      take(application, application.what);
      break;
    }
    case Operation::decode: {
      const auto application = codec_->decode(shape.present, shape.wanted);
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
      const Application application = codec_->column(shape.index, shape.wanted);
      take(application, update_of(application.what));
      inputs_.push_back(inputs_.front());
      break;
    }
  }
}

}  // namespace tandem::core
