// SPDX-License-Identifier: Apache-2.0
#include "par2/calls.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <system_error>

#include "base/bytes.hpp"
#include "base/folder.hpp"
#include "base/options.hpp"
#include "base/rounding.hpp"
#include "base/signals.hpp"
#include "par2/files.hpp"
#include "par2/packet_files.hpp"
#include "par2/ranges.hpp"
#include "par2/set.hpp"
#include "par2/sources.hpp"
#include "par2/tree.hpp"

namespace tandem::par2 {
namespace {

constexpr std::uint32_t kMostVolumes = 1000, kMostCopies = 16;

std::string without_ending(const std::string &path) {
  return is_packet_file_name(path) ? path.substr(0, path.size() - 5) : path;
}

// largest: slices of the largest file.
std::vector<Volume> volumes_of(const tandem_par2_create_options &options, std::uint32_t recovery_count,
                               std::uint64_t largest) {
  if (options.volumes < TANDEM_PAR2_DOUBLING || options.volumes > TANDEM_PAR2_UNIFORM)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "volumes is ", options.volumes);
  if (options.volume_count > kMostVolumes || (options.volume_count != 0 && options.volumes == TANDEM_PAR2_LIMITED))
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "volume_count is ", options.volume_count, "; at most ", kMostVolumes,
         ", for limited volumes 0");
  std::vector<Volume> volumes;
  std::uint32_t first = options.first_exponent, left = recovery_count, files = options.volume_count;
  if (files == 0) files = static_cast<std::uint32_t>(std::bit_width(recovery_count));
  files = std::min(files, recovery_count);
  std::uint64_t next = 1;
  while (options.volume_count != 0 && next * ((1u << std::min(files, 16u)) - 1) < left) next *= 2;
  while (left != 0) {
    std::uint64_t count = options.volumes == TANDEM_PAR2_UNIFORM ? tandem::base::divide_up(left, files) : next;
    if (options.volumes == TANDEM_PAR2_LIMITED) count = std::min(count, largest);
    count = std::min<std::uint64_t>(count, left);
    if (volumes.size() == kMostVolumes) count = left;
    volumes.push_back({first, static_cast<std::uint32_t>(count)});
    first += static_cast<std::uint32_t>(count);
    left -= static_cast<std::uint32_t>(count);
    next = std::min<std::uint64_t>(2 * next, kExponents);
    files -= files > 1;
  }
  return volumes;
}

class Creation {
 public:
  Creation(tandem_context *context, const tandem_par2_create_options &options, base::Crew &crew, base::Meter &meter,
           bool is_sync)
      : context_(context), options_(options), crew_(crew), meter_(meter), is_sync_(is_sync) {
    const std::string base = without_ending(options.path);
    folder_ = std::make_shared<base::Folder>(base::folder_of(base));
    base_name_ = base::name_of(base);
    if (base_name_.empty()) fail(TANDEM_ERROR_INVALID_ARGUMENT, "path \"", options.path, "\" has no name");
  }

  tandem_par2_create_result run() {
    find_files();
    choose_sizes();
    order_files();
    plan_outputs();
    // One file is one chain of MD5, so it is hashed beside everything else.
    const auto hash = [&] { attempt([&] { hash_whole_files(); }); };
    std::future<void> hashing = std::async(std::launch::deferred, hash);
    if (options_.thread_count != 1) {
      const base::SignalsBlocked blocked;
      try {
        hashing = std::async(std::launch::async, hash);
      } catch (const std::system_error &) {  // no more threads: this one does it later
      }
    }
    attempt([&] { sums_ = outputs_->code(context_, slices_, options_.memory_bytes, crew_, meter_); });
    while (hashing.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout)
      attempt([&] { meter_.done(0); });
    hashing.get();
    if (failure_) std::rethrow_exception(failure_);
    check_unchanged(sources_);
    meter_.finish();  // the last moment to cancel
    outputs_->finish(critical_packets(), options_.force != 0, options_.no_sync != 0);
    return result();
  }

 private:
  // Of two parts of the call. A failure of one stops the other; the first failure is that of the call.
  void attempt(const std::function<void()> &part) {
    try {
      part();
    } catch (...) {
      if (!has_failed_.exchange(true)) failure_ = std::current_exception();
      meter_.stop();
    }
  }

