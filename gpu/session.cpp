#include "gpu/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "device/quarantine.hpp"
#include "gpu/device_code/tuning.hpp"

namespace tandem::gpu {
namespace {

constexpr std::uint64_t kLeastBufferBytes = 4096;
constexpr std::uint64_t kIdlePoolBytes = 64 << 20;  // what the pool keeps of freed memory
constexpr std::size_t kMostTables = 32;

std::uint64_t rounded(std::uint64_t bytes) { return std::bit_ceil(std::max(bytes, kLeastBufferBytes)); }

// Makes the session's context current without a word: for what releases.
class Quietly : public QuietContextScope {
 public:
  explicit Quietly(const Session *session) noexcept
      : QuietContextScope(session->driver(), session->may_release() ? session->context() : nullptr) {}
};

// A buffer of at least `bytes`; a larger one of a round size where the budget has it, so that it seldom has to grow.
DeviceMemory roomy(Session &session, CUstream stream, std::uint64_t bytes) {
  const std::uint64_t round = rounded(bytes);
  if (round != bytes) {
    try {
      return {session, stream, round};
    } catch (const base::Error &error) {
      if (error.status() != TANDEM_ERROR_OUT_OF_MEMORY) throw;
    }
  }
  return {session, stream, bytes};
}

}  // namespace

void fail_cancelled(const Device &device) {
  base::fail(TANDEM_ERROR_CANCELLED, fmt::format("cancelled: {} runs nothing of this job any more", device.name));
}

DeviceMemory::DeviceMemory(Session &session, CUstream stream, std::uint64_t bytes)
    : stream_(stream), bytes_(bytes), reserved_(session.budget().try_reserve(bytes)) {
  if (!reserved_) {
    base::fail(TANDEM_ERROR_OUT_OF_MEMORY, fmt::format("CUDA: the memory budget of {} ({} bytes) has no {} bytes left",
                                                       session.device().name, session.budget().bytes(), bytes));
  }
  const Driver &driver = session.driver();
  check(driver, driver.cuMemAllocFromPoolAsync(&address_, bytes, session.pool(), stream), "cuMemAllocFromPoolAsync");
  session_ = &session;
}

DeviceMemory::~DeviceMemory() {
  if (address_ == 0 || session_ == nullptr) return;
  if (const Quietly driver(session_); driver) driver->cuMemFreeAsync(address_, stream_);
}

PinnedMemory::PinnedMemory(Session &session, std::uint64_t bytes) : bytes_(bytes) {
  const Driver &driver = session.driver();
  void *address = nullptr;
  check(driver, driver.cuMemHostAlloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
  address_ = static_cast<std::byte *>(address);
  session_ = &session;
}

PinnedMemory::~PinnedMemory() {
  if (address_ == nullptr) return;
  if (const Quietly driver(session_); driver) driver->cuMemFreeHost(address_);
}

Stream::Stream(Session &session) : session_(session) {
  const Driver &driver = session.driver();
  check(driver, driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}
Stream::~Stream() {
  if (const Quietly driver(&session_); driver) driver->cuStreamDestroy(stream_);
}

Event::Event(Session &session, bool waits_asleep) : session_(session) {
  const Driver &driver = session.driver();
  const unsigned wait = waits_asleep ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT;
  check(driver, driver.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING | wait), "cuEventCreate");
}
Event::~Event() {
  if (const Quietly driver(&session_); driver) driver->cuEventDestroy(event_);
}
void Event::record(CUstream stream) {
  check(session_.driver(), session_.driver().cuEventRecord(event_, stream), "cuEventRecord");
}
void Event::hold(CUstream stream) {
  check(session_.driver(), session_.driver().cuStreamWaitEvent(stream, event_, CU_EVENT_WAIT_DEFAULT),
        "cuStreamWaitEvent");
}
void Event::wait() { check(session_.driver(), session_.driver().cuEventSynchronize(event_), "cuEventSynchronize"); }

void Slot::make_room(Session &session, CUstream stream, std::uint64_t input_bytes, std::uint64_t output_bytes,
                     std::uint64_t record_bytes, std::uint64_t most_bytes) {
  const auto grown = [](const DeviceMemory &memory, std::uint64_t bytes) {
    return bytes <= memory.bytes() ? memory.bytes() : rounded(bytes);
  };
  if (grown(inputs, input_bytes) + grown(outputs, output_bytes) + grown(records, record_bytes) > most_bytes)
    for (DeviceMemory *memory : {&inputs, &outputs, &records}) *memory = DeviceMemory();
  const auto grow = [&](DeviceMemory &memory, std::uint64_t bytes) {
    if (bytes <= memory.bytes()) return;
    memory = DeviceMemory();
    memory = roomy(session, stream, bytes);
  };
  grow(inputs, input_bytes);
  grow(outputs, output_bytes);
  grow(records, record_bytes);
}

void Slot::make_pinned_room(Session &session, std::uint64_t input_bytes, std::uint64_t output_bytes,
                            std::uint64_t record_bytes) {
  const auto grow = [&](PinnedMemory &memory, std::uint64_t bytes) {
    if (bytes <= memory.bytes()) return;
    memory = PinnedMemory();
    memory = PinnedMemory(session, rounded(bytes));
  };
  grow(host_inputs, input_bytes);
  grow(host_outputs, output_bytes);
  grow(host_records, record_bytes);
}

void Slot::release() noexcept {
  inputs = DeviceMemory();
  outputs = DeviceMemory();
  records = DeviceMemory();
  host_inputs = PinnedMemory();
  host_outputs = PinnedMemory();
  host_records = PinnedMemory();
}

Lane::Lane(Session &session)
    : up(session), run(session), down(session), slots{Slot(session), Slot(session), Slot(session)} {}

CUresult Lane::drain(const Driver &driver) noexcept {
  CUresult worst = CUDA_SUCCESS;
  for (const Stream *stream : {&up, &run, &down}) {
    const CUresult error = driver.cuStreamSynchronize(stream->get());
    if (error != CUDA_SUCCESS && (worst == CUDA_SUCCESS || is_of_capture(worst))) worst = error;
  }
  return worst;
}

Session::Session(const Driver &driver, const Device &device, std::shared_ptr<device::DiskCache> disk,
                 const base::Log &log)
    : driver_(driver),
      device_(device),
      log_(log),
      budget_(std::make_shared<device::MemoryBudget>(0)),
      lanes_(kMostLanes),
      tables_(kMostTables) {
  const OutsideCaptures outside(&driver_);
  check(driver_, driver_.cuDevicePrimaryCtxRetain(&context_, device_.id), "cuDevicePrimaryCtxRetain");
  try {
    open(std::move(disk), log);
  } catch (...) {
    close();
    throw;
  }
  budget_->add(this);
}

void Session::open(std::shared_ptr<device::DiskCache> disk, const base::Log &log) {
  const ContextScope current(driver_, context_);
  std::size_t free = 0, total = 0;
  check(driver_, driver_.cuMemGetInfo(&free, &total), "cuMemGetInfo");
  free_bytes_ = free;
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_.ordinal;
  check(driver_, driver_.cuMemPoolCreate(&pool_, &properties), "cuMemPoolCreate");
  cuuint64_t idle_bytes = kIdlePoolBytes;
  check(driver_, driver_.cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &idle_bytes),
        "cuMemPoolSetAttribute");
  own_ = std::make_unique<Stream>(*this);
  programs_ = std::make_unique<Programs>(driver_, device_, context_, std::move(disk), log);
}

Session::~Session() {
  budget_->remove(this);
  close();
}

void Session::close() noexcept {
  if (!may_release()) return;  // the parent's driver: its objects cannot be released here
  const OutsideCaptures outside(&driver_);
  lanes_.take_idle();
  tables_.clear();
  programs_.reset();
  if (const Quietly driver(this); driver && own_ != nullptr)
    driver->cuStreamSynchronize(own_->get());  // what was freed in its order
  own_.reset();
  if (const Quietly driver(this); driver && pool_ != nullptr) driver->cuMemPoolDestroy(pool_);
  driver_.cuDevicePrimaryCtxRelease(device_.id);
}

void Session::give_up(const std::string &reason) noexcept {
  if (is_given_up_.exchange(true)) return;
  try {
    gpu::give_up(driver_, device_.ordinal, reason);
    log_.say(TANDEM_LOG_WARNING, fmt::format("cuda: {} ({}) is given up for the rest of this process: {}", device_.name,
                                             device_.model, reason));
  } catch (const std::exception &) {  // no memory: this session knows
  }
}

void Session::summarise_failed(int error, const char *message) noexcept {
  if (has_summarise_failed_.exchange(true)) return;
  try {
    log_.say(TANDEM_LOG_WARNING,
             fmt::format("cuda: {}: what a verify found is not reduced on the device any more, but on the host: error "
                         "{} of the CUDA runtime, {}",
                         device_.name, error, message));
  } catch (const std::exception &) {  // no memory: it is not said
  }
}

// Lanes and tables that nobody uses now.
void Session::give_idle_memory() noexcept {
  lanes_.take_idle();
  tables_.clear();
  if (const Quietly driver(this); driver) driver->cuMemPoolTrimTo(pool_, 0);
}

std::shared_ptr<const DeviceMemory> Session::tables(const device::DevicePrepared &prepared) {
  if (auto found = tables_.find(prepared.id)) return found;
  auto words = std::make_unique<std::vector<std::uint32_t>>(device::pack_nibble_tables(prepared.matrix));
  const std::uint64_t bytes = words->size() * sizeof(std::uint32_t);
  auto memory = std::make_shared<const DeviceMemory>(*this, stream(), bytes);
  check(driver_, driver_.cuMemcpyHtoDAsync(memory->get(), words->data(), bytes, stream()), "cuMemcpyHtoDAsync");
  if (const CUresult done = driver_.cuStreamSynchronize(stream()); done != CUDA_SUCCESS) {
    if (driver_.cuStreamSynchronize(stream()) != CUDA_SUCCESS) device::quarantine(std::move(words));
    check(driver_, done, "cuStreamSynchronize");
  }
  tables_.add(prepared.id, memory);
  return memory;
}

Session::LaneLease Session::take_lane(const core::Control &control) {
  return lanes_.take(
      shared_from_this(), control, [this] { return std::make_unique<Lane>(*this); },
      [this] { fail_cancelled(device_); });
}

bool Session::settle(LaneLease &lane) noexcept {
  const CUresult error = lane->drain(driver_);
  if (error == CUDA_SUCCESS) return true;
  device::quarantine(lane.remove());
  if (!is_of_capture(error)) give_up("what was under way does not come to an end");
  return false;
}

device::Loads most_loads(const Device &device) noexcept {
  return device.architecture() >= 80 ? device::Loads::async : device::Loads::streaming;
}

device::DeviceSettings default_settings(unsigned rows) {
  device::DeviceSettings settings;
  settings.kernel = built_in_tuning(rows);
  settings.staging_bytes = 16 << 20;
  // Predicted, not measured: a compile takes 0.15 s, in which 8 GB go through a link of 55 GB/s. Twice that: where the
  // link binds and not the kernel, a third of the time is lost at most, once.
  settings.compile_after_bytes = std::uint64_t{16} << 30;
  return settings;
}

namespace {

device::KernelDevice described(const Device &device) {
  device::KernelDevice described;
  described.label = "CUDA";
  described.name = device.name;
  described.identity = {"cuda", "NVIDIA", device.model, device.driver_text()};
  described.dialect = device::Dialect::cuda_c;
  described.local_bytes = device.shared_bytes;
  described.architecture = static_cast<unsigned>(device.architecture());
  described.most_element_bytes = kMostElementBytes;
  described.most_loads = most_loads(device);
  described.settings = default_settings;
  return described;
}

}  // namespace

Chooser::Chooser(const Options &options, const Device &device, const base::Log &log)
    : KernelChooser(described(device), options.technique, options.tuning, options.generate, log),
      device_(device),
      log_(log) {}

Variant Chooser::built(const device::DevicePrepared &prepared, Session &session, const Choice &choice) const {
  Variant variant;
  variant.spec = choice.spec;
  variant.staging_bytes = choice.staging_bytes;
  variant.program = session.programs().get(choice.key, choice.spec, [&] { return text(prepared, choice.spec); });
  std::array<unsigned, 3> &local = variant.spec.tuning.local;
  const std::array<unsigned, 3> wanted = local;
  constexpr std::array<unsigned, 3> kMost = {1024, 1024, 64};
  for (unsigned d = 0; d < 3; ++d) local[d] = std::min(local[d], kMost[d]);
  while (std::uint64_t{local[0]} * local[1] * local[2] > variant.program->most_threads() ||
         (device::kernel_shared_bytes(variant.spec, prepared.columns()) > device_.shared_bytes &&
          *std::max_element(local.begin(), local.end()) > 1)) {
    unsigned &largest = *std::max_element(local.begin(), local.end());
    largest = std::max(1u, largest / 2);
  }
  if (local == wanted) return variant;
  const std::string what =
      fmt::format("a block of {}x{}x{} is more than {} runs of this kernel ({} threads)", wanted[0], wanted[1],
                  wanted[2], device_.name, variant.program->most_threads(), device_.shared_bytes);
  if (prepared.forced.has_value()) base::fail(TANDEM_ERROR_UNAVAILABLE, "CUDA: " + what);
  log_.say(TANDEM_LOG_DEBUG, fmt::format("cuda: {}; {}x{}x{} instead", what, local[0], local[1], local[2]));
  return variant;
}

Variant Chooser::choose(const device::DevicePrepared &prepared, Session &session, core::Mode mode,
                        device::Access access, std::uint64_t length_bytes) const {
  const auto chosen = [&](std::uint64_t bytes) {
    Choice choice = KernelChooser::choose(prepared, session.programs(), mode, access, device::Binding::offsets, bytes);
    return choice;
  };
  const Choice choice = chosen(length_bytes);
  if (is_forced() || choice.spec.technique == device::Technique::tables) return built(prepared, session, choice);
  try {
    return built(prepared, session, choice);
  } catch (const base::Error &error) {
    if (error.status() != TANDEM_ERROR_UNAVAILABLE || prepared.forced.has_value()) throw;
    session.programs().stop_compiling(error.what());
  }
  return built(prepared, session, chosen(0));
}

void launch(const Session &session, CUstream stream, const Variant &variant, const device::DevicePrepared &prepared,
            const std::vector<CUdeviceptr> &shards, const device::KernelRange &range, CUdeviceptr records,
            CUdeviceptr tables) {
  const Driver &driver = session.driver();
  device::KernelArguments arguments = {};
  for (std::size_t i = 0; i < shards.size(); ++i) arguments.shards[i] = reinterpret_cast<void *>(shards[i]);
  arguments.begin = range.begin;
  arguments.end = range.end;
  arguments.length = range.length;
  arguments.records = reinterpret_cast<std::uint32_t *>(records);
  arguments.tables = reinterpret_cast<const std::uint32_t *>(tables);
  arguments.columns = prepared.columns();
  arguments.rows = prepared.rows();
  void *parameters[] = {&arguments};
  const auto &local = variant.spec.tuning.local;
  const auto shared = static_cast<unsigned>(device::kernel_shared_bytes(variant.spec, prepared.columns()));
  check(driver,
        driver.cuLaunchKernel(variant.program->function(), static_cast<unsigned>(range.group_count), 1, 1, local[0],
                              local[1], local[2], shared, stream, parameters, nullptr),
        "cuLaunchKernel");
}

void clear_records(const Session &session, CUstream stream, CUdeviceptr records, std::uint64_t bytes) {
  const Driver &driver = session.driver();
  check(driver, driver.cuMemsetD32Async(records, 0xffffffff, bytes / sizeof(std::uint32_t), stream),
        "cuMemsetD32Async");
}

Address look_at(const Session &session, const void *pointer) {
  const Driver &driver = session.driver();
  Address address;
  unsigned type = 0, managed = 0;
  int ordinal = -1;
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                  CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void *values[] = {&type, &ordinal, &managed, &start, &bytes};
  // Of memory that CUDA does not know it says nothing, and that is no error.
  check(driver, driver.cuPointerGetAttributes(5, wanted, values, reinterpret_cast<CUdeviceptr>(pointer)),
        "cuPointerGetAttributes");
  address.type = static_cast<CUmemorytype>(type);
  address.ordinal = ordinal;
  address.is_managed = managed != 0;
  address.start = start;
  address.bytes = bytes;
  return address;
}

}  // namespace tandem::gpu
