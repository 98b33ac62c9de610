// SPDX-License-Identifier: Apache-2.0
#include "tests/device/driver_suite.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/fork.hpp"
#include "core/budget.hpp"
#include "core/host_copies.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/thinned.hpp"

namespace tandem::test {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceFaults);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceLayer);

// The real drivers' conformance has the forms.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FormConformance);

namespace {

// A backend that owns its driver, which the backends of a test share: there can be one in a process.
class OwnedBackend final : public core::Backend {
 public:
  OwnedBackend(const DriverMaker &maker, const char *technique, std::uint64_t budget_bytes) {
    static std::weak_ptr<AnyDriver> last;
    driver_ = last.lock();
    if (driver_ == nullptr) last = driver_ = maker.make({});
    backend_ = driver_->make(technique, {}, budget_bytes);
  }
  const core::Traits &traits() const noexcept override { return backend_->traits(); }
  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override { return backend_->prepare(what); }
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    const auto held = driver_->hold(tasks);
    backend_->run(tasks, control);
  }

 private:
  std::shared_ptr<AnyDriver> driver_;
  std::unique_ptr<core::Backend> backend_;
};

}  // namespace

std::vector<BackendMaker> conformance_makers(const std::vector<DriverMaker> &drivers) {
  std::vector<BackendMaker> list;
  const auto add = [&](const DriverMaker &driver, std::string name, const char *technique, std::uint64_t budget_bytes) {
    list.push_back(
        {std::move(name), [=] { return std::make_unique<OwnedBackend>(driver, technique, budget_bytes); }, ""});
  };
  for (const DriverMaker &driver : std::span(drivers).first(2))
    for (const char *technique : {"tables", "compiled"}) add(driver, driver.name + "_" + technique, technique, 0);
  add(drivers.front(), "little_memory", "tables", 1 << 20);
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

constexpr Mode kModes[] = {Mode::assign, Mode::accumulate, Mode::compare};

void expect_clean(const AnyDriver &driver, const std::string &after) {
  for (const std::string &each : driver.problems()) ADD_FAILURE() << each << ", after " << after;
}

// The ways of a task through a backend. many: cut into many stripes.
struct Way {
  bool on_device, is_many;
};
constexpr Way kWays[] = {{false, false}, {true, false}, {false, true}, {true, true}};

// A stripe of the host's memory or the device's.
class Place {
 public:
  Place(AnyDriver &driver, Way way, Work &work) : driver_(driver), way_(way), work_(work) {
    if (way.on_device) stripe_ = driver.on_device(work, 0);
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
    if (stripe_) stripe_->read();
    return work_.is_right(mode);
  }

 private:
  AnyDriver &driver_;
  const Way way_;
  Work &work_;
  std::unique_ptr<DeviceStripe> stripe_;
};

// The n-th call, or command, fails, for every n that a life of a backend has: each time that is a status with the
// call's name, or it did not matter and the bytes are right. Nothing is leaked, and the next run works; or the device
// is given up, and later calls say so without asking it.
void fail_every(const DriverMaker &maker, Way way, const char *technique, Mode mode, bool by_command, bool kills) {
  Work work(3, 5, 10'000);
  std::uint64_t count = 0;
  unsigned statuses = 0;
  const unsigned step = by_command ? 1 : kThinning;
  for (std::uint64_t n = UINT64_MAX; n == UINT64_MAX || n < count;) {  // first a life without failures
    const auto driver = maker.make({});
    bool is_lost = false;
    std::string where;
    {
      Place place(*driver, way, work);
      place.reset();
      std::unique_ptr<core::Backend> backend;
      std::shared_ptr<const core::Prepared> prepared;
      const auto life = [&] {
        if (backend == nullptr) backend = driver->make(technique, {}, 1 << 18);  // several pieces
        if (prepared == nullptr) prepared = backend->prepare(work.matrix);
        place.run(*backend, *prepared, mode);
      };
      DriverScript script;
      script.kills = kills;
      (by_command ? script.failing_command : script.failing_call) = n;
      driver->set_script(script);
      const auto [status, message] = status_of(life);
      where = "call " + std::to_string(n) + ", " + driver->counts().failed_call() + ": " + message;
      const bool is_dead = driver->is_dead(), is_of_compiler = driver->counts().failed_call().starts_with("nvrtc");
      if (n == UINT64_MAX) {
        ASSERT_EQ(status, TANDEM_OK) << where;
        count = by_command ? driver->counts().command_count() : driver->counts().call_count();
      }
      driver->set_script({});
      if (status == TANDEM_OK) {
        ASSERT_TRUE(place.is_right(mode)) << where;
      } else {
        ++statuses;
        ASSERT_TRUE(status == TANDEM_ERROR_DEVICE || status == TANDEM_ERROR_OUT_OF_MEMORY ||
                    status == TANDEM_ERROR_UNAVAILABLE)
            << where;
        ASSERT_TRUE(prepared == nullptr || is_of_compiler || message.find("failed with") != std::string::npos) << where;
        if (!is_dead) place.reset();
        const std::uint64_t calls = driver->counts().call_count();
        const auto [again, why] = status_of(life);
        if (again == TANDEM_OK) {
          ASSERT_FALSE(is_dead) << where;
          ASSERT_TRUE(place.is_right(mode)) << "the run after " << where;
        } else if (!is_of_compiler) {
          ASSERT_EQ(again, prepared != nullptr ? TANDEM_ERROR_DEVICE : again) << why << ", " << where;
          ASSERT_TRUE(prepared == nullptr || why.find("was given up") != std::string::npos) << why << ", " << where;
          ASSERT_TRUE(prepared == nullptr || driver->counts().call_count() == calls)
              << "a device that was given up was asked";
          is_lost = true;
        }
      }
      is_lost = is_lost || is_dead;
    }
    if (!is_lost) expect_clean(*driver, where);
    if (testing::Test::HasFailure()) return;
    n = n == UINT64_MAX ? static_cast<unsigned>(mode) % step : n + step;
  }
  EXPECT_GE(count, by_command ? 1u : 20u);
  EXPECT_GT(statuses, count / 2 / step) << "of " << count;
}

TEST_P(DeviceFaults, EveryCall) {
  for (const Way way : kWays) {
    for (const Mode mode : kModes)
      if (!way.is_many || mode == Mode::assign) fail_every(GetParam(), way, "tables", mode, false, false);
    fail_every(GetParam(), way, "compiled", Mode::assign, false, false);
    fail_every(GetParam(), way, "tables", Mode::assign, false, true);
    fail_every(GetParam(), way, "tables", Mode::compare, false, true);
  }
}

// As if the device were lost in the middle of a job.
TEST_P(DeviceFaults, EveryCommand) {
  for (const Way way : kWays)
    for (const Mode mode : kModes)
      if (!way.is_many || mode == Mode::assign) fail_every(GetParam(), way, "tables", mode, true, true);
}

// At each command of a run: pieces that were complete by then are the product, the others are as before.
TEST_P(DeviceLayer, ACancelDrainsAndTheNextRunWorks) {
  Work work(2, 3, 20'000);
  std::uint64_t count = 1;
  unsigned cancelled = 0;
  for (std::uint64_t n = 0; n < count; ++n) {
    const auto driver = this->driver();
    {
      const auto backend = driver->make("", {}, 128 << 10);  // several pieces
      const auto prepared = backend->prepare(work.matrix);
      core::Control control;
      DriverScript script;
      script.cancelling_command = n;
      script.control = &control;
      driver->set_script(script);
      work.reset();
      const core::Task task = {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
      const tandem_status status = status_of([&] { backend->run({&task, 1}, control); }).first;
      if (n == 0) count = 60;
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
      driver->set_script({});
      work.run(*backend, *prepared, Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign)) << n;
    }
    expect_clean(*driver, "a cancel at command " + std::to_string(n));
  }
  EXPECT_GE(cancelled, 15u);
}

// ---- many stripes --------------------------------------------------------------------------------------------

TEST_P(DeviceLayer, TheNumberOfCallsDoesNotGrowWithTheStripes) {
  for (const char *technique : {"tables", "compiled"}) {
    for (const bool on_device : {true, false}) {
      // Calls from the submit to the end of the wait, for stripes that were run before.
      const auto calls_for = [&](unsigned count, bool together) {
        const auto driver = this->driver();
        Work work(4, 10, std::size_t{count} * 192);
        const auto backend = driver->make(technique);
        const auto prepared = backend->prepare(work.matrix);
        const auto stripe = driver->on_device(work, 0);
        core::Task task = {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
        if (on_device) task = stripe->task(*prepared, Mode::assign);
        const std::vector<core::Task> tasks = slices(task, count);
        core::Control control;
        backend->submit(tasks, control)->wait();
        work.reset();
        stripe->write();
        driver->set_script({});
        if (together) backend->submit(tasks, control)->wait();
        for (std::size_t i = 0; i < tasks.size() && !together; ++i) backend->submit({&tasks[i], 1}, control)->wait();
        const std::uint64_t calls = driver->counts().call_count();
        EXPECT_EQ(driver->calls_of(Call::launch), together ? 1u : count);
        if (on_device) stripe->read();
        EXPECT_TRUE(work.is_right(Mode::assign)) << technique << ", " << count;
        return calls;
      };
      const std::uint64_t few = calls_for(10, true);
      EXPECT_EQ(calls_for(300, true), few) << technique << (on_device ? ", device" : ", host");
      EXPECT_LE(few, 45u);
      EXPECT_GE(calls_for(10, false), few + 9 * 5) << "one by one it grows: this test can tell";
    }
  }
}

// A launch for the stripes that are aligned, and one for the others; stripes far longer than the rest have several
// rows. A stripe at fault is named, before any command.
TEST_P(DeviceLayer, StripesOfEveryLengthAndAddress) {
  const auto driver = this->driver();
  {
    Work work(3, 5, 70'003);
    for (const char *technique : {"tables", "compiled"}) {
      const auto backend = driver->make(technique);
      const auto prepared = backend->prepare(work.matrix), other = backend->prepare(work.matrix);
      for (const std::uint64_t skew : {0, 6}) {
        const auto stripe = driver->on_device(work, skew);
        for (const bool is_cut_anywhere : {false, true}) {
          std::vector<core::Task> tasks = uneven_slices(stripe->task(*prepared, Mode::assign), !is_cut_anywhere);
          for (std::size_t i = 0; i < tasks.size(); i += 3) tasks[i].prepared = other.get();
          tasks.insert(tasks.begin() + 5, core::Task{});  // nothing to do
          work.reset();
          stripe->write();
          driver->set_script({});
          core::Control control;
          backend->submit(tasks, control)->wait();
          stripe->read();
          ASSERT_TRUE(work.is_right(Mode::assign)) << technique << ", cut anywhere: " << is_cut_anywhere;
          EXPECT_EQ(driver->calls_of(Call::launch), skew == 0 && is_cut_anywhere ? 4u : 2u);
        }
      }
      const auto stripe = driver->on_device(work, 0);
      std::vector<core::Task> tasks = slices(stripe->task(*prepared, Mode::assign), 5);
      const std::vector<std::uint64_t> huge(8, UINT64_MAX - 10);
      tasks[3].input_offsets = huge.data();
      const std::uint64_t commands = driver->counts().command_count();
      core::Control control;
      const auto [status, message] = status_of([&] { backend->submit(tasks, control); });
      EXPECT_EQ(status, TANDEM_ERROR_INVALID_ARGUMENT);
      EXPECT_TRUE(message.starts_with(std::string("stripe 3 of 5: ") + driver->label() + ": input 0 ")) << message;
      EXPECT_EQ(driver->counts().command_count(), commands);
    }
  }
  expect_clean(*driver, "many stripes");
}

// Any shard that shares a byte with an output is refused; so is a task without a queue's driver.
TEST_P(DeviceLayer, OverlapsAreRefused) {
  const auto driver = this->driver();
  {
    Work work(2, 3, 5000);
    const auto backend = driver->make();
    const auto prepared = backend->prepare(work.matrix);
    const auto memory = backend->device_memory(5 * 5056);
    std::vector<std::byte *> shards(5, static_cast<std::byte *>(memory->shards()));
    const auto status_with = [&](unsigned shard, std::uint64_t offset, Mode mode) {
      std::vector<std::uint64_t> offsets;
      for (unsigned i = 0; i < 5; ++i) offsets.push_back(i * 5056);
      offsets[shard] = offset;
      core::Task task = {prepared.get(), shards.data(), shards.data() + 3, 0, work.bytes, mode, work.mismatches.data()};
      work.reset();
      task.mismatches = work.mismatches.data();
      task.memory = memory->kind();
      task.queue = memory->queue();
      task.input_offsets = offsets.data();
      task.output_offsets = offsets.data() + 3;
      core::Control control;
      return status_of([&] { backend->run({&task, 1}, control); });
    };
    EXPECT_EQ(status_with(0, 5056, Mode::assign).first, TANDEM_OK) << "inputs may alias";
    EXPECT_EQ(status_with(4, 3 * 5056 + 5000, Mode::assign).first, TANDEM_OK) << "neighbours";
    EXPECT_EQ(status_with(4, 2 * 5056, Mode::compare).first, TANDEM_OK) << "nothing is written";
    for (const auto &[shard, offset] : {std::pair(4u, 3 * 5056u + 4999u), std::pair(4u, 2 * 5056u),
                                        std::pair(2u, 4 * 5056u), std::pair(0u, 3 * 5056u + 17u)}) {
      const auto [status, message] = status_with(shard, offset, Mode::accumulate);
      EXPECT_EQ(status, TANDEM_ERROR_OVERLAP) << shard;
      EXPECT_NE(message.find(shard < 3 ? "input " + std::to_string(shard) : "output 1"), std::string::npos) << message;
    }
    EXPECT_EQ(status_with(4, 5 * 5056 - 4999, Mode::assign).first, TANDEM_ERROR_INVALID_ARGUMENT) << "beyond the end";
  }
  expect_clean(*driver, "refusals");
}

// ---- memory ------------------------------------------------------------------------------------------------

// All buffers together stay within the budget, for every sequence of shapes. A lower budget holds from the next run on.
TEST_P(DeviceLayer, TheBudgetHoldsOverShapes) {
  const auto driver = this->driver();
  core::Budget resources;
  resources.set_all(std::string(driver->resource()) + "=3");
  device::Options options = driver->options();
  options.resources = &resources;
  const auto backend = driver->make(options, {});
  std::uint64_t most = 3 << 20;
  for (unsigned round = 0; round < 2; ++round) {
    for (const auto &[rows, columns] : {std::pair(2u, 60u), std::pair(60u, 2u), std::pair(20u, 20u)}) {
      Work work(rows, columns, 50'000);
      const auto prepared = backend->prepare(work.matrix);
      for (const Mode mode : {Mode::compare, Mode::accumulate}) {
        std::thread beside([&, rows = rows, columns = columns] {  // so that both lanes, and all slots, come to be used
          Work other(rows, columns, 20'000);
          other.run(*backend, *backend->prepare(other.matrix), Mode::assign);
          EXPECT_TRUE(other.is_right(Mode::assign));
        });
        work.reset();
        work.run(*backend, *prepared, mode);
        beside.join();
        ASSERT_TRUE(work.is_right(mode)) << rows << " x " << columns;
        ASSERT_LE(driver->counts().most_device_bytes(), most) << rows << " x " << columns;
        EXPECT_GT(driver->counts().most_device_bytes(), most / 8) << rows << " x " << columns;
      }
    }
    resources.set(driver->resource(), 1);
    most = 1 << 20;
    if (round != 0) continue;  // what was kept goes when room is needed
    Work other(3, 40, 50'000);
    other.run(*backend, *backend->prepare(other.matrix), Mode::assign);
    EXPECT_TRUE(other.is_right(Mode::assign));
    EXPECT_LE(driver->counts().device_bytes(), most);
    driver->set_script({});  // the peak begins again
  }
}

// Runs one after the other use one lane of two. Its buffers have its share of the budget after every change of shape.
TEST_P(DeviceLayer, ALaneHoldsItsShareOverShapes) {
  constexpr std::uint64_t kBudget =
      600'000;  // 100'000 for each of six slots; buffers of 64 KiB fill half of one and more
  const auto driver = this->driver();
  const auto backend = driver->make("compiled", {}, kBudget);
  for (const auto &[rows, columns] : {std::pair(2u, 60u), std::pair(60u, 2u), std::pair(2u, 60u)}) {
    Work work(rows, columns, 50'000);
    work.run(*backend, *backend->prepare(work.matrix), Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_LE(driver->counts().most_device_bytes(), kBudget / 2);
    EXPECT_GT(driver->counts().most_device_bytes(), kBudget / 8);
  }
}

TEST_P(DeviceLayer, TooLittleForOneLineOfEachShardIsAClearError) {
  const auto driver = this->driver();
  Work work(4, 10, 3000);
  const auto backend = driver->make("compiled", {}, 4096);
  const auto prepared = backend->prepare(work.matrix);
  const auto [status, message] = status_of([&] { work.run(*backend, *prepared, Mode::assign); });
  EXPECT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(message.find("4096 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("14 shards"), std::string::npos) << message;
}

// Records are counted for what they need: a tile that is larger than a piece does not cut it to single lines.
TEST_P(DeviceLayer, LargeTilesDoNotMakeSmallPieces) {
  const auto driver = this->driver();
  Work work(2, 3, 50'000);
  const auto backend = driver->make("", {}, 1 << 20);
  const auto prepared = backend->tunable()->prepare_tuned(
      work.matrix, {{"local_x", 256}, {"element_bytes", 16}, {"elements_per_item", 64}});
  work.reset();
  work.run(*backend, *prepared, Mode::compare);
  EXPECT_TRUE(work.is_right(Mode::compare));
  EXPECT_LE(driver->calls_of(Call::launch), 6u);
  EXPECT_LE(driver->counts().most_device_bytes(), std::uint64_t{1} << 20);
}

// Memory for programs that use no driver themselves. Any of its calls may fail: that is a status, nothing is left
// behind, and the next one works.
TEST_P(DeviceLayer, MemoryOfTheBackendsOwn) {
  Work work(2, 3, 50'003);
  const std::uint64_t pitch = 50'048;
  bool is_reached = true;
  for (std::uint64_t n = UINT64_MAX; is_reached && !HasFailure(); ++n) {
    const auto driver = this->driver();
    {
      const auto backend = driver->make();
      const auto prepared = backend->prepare(work.matrix);
      const auto life = [&](Mode mode) {
        const auto memory = backend->device_memory(5 * pitch);
        work.reset();
        std::vector<std::byte *> shards(5, static_cast<std::byte *>(memory->shards()));
        std::vector<std::uint64_t> offsets;
        for (unsigned i = 0; i < 5; ++i) {
          offsets.push_back(i * pitch);
          memory->write(offsets[i], i < 3 ? work.in[i] : work.out[i - 3], work.bytes);
        }
        core::Task task = {prepared.get(), shards.data(), shards.data() + 3,     0,
                           work.bytes,     mode,          work.mismatches.data()};
        task.memory = memory->kind();
        task.queue = memory->queue();
        task.input_offsets = offsets.data();
        task.output_offsets = offsets.data() + 3;
        core::Control control;
        backend->run({&task, 1}, control);
        for (unsigned r = 0; r < 2; ++r) memory->read(offsets[3 + r], work.out[r], work.bytes);
        std::uint8_t inputs[3], outputs[2];
        backend->read_column(task, 17, inputs, outputs);
        EXPECT_EQ(inputs[2], work.inputs[2][17]);
        EXPECT_EQ(outputs[1], work.outputs[1][17]);
        EXPECT_TRUE(work.is_right(mode)) << static_cast<int>(mode);
      };
      if (n == UINT64_MAX) {
        for (const Mode mode : kModes) life(mode);
        for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1} << 60})
          EXPECT_NE(status_of([&] { backend->device_memory(bytes); }).first, TANDEM_OK);
      } else {
        DriverScript script;
        script.failing_call = n;
        driver->set_script(script);
        const tandem_status status = status_of([&] { life(Mode::assign); }).first;
        is_reached = !driver->counts().failed_call().empty();
        EXPECT_TRUE(is_reached || status == TANDEM_OK) << n;
        driver->set_script({});
        life(Mode::assign);
      }
    }
    expect_clean(*driver, "memory of the backend's own, call " + std::to_string(n));
  }
}

// Each byte is copied once each way by the copier; and a device that is done when it is first asked lets no thread
// sleep.
TEST_P(DeviceLayer, StagingCopiesEachByteOnceAndLooksBeforeItSleeps) {
  struct CountingCopier final : core::HostCopier {
    void run(std::span<const core::HostCopy> copies) override {
      ++run_count;
      for (const core::HostCopy &each : copies) bytes += each.bytes;
      core::copy_here(copies);
    }
    std::uint64_t run_count = 0, bytes = 0;
  };
  const Values small({{"staging_bytes", 64 << 10}});
  for (const bool is_done_when_asked : {false, true}) {
    for (const Mode mode : kModes) {
      DriverScript script;
      script.is_done_when_asked = is_done_when_asked;
      const auto driver = this->driver(script);
      const auto copier = std::make_shared<CountingCopier>();
      device::Options options = driver->options();
      options.technique = "tables";
      options.tuning = &small;
      options.copier = copier;
      const auto backend = driver->make(options, {});
      Work work(2, 3, 200'000);
      work.reset();
      work.run(*backend, *backend->prepare(work.matrix), mode);
      EXPECT_TRUE(work.is_right(mode));
      EXPECT_EQ(copier->bytes, 5 * work.bytes);
      const std::uint64_t pieces = driver->calls_of(Call::launch);
      EXPECT_GT(pieces, 10u);
      EXPECT_EQ(copier->run_count, 2 * pieces);
      EXPECT_GE(driver->calls_of(Call::look), pieces);
      if (is_done_when_asked) {
        EXPECT_EQ(driver->calls_of(Call::look), pieces);
      }
    }
  }
}

// A run waits until all that its task holds is free, and runs nothing before; what holds the units for it may switch
// that off.
TEST_P(DeviceLayer, ARunHoldsAGpuAndWhatItsControlSays) {
  for (const bool holds_units : {true, false}) {
    const auto driver = this->driver();
    core::Budget resources;
    resources.set_all("gpu=1,app.widgets=2");
    device::Options options = driver->options();
    options.resources = &resources;
    options.holds_units = holds_units;
    const auto backend = driver->make(options, {});
    Work work(2, 10, 50'000);
    const auto prepared = backend->prepare(work.matrix);
    const core::Need gpu[] = {{core::Budget::kGpu, 1}}, widgets[] = {{resources.index("app.widgets"), 2}},
                     too_many[] = {{widgets[0].resource, 3}};
    const core::Task task = {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
    for (const std::span<const core::Need> taken : {std::span(gpu), std::span(widgets)}) {
      work.reset();
      resources.acquire(taken);
      std::atomic<bool> is_over{false};
      std::thread caller([&] {
        core::Control control(widgets);
        backend->run({&task, 1}, control);
        is_over = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      if (holds_units) {
        EXPECT_FALSE(is_over.load());
        EXPECT_TRUE(work.is_untouched());
        resources.release(taken);
      }
      caller.join();
      EXPECT_TRUE(work.is_right(Mode::assign));
      if (!holds_units) resources.release(taken);
      for (const std::span<const core::Need> each : {std::span(gpu), std::span(widgets)}) {
        EXPECT_TRUE(resources.try_acquire(each)) << "not given back";
        resources.release(each);
      }
    }
    core::Control control(too_many);
    const auto [status, message] = status_of([&] { backend->run({&task, 1}, control); });
    EXPECT_EQ(status, holds_units ? TANDEM_ERROR_INVALID_ARGUMENT : TANDEM_OK);
    EXPECT_EQ(message.find("needs 3 of resource \"app.widgets\"") != std::string::npos, holds_units) << message;
  }
}

TEST_P(DeviceLayer, TwoDevicesAtOnce) {
  DriverScript script;
  script.device_count = 2;
  const auto driver = this->driver(script);
  std::vector<std::thread> threads;
  std::vector<int> right(2, 0);
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      device::Options options = driver->options();
      options.device = driver->device_name(t);
      const auto backend = driver->make(options, {});
      Work work(2 + t, 6, 50'000);
      const auto prepared = backend->prepare(work.matrix);
      for (unsigned round = 0; round < 10; ++round) {
        const Mode mode = round % 2 == 0 ? Mode::assign : Mode::accumulate;
        work.reset();
        work.run(*backend, *prepared, mode);
        right[t] += work.is_right(mode);
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(2, 10));
  expect_clean(*driver, "two devices");
}

// ---- the choice of kernels -----------------------------------------------------------------------------------------

// Runs until the log has a text: a program is made in the background.
void run_until_heard(core::Backend &backend, const core::Prepared &prepared, Work &work, Heard &heard,
                     const char *text) {
  wait_until(
      [&] {
        work.reset();
        work.run(backend, prepared, Mode::assign);
        EXPECT_TRUE(work.is_right(Mode::assign));
        return heard.has(text);
      },
      text);
}

const char *technique_of(const core::Prepared &prepared) { return prepared.techniques().front().name; }

// Tables until the bytes pay, also bytes that other backends ran; then compiled, and at once for others with the same
// matrix.
TEST_P(DeviceLayer, TheTechniqueFollowsTheBytes) {
  const Values threshold({{"compile_after_bytes", 30'000}, {"element_bytes", 5}});
  for (const std::uint64_t elsewhere : {0, 17'999, 18'000}) {  // bytes
    const auto driver = this->driver();
    Heard heard;
    device::Options options = driver->options();
    options.tuning = &threshold;
    const auto backend = driver->make(options, heard.log());
    Work work(2, 4, 3000);  // 12,000 bytes a run
    const auto prepared = backend->prepare(work.matrix);
    EXPECT_STREQ(technique_of(*prepared), "tables, then compiled");
    prepared->add_bytes_elsewhere(elsewhere);
    for (unsigned run = 0; run < (elsewhere == 0 ? 2 : 1); ++run) {
      work.reset();
      work.run(*backend, *prepared, Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign));
      EXPECT_EQ(heard.has("until the compile is done"), elsewhere == 18'000) << run;
      EXPECT_FALSE(heard.has("technique compiled")) << run;
      EXPECT_STREQ(technique_of(*prepared), "tables");
    }
    run_until_heard(*backend, *prepared, work, heard, "technique compiled: ");
    EXPECT_STREQ(technique_of(*prepared), "compiled");
    const std::uint64_t compiles = driver->calls_of(Call::compile);
    EXPECT_LE(compiles, 2u) << "tables, where the library has none, and the matrix";
    EXPECT_EQ(heard.has("technique tables: 12000 bytes through this matrix do not pay for a compile (from 30000)"),
              elsewhere == 0);
    EXPECT_TRUE(heard.has("tuning value left out: element_bytes = 5"));
    const auto again = backend->prepare(work.matrix);
    work.reset();
    work.run(*backend, *again, Mode::assign);
    EXPECT_EQ(driver->calls_of(Call::compile), compiles);
    EXPECT_TRUE(heard.has("technique compiled: it is in the cache"));
  }
}

// The text of a matrix is written when it is built, not to ask whether it is there.
TEST_P(DeviceLayer, TextsAreWrittenToBeBuilt) {
  const auto driver = this->driver();
  std::atomic<unsigned> written{0};
  device::Options options = driver->options();
  options.generate = [&, generate = options.generate](const core::Matrix &matrix, const device::KernelSpec &spec) {
    ++written;
    return generate(matrix, spec);
  };
  const auto backend = driver->make(options, {});
  Work first(2, 3, 500);
  first.run(*backend, *backend->prepare(first.matrix), Mode::assign);
  const unsigned before = written;
  for (unsigned columns = 4; columns < 9; ++columns) {
    Work work(3, columns, 500);
    work.run(*backend, *backend->prepare(work.matrix), Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  EXPECT_EQ(written, before);
  options.technique = "compiled";  // two matrices of one shape are two programs
  const auto compiled = driver->make(options, {});
  for (const std::uint8_t value : {1, 2}) {
    core::Matrix matrix(1, 1);
    matrix.at(0, 0) = value;
    Work work(matrix, 500);
    const unsigned written_before = written;
    work.run(*compiled, *compiled->prepare(work.matrix), Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign)) << unsigned{value};
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
  const auto driver = this->driver();
  const auto said = [&](bool knows_device, bool knows_host, std::initializer_list<const char *> parts) {
    Source source;
    source.knows_device = knows_device;
    source.knows_host = knows_host;
    Heard heard;
    device::Options options = driver->options();
    options.tuning = &source;
    const auto backend = driver->make(options, heard.log());
    Work work(3, 4, 1000);
    work.run(*backend, *backend->prepare(work.matrix), Mode::assign);
    for (const char *part : parts) EXPECT_TRUE(heard.has(part)) << part << "\n" << heard.text;
  };
  said(true, true,
       {"local 32x1x1, element_bytes 4, ", "staging_bytes 2097152", "(of the device; transfers of the host)"});
  said(false, true, {"element_bytes 16, elements_per_item 1, rows_per_pass 1"});
  said(true, false, {"element_bytes 4"});
  said(false, false, {"is ignored: no entry of the tuning file was measured on", "(built-in)"});
}

// A local size that a kernel does not run is halved, and the log says so once; as a forced value it is an error.
TEST_P(DeviceLayer, LocalSizesFitTheKernel) {
  DriverScript script;
  script.most_group_items = 32;
  const auto driver = this->driver(script);
  Heard heard;
  const auto backend = driver->make("", heard.log());
  Work work(2, 4, 10'000);
  const auto prepared = backend->prepare(work.matrix);
  for (unsigned run = 0; run < 2; ++run) {
    work.reset();
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_TRUE(heard.has("32x1x1 instead")) << heard.text;
    EXPECT_EQ(heard.text.find("instead"), heard.text.rfind("instead")) << "said once: " << heard.text;
  }
  const auto forced_status = [&](const core::TuningValues &values) {
    return status_of(
        [&] { work.run(*backend, *backend->tunable()->prepare_tuned(work.matrix, values), Mode::assign); });
  };
  EXPECT_NE(forced_status({{"local_x", 64}}).second.find("64x1x1"), std::string::npos);
  for (const auto &[name, value, status] :
       {std::tuple("local_x", 64u, TANDEM_ERROR_UNAVAILABLE), std::tuple("local_x", 2048u, TANDEM_ERROR_UNAVAILABLE),
        std::tuple("element_bytes", 12u, TANDEM_ERROR_INVALID_ARGUMENT),
        std::tuple("element_bytes", 128u, TANDEM_ERROR_INVALID_ARGUMENT)})
    EXPECT_EQ(forced_status({{name, value}}).first, status) << name;
  work.reset();
  EXPECT_EQ(forced_status({{"local_x", 8}, {"local_y", 4}}).first, TANDEM_OK);
  EXPECT_TRUE(work.is_right(Mode::assign));
}

// Technique transform is left where its work-groups of 128 items do not run.
TEST_P(DeviceLayer, TransformsOfWideCodes) {
  const core::Operator what(transform_of(points_from(0, 13), points_from(13, 7)));
  for (const bool fits : {true, false}) {
    DriverScript script;
    script.most_group_items = fits ? 256 : 64;
    const auto driver = this->driver(script);
    {
      Heard heard;
      const auto backend = driver->make("transform", heard.log());
      const auto prepared = backend->prepare(what);
      EXPECT_STREQ(technique_of(*prepared), "transform");
      Work work(what.dense(), 3001);
      for (const Way way : kWays) {
        for (const Mode mode : kModes) {
          if (way.is_many && mode != Mode::assign) continue;
          Place place(*driver, way, work);
          place.reset();
          place.run(*backend, *prepared, mode);
          EXPECT_TRUE(place.is_right(mode));
        }
      }
      EXPECT_STREQ(technique_of(*prepared), fits ? "transform" : "compiled");
      EXPECT_EQ(heard.has("technique transform: as asked"), fits) << heard.text;
      EXPECT_EQ(heard.has("technique transform is left: work-groups of 128 items, at most 64"), !fits) << heard.text;
    }
    expect_clean(*driver, "a transform");
  }
}

// ---- programs on disk, and in a child ------------------------------------------------------------------------------

// Another process finds them, even below the switch-over; another device does not.
TEST_P(DeviceLayer, ProgramsAreKeptOnDisk) {
  char name[] = "/tmp/tandem-programs-XXXXXX";
  const std::string folder = mkdtemp(name);
  const auto compiled = [&](const char *technique, const DriverScript &script, bool has_folder = true) {
    const auto driver = this->driver(script);
    std::uint64_t count = 0;
    {
      device::Options options = driver->options();
      options.technique = technique;
      if (has_folder) options.cache_folder = folder + "/a/b";
      const auto backend = driver->make(options, {});
      Work work(2, 4, 3000);
      const auto prepared = backend->prepare(work.matrix);
      work.run(*backend, *prepared, Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign));
      EXPECT_STREQ(technique_of(*prepared), "compiled");
      count = driver->calls_of(Call::compile);
    }
    expect_clean(*driver, "a life with programs on disk");
    return count;
  };
  DriverScript other;
  other.is_another_model = true;
  EXPECT_EQ(compiled("compiled", {}), 1u);
  EXPECT_EQ(std::filesystem::status(folder + "/a/b").permissions(), std::filesystem::perms::owner_all);
  EXPECT_EQ(compiled("", {}), 0u) << "from the first byte on";
  EXPECT_EQ(compiled("compiled", other), 1u) << "another device, another key";
  EXPECT_EQ(compiled("compiled", {}, false), 1u) << "no folder: memory only";
  EXPECT_EQ(compiled("compiled", {}), 0u);
  std::filesystem::remove_all(folder);
}

// A program from disk that the driver does not take any more is removed, and made from its text.
TEST_P(DeviceLayer, ProgramsOnDiskThatTheDriverRefusesAreMadeAgain) {
  char name[] = "/tmp/tandem-programs-XXXXXX";
  const std::string folder = mkdtemp(name);
  const auto compiles = [&](bool refuses) {
    DriverScript script;
    script.refuses_binaries = refuses;
    const auto driver = this->driver(script);
    Heard heard;
    device::Options options = driver->options();
    options.cache_folder = folder + "/programs";
    if (!refuses) options.technique = "compiled";
    const auto backend = driver->make(options, heard.log());
    Work work(2, 4, 3000);
    work.run(*backend, *backend->prepare(work.matrix), Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(heard.has("refuses a program from the cache"), refuses) << heard.text;
    return driver->calls_of(Call::compile) != 0;
  };
  EXPECT_TRUE(compiles(false));
  EXPECT_FALSE(compiles(false));
  EXPECT_TRUE(compiles(true));
  compiles(false);
  EXPECT_FALSE(compiles(false)) << "the entry was renewed";
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
  const auto stripe = driver->on_device(work, 0);
  const core::Task task = stripe->task(*prepared, Mode::assign);
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
