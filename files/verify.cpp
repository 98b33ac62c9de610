#include "files/verify.hpp"

#include <algorithm>
#include <chrono>

#include "files/crew.hpp"
#include "files/error.hpp"
#include "files/handles.hpp"
#include "files/set_reader.hpp"

namespace tandem::files {
namespace {

using Clock = std::chrono::steady_clock;

bool is_mds(const SetHeader &header) {
  try {
    make_codec(header, false);
    return true;
  } catch (const Error &error) {
    if (error.status() != TANDEM_ERROR_NOT_MDS) throw;
    return false;
  }
}

class Verifier {
 public:
  Verifier(tandem_context *context, const ShardSet &set, const tandem_files_verify_options &options)
      : context_(context),
        options_(options),
        set_(set),
        header_(set.header),
        reader_(set),
        codec_(make_codec(header_, true)),
        mds_(is_mds(header_)),
        damaged_(set.files.size(), 0),
        crew_(options.progress, options.progress_user, total_bytes(set)) {}

  tandem_files_verify_result run() {
    const Clock::time_point started = Clock::now();
    const unsigned thread_count =
        crew_size(context_, options_.thread_count, header_.block_bytes, header_.stripe_count());
    crew_.run(thread_count, [this](unsigned) { work(); });

    std::vector<std::uint8_t> present(header_.shard_count(), 0);
    for (std::size_t i = 0; i < set_.files.size(); ++i) {
      present[set_.files[i].index] = 1;
      if (set_.files[i].condition != 0) damaged_[i] = 1;
    }
    result_.missing_shard_count = header_.shard_count() - set_.shard_count;
    if (header_.stripe_count() == 0) {
      result_.worst_bad_count = result_.missing_shard_count;
      if (!recoverable(present)) result_.state = TANDEM_FILES_LOST;
    }
    result_.damaged_file_count = static_cast<std::uint32_t>(std::count(damaged_.begin(), damaged_.end(), 1));
    result_.read_bytes = reader_.read_bytes() + 2 * kRecordBytes * set_.files.size();
    if (result_.lost_stripe_count != 0) {
      result_.state = TANDEM_FILES_LOST;
    } else if (result_.state == TANDEM_FILES_INTACT &&
               (result_.missing_shard_count != 0 || result_.damaged_file_count != 0)) {
      result_.state = TANDEM_FILES_RECOVERABLE;
    }
    result_.seconds = std::chrono::duration<double>(Clock::now() - started).count();
    return result_;
  }

 private:
  static std::uint64_t total_bytes(const ShardSet &set) {
    return set.header.stripe_count() == 0 ? 0 : set.files.size() * (set.header.shard_file_bytes() - 2 * kRecordBytes);
  }

  bool recoverable(const std::vector<std::uint8_t> &present) const {
    const auto good = static_cast<std::uint32_t>(std::count(present.begin(), present.end(), 1));
    if (good < header_.k) return false;
    if (mds_ || good == header_.shard_count()) return true;
    tandem_plan_options options = {};
    options.struct_bytes = sizeof options;
    options.operation = TANDEM_OPERATION_DECODE;
    options.present = present.data();
    tandem_plan *plan = nullptr;
    const tandem_status status = tandem_plan_create(context_, codec_.get(), &options, &plan);
    tandem_plan_destroy(plan);
    if (status != TANDEM_OK && status != TANDEM_ERROR_NOT_RECOVERABLE) check(status);
    return status == TANDEM_OK;
  }

  void work() {
    std::vector<std::byte> block(header_.block_bytes);
    std::vector<std::uint8_t> present(header_.shard_count());
    std::vector<std::size_t> bad_files;
    while (!crew_.stopped().load(std::memory_order_relaxed)) {
      const std::uint64_t stripe = next_stripe_.fetch_add(1);
      if (stripe >= header_.stripe_count()) return;
      std::fill(present.begin(), present.end(), std::uint8_t{0});
      bad_files.clear();
      for (std::size_t file = 0; file < set_.files.size(); ++file) {
        if (reader_.read_block_of_file(file, stripe, block.data())) {
          present[set_.files[file].index] = 1;
        } else {
          bad_files.push_back(file);
        }
      }
      crew_.add_done(set_.files.size() * (header_.payload_bytes_of(stripe) + kCheckBytes));
      const auto bad_count = static_cast<std::uint32_t>(std::count(present.begin(), present.end(), 0));
      if (bad_count == 0 && bad_files.empty()) continue;
      const bool lost = !recoverable(present);
      const std::lock_guard lock(mutex_);
      result_.bad_block_count += bad_files.size();
      result_.worst_bad_count = std::max(result_.worst_bad_count, bad_count);
      result_.lost_stripe_count += lost ? 1 : 0;
      for (const std::size_t file : bad_files) {
        damaged_[file] = 1;
        if (options_.bad_block != nullptr)
          options_.bad_block(options_.bad_block_user, set_.files[file].path.c_str(), set_.files[file].index, stripe);
      }
    }
  }

  tandem_context *context_;
  const tandem_files_verify_options &options_;
  const ShardSet &set_;
  const SetHeader header_;
  SetReader reader_;
  Codec codec_;
  bool mds_;
  std::vector<std::uint8_t> damaged_;  // by file
  Crew crew_;
  std::atomic<std::uint64_t> next_stripe_{0};
  std::mutex mutex_;
  tandem_files_verify_result result_ = {};
};

}  // namespace

tandem_files_verify_result verify(tandem_context *context, const Search &search,
                                  const tandem_files_verify_options &options) {
  const std::size_t set = search.choose(options.set_id_prefix != nullptr ? options.set_id_prefix : "");
  return Verifier(context, search.sets[set], options).run();
}

}  // namespace tandem::files
