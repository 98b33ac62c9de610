// SPDX-License-Identifier: Apache-2.0
// Tuning values: parameters of a backend for a matrix (local sizes, bytes per work-item, a tile of the CPU), their
// source, and the values in use.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::core {

enum class Mode;
class Operator;
class Prepared;

// By name ("local_x", "element_bytes"). A name that a backend does not know is ignored. A missing name has the
// backend's own value.
using TuningValues = std::map<std::string, std::uint64_t>;

// One tuning parameter for one application of a matrix.
struct TuningParameter {
  std::string name;
  std::uint64_t value;                    // the backend's own value
  std::vector<std::uint64_t> candidates;  // worth trying on this device; holds `value`
  // Bytes of input from which on a cost that comes once for a matrix, a compile, pays; 0 = at once. No measured speed
  // shows it: autotune times everything with 0, and computes this value at the end.
  bool is_switch_over = false;
  bool is_of_transfers = false;  // has no effect on shards that lie in device memory
};

// The machine that measurements are valid for. All four fields are compared as text.
struct TuningIdentity {
  std::string backend;  // "cpu", "opencl"
  std::string vendor;   // "AMD"
  std::string device;   // the model, as its driver names it
  std::string driver;   // name and version
};

// A question to the tuning table, with the identity of the backend that asks.
struct TuningQuery {
  TuningIdentity identity;
  std::string kernel_hash;  // of the text, or the build, of the measured kernels
  Mode mode;                // assign: entries of encode and decode; accumulate: of update; compare: of verify
  unsigned columns, rows;   // k and m of the entry
  bool on_device = false;   // measured with shards in device memory; false: in host memory
};

struct TuningChoice {
  TuningValues values;        // values that differ from the backend's own
  std::string reason;         // "measured on this device for (10, 4)", for the log; empty: there is no entry
  bool same_machine = false;  // by device and driver; if false, ignore values that fit one machine alone
};

// The source of tuning values for backends. Implementations are immutable, and many threads may use them.
class TuningSource {
 public:
  virtual ~TuningSource() = default;
  virtual TuningChoice find(const TuningQuery &query) const = 0;
  // Whether find() has an entry for any matrix on this device.
  virtual bool knows(const TuningIdentity &) const { return true; }
};

// A backend that has values to tune: for autotune.
class Tunable {
 public:
  // The same as Backend::prepare, with these values in place of measured ones. Throws Error, also INVALID_ARGUMENT or
  // UNAVAILABLE for values that this device cannot run.
  virtual std::shared_ptr<const Prepared> prepare_tuned(const Operator &what, const TuningValues &values) = 0;

  // The tuning parameters for a matrix of this shape, and the identity under which results are stored.
  virtual std::vector<TuningParameter> tuning_parameters(unsigned rows, unsigned columns, Mode mode) const = 0;
  virtual TuningIdentity tuning_identity() const = 0;
  virtual std::string tuning_kernel_hash() const = 0;

 protected:
  ~Tunable() = default;
};

// The values are those of enum tandem_operation_value.
enum class TunedOperation { encode = 0, decode = 1, verify = 2, update = 3 };

const char *tuned_operation_name(TunedOperation operation) noexcept;
std::optional<TunedOperation> tuned_operation_from_name(std::string_view name) noexcept;
Mode tuned_operation_mode(TunedOperation operation) noexcept;

inline constexpr std::uint64_t kMostTuningValue = std::uint64_t{1} << 40;

// "local_x=64, local_y=1"
std::string tuning_values_text(const TuningValues &values);

// A hash for version keys, as 16 hexadecimal digits. It does not protect against hostile input.
std::string tuning_hash(std::string_view text);

}  // namespace tandem::core
