// SPDX-License-Identifier: Apache-2.0
#include "tests/device/driver_suite.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/fork.hpp"
#include "core/budget.hpp"
#include "core/host_copies.hpp"
#include "hybrid/factory.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceFaults);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceChecks);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceShards);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceLayer);

// The real drivers' conformance has the forms.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FormConformance);

namespace {

void expect_clean(const AnyDriver &driver, const std::string &after) {
  for (const std::string &each : driver.problems()) ADD_FAILURE() << each << ", after " << after;
}

// The driver of all backends of a test: there can be one in a process. In the end nothing is left, and the backends
// had no more memory than their budgets together.
struct SharedDriver {
  explicit SharedDriver(const DriverMaker &maker) : driver(maker.make({})) {}
  ~SharedDriver() {
    expect_clean(*driver, "a test of conformance");
    EXPECT_LE(driver->counts().most_device_bytes(), most_budget_bytes);
  }
  const std::unique_ptr<AnyDriver> driver;
  std::uint64_t budget_bytes = 0, most_budget_bytes = 0;
};

class OwnedBackend final : public core::Backend {
 public:
  OwnedBackend(const DriverMaker &maker, const char *technique, std::uint64_t budget_bytes,
               const core::TuningSource *tuning)
      : budget_bytes_(budget_bytes) {
    static std::weak_ptr<SharedDriver> last;
    shared_ = last.lock();
    if (shared_ == nullptr) last = shared_ = std::make_shared<SharedDriver>(maker);
    shared_->budget_bytes += budget_bytes;
    shared_->most_budget_bytes = std::max(shared_->most_budget_bytes, shared_->budget_bytes);
    device::Options options = shared_->driver->options();
    options.technique = technique;
    options.memory_budget_bytes = budget_bytes;
    options.tuning = tuning;
    options.reference = cpu_reference();
    backend_ = shared_->driver->make(options, {});
  }
  ~OwnedBackend() override {
    backend_.reset();
    shared_->budget_bytes -= budget_bytes_;
  }
  const core::Traits &traits() const noexcept override { return backend_->traits(); }
  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override { return backend_->prepare(what); }
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    const auto held = shared_->driver->hold(tasks);
    backend_->run(tasks, control);
  }

 private:
  const std::uint64_t budget_bytes_;
  std::shared_ptr<SharedDriver> shared_;
  std::unique_ptr<core::Backend> backend_;
};

}  // namespace

BackendMaker owned_backend(std::string name, const DriverMaker &driver, const char *technique,
                           std::uint64_t budget_bytes, const core::TuningSource *tuning, std::string not_run) {
  const auto make = [=] { return std::make_unique<OwnedBackend>(driver, technique, budget_bytes, tuning); };
  return {std::move(name), make, std::move(not_run)};
}

std::vector<BackendMaker> conformance_makers(const std::vector<DriverMaker> &drivers) {
  std::vector<BackendMaker> list = {owned_backend("little_memory", drivers.front(), "tables", 1 << 20)};
  for (const DriverMaker &driver : std::span(drivers).first(drivers.size() > 1 ? 2 : 1))
    for (const char *technique : {"tables", "compiled"})
      list.push_back(owned_backend(driver.name + "_" + technique, driver, technique, 64 << 20));
  return list;
}

