// SPDX-License-Identifier: Apache-2.0
// RS in native code: a codec, and the context that it runs in.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "memory.hpp"
#include "tandem/tandem.h"

namespace tandem_ec {

struct ContextChoice {  // the options of a context that Python code can set; "" and 0: the library's defaults
  std::string backend;
  std::string kernel;
  std::uint32_t threads = 0;
  auto operator<=>(const ContextChoice &) const = default;
};

using Context = std::shared_ptr<tandem_context>;
using Plan = std::shared_ptr<tandem_plan>;

// The context of these options. All codecs of a process with the same choice share one context and its threads.
Context shared_context(const ContextChoice &choice);

ContextChoice context_choice(const std::optional<std::string> &backend, std::int64_t threads,
                             const std::optional<std::string> &kernel);

std::int32_t matrix_of(const std::string &name);

// A call that was submitted. Holds the objects that it uses until it is over.
class Job {
 public:
  Job(Plan plan, Memory memory, tandem_job *job);
  ~Job();
  Job(const Job &) = delete;
  Job &operator=(const Job &) = delete;
  void wait();
  void cancel();

 private:
  Plan plan_;
  Memory memory_;
  tandem_job *job_;
};

class Codec {
 public:
  Codec(std::int64_t k, std::int64_t m, const std::string &matrix, const std::optional<std::string> &field,
        std::int64_t threads, const std::optional<std::string> &backend, const std::optional<std::string> &kernel,
        nanobind::handle coefficients, bool allow_non_mds);

  std::uint32_t k() const { return k_; }
  std::uint32_t m() const { return m_; }
  const std::string &field() const { return field_; }

  nanobind::object encode(nanobind::handle data, nanobind::handle out);
  void decode(nanobind::handle shards, nanobind::handle present);
  nanobind::tuple verify(nanobind::handle shards);
  void update(std::int64_t index, nanobind::handle old_data, nanobind::handle new_data, nanobind::handle parity);
  void accumulate(std::int64_t index, nanobind::handle data, nanobind::handle parity, bool first);
  void encode_stripes(nanobind::handle stripes);
  void decode_stripes(nanobind::handle stripes, nanobind::handle present);

  nanobind::object split(nanobind::handle data) const;
  nanobind::bytes join(nanobind::handle shards, std::int64_t length) const;

  // Starts a call and returns the job and the outputs.
  nanobind::tuple submit_encode(nanobind::handle data, nanobind::handle out);
  std::unique_ptr<Job> submit_decode(nanobind::handle shards, nanobind::handle present);

  nanobind::bytes coefficients() const;
  nanobind::dict context_info() const;

 private:
  struct Call;
  Call encode_call(nanobind::handle data, nanobind::handle out, nanobind::object &out_given);
  Call decode_call(nanobind::handle shards, nanobind::handle present);
  Call update_call(std::int64_t index, nanobind::handle old_data, nanobind::handle new_data, nanobind::handle parity);
  std::uint32_t index_of(std::int64_t index) const;
  Context context_for(const Place &place) const;
  Plan plan_for(const Call &call) const;
  void run(Call &call, tandem_verify_result *result) const;
  void run_host(Call &call, tandem_verify_result *result) const;
  std::unique_ptr<Job> submit(Call &call) const;
  void stripes_call(nanobind::handle stripes, nanobind::handle present, bool is_decode);
  bool is_long(std::size_t shard_bytes, std::size_t outputs) const;

  std::uint32_t k_, m_;
  std::string field_;
  ContextChoice choice_;
  Context context_;
  std::shared_ptr<tandem_codec> codec_;
};

void bind_codec(nanobind::module_ &module);

}  // namespace tandem_ec
