// SPDX-License-Identifier: Apache-2.0
// The exchange of `protect` (mpi/), or an encode, on a simulated cluster. SimGrid's smpicxx compiles this file together
// with mpi/exchange.cpp, mpi/groups.cpp and mpi/world.cpp; smpirun runs it (bench/cluster.py simulate). Messages are
// those of the library. Nothing is read, coded or written: the given rates determine the times of these steps. So this
// file replaces the functions of libtandem that the exchange calls.
//
//   exchange_sim K M DATA_BYTES PIECE_BYTES CODE_RATE READ_RATE WRITE_RATE [encode]   (bytes; bytes a second)
//
// encode: each rank reads, codes and writes its part of the content; the ranks share the hashes of the shards, and
// nothing else.
#include <mpi.h>
#include <smpi/smpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "base/rounding.hpp"
#include "mpi/groups.hpp"
#include "tandem/diagnose.h"
#include "tandem/tools.h"

namespace {

double code_rate = 1, read_rate = 1, write_rate = 1;
std::string last_error;

// The data of thousands of ranks would not fit into one machine, and its bytes do not matter. So all pieces are the
// same memory. No other object has their length.
std::size_t piece_bytes = 0;
std::byte *piece = nullptr;

class Nothing : public tandem::mpi::Held {
 public:
  void read(std::uint32_t, std::uint64_t, std::span<std::byte> bytes) override {
    smpi_execute(static_cast<double>(bytes.size()) / read_rate);
  }
  void write(std::uint32_t, std::uint64_t, std::span<const std::byte> bytes) override {
    smpi_execute(static_cast<double>(bytes.size()) / write_rate);
  }
};

}  // namespace

void *operator new(std::size_t bytes) {
  void *const at = bytes == piece_bytes ? piece : std::malloc(bytes);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
void operator delete(void *at) noexcept {
  if (at != piece) std::free(at);
}
void operator delete(void *at, std::size_t) noexcept { operator delete(at); }

// ---- libtandem, as far as the exchange calls it ----

struct tandem_codec {
  std::uint32_t k, m;
};
struct tandem_plan {
  std::uint32_t k;
};
struct tandem_job {
  double end;  // of its thread, in simulated time
};

extern "C" {

const char *tandem_last_error_message() { return last_error.c_str(); }
tandem_status tandem_set_last_error(tandem_status status, const char *message) {
  last_error = message;
  return status;
}
uint32_t tandem_matrix_traits(int32_t) { return 0; }
const char *tandem_matrix_name(int32_t) { return "any"; }
tandem_status tandem_codec_create(const tandem_codec_options *options, tandem_codec **codec_out) {
  *codec_out = new tandem_codec{options->k, options->m};
  return TANDEM_OK;
}
void tandem_codec_destroy(tandem_codec *codec) { delete codec; }
tandem_status tandem_codec_coefficients(const tandem_codec *, void *, size_t) { return TANDEM_OK; }
tandem_status tandem_plan_create(tandem_context *, const tandem_codec *codec, const tandem_plan_options *,
                                 tandem_plan **plan_out) {
  *plan_out = new tandem_plan{codec->k};
  return TANDEM_OK;
}
void tandem_plan_destroy(tandem_plan *plan) { delete plan; }
tandem_status tandem_plan_run(const tandem_plan *plan, const tandem_plan_arguments *arguments, tandem_job **job_out) {
  const double bytes = static_cast<double>(plan->k) * static_cast<double>(arguments->shard_bytes);
  *job_out = new tandem_job{MPI_Wtime() + bytes / code_rate};
  return TANDEM_OK;
}
tandem_status tandem_job_wait(tandem_job *job) {
  smpi_execute(std::max(job->end - MPI_Wtime(), 0.0));
  return TANDEM_OK;
}
void tandem_job_destroy(tandem_job *job) { delete job; }

}  // extern "C"

int main(int argc, char **argv) {
  using namespace tandem::mpi;
  MPI_Init(&argc, &argv);
  const bool encodes = argc == 9 && std::string(argv[8]) == "encode";
  if (argc != 8 && !encodes) return 2;
  const Layout layout{static_cast<std::uint32_t>(std::atoi(argv[1])), static_cast<std::uint32_t>(std::atoi(argv[2]))};
  const std::uint64_t data_bytes = std::strtoull(argv[3], nullptr, 10);
  if (piece == nullptr) {  // ranks are threads of one process
    const std::size_t bytes = std::strtoull(argv[4], nullptr, 10);
    piece = static_cast<std::byte *>(std::calloc(bytes, 1));
    piece_bytes = bytes;
  }
  code_rate = std::atof(argv[5]);
  read_rate = std::atof(argv[6]);
  write_rate = std::atof(argv[7]);
  {
    const World world(MPI_Comm_c2f(MPI_COMM_WORLD));
    const World node = world.node();
    const Groups groups = make_groups(world, node, layout.size());
    const World group = world.split(static_cast<int>(groups.group), static_cast<int>(groups.member));
    Nothing held;
    const std::uint64_t segment_bytes = tandem::base::divide_up(data_bytes, layout.k);
    const Exchange exchange =
        exchange_of_group(layout, TANDEM_MATRIX_ISAL_CAUCHY, piece_bytes, segment_bytes, groups.member, &held);
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    std::uint64_t sent_bytes = 0;
    if (encodes) {
      const auto bytes = static_cast<double>(data_bytes);
      smpi_execute(bytes / read_rate + bytes / code_rate + bytes * layout.size() / layout.k / write_rate);
      const int hash_bytes = 16 * static_cast<int>(layout.size());
      std::string mine(hash_bytes, '\0'), all(mine.size() * world.size(), '\0');
      MPI_Allgather(mine.data(), hash_bytes, MPI_BYTE, all.data(), hash_bytes, MPI_BYTE, MPI_COMM_WORLD);
      sent_bytes = mine.size();
    } else {
      sent_bytes = run(group, nullptr, exchange);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double seconds = MPI_Wtime() - began;
    if (world.leads())
      std::printf(
          "{\"ranks\": %d, \"seconds\": %.9f, \"sent_bytes\": %llu, \"segment_bytes\": %llu, \"most_on_a_node\": %u}\n",
          world.size(), seconds, static_cast<unsigned long long>(sent_bytes),
          static_cast<unsigned long long>(segment_bytes), groups.most_on_a_node);
  }
  MPI_Finalize();
  return 0;
}