void wait_until(const std::function<bool()> &is_so, const char *what) {
  for (unsigned i = 0; i < 6000; ++i) {
    if (is_so()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "after a minute still not: " << what;
}

namespace {

using core::Mode;

// A stripe of the host's memory or the device's.
class Place {
 public:
  Place(AnyDriver &driver, DeviceWay way, Work &work) : driver_(driver), way_(way), work_(work) {
    if (way.on_device) stripe_.emplace(driver, work);
  }
  void reset() {
    work_.reset();
    if (stripe_) stripe_->write();
  }
  void run(core::Backend &backend, const core::Prepared &prepared, Mode mode) {
    core::Control control;
    core::Task task = {&prepared, work_.in.data(), work_.out.data(), 0, work_.bytes, mode, work_.mismatches.data()};
    if (stripe_) task = stripe_->task(prepared, mode);
    const std::vector<core::Task> tasks = way_.is_many ? uneven_slices(task, way_.on_device) : std::vector{task};
    const auto held = stripe_ ? nullptr : driver_.hold(tasks);
    backend.run(tasks, control);
  }
  bool is_right(Mode mode) {
    if (stripe_) stripe_->look();
    return work_.is_right(mode);
  }

 private:
  AnyDriver &driver_;
  const DeviceWay way_;
  Work &work_;
  std::optional<DeviceStripe> stripe_;
};

// A life by the driver and script of this test.
struct TestLife : Life {
  explicit TestLife(const core::Operator &what, std::size_t shard_bytes, const With<> &with = {})
      : Life(DriverTest::GetParam().make(with.script), what, shard_bytes, with) {}
  TestLife(unsigned rows, unsigned columns, std::size_t shard_bytes, const With<> &with = {})
      : TestLife(core::Operator(Work::random_matrix(rows, columns)), shard_bytes, with) {}
};

}  // namespace

DeviceStripe::DeviceStripe(AnyDriver &driver, Work &work, std::uint64_t skew)
    : queue(driver.make_queue()), driver_(driver), work_(work) {
  const std::uint64_t pitch = (work.bytes + skew + 127) / 64 * 64;
  const std::size_t columns = work.in.size(), count = columns + work.out.size();
  const Layout layout = driver.layout();
  for (std::size_t i = 0, slot = 0; i < count; ++i, ++slot) {
    if (layout == Layout::own_buffers || i == 0 || (layout == Layout::two_buffers && i == columns)) {
      slot = 0;
      memory_.push_back(driver.allocate(queue, layout == Layout::own_buffers ? pitch : count * pitch));
    }
    auto *const memory = static_cast<std::byte *>(memory_.back());
    i < columns ? in.push_back(memory) : out.push_back(memory);
    (i < columns ? in_offsets : out_offsets).push_back(slot * pitch + i % 3 * skew / 2);
  }
  write();
}

DeviceStripe::~DeviceStripe() {
  driver_.release_queue(queue);
  for (void *const each : memory_) driver_.release(each);
}

void DeviceStripe::write() {
  driver_.finish(queue);
  for (std::size_t c = 0; c < in.size(); ++c) {
    std::uint8_t *const first = driver_.address(const_cast<std::byte *>(in[c]));
    std::memcpy(first + in_offsets[c], work_.inputs[c].data(), work_.bytes);
  }
  for (std::size_t r = 0; r < out.size(); ++r)
    std::memcpy(driver_.address(out[r]) + out_offsets[r], work_.before[r].data(), work_.bytes);
}

void DeviceStripe::look() {
  for (std::size_t r = 0; r < out.size(); ++r)
    std::memcpy(work_.outputs[r].data(), driver_.address(out[r]) + out_offsets[r], work_.bytes);
}

core::Task DeviceStripe::task(const core::Prepared &prepared, Mode mode) {
  core::Task made = {&prepared, in.data(), out.data(), 0, work_.bytes, mode, work_.mismatches.data()};
  made.memory = driver_.memory();
  made.queue = queue;
  made.input_offsets = in_offsets.data();
  made.output_offsets = out_offsets.data();
  return made;
}

Life::~Life() {
  prepared.reset();
  backend.reset();
  if (!leaves) expect_clean(*driver, "a life");
}

void Life::begin(const core::Operator &what) {
  backend = driver->make(options, heard.log());
  prepared = backend->prepare(what);
  work.reset();
}

core::Task Life::host_task(Mode mode) {
  return {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, mode, work.mismatches.data()};
}

void Life::run(Mode mode, DeviceWay way) {
  Place place(*driver, way, work);
  place.reset();
  place.run(*backend, *prepared, mode);
  EXPECT_TRUE(place.is_right(mode)) << core::name_of(mode) << (way.on_device ? ", device" : ", host");
}

void Life::run(DeviceStripe &stripe, Mode mode) {
  reset(stripe);
  const core::Task task = stripe.task(*prepared, mode);
  backend->run({&task, 1}, control);
  expect(stripe, mode);
}

std::pair<tandem_status, std::string> Life::status(Mode mode) {
  work.reset();
  return status_of([&] { work.run(*backend, *prepared, mode); });
}

std::unique_ptr<core::Ticket> Life::submit(DeviceStripe &stripe, Mode mode) {
  const core::Task task = stripe.task(*prepared, mode);
  return backend->submit({&task, 1}, control);
}

void Life::reset(DeviceStripe &stripe) {
  work.reset();
  stripe.write();
}

void Life::expect(DeviceStripe &stripe, Mode mode) {
  stripe.look();
  EXPECT_TRUE(work.is_right(mode)) << core::name_of(mode);
}

void Life::expect_untouched(DeviceStripe &stripe, const char *why) {
  stripe.look();
  EXPECT_TRUE(work.is_untouched()) << why;
}

namespace {

// ---- faults --------------------------------------------------------------------------------------------------

struct Fault {
  DeviceWay way;
  const char *technique;
  Mode mode;
  Failure failure = Failure::plain;
  bool by_command = false;
};

// A life in which a call, or a command, fails. The first run makes the backend and its plan.
class FaultyLife {
 public:
  FaultyLife(AnyDriver &driver, const Fault &fault, Work &work)
      : driver_(driver), fault_(fault), work_(work), place_(driver, fault.way, work) {
    place_.reset();
  }

  // A failure is a status with the call's name, or it did not matter and the bytes are right.
  void fail(std::uint64_t n) {
    DriverScript script;
    script.failure = fault_.failure;
    (fault_.by_command ? script.failing_command : script.failing_call) = n;
    driver_.set_script(script);
    const auto [status, message] = status_of([&] { run(); });
    failed_call = driver_.counts().failed_call();
    where = "call " + std::to_string(n) + ", " + failed_call + ": " + message;
    count = fault_.by_command ? driver_.counts().command_count() : driver_.counts().call_count();
    is_lost = driver_.is_dead();
    is_status = status != TANDEM_OK;
    driver_.set_script({});
    if (!is_status) {
      ASSERT_TRUE(place_.is_right(fault_.mode)) << where;
      return;
    }
    ASSERT_NE(n, UINT64_MAX) << where;
    const bool is_of_opening = prepared_ == nullptr;
    ASSERT_TRUE(status == TANDEM_ERROR_OUT_OF_MEMORY ||
                ((is_of_opening || fault_.failure != Failure::out_of_memory) &&
                 (status == TANDEM_ERROR_DEVICE || status == TANDEM_ERROR_UNAVAILABLE)))
        << where;
    ASSERT_TRUE(is_of_opening || is_of_compiler() || message.find("failed with") != std::string::npos) << where;
    if (!is_lost) place_.reset();
    run_again();
  }

  std::string failed_call, where;
  std::uint64_t count = 0;
  bool is_status = false, is_lost = false;

 private:
  void run() {
    if (backend_ == nullptr) {
      device::Options options = driver_.options();
      options.technique = fault_.technique;
      options.memory_budget_bytes = 1 << 18;  // several pieces
      options.reference = cpu_reference();
      backend_ = driver_.make(options, heard_.log());
    }
    if (prepared_ == nullptr) prepared_ = backend_->prepare(work_.matrix);
    place_.run(*backend_, *prepared_, fault_.mode);
  }

  // The next run works; or the device is given up, and later calls say so without asking it.
  void run_again() {
    const std::uint64_t calls = driver_.counts().call_count();
    const auto [again, why] = status_of([&] { run(); });
    const bool is_survived = fault_.failure == Failure::out_of_memory || fault_.failure == Failure::of_capture;
    ASSERT_TRUE(!is_survived || (again == TANDEM_OK && !heard_.has("given up"))) << why << ", " << where;
    if (again == TANDEM_OK) {
      ASSERT_FALSE(is_lost) << where;
      ASSERT_TRUE(place_.is_right(fault_.mode)) << "the run after " << where;
    } else if (!is_of_compiler()) {
      is_lost = true;
      if (prepared_ == nullptr) return;
      ASSERT_EQ(again, TANDEM_ERROR_DEVICE) << why << ", " << where;
      ASSERT_NE(why.find("was given up"), std::string::npos) << why << ", " << where;
      ASSERT_EQ(driver_.counts().call_count(), calls) << "a device that was given up was asked";
    }
  }
  bool is_of_compiler() const { return failed_call.starts_with("nvrtc"); }

  AnyDriver &driver_;
  const Fault fault_;
  Work &work_;
  Place place_;
  Heard heard_;
  std::unique_ptr<core::Backend> backend_;
  std::shared_ptr<const core::Prepared> prepared_;
};

// The n-th call, or command, fails, for every n that a life of a backend has: of calls a slice. Nothing is leaked.
void fail_every(const Fault &fault) {
  Work work(3, 5, 10'000);
  Slice slice(fault.by_command ? 1 : 4 * kThinning,
              static_cast<std::uint64_t>(fault.mode) + 3 * static_cast<std::uint64_t>(fault.failure));
  const std::uint64_t step = slice.step();
  std::uint64_t count = 0;
  unsigned statuses = 0, worked = 0;
  for (std::uint64_t n = UINT64_MAX; n == UINT64_MAX || n < count;) {  // first a life without failures
    const auto driver = DriverTest::GetParam().make({});
    std::optional<FaultyLife> life(std::in_place, *driver, fault, work);
    life->fail(n);
    if (n == UINT64_MAX) count = life->count;
    statuses += life->is_status;
    worked += !life->is_status && !life->failed_call.empty();
    const bool is_lost = life->is_lost;
    const std::string where = life->where;
    life.reset();
    if (fault.failure == Failure::of_capture) {  // what cannot be drained is kept
      EXPECT_TRUE(driver->counts().violations().empty()) << where;
    } else if (!is_lost) {
      expect_clean(*driver, where);
    }
    if (testing::Test::HasFailure()) return;
    n = n == UINT64_MAX ? slice.first() : n + step;
  }
  EXPECT_GE(count, fault.by_command ? 1u : 20u);
  if (fault.failure == Failure::out_of_memory && !fault.way.on_device) {
    EXPECT_GE(worked, 3 / step) << "nothing smaller was tried";
  } else if (fault.failure == Failure::plain || fault.failure == Failure::kills) {
    EXPECT_GE(statuses, count / 3 / step) << "of " << count;
  }
  EXPECT_GE(statuses, fault.by_command ? 1 : 10 / step);
}

TEST_P(DeviceFaults, EveryCall) {
  for (const DeviceWay way : kDeviceWays) {
    for (const Mode mode : kModes)
      if (!way.is_many || mode == Mode::assign) fail_every({way, "tables", mode});
    fail_every({way, "compiled", Mode::assign});
  }
}

TEST_P(DeviceFaults, EveryCallInEveryOtherManner) {
  for (const DeviceWay way : kDeviceWays) {
    for (const Failure failure : driver()->failures()) {
      if (failure == Failure::plain || (way.is_many && failure != Failure::kills)) continue;
      if (failure == Failure::kills) fail_every({way, "tables", Mode::assign, failure});
      const bool has_memory = failure == Failure::out_of_memory;
      fail_every({way, "tables", has_memory ? Mode::accumulate : Mode::compare, failure});
    }
  }
}

// As if the device were lost in the middle of a job.
TEST_P(DeviceFaults, EveryCommand) {
  for (const DeviceWay way : kDeviceWays)
    for (const Mode mode : kModes)
      if (!way.is_many || mode == Mode::assign) fail_every({way, "tables", mode, Failure::kills, true});
}

// ---- answers are compared with the CPU ---------------------------------------------------------------------

// One wrong byte of a first answer, or differences that a verify does not see. What the library has not passed on is as
// it was, and nothing asks this device again; another backend may.
TEST_P(DeviceChecks, AWrongFirstAnswerTakesTheDeviceOut) {
  for (const char *technique : {"tables", "compiled"}) {
    for (const DeviceWay way : kDeviceWays) {
      for (const Mode mode : kModes) {
        SCOPED_TRACE(testing::Message() << technique << ", " << core::name_of(mode) << way.on_device << way.is_many);
        TestLife life(2, 3, 20'000,
                      {.script = {.wrong_kernel = 0, .wrong_byte = way.is_many ? 0u : 3000u},
                       .technique = technique,
                       .is_checked = true});
        Place place(*life.driver, way, life.work);
        place.reset();
        const auto [status, message] = status_of([&] { place.run(*life.backend, *life.prepared, mode); });
        EXPECT_EQ(status, TANDEM_ERROR_DEVICE) << message;
        EXPECT_NE(message.find("computes wrongly"), std::string::npos) << message;
        EXPECT_TRUE(life.heard.has("the device is not used any more in this context")) << life.heard.text;
        if (!way.on_device && mode == Mode::accumulate) {
          EXPECT_TRUE(life.work.is_untouched());
        }
        life.driver->set_script({});
        const std::string again = refusal(TANDEM_ERROR_DEVICE, [&] { place.run(*life.backend, *life.prepared, mode); });
        EXPECT_NE(again.find("not used any more in this context"), std::string::npos) << again;
        EXPECT_EQ(refusal(TANDEM_ERROR_DEVICE, [&] { life.backend->prepare(life.work.matrix); }), again);
        EXPECT_EQ(life.counts().call_count(), 0u) << "the device was asked";
        life.begin(life.work.matrix);
        life.run(mode, way);
      }
    }
  }
}

// Once for each kernel of each plan: its later answers are believed, unless all are checked.
TEST_P(DeviceChecks, EachKernelOnceOrEveryAnswer) {
  for (const bool checks_all : {false, true}) {
    for (const bool on_device : {false, true}) {
      for (const Mode mode : kModes) {
        SCOPED_TRACE(testing::Message() << checks_all << core::name_of(mode) << on_device);
        std::atomic<unsigned> checks{0};
        TestLife life(2, 3, 20'000, {.technique = "tables"});
        life.options.reference = cpu_reference([&] { ++checks; });
        life.options.checks_all = checks_all;
        life.begin(life.work.matrix);
        DeviceStripe stripe(*life.driver, life.work);
        const auto checks_of_run = [&] {
          checks = 0;
          on_device ? life.run(stripe, mode) : life.run(mode);
          return checks.load();
        };
        EXPECT_GE(checks_of_run(), 1u);
        EXPECT_EQ(checks_of_run() != 0, checks_all);
        life.prepared = life.backend->prepare(life.work.matrix);
        EXPECT_GE(checks_of_run(), 1u) << "of another plan";
      }
    }
  }
}

// All: one byte far into the shards, in one of many pieces.
TEST_P(DeviceLayer, AWrongByteOfAnyPieceIsSeenIfAllAreChecked) {
  const Values small({{"staging_bytes", 256 << 10}});
  for (const Mode mode : kModes) {
    for (const bool checks_all : {false, true}) {
      TestLife life(4, 3, 150'000,
                    {.script = {.wrong_kernel = 3, .wrong_byte = 30'000},
                     .technique = "tables",
                     .tuning = &small,
                     .is_checked = true,
                     .checks_all = checks_all});
      life.work.before = life.work.product;
      life.work.before.back()[120'000] ^= 1;  // for the compare: in the fourth piece, behind its byte 30,000
      const auto [status, message] = life.status(mode);
      EXPECT_GT(life.driver->calls_of(Call::launch), 3u);
      EXPECT_EQ(status, checks_all ? TANDEM_ERROR_DEVICE : TANDEM_OK) << core::name_of(mode) << message;
    }
  }
}

// A verify that finds nothing in right shards would prove nothing.
TEST_P(DeviceChecks, AVerifyThatSeesNoDifferencesIsFoundOutOnRightShards) {
  TestLife life(2, 3, 20'000, {.technique = "tables", .is_checked = true});
  for (const DeviceWay way : {DeviceWay{}, DeviceWay{.on_device = true}}) {
    life.begin(life.work.matrix);
    life.work.before = life.work.product;
    life.driver->set_script({.wrong_kernel = 0});
    Place place(*life.driver, way, life.work);
    place.reset();
    EXPECT_EQ(status_of([&] { place.run(*life.backend, *life.prepared, Mode::compare); }).first, TANDEM_ERROR_DEVICE)
        << way.on_device;
  }
}

// After a right trial.
TEST_P(DeviceChecks, AWrongVerifyOfTheCallersShardsIsNoticed) {
  TestLife life(2, 3, 20'000, {.script = {.wrong_kernel = 1}, .technique = "tables", .is_checked = true});
  DeviceStripe stripe(*life.driver, life.work);
  EXPECT_EQ(status_of([&] { life.submit(stripe, Mode::compare)->wait(); }).first, TANDEM_ERROR_DEVICE);
}

// The tables of a matrix make way for those of others, and are uploaded again.
TEST_P(DeviceLayer, NewTablesAreCheckedAgain) {
  unsigned checks = 0;
  TestLife life(2, 3, 200, {.technique = "tables"});
  life.options.reference = cpu_reference([&] { ++checks; });
  life.begin(life.work.matrix);
  for (unsigned i = 0; i < 2; ++i) life.run();
  EXPECT_EQ(checks, 1u);
  for (unsigned i = 1; i <= 40; ++i) {
    Work other(2, 3 + i, 200);
    EXPECT_TRUE(other.runs_right(*life.backend, *life.backend->prepare(other.matrix), Mode::assign));
  }
  checks = 0;
  life.run();
  EXPECT_EQ(checks, 1u);
}

TEST_P(DeviceChecks, ACheckHoldsACpu) {
  core::Budget resources;
  resources.set_all("cpu=1");
  const core::Need cpu[] = {{core::Budget::kCpu, 1}};
  unsigned checks = 0;
  for (const bool on_device : {false, true}) {
    TestLife life(2, 3, 20'000);
    life.options.resources = &resources;
    life.options.reference = cpu_reference([&] {
      ++checks;
      EXPECT_FALSE(resources.try_acquire(cpu));
    });
    life.begin(life.work.matrix);
    life.run(Mode::assign, {.on_device = on_device});
    EXPECT_EQ(checks, on_device ? 2u : 1u);
    EXPECT_TRUE(resources.try_acquire(cpu)) << "not given back";
    resources.release(cpu);
    life.prepared.reset();
    life.backend.reset();  // before the resources
  }
}

// In a hybrid the CPU does a wrong piece again.
TEST_P(DeviceChecks, AHybridDoesAWrongPieceAgain) {
  for (const Mode mode : kModes) {
    TestLife life(2, 3, 3'000'000, {.script = {.wrong_kernel = 0, .wrong_byte = 3000}, .is_checked = true});
    hybrid::Options options;
    options.members.resize(2);
    options.members[0] = {.name = "cpu", .backend = cpu_reference(), .is_cpu = true};
    options.policy = hybrid::Policy::budget;
    options.members[1] = {.name = "device", .backend = std::move(life.backend)};
    life.backend = hybrid::make_backend(std::move(options), life.heard.log());
    life.prepared = life.backend->prepare(life.work.matrix);
    for (unsigned i = 0; i < 20 && !life.heard.has("computes wrongly"); ++i)  // until the device takes a piece
      ASSERT_TRUE(life.work.runs_right(*life.backend, *life.prepared, mode)) << core::name_of(mode);
    EXPECT_TRUE(life.heard.has("its work goes to the others")) << life.heard.text;
  }
}

// At each command of a run: pieces that were complete by then are the product, the others are as before.
TEST_P(DeviceLayer, ACancelDrainsAndTheNextRunWorks) {
  std::uint64_t count = 1;
  unsigned cancelled = 0;
  for (std::uint64_t n = 0; n < count; ++n) {
    TestLife life(2, 3, 20'000, {.budget_bytes = 128 << 10});  // several pieces
    core::Control control;
    life.driver->set_script({.cancelling_command = n, .control = &control});
    const core::Task task = life.host_task();
    const tandem_status status = status_of([&] { life.backend->run({&task, 1}, control); }).first;
    if (n == 0) count = 60;
    const Work &work = life.work;
    if (status == TANDEM_OK) {
      EXPECT_TRUE(work.is_right(Mode::assign)) << n;
      count = n;  // the last piece was on its way
    } else {
      ASSERT_EQ(status, TANDEM_ERROR_CANCELLED) << n;
      ++cancelled;
      for (std::size_t r = 0; r < 2; ++r)
        for (std::size_t i = 0; i < work.bytes; ++i)
          ASSERT_TRUE(work.outputs[r][i] == work.product[r][i] || work.outputs[r][i] == work.before[r][i]) << n;
    }
    life.driver->set_script({});
    life.run();
  }
  EXPECT_GE(cancelled, 15u);
}

// ---- shards in device memory ---------------------------------------------------------------------------------

// In every layout. A launch takes the stripes that are aligned, and one takes the others; stripes far longer than the
// rest have several rows.
TEST_P(DeviceShards, EveryModeLengthAndAddress) {
  for (const char *technique : {"tables", "compiled"}) {
    TestLife life(3, 5, 70'003, {.technique = technique, .budget_bytes = 256 << 10});
    const auto other = life.backend->prepare(life.work.matrix);
    for (const std::uint64_t skew : {0, 6}) {
      SCOPED_TRACE(testing::Message() << technique << ", skew " << skew);
      DeviceStripe stripe(*life.driver, life.work, skew);
      for (const Mode mode : kModes) {
        life.reset(stripe);
        const auto ticket = life.submit(stripe, mode);
        ticket->wait();
        ticket->wait();
        life.expect(stripe, mode);
      }
      std::uint8_t inputs[5], outputs[3];
      life.backend->read_column(stripe.task(*life.prepared, Mode::compare), 777, inputs, outputs);
      EXPECT_EQ(inputs[4], life.work.inputs[4][777]);
      EXPECT_EQ(outputs[2], life.work.before[2][777]);
      for (const bool is_cut_anywhere : {false, true}) {
        std::vector<core::Task> tasks = uneven_slices(stripe.task(*life.prepared, Mode::assign), !is_cut_anywhere);
        for (std::size_t i = 0; i < tasks.size(); i += 3) tasks[i].prepared = other.get();
        tasks.insert(tasks.begin() + 5, core::Task{});  // nothing to do
        life.reset(stripe);
        life.driver->set_script({});
        life.backend->submit(tasks, life.control)->wait();
        life.expect(stripe);
        if (life.driver->groups_stripes()) {
          EXPECT_EQ(life.driver->calls_of(Call::launch), skew == 0 && is_cut_anywhere ? 4u : 2u);
        }
        if (HasFailure()) return;
      }
    }
  }
}

// A kernel counts elements in 32 bits: what is longer takes several launches.
TEST_P(DeviceShards, MoreThanALaunchTakesGoesInPieces) {
  TestLife life(3, 5, 30'000);
  life.options.most_launch_bytes = 4096;
  life.begin(life.work.matrix);
  for (const Mode mode : kModes) {
    for (const std::uint64_t skew : {0, 5}) {
      life.work.reset();
      DeviceStripe stripe(*life.driver, life.work, skew);
      const std::uint64_t calls = life.backend->kernel_calls();
      life.submit(stripe, mode)->wait();
      life.expect(stripe, mode);
      EXPECT_EQ(life.backend->kernel_calls() - calls, life.driver->copies_device_shards() ? 1u : 8u);
    }
  }
}

TEST_P(DeviceLayer, TheNumberOfCallsDoesNotGrowWithTheStripes) {
  for (const char *technique : {"tables", "compiled"}) {
    for (const bool on_device : {true, false}) {
      // Calls from the submit to the end of the wait, for stripes that were run before.
      const auto calls_for = [&](unsigned count, bool together) {
        TestLife life(4, 10, std::size_t{count} * 192, {.technique = technique});
        DeviceStripe stripe(*life.driver, life.work);
        const core::Task whole = on_device ? stripe.task(*life.prepared, Mode::assign) : life.host_task();
        const std::vector<core::Task> tasks = slices(whole, count);
        life.backend->submit(tasks, life.control)->wait();
        life.reset(stripe);
        life.driver->set_script({});
        if (together) life.backend->submit(tasks, life.control)->wait();
        for (std::size_t i = 0; i < count && !together; ++i) life.backend->submit({&tasks[i], 1}, life.control)->wait();
        const std::uint64_t calls = life.counts().call_count();
        EXPECT_EQ(life.driver->calls_of(Call::launch), together ? 1u : count);
        if (on_device) stripe.look();
        EXPECT_TRUE(life.work.is_right(Mode::assign)) << technique << ", " << count;
        return calls;
      };
      const std::uint64_t few = calls_for(10, true);
      EXPECT_EQ(calls_for(300, true), few) << technique << (on_device ? ", device" : ", host");
      EXPECT_LE(few, 45u);
      EXPECT_GE(calls_for(10, false), few + 9 * 5) << "one by one it grows: this test can tell";
    }
  }
}

// Memory of the backend's own, which holds the work's shards one behind the other.
struct OwnMemory {
  OwnMemory(core::Backend &backend, Work &of, std::uint64_t pitch)
      : memory(backend.device_memory((of.in.size() + of.out.size()) * pitch)),
        work(of),
        shards(of.in.size() + of.out.size(), static_cast<std::byte *>(memory->shards())) {
    for (std::size_t i = 0; i < shards.size(); ++i) offsets.push_back(i * pitch);
  }
  core::Task task(const core::Prepared &prepared, Mode mode) {
    const std::size_t columns = work.in.size();
    core::Task made = {&prepared, shards.data(), shards.data() + columns, 0, work.bytes, mode, work.mismatches.data()};
    made.memory = memory->kind();
    made.queue = memory->queue();
    made.input_offsets = offsets.data();
    made.output_offsets = offsets.data() + columns;
    return made;
  }

  const std::shared_ptr<core::DeviceMemory> memory;
  Work &work;
  std::vector<std::byte *> shards;
  std::vector<std::uint64_t> offsets;
};

// Any shard that shares a byte with an output is refused. Of many stripes the one at fault is named. No command is
// begun before.
TEST_P(DeviceLayer, ShardsInEachOthersWayAreRefused) {
  TestLife life(2, 3, 5000);
  OwnMemory own(*life.backend, life.work, 5056);
  const std::vector<std::uint64_t> right = own.offsets;
  const struct {
    unsigned shard;
    std::uint64_t offset;
    Mode mode;
    tandem_status status;
    const char *why;
  } cases[] = {{0, 5056, Mode::assign, TANDEM_OK, "inputs may alias"},
               {4, 3 * 5056 + 5000, Mode::assign, TANDEM_OK, "neighbours"},
               {4, 2 * 5056, Mode::compare, TANDEM_OK, "nothing is written"},
               {4, 3 * 5056 + 4999, Mode::accumulate, TANDEM_ERROR_OVERLAP, "output 1"},
               {4, 2 * 5056, Mode::accumulate, TANDEM_ERROR_OVERLAP, "output 1"},
               {2, 4 * 5056, Mode::accumulate, TANDEM_ERROR_OVERLAP, "input 2"},
               {0, 3 * 5056 + 17, Mode::accumulate, TANDEM_ERROR_OVERLAP, "input 0"},
               {4, 5 * 5056 - 4999, Mode::assign, TANDEM_ERROR_INVALID_ARGUMENT, "output 1 "}};
  for (const auto &each : cases) {
    own.offsets[each.shard] = each.offset;
    const core::Task task = own.task(*life.prepared, each.mode);
    const std::uint64_t commands = life.counts().command_count();
    const auto [status, message] = status_of([&] { life.backend->run({&task, 1}, life.control); });
    own.offsets = right;
    EXPECT_EQ(status, each.status) << each.why << ": " << message;
    if (status == TANDEM_OK) continue;
    EXPECT_NE(message.find(each.why), std::string::npos) << message;
    EXPECT_EQ(life.counts().command_count(), commands) << each.why;
  }
  std::vector<core::Task> tasks = slices(own.task(*life.prepared, Mode::assign), 5);
  const std::vector<std::uint64_t> huge(5, UINT64_MAX - 10);
  tasks[3].input_offsets = huge.data();
  const std::uint64_t commands = life.counts().command_count();
  const std::string why = refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { life.backend->submit(tasks, life.control); });
  EXPECT_TRUE(why.starts_with(std::string("stripe 3 of 5: ") + life.driver->label() + ": input 0 ")) << why;
  EXPECT_EQ(life.counts().command_count(), commands);
}

// ---- memory ------------------------------------------------------------------------------------------------

// The conformance suite has every sequence of shapes. A lower budget holds from the next run on: what was kept goes
// when room is needed.
TEST_P(DeviceLayer, TheBudgetMayChange) {
  core::Budget resources;
  TestLife life(20, 20, 50'000);
  Work other(3, 40, 50'000);
  life.options.resources = &resources;
  resources.set_all(std::string(life.driver->resource()) + "=3");
  life.begin(life.work.matrix);
  for (const std::uint64_t most : {3 << 20, 1 << 20}) {
    resources.set(life.driver->resource(), most >> 20);
    EXPECT_TRUE(other.runs_right(*life.backend, *life.backend->prepare(other.matrix), Mode::assign));
    EXPECT_LE(life.counts().device_bytes(), most);
    life.driver->set_script({});  // the peak begins again
    for (const Mode mode : kModes) life.run(mode);
    EXPECT_LE(life.counts().most_device_bytes(), most);
    EXPECT_GT(life.counts().most_device_bytes(), most / 8);
  }
}

// Runs one after the other use one lane of two. Its buffers have its share of the budget after every change of shape.
TEST_P(DeviceLayer, ALaneHoldsItsShareOverShapes) {
  constexpr std::uint64_t kBudget =
      600'000;  // 100'000 for each of six slots; buffers of 64 KiB fill half of one and more
  TestLife life(2, 60, 50'000, {.technique = "compiled", .budget_bytes = kBudget});
  Work other(60, 2, 50'000);
  for (Work *const work : {&life.work, &other, &life.work}) {
    EXPECT_TRUE(work->runs_right(*life.backend, *life.backend->prepare(work->matrix), Mode::assign));
    EXPECT_LE(life.counts().most_device_bytes(), kBudget / 2);
    EXPECT_GT(life.counts().most_device_bytes(), kBudget / 8);
  }
}

TEST_P(DeviceLayer, TooLittleForOneLineOfEachShardIsAClearError) {
  TestLife life(4, 10, 3000, {.technique = "compiled", .budget_bytes = 4096});
  const auto [status, message] = life.status();
  EXPECT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(message.find("4096 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("14 shards"), std::string::npos) << message;
}

// Records are counted for what they need: a tile that is larger than a piece does not cut it to single lines.
TEST_P(DeviceLayer, LargeTilesDoNotMakeSmallPieces) {
  TestLife life(2, 3, 50'000, {.budget_bytes = 1 << 20});
  life.prepared = life.backend->tunable()->prepare_tuned(
      life.work.matrix, {{"local_x", 256}, {"element_bytes", 16}, {"elements_per_item", 64}});
  life.run(Mode::compare);
  EXPECT_LE(life.driver->calls_of(Call::launch), 6u);
  EXPECT_LE(life.counts().most_device_bytes(), std::uint64_t{1} << 20);
}

// Memory for programs that use no driver themselves. Any of its calls may fail: that is a status, nothing is left
// behind, and the next one works.
TEST_P(DeviceLayer, MemoryOfTheBackendsOwn) {
  bool is_reached = true;
  for (std::uint64_t n = UINT64_MAX; is_reached && !HasFailure(); ++n) {
    TestLife life(2, 3, 50'003);
    Work &work = life.work;
    const auto use = [&](Mode mode) {
      OwnMemory own(*life.backend, work, 50'048);
      core::DeviceMemory &memory = *own.memory;
      work.reset();
      for (unsigned i = 0; i < 5; ++i) memory.write(own.offsets[i], i < 3 ? work.in[i] : work.out[i - 3], work.bytes);
      const core::Task task = own.task(*life.prepared, mode);
      life.backend->run({&task, 1}, life.control);
      for (unsigned r = 0; r < 2; ++r) memory.read(own.offsets[3 + r], work.out[r], work.bytes);
      std::uint8_t inputs[3], outputs[2];
      life.backend->read_column(task, 17, inputs, outputs);
      EXPECT_EQ(inputs[2], work.inputs[2][17]);
      EXPECT_EQ(outputs[1], work.outputs[1][17]);
      EXPECT_TRUE(work.is_right(mode)) << core::name_of(mode) << ", call " << n;
    };
    if (n == UINT64_MAX) {
      for (const Mode mode : kModes) use(mode);
      for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1} << 60})
        EXPECT_NE(status_of([&] { life.backend->device_memory(bytes); }).first, TANDEM_OK);
    } else {
      life.driver->set_script({.failing_call = n});
      const tandem_status status = status_of([&] { use(Mode::assign); }).first;
      is_reached = !life.counts().failed_call().empty();
      EXPECT_TRUE(is_reached || status == TANDEM_OK) << n;
      life.driver->set_script({});
      use(Mode::assign);
    }
  }
}

// Each byte is copied once each way by the copier; and a device that is done when it is first asked lets no thread
// sleep.
TEST_P(DeviceLayer, StagingCopiesEachByteOnceAndLooksBeforeItSleeps) {
  const Values small({{"staging_bytes", 64 << 10}});
  for (const bool is_done_when_asked : {false, true}) {
    for (const Mode mode : kModes) {
      const auto copier = std::make_shared<CountingCopier>();
      TestLife life(2, 3, 200'000,
                    {.script = {.is_done_when_asked = is_done_when_asked},
                     .technique = "tables",
                     .tuning = &small,
                     .copier = copier});
      life.run(mode);
      EXPECT_EQ(copier->copied_bytes, 5 * life.work.bytes);
      const std::uint64_t pieces = life.driver->calls_of(Call::launch);
      EXPECT_GT(pieces, 10u);
      EXPECT_EQ(copier->run_count, 2 * pieces);
      EXPECT_GE(life.driver->calls_of(Call::look), pieces);
      if (!is_done_when_asked) continue;
      EXPECT_EQ(life.driver->calls_of(Call::look), pieces);
      life.run(mode, {.on_device = true});
      EXPECT_EQ(life.counts().sleep_count(), 0u);
    }
  }
}

// A run waits until all that its task holds is free, and runs nothing before; what holds the units for it may switch
// that off.
TEST_P(DeviceLayer, ARunHoldsAGpuAndWhatItsControlSays) {
  for (const bool holds_units : {true, false}) {
    TestLife life(2, 10, 50'000);
    core::Budget resources;
    resources.set_all("gpu=1,app.widgets=2");
    life.options.resources = &resources;
    life.options.holds_units = holds_units;
    life.begin(life.work.matrix);
    const core::Need gpu[] = {{core::Budget::kGpu, 1}}, widgets[] = {{resources.index("app.widgets"), 2}},
                     too_many[] = {{widgets[0].resource, 3}};
    const core::Task task = life.host_task();
    for (const std::span<const core::Need> taken : {std::span(gpu), std::span(widgets)}) {
      life.work.reset();
      resources.acquire(taken);
      std::atomic<bool> is_over{false};
      std::thread caller([&] {
        core::Control control(widgets);
        life.backend->run({&task, 1}, control);
        is_over = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      if (holds_units) {
        EXPECT_FALSE(is_over.load());
        EXPECT_TRUE(life.work.is_untouched());
        resources.release(taken);
      }
      caller.join();
      EXPECT_TRUE(life.work.is_right(Mode::assign));
      if (!holds_units) resources.release(taken);
      for (const std::span<const core::Need> each : {std::span(gpu), std::span(widgets)}) {
        EXPECT_TRUE(resources.try_acquire(each)) << "not given back";
        resources.release(each);
      }
    }
    core::Control control(too_many);
    const auto [status, message] = status_of([&] { life.backend->run({&task, 1}, control); });
    EXPECT_EQ(status, holds_units ? TANDEM_ERROR_INVALID_ARGUMENT : TANDEM_OK);
    EXPECT_EQ(message.find("needs 3 of resource \"app.widgets\"") != std::string::npos, holds_units) << message;
    life.prepared.reset();
    life.backend.reset();  // before the resources
  }
}

// ---- devices -----------------------------------------------------------------------------------------------

// Nothing is asked before the first call.
TEST_P(DeviceLayer, DevicesAreChosenByName) {
  const auto driver = this->driver({.device_count = 3});
  const auto chosen = [&](const std::string &name) {
    device::Options options = driver->options();
    options.device = name;
    driver->set_script({.device_count = 3});
    const auto backend = driver->make(options, {});
    EXPECT_EQ(backend->traits().name, name);
    EXPECT_EQ(backend->traits().lanes, 2u);
    EXPECT_EQ(driver->counts().call_count(), 0u);
    backend->prepare(core::Matrix(1, 1));
    return backend->traits().name;
  };
  EXPECT_EQ(chosen(driver->options().device), driver->device_name(0));
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(chosen(driver->device_name(i)), driver->device_name(i));
  const std::string why = refusal(TANDEM_ERROR_UNAVAILABLE, [&] { chosen(driver->device_name(3)); });
  for (unsigned i = 0; i < 3; ++i) EXPECT_NE(why.find(driver->device_name(i)), std::string::npos) << why;
  EXPECT_EQ(driver->listed_devices(), 3u);
  device::Options options = driver->options();
  options.technique = "avx2";
  EXPECT_EQ(status_of([&] { driver->make(options, {}); }).first, TANDEM_ERROR_UNAVAILABLE);
}

TEST_P(DeviceLayer, TwoDevicesAtOnce) {
  const auto driver = this->driver({.device_count = 2});
  std::vector<std::thread> threads;
  std::vector<int> right(2, 0);
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      device::Options options = driver->options();
      options.device = driver->device_name(t);
      const auto backend = driver->make(options, {});
      Work work(2 + t, 6, 50'000);
      const auto prepared = backend->prepare(work.matrix);
      for (unsigned round = 0; round < 10; ++round)
        right[t] += work.runs_right(*backend, *prepared, round % 2 == 0 ? Mode::assign : Mode::accumulate);
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(2, 10));
  expect_clean(*driver, "two devices");
}

// ---- the choice of kernels -----------------------------------------------------------------------------------------

const char *technique_of(const core::Prepared &prepared) { return prepared.techniques().front().name; }

// Tables until the bytes pay, also bytes that other backends ran; then compiled, and at once for others with the same
// matrix.
TEST_P(DeviceLayer, TheTechniqueFollowsTheBytes) {
  const Values threshold({{"compile_after_bytes", 30'000}, {"element_bytes", 5}});
  for (const auto &[on_device, elsewhere] :  // bytes
       {std::pair(false, 0u), std::pair(true, 0u), std::pair(false, 17'999u), std::pair(false, 18'000u)}) {
    TestLife life(2, 4, 3000, {.tuning = &threshold});  // 12,000 bytes a run
    DeviceStripe stripe(*life.driver, life.work);
    const auto run = [&, is_on_device = on_device] { is_on_device ? life.run(stripe) : life.run(); };
    EXPECT_STREQ(technique_of(*life.prepared), "tables, then compiled");
    life.prepared->add_bytes_elsewhere(elsewhere);
    for (unsigned i = 0; i < (elsewhere == 0 ? 2 : 1); ++i) {
      run();
      EXPECT_EQ(life.heard.has("until the compile is done"), elsewhere == 18'000) << i;
      EXPECT_FALSE(life.heard.has("technique compiled")) << i;
      EXPECT_STREQ(technique_of(*life.prepared), "tables");
    }
    wait_until([&] { return run(), life.heard.has("technique compiled: "); }, "compiled");
    EXPECT_STREQ(technique_of(*life.prepared), "compiled");
    const std::uint64_t compiles = life.compiles();
    EXPECT_LE(compiles, 2u) << "tables, where the library has none, and the matrix";
    EXPECT_EQ(life.heard.has("technique tables: 12000 bytes through this matrix do not pay for a compile (from 30000)"),
              elsewhere == 0);
    EXPECT_TRUE(life.heard.has("tuning value left out: element_bytes = 5"));
    life.prepared = life.backend->prepare(life.work.matrix);
    run();
    EXPECT_EQ(life.compiles(), compiles);
    EXPECT_TRUE(life.heard.has("technique compiled: it is in the cache"));
  }
}

// The text of a matrix is written when it is built, not to ask whether it is there.
TEST_P(DeviceLayer, TextsAreWrittenToBeBuilt) {
  std::atomic<unsigned> written{0};
  TestLife life(2, 3, 500);
  life.options.generate = [&, generate = life.options.generate](const core::Matrix &matrix,
                                                                const device::KernelSpec &spec) {
    ++written;
    return generate(matrix, spec);
  };
  life.begin(life.work.matrix);
  life.run();
  const auto runs_right = [&](const core::Matrix &matrix) {
    Work work(matrix, 500);
    return work.runs_right(*life.backend, *life.backend->prepare(matrix), Mode::assign);
  };
  const unsigned before = written;
  for (unsigned columns = 4; columns < 9; ++columns) EXPECT_TRUE(runs_right(Work::random_matrix(3, columns)));
  EXPECT_EQ(written, before);
  life.options.technique = "compiled";  // two matrices of one shape are two programs
  life.begin(life.work.matrix);
  for (const std::uint8_t value : {1, 2}) {
    core::Matrix matrix(1, 1);
    matrix.at(0, 0) = value;
    const unsigned written_before = written;
    EXPECT_TRUE(runs_right(matrix)) << unsigned{value};
    if (value == 2) {
      EXPECT_EQ(written, written_before + 1);
    }
  }
}

// Entries measured with one technique alone are not used if both techniques are possible.
TEST_P(DeviceLayer, AForcedTechniqueIsPartOfTheIdentity) {
  const auto driver = this->driver();
  const auto identity = [&](const char *technique) {
    return driver->make(technique)->tunable()->tuning_identity().driver;
  };
  const auto has_switch_over = [&](const char *technique) {
    const auto parameters = driver->make(technique)->tunable()->tuning_parameters(4, 10, Mode::assign);
    return std::ranges::any_of(parameters, &core::TuningParameter::is_switch_over);
  };
  EXPECT_TRUE(has_switch_over(""));
  EXPECT_EQ(identity("auto"), identity(""));
  for (const char *technique : {"tables", "compiled", "transform"}) {
    EXPECT_EQ(identity(technique), identity("") + ", technique " + technique);
    EXPECT_FALSE(has_switch_over(technique));
    EXPECT_STREQ(technique_of(*driver->make(technique)->prepare(Work(2, 3, 1).matrix)),
                 std::string_view(technique) == "tables" ? "tables" : "compiled");
  }
}

// What was measured on the device's memory says how the kernel is made, and what was measured on the host's the rest.
TEST_P(DeviceLayer, ValuesOfBothKindsOfMemory) {
  struct Source final : core::TuningSource {
    core::TuningChoice find(const core::TuningQuery &query) const override {
      if (query.on_device && knows_device)
        return {{{"element_bytes", 4}, {"local_x", 32}, {"staging_bytes", 3 << 20}}, "of the device"};
      if (!query.on_device && knows_host)
        return {{{"element_bytes", 16}, {"rows_per_pass", 1}, {"staging_bytes", 2 << 20}}, "of the host"};
      return {};
    }
    bool knows(const core::TuningIdentity &) const override { return knows_device || knows_host; }
    bool knows_device = true, knows_host = true;
  };
  const auto said = [&](bool knows_device, bool knows_host, std::initializer_list<const char *> parts) {
    Source source;
    source.knows_device = knows_device;
    source.knows_host = knows_host;
    TestLife life(3, 4, 1000, {.tuning = &source});
    life.run();
    for (const char *part : parts) EXPECT_TRUE(life.heard.has(part)) << part << "\n" << life.heard.text;
  };
  said(true, true,
       {"local 32x1x1, element_bytes 4, ", "staging_bytes 2097152", "(of the device; transfers of the host)"});
  said(false, true, {"element_bytes 16, elements_per_item 1, rows_per_pass 1"});
  said(true, false, {"element_bytes 4"});
  said(false, false, {"is ignored: no entry of the tuning file was measured on", "(built-in)"});
}

// A local size that a kernel does not run is halved, and the log says so once; as a forced value it is an error, unless
// it is the built-in one.
TEST_P(DeviceLayer, LocalSizesFitTheKernel) {
  TestLife life(2, 4, 10'000, {.script = {.most_group_items = 32}});
  const std::string &heard = life.heard.text;
  for (unsigned run = 0; run < 2; ++run) {
    life.run();
    EXPECT_TRUE(life.heard.has("32x1x1 instead")) << heard;
    EXPECT_EQ(heard.find("instead"), heard.rfind("instead")) << "said once: " << heard;
  }
  const auto forced_status = [&](const core::TuningValues &values) {
    life.work.reset();
    return status_of([&] {
      life.work.run(*life.backend, *life.backend->tunable()->prepare_tuned(life.work.matrix, values), Mode::assign);
    });
  };
  EXPECT_NE(forced_status({{"local_x", 64}}).second.find("64x1x1"), std::string::npos);
  for (const auto &[name, value, status] :
       {std::tuple("local_x", 64u, TANDEM_ERROR_UNAVAILABLE), std::tuple("local_x", 2048u, TANDEM_ERROR_UNAVAILABLE),
        std::tuple("element_bytes", 12u, TANDEM_ERROR_INVALID_ARGUMENT),
        std::tuple("element_bytes", 128u, TANDEM_ERROR_INVALID_ARGUMENT)})
    EXPECT_EQ(forced_status({{name, value}}).first, status) << name;
  EXPECT_EQ(forced_status({{"local_x", 8}, {"local_y", 4}}).first, TANDEM_OK);
  EXPECT_EQ(forced_status({}).first, TANDEM_OK);
  EXPECT_TRUE(life.work.is_right(Mode::assign));
}

// Technique transform takes the place of a compiled matrix for wide codes, if a value says so or the caller. It is left
// where its work-groups of 128 items do not run.
TEST_P(DeviceLayer, TransformsOfWideCodes) {
  const core::Operator what(transform_of(points_from(0, 13), points_from(13, 16)));
  const struct {
    const char *technique;
    core::TuningValues values;
    int most_group_items;
    const char *says, *is;
  } cases[] = {
      {"", {{"transform", 1}}, 256, "technique transform: made ready", "transform"},
      {"", {{"transform", 0}}, 256, "technique compiled: made ready", "compiled"},
      {"compiled", {}, 256, "technique compiled: as asked", "compiled"},
      {"tables", {}, 256, "technique tables: as asked", "tables"},
      {"transform", {{"transform", 0}}, 256, "technique transform: as asked", "transform"},
      {"transform", {}, 256, "technique transform: as asked", "transform"},
      {"", {{"transform", 1}}, 64, "technique transform is left: work-groups of 128 items, at most 64", "compiled"},
      {"transform", {}, 64, "technique compiled: technique transform does not do this operator here", "compiled"},
  };
  for (const auto &each : cases) {
    SCOPED_TRACE(each.says);
    const Values source(each.values);
    TestLife life(what, 40'009,
                  {.script = {.most_group_items = each.most_group_items},
                   .technique = each.technique,
                   .tuning = each.values.empty() ? nullptr : &source});
    life.backend->make_ready(*life.prepared, Mode::assign, core::MemoryKind::host, true);
    for (const DeviceWay way : kDeviceWays)
      for (const Mode mode : kModes)
        if (!way.is_many || mode == Mode::assign) life.run(mode, way);
    EXPECT_TRUE(life.heard.has(each.says)) << life.heard.text;
    EXPECT_STREQ(technique_of(*life.prepared), each.is);
  }
}

// ---- programs on disk, and in a child ------------------------------------------------------------------------------

// Another process finds them, even below the switch-over; another device does not. One that the driver does not take
// any more is removed, and made from its text.
TEST_P(DeviceLayer, ProgramsAreKeptOnDisk) {
  char name[] = "/tmp/tandem-programs-XXXXXX";
  const std::string folder = mkdtemp(name), programs = folder + "/a/b";
  const DriverScript other = {.is_another_model = true}, refusing = {.refuses_binaries = true};
  const struct {
    const char *technique;
    DriverScript script;
    bool has_folder;
    std::uint64_t least, most;  // compiles
    const char *why;
  } lives[] = {{"compiled", {}, true, 1, 1, "the first"},
               {"", {}, true, 0, 0, "from the first byte on"},
               {"compiled", other, true, 1, 1, "another device, another key"},
               {"compiled", {}, false, 1, 1, "no folder: memory only"},
               {"compiled", {}, true, 0, 0, "still there"},
               {"", refusing, true, 1, 9, "removed, and made again"},
               {"compiled", {}, true, 0, 1, "a driver that refused all programs left none"},
               {"compiled", {}, true, 0, 0, "the entry was renewed"}};
  for (const auto &each : lives) {
    TestLife life(2, 4, 3000,
                  {.script = each.script,
                   .technique = each.technique,
                   .cache_folder = each.has_folder ? programs : std::string()});
    life.run();
    const bool refuses = each.script.refuses_binaries;
    EXPECT_EQ(life.heard.has("refuses a program from the cache"), refuses) << life.heard.text;
    EXPECT_TRUE(refuses || technique_of(*life.prepared) == std::string_view("compiled")) << each.why;
    EXPECT_GE(life.compiles(), each.least) << each.why;
    EXPECT_LE(life.compiles(), each.most) << each.why;
  }
  EXPECT_EQ(std::filesystem::status(programs).permissions(), std::filesystem::perms::owner_all);
  std::filesystem::remove_all(folder);
}

TEST_P(DeviceLayer, AChildIsRefused) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  const auto driver = this->driver();
  base::fork_generation();
  auto backend = driver->make("tables");
  Work work(1, 2, 100);
  auto prepared = backend->prepare(work.matrix);
  work.run(*backend, *prepared, Mode::assign);
  DeviceStripe stripe(*driver, work);
  const core::Task task = stripe.task(*prepared, Mode::assign);
  core::Control control;
  auto unfinished = backend->submit({&task, 1}, control);
  auto other = driver->make("tables");  // memory, and a plan, that outlive it
  auto kept = other->prepare(work.matrix);
  work.run(*other, *kept, Mode::assign);
  auto memory = other->device_memory(4096);
  other.reset();
  const std::uint64_t calls = driver->counts().call_count();
  const std::vector<std::string> left = driver->problems();  // the objects that are there
  const pid_t child = fork();
  if (child == 0) {
    bool is_good = status_of([&] { work.run(*backend, *prepared, Mode::assign); }).first == TANDEM_ERROR_DEVICE;
    is_good = is_good && driver->listed_devices() == 0;
    memory.reset();
    kept.reset();
    unfinished.reset();
    prepared.reset();
    backend.reset();
    _exit(is_good && driver->counts().call_count() == calls && driver->problems() == left ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  unfinished->wait();
  work.reset();
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(work.is_right(Mode::assign));
}

}  // namespace
}  // namespace tandem::test