  void find_files() {
    std::vector<std::string> paths;
    for (const std::string_view path : base::read_strings(options_.source_paths, options_.source_count, "source_paths"))
      paths.emplace_back(path);
    const auto is_own = [&](const std::string &path) {
      const std::string name = base::name_of(path);
      if (name.starts_with("." + base_name_ + ".") && name.ends_with(".tmp"))
        return true;  // of a create that was killed
      return is_packet_file_name(name) && (name.starts_with(base_name_ + ".") || without_ending(name) == base_name_);
    };
    sources_ = find_sources(paths, options_.base_path != nullptr ? options_.base_path : folder_->path(), is_own);
  }

  void choose_sizes() {
    const std::uint64_t slice_count = options_.slice_count;
    slice_bytes_ = options_.slice_bytes;
    if (slice_bytes_ % 4 != 0 || slice_bytes_ > kMostSliceBytes)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "slice_bytes is ", slice_bytes_, ", no multiple of 4 up to 2^48");
    if (slice_count > kMostSlices)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "slice_count is ", slice_count, "; at most ", kMostSlices);
    if (slice_bytes_ == 0)
      slice_bytes_ = slice_count == 0 ? default_slice_bytes(sources_) : least_slice_bytes(sources_, slice_count);
    for (const Source &source : sources_) {
      slice_count_ += slices_of(source.bytes, slice_bytes_);
      source_bytes_ += source.bytes;
      if (slice_count_ > kMostSlices) {
        fail(TANDEM_ERROR_TOO_LARGE, "more than ", kMostSlices, " slices of ", slice_bytes_,
             " bytes; choose larger slices");
      }
    }
    std::uint64_t largest = kMostPaddedBytes;
    for (const Source &source : sources_) largest = std::max(largest, source.bytes);
    if (slice_bytes_ - 4 >= largest)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "slice_bytes is ", slice_bytes_, ", larger than each file");
    const double percent = options_.recovery_percent;
    if (!(percent >= 0 && percent <= 1e6)) fail(TANDEM_ERROR_INVALID_ARGUMENT, "recovery_percent is out of range");
    double wanted = options_.recovery_slice_count;
    if (wanted == 0) wanted = count_of(percent, static_cast<double>(slice_count_));
    if (options_.first_exponent + wanted > kExponents)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, wanted, " recovery slices from exponent ", options_.first_exponent,
           " on; exponents are below ", kExponents);
    recovery_count_ = static_cast<std::uint32_t>(wanted);
    if (recovery_count_ != 0 && slice_count_ == 0)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "all files are empty: there is nothing to compute recovery slices from");
  }

  void order_files() {
    std::vector<Range> beginnings;
    for (const Source &source : sources_)
      beginnings.push_back({&source.path, 0, std::min<std::uint64_t>(source.bytes, kBeginningBytes)});
    sum_ranges(beginnings, false, crew_, {});
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      check_read(beginnings[i]);
      sources_[i].md5_of_beginning = beginnings[i].sum.md5;
      sources_[i].id = id_of(sources_[i]);
    }
    std::ranges::sort(sources_, is_less, &Source::id);
    Main main{slice_bytes_, {}, {}};
    for (Source &source : sources_) {
      main.recoverable.push_back(source.id);
      source.first_slice = slices_.size();
      for (std::uint64_t at = 0; at < source.bytes; at += slice_bytes_)
        slices_.push_back({&source.path, at, std::min(slice_bytes_, source.bytes - at)});
    }
    main_ = main_body(main);
    set_id_ = Md5::of(main_.data(), main_.size());
    sums_.resize(slice_count_);
  }

  Bytes critical_packets() const {
    Bytes all;
    const auto add = [&](Kind kind, const Bytes &body) {
      const Bytes bytes = packet(kind, set_id_, body);
      all.insert(all.end(), bytes.begin(), bytes.end());
    };
    add(Kind::main, main_);
    for (const Source &source : sources_) {
      add(Kind::description, description_body(source));
      const std::uint64_t count = slices_of(source.bytes, slice_bytes_);
      if (count != 0) add(Kind::sums, sums_body(source.id, std::span(sums_).subspan(source.first_slice, count)));
      if (const Bytes name = unicode_body(source); !name.empty()) add(Kind::unicode, name);
    }
    if (is_sync_) {
      Kept kept{options_.recovery_percent, {}};
      for (const Source &source : sources_)
        kept.modified_ns.emplace_back(source.id, nanoseconds_of(source.status.st_mtim));
      add(Kind::kept, kept_body(kept));
    }
    add(Kind::creator, own_creator_body());
    return all;
  }

  // The sizes of all packets are known before their contents.
  void plan_outputs() {
    std::uint64_t largest = 1;
    for (const Source &source : sources_) largest = std::max(largest, slices_of(source.bytes, slice_bytes_));
    const std::vector<Volume> volumes = volumes_of(options_, recovery_count_, largest);
    std::size_t count_width = 1;  // both widths as other programs have them
    for (const Volume &volume : volumes) count_width = std::max(count_width, std::to_string(volume.count).size());
    const std::size_t first_width = std::to_string(options_.first_exponent + recovery_count_).size();
    if (options_.critical_copies > kMostCopies)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "critical_copies is ", options_.critical_copies, "; at most ", kMostCopies);
    outputs_.emplace(folder_, set_id_, slice_bytes_, critical_packets().size(), options_.critical_copies);
    const auto add = [&](const std::string &name, const Volume &volume) {
      if (options_.force == 0 && folder_->has(name)) fail(TANDEM_ERROR_IO, folder_->path_of(name), " exists already");
      outputs_->add(name, volume);
    };
    add(base_name_ + ".par2", {});
    for (const Volume &volume : volumes) add(volume_name(base_name_, volume, first_width, count_width), volume);
    packet_file_count_ = 1 + volumes.size();
    outputs_->make();
    meter_.add_total(2 * source_bytes_ + recovery_count_ * slice_bytes_);
  }

  static void check_read(const Range &range) {
    if (range.error != 0) fail_io("read", *range.path, range.error);
  }

  void hash_whole_files() {
    std::vector<Source *> order;
    for (Source &source : sources_) order.push_back(&source);
    std::ranges::stable_sort(order, std::ranges::greater(), &Source::bytes);  // files of one size end together
    std::vector<Range> ranges;
    for (const Source *source : order) ranges.push_back({&source->path, 0, source->bytes});
    base::Crew alone(0);
    sum_ranges(ranges, false, alone, meter_.counter());
    for (std::size_t i = 0; i < order.size(); ++i) {
      check_read(ranges[i]);
      order[i]->md5 = ranges[i].sum.md5;
    }
  }

  tandem_par2_create_result result() const {
    auto result = base::sized<tandem_par2_create_result>();
    std::ranges::copy(set_id_, result.set_id);
    result.slice_bytes = slice_bytes_;
    result.file_count = static_cast<std::uint32_t>(sources_.size());
    result.slice_count = static_cast<std::uint32_t>(slice_count_);
    result.recovery_slice_count = recovery_count_;
    result.packet_file_count = static_cast<std::uint32_t>(packet_file_count_);
    result.source_bytes = source_bytes_;
    result.packet_file_bytes = outputs_->bytes();
    return result;
  }

  tandem_context *const context_;
  const tandem_par2_create_options &options_;
  base::Crew &crew_;
  base::Meter &meter_;
  const bool is_sync_;
  std::shared_ptr<base::Folder> folder_;
  std::string base_name_;
  std::vector<Source> sources_;
  std::uint64_t slice_bytes_ = 0, slice_count_ = 0, source_bytes_ = 0;
  std::uint32_t recovery_count_ = 0;
  Bytes main_;
  Digest set_id_;
  std::vector<Place> slices_;
  std::vector<SliceSum> sums_;
  std::size_t packet_file_count_ = 0;
  std::optional<PacketFiles> outputs_;  // the one without recovery slices first
  std::atomic<bool> has_failed_{false};
  std::exception_ptr failure_;  // the first
};

}  // namespace

tandem_par2_create_result create(tandem_context *context, const tandem_par2_create_options &options, base::Crew &crew,
                                 base::Meter &meter, bool is_sync) {
  return Creation(context, options, crew, meter, is_sync).run();
}

}  // namespace tandem::par2
