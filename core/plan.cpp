#include "core/plan.hpp"

namespace tandem::core {

Matrix update_matrix(const Matrix &column) {
  Matrix both(column.rows(), 2);
  for (unsigned r = 0; r < column.rows(); ++r) both.at(r, 0) = both.at(r, 1) = column.at(r, 0);
  return both;
}

Plan::Plan(Backend &backend, std::shared_ptr<const Codec> codec, const Shape &shape)
    : codec_(std::move(codec)), backend_(&backend), shape_(shape) {
  const auto take = [this](const Application &application, const Matrix &coefficients) {
    inputs_ = application.inputs;
    outputs_ = application.outputs;
    prepared_ = backend_->prepare(coefficients);
  };
  switch (shape.operation) {
    case Operation::encode:
    case Operation::verify: {
      mode_ = shape.operation == Operation::verify ? Mode::compare : Mode::assign;
      const Application application = codec_->encode(shape.wanted);
      take(application, application.coefficients);
      break;
    }
    case Operation::decode: {
      const auto application = codec_->decode(shape.present, shape.wanted);
      take(*application, application->coefficients);
      break;
    }
    case Operation::accumulate: {
      mode_ = shape.overwrite ? Mode::assign : Mode::accumulate;
      const Application application = codec_->column(shape.index, shape.wanted);
      take(application, application.coefficients);
      break;
    }
    case Operation::update: {
      mode_ = Mode::accumulate;
      const Application application = codec_->column(shape.index, shape.wanted);
      take(application, update_matrix(application.coefficients));
      inputs_.push_back(inputs_.front());
      break;
    }
  }
}

}  // namespace tandem::core
