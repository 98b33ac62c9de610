// SPDX-License-Identifier: Apache-2.0
// The storage simulator: clients, applications, links, servers, and the requests between them.
// docs/internals/STORAGE.md describes the model.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "bench/simulate/storage/device.hpp"
#include "bench/simulate/storage/events.hpp"
#include "bench/simulate/storage/options.hpp"
#include "volume/write_plan.hpp"

namespace tandem::bench::storage {

constexpr std::uint32_t kNone = UINT32_MAX;

// The cost of a write to a part of a row: the plan, and the columns that it reads to reconstruct.
struct Cost {
  volume::WritePlan plan{};
  std::vector<std::uint32_t> reads;
};

// Columns first to last of a row, and the bytes of the units in the parity range: [low, high).
struct Part {
  std::uint32_t first, last;
  std::uint64_t row, begin, end;  // bytes from the start of the row
  std::uint64_t low, high;
};

struct Result {
  double simulated_seconds = 0;   // total
  double measured_seconds = 0;    // after the warm-up. All figures below, except event_count, cover this time
  double bytes_per_second = 0;    // of data that clients wrote
  double confidence = 0;          // half the 95 % interval of that rate, as a part of it; 1: the run was too short
  std::uint64_t event_count = 0;  // total
  std::uint64_t write_count = 0;  // completed writes of clients
  double write_seconds = 0;       // mean time of a client's write
  std::uint64_t read_count = 0;   // completed reads of clients
  double read_seconds = 0;        // mean time of a client's read
  // I/Os of the servers. Writes to the final place (delayed_move) are not in data_write_count.
  std::uint64_t data_read_count = 0, parity_read_count = 0, data_write_count = 0, parity_write_count = 0;
  std::uint64_t move_write_count = 0;
  std::uint64_t parity_update_count = 0;  // updates of one row, with all its parity units
  std::uint64_t window_count = 0;         // windows that ended
  std::uint64_t request_count = 0;        // completed by the servers; read-then-write of the same place is one
  double request_seconds = 0;             // mean time of a request in the server, waiting included
  double queue_length = 0;                // requests in all servers, waiting included, mean over time
  double utilisation = 0;                 // of the servers' channels, mean
  double most_utilisation = 0;            // of the busiest server
};

// Clients that write. Each begins its next write when the last one is complete. plan_write (volume/write_plan.hpp)
// decides which I/Os a write needs.
class Model {
 public:
  // Throws Error as checked() does (options.hpp). The device outlives the model.
  Model(const Options &options, const Device &device);
  Result run();

 private:
  enum Role : std::uint8_t { kDataRead, kDataWrite, kParityWrite, kMove, kClientRead };
  enum class Purpose : std::uint8_t { write, read, window };

  struct Request {
    std::uint64_t position, bytes;
    double entered;
    std::uint32_t server, job, next, sibling;  // sibling: the next parity of the row
    std::uint32_t awaits;                      // messages that must arrive before it is served
    Role role;
    bool reads_first;  // read and written in one turn, at the same place
    bool moves;        // a unit read at a window's end is written to its final place too
  };
  struct Message {
    std::uint32_t request;
    std::uint64_t bytes;
  };
  // The I/Os of one part of a write or read, or of one row of a window's end.
  struct Job {
    std::uint32_t owner;
    Purpose purpose;
    std::uint32_t pending;  // requests that are not complete
    std::uint32_t parities;
  };
  struct Client {
    double started = 0;
    double link_free = 0;
    std::uint64_t writes = 0;  // writes that it began
    std::uint64_t bytes = 0;   // of its write or read
    std::uint32_t application = 0;
    std::uint32_t pending = 0;  // jobs
  };
  struct Application {
    std::uint64_t zone, final_zone;  // units: where its file lies on each server
    std::uint64_t base = 0;          // bytes of the file before the window, or before its first write
    std::uint64_t window_bytes = 0;  // that the window has so far, if writes have different sizes
    std::uint32_t server = 0;        // of the first column of row 0
    std::uint32_t first_client = 0, client_count = 0;
    std::uint32_t at_work = 0;  // clients with unfinished writes in the window
    std::uint32_t pending = 0;  // jobs of the window's end
  };
  struct Server {
    Head head;
    double in_free = 0, out_free = 0;
    double busy_seconds = 0;
    std::uint32_t first = kNone, last = kNone, busy = 0;
  };

  void begin_write(std::uint32_t client);
  void begin_part(std::uint32_t client, const Application &application, const Part &part);
  void end_write(std::uint32_t client);
  void begin_read(std::uint32_t client);
  void end_read(std::uint32_t client);
  void end_window(std::uint32_t application);
  void end_row(std::uint32_t application, const Part &part);
  void window_ended(std::uint32_t application);
  void acknowledge(std::uint32_t job);

  void send(std::uint32_t client, std::uint32_t request, std::uint64_t bytes);
  void send_between(std::uint32_t server, std::uint32_t request, std::uint64_t bytes);
  void arrive(std::uint32_t message);
  void deliver(std::uint32_t request);
  void enter(std::uint32_t request);
  void serve(std::uint32_t server, std::uint32_t request);
  void read_done(std::uint32_t request);
  void done(std::uint32_t request);

  Part part_of(std::uint64_t row, std::uint64_t begin, std::uint64_t end) const;
  template <class Work>
  void for_rows(std::uint64_t begin, std::uint64_t end, Work &&work) const;
  const Cost &cost_of(const Part &part);
  Cost plan(const Part &part, bool delayed);
  std::uint32_t make_request(std::uint32_t job, const Application &application, const Part &part, std::uint32_t column,
                             Role role, std::uint64_t low, std::uint64_t high);
  void make_parities(std::uint32_t job, const Application &application, const Part &part, const Cost &cost,
                     std::uint32_t awaits);
  std::uint32_t make_job(std::uint32_t owner, Purpose purpose);
  std::uint64_t draw_bytes();
  std::uint64_t scattered_place(std::uint64_t bytes);
  std::uint64_t begin_of(const Part &part, std::uint32_t column) const;
  std::uint64_t end_of(const Part &part, std::uint32_t column) const;
  void add(double delay, std::uint32_t what, std::uint32_t index) { events_.add(now_ + delay, what, index); }

  // Measuring.
  void count_area();
  void start_measuring();
  bool batch_ended();  // true: the run may stop
  bool is_delayed() const { return options_.strategy >= Strategy::delayed; }

  const Options options_;
  const Device &device_;
  const std::uint32_t k_, m_;
  const std::uint64_t row_bytes_, units_;  // units that fit on a device
  Random random_;
  EventList events_;
  std::vector<Client> clients_;
  std::vector<Application> applications_;
  std::vector<Server> servers_;
  std::vector<Job> jobs_;
  std::vector<Request> requests_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> free_jobs_, free_requests_, free_messages_;
  std::vector<Cost> from_, upto_;  // of parts that begin at a column; of parts that begin at 0, by number of columns
  std::vector<std::uint8_t> from_known_, upto_known_;
  std::vector<volume::WriteColumn> columns_;

  double now_ = 0;
  bool measuring_ = false;
  double measuring_since_ = 0, area_since_ = 0, area_ = 0, request_seconds_ = 0;
  std::uint64_t in_servers_ = 0, warm_up_writes_ = 0, writes_ = 0, written_bytes_ = 0;
  double batch_seconds_ = 0, batch_end_ = 0;
  std::uint64_t measured_from_bytes_ = 0, batch_begin_bytes_ = 0;
  std::vector<double> batches_;
  Result result_;
};

}  // namespace tandem::bench::storage
