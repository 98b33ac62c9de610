// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/storage/model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace tandem::bench::storage {
namespace {

enum What : std::uint32_t { kBegin, kArrive, kDeliver, kReadDone, kDone, kAcknowledge, kEndWindow };

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;  // limit of a file, because devices have no end
constexpr std::size_t kBatches = 20;                          // for a confidence interval
constexpr double kStudent = 2.093;                            // t of 0.975 with 19 degrees of freedom
// Writes of all clients before measuring begins, at least 2 and at most 20 of each. Queues of q requests take about q^2
// services to reach their steady inequality. For large q that matters less, because no server is ever idle.
constexpr std::uint64_t kWarmUpWrites = 500'000, kLeastOfEach = 2, kMostOfEach = 20;
constexpr double kMostWarmUp = 0.25;  // of most_seconds

template <class Struct>
std::uint32_t take(std::vector<Struct> &all, std::vector<std::uint32_t> &free, const Struct &value) {
  if (free.empty()) {
    all.push_back(value);
    return static_cast<std::uint32_t>(all.size() - 1);
  }
  const std::uint32_t index = free.back();
  free.pop_back();
  all[index] = value;
  return index;
}

double link_seconds(std::uint64_t bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? static_cast<double>(bytes) / bytes_per_second : 0;
}

// Half the 95 % interval of the mean of kBatches batches, as a part of the mean.
double interval_of(const std::vector<double> &batches) {
  double sum = 0, squares = 0;
  for (const double each : batches) sum += each;
  const double mean = sum / static_cast<double>(batches.size());
  if (mean <= 0) return 1;
  for (const double each : batches) squares += (each - mean) * (each - mean);
  const double variance = squares / static_cast<double>(batches.size() - 1);
  return kStudent * std::sqrt(variance / static_cast<double>(batches.size())) / mean;
}

}  // namespace

Model::Model(const Options &given, const Device &device)
    : options_(checked(given)),
      device_(device),
      k_(options_.width - options_.parity_count),
      m_(options_.parity_count),
      row_bytes_(options_.unit_bytes * k_),
      units_(device.capacity_bytes() > 0 ? device.capacity_bytes() / options_.unit_bytes : kMostBytes / row_bytes_),
      random_(options_.seed),
      clients_(options_.client_count),
      servers_(options_.server_count),
      from_(k_),
      upto_(k_ + 1),
      from_known_(k_),
      upto_known_(k_ + 1),
      columns_(k_) {
  const std::uint32_t each = options_.clients_per_application;
  for (std::uint32_t first = 0; first < options_.client_count; first += std::min(each, options_.client_count - first)) {
    Application application{random_.below(units_), random_.below(units_)};
    application.server = static_cast<std::uint32_t>(random_.below(options_.server_count));
    // Files exist before the run: the first row is full up to some write.
    const std::uint64_t writes_per_row = std::max<std::uint64_t>(1, row_bytes_ / options_.write_bytes);
    application.base = random_.below(writes_per_row) * options_.write_bytes;
    application.first_client = first;
    application.client_count = std::min(each, options_.client_count - first);
    for (std::uint32_t i = 0; i < application.client_count; ++i)
      clients_[first + i].application = static_cast<std::uint32_t>(applications_.size());
    applications_.push_back(application);
  }
}

// ---- the cost of a write

// Bytes of the row's column in the part, from the start of the unit.
std::uint64_t Model::begin_of(const Part &part, std::uint32_t column) const {
  return column == part.first ? part.begin - column * options_.unit_bytes : 0;
}
std::uint64_t Model::end_of(const Part &part, std::uint32_t column) const {
  return column == part.last ? part.end - column * options_.unit_bytes : options_.unit_bytes;
}

Part Model::part_of(std::uint64_t row, std::uint64_t begin, std::uint64_t end) const {
  const std::uint64_t unit = options_.unit_bytes;
  Part part{
      static_cast<std::uint32_t>(begin / unit), static_cast<std::uint32_t>((end - 1) / unit), row, begin, end, 0, unit};
  if (part.first == part.last) part.low = begin_of(part, part.first), part.high = end_of(part, part.first);
  return part;
}

template <class Work>
void Model::for_rows(std::uint64_t begin, std::uint64_t end, Work &&work) const {
  while (begin < end) {
    const std::uint64_t row = begin / row_bytes_, start = row * row_bytes_, stop = std::min(end, start + row_bytes_);
    work(part_of(row, begin - start, stop - start));
    begin = stop;
  }
}

// `standard` does not know what is zero. The others write to unwritten places, and know which places hold data.
// interleaved: the earlier part of the file. scattered: all other columns.
Cost Model::plan(const Part &part, bool delayed) {
  const bool all_old = options_.strategy == Strategy::standard;
  const bool others_old = all_old || (options_.placement == Placement::scattered && !is_delayed());
  for (std::uint32_t column = 0; column < k_; ++column) {
    const bool written = column >= part.first && column <= part.last;
    const bool before = column < part.first || (column == part.first && begin_of(part, column) > part.low);
    const bool after = column > part.last || (column == part.last && end_of(part, column) < part.high);
    columns_[column] = {.written = written,
                        .written_old = written && all_old,
                        .remaining = before || after,
                        .remaining_old = before || (after && others_old)};
  }
  Cost cost;
  cost.plan = volume::plan_write(columns_, std::max(m_, 1U), delayed);
  if (cost.plan.way == TANDEM_VOLUME_RECONSTRUCT)
    for (std::uint32_t column = 0; column < k_; ++column)
      if (cost.plan.reads(columns_[column])) cost.reads.push_back(column);
  return cost;
}

// All writes have one size, so there are few different parts: those before the row's end, and those after it.
const Cost &Model::cost_of(const Part &part) {
  const bool upto = part.begin == 0 && part.end - part.begin != options_.write_bytes;
  const std::uint32_t key = upto ? part.last + 1 : part.first;
  std::uint8_t &known = (upto ? upto_known_ : from_known_)[key];
  Cost &cost = (upto ? upto_ : from_)[key];
  if (!known) cost = plan(part, is_delayed() || options_.strategy == Strategy::raid0);
  known = 1;
  return cost;
}

// ---- requests

std::uint32_t Model::make_job(std::uint32_t owner, Purpose purpose) {
  return take(jobs_, free_jobs_, Job{owner, purpose, 0, kNone});
}

std::uint64_t Model::draw_bytes() {
  const auto &mixed = options_.mixed_bytes;
  return mixed.empty() ? options_.write_bytes : mixed[random_.below(mixed.size())];
}
std::uint64_t Model::scattered_place(std::uint64_t bytes) {
  const std::uint64_t step = std::min(bytes, options_.unit_bytes);
  const std::uint64_t row = random_.below(units_);
  return row * row_bytes_ + random_.below(row_bytes_ / step) * step;
}

// `column` from k on: parity.
std::uint32_t Model::make_request(std::uint32_t job, const Application &application, const Part &part,
                                  std::uint32_t column, Role role, std::uint64_t low, std::uint64_t high) {
  Request request{};
  const std::uint64_t zone = role == kMove ? application.final_zone : application.zone;
  request.position = (zone + part.row) % units_ * options_.unit_bytes + low;
  request.bytes = high - low;
  // Rotated by one server from row to row.
  const std::uint64_t turn = options_.dedicated_parity ? 0 : application.server + part.row;
  request.server = static_cast<std::uint32_t>((turn + column) % options_.server_count);
  request.job = job;
  request.next = request.sibling = kNone;
  request.awaits = 1;
  request.role = role;
  ++jobs_[job].pending;
  return take(requests_, free_requests_, request);
}

void Model::make_parities(std::uint32_t job, const Application &application, const Part &part, const Cost &cost,
                          std::uint32_t awaits) {
  if (cost.plan.parity_writes == 0) return;
  ++result_.parity_update_count;
  for (std::uint32_t i = 0; i < m_; ++i) {
    const std::uint32_t parity = make_request(job, application, part, k_ + i, kParityWrite, part.low, part.high);
    requests_[parity].reads_first = cost.plan.parity_reads > 0;
    requests_[parity].awaits = awaits;
    requests_[parity].sibling = jobs_[job].parities;
    jobs_[job].parities = parity;
  }
}

void Model::begin_write(std::uint32_t index) {
  if (options_.read_part > 0 && random_.part() < options_.read_part) return begin_read(index);
  Client &client = clients_[index];
  Application &application = applications_[client.application];
  const std::uint64_t bytes = client.bytes = draw_bytes(), write = client.writes++;
  client.started = now_;
  client.link_free = std::max(client.link_free, now_);
  std::uint64_t begin;
  if (is_delayed() && !options_.mixed_bytes.empty()) {  // in the order in which they come
    begin = application.base + application.window_bytes;
    application.window_bytes += bytes;
  } else if (is_delayed() || options_.placement == Placement::interleaved) {
    // The offset in the window, if its base has moved, or in the file.
    const std::uint64_t turn = is_delayed() ? write % options_.writes_per_window : write;
    begin = application.base + (turn * application.client_count + (index - application.first_client)) * bytes;
  } else {
    begin = scattered_place(bytes);
  }
  for_rows(begin, begin + bytes, [&](const Part &part) {
    ++clients_[index].pending;
    begin_part(index, application, part);
  });
}

void Model::begin_part(std::uint32_t client, const Application &application, const Part &part) {
  const Cost &cost = cost_of(part);
  const std::uint32_t job = make_job(client, Purpose::write);
  const auto written = part.last - part.first + 1, read = static_cast<std::uint32_t>(cost.reads.size());
  const bool modify = cost.plan.way == TANDEM_VOLUME_MODIFY;
  // A parity server gets messages from the client, or from each server that read old data, or from both.
  make_parities(job, application, part, cost, modify ? written : 1 + read);
  for (std::uint32_t column = part.first; column <= part.last; ++column) {
    const std::uint64_t low = begin_of(part, column), high = end_of(part, column);
    const std::uint32_t request = make_request(job, application, part, column, kDataWrite, low, high);
    requests_[request].reads_first = modify;
    send(client, request, high - low);
  }
  for (const std::uint32_t column : cost.reads)
    add(options_.latency_seconds, kDeliver,
        make_request(job, application, part, column, kDataRead, part.low, part.high));
  if (!modify)
    for (std::uint32_t parity = jobs_[job].parities; parity != kNone; parity = requests_[parity].sibling)
      send(client, parity, part.high - part.low);
}

void Model::end_write(std::uint32_t index) {
  Client &client = clients_[index];
  ++writes_;
  written_bytes_ += client.bytes;
  if (measuring_) {
    ++result_.write_count;
    result_.write_seconds += now_ - client.started;
  } else if (writes_ >= warm_up_writes_) {
    start_measuring();
  }
  if (!is_delayed()) return begin_write(index);
  if (client.writes % options_.writes_per_window != 0) return begin_write(index);
  Application &application = applications_[client.application];
  if (--application.at_work == 0) add(options_.latency_seconds, kEndWindow, client.application);
}

void Model::begin_read(std::uint32_t index) {
  Client &client = clients_[index];
  const Application &application = applications_[client.application];
  client.bytes = draw_bytes();
  client.started = now_;
  const std::uint64_t begin = scattered_place(client.bytes);
  for_rows(begin, begin + client.bytes, [&](const Part &part) {
    ++clients_[index].pending;
    const std::uint32_t job = make_job(index, Purpose::read);
    for (std::uint32_t column = part.first; column <= part.last; ++column)
      add(options_.latency_seconds, kDeliver,
          make_request(job, application, part, column, kClientRead, begin_of(part, column), end_of(part, column)));
  });
}

void Model::end_read(std::uint32_t index) {
  if (measuring_) {
    ++result_.read_count;
    result_.read_seconds += now_ - clients_[index].started;
  }
  begin_write(index);
}

void Model::end_window(std::uint32_t index) {
  Application &application = applications_[index];
  const std::uint64_t bytes = options_.mixed_bytes.empty()
                                  ? application.client_count * options_.write_bytes * options_.writes_per_window
                                  : application.window_bytes;
  application.window_bytes = 0;
  for_rows(application.base, application.base + bytes, [&](const Part &part) {
    ++applications_[index].pending;
    end_row(index, part);
  });
  application.base += bytes;
}

// The data is on the servers. Each unit is read once, and the parity servers compute from the data that they receive.
void Model::end_row(std::uint32_t index, const Part &part) {
  const Application &application = applications_[index];
  const Cost cost = plan(part, false);
  const std::uint32_t job = make_job(index, Purpose::window);
  const auto written = part.last - part.first + 1, read = static_cast<std::uint32_t>(cost.reads.size());
  // Columns of the window that are only partly needed to reconstruct are read completely.
  std::uint32_t twice = 0;
  for (const std::uint32_t column : cost.reads) twice += column >= part.first && column <= part.last;
  make_parities(job, application, part, cost, written + read - twice);
  for (std::uint32_t column = part.first; column <= part.last; ++column) {
    const bool whole = std::find(cost.reads.begin(), cost.reads.end(), column) != cost.reads.end();
    const std::uint64_t low = whole ? part.low : begin_of(part, column),
                        high = whole ? part.high : end_of(part, column);
    const std::uint32_t request = make_request(job, application, part, column, kDataRead, low, high);
    requests_[request].moves = options_.strategy == Strategy::delayed_move;
    if (requests_[request].moves) {
      const std::uint32_t move =
          make_request(job, application, part, column, kMove, begin_of(part, column), end_of(part, column));
      requests_[request].sibling = move;
    }
    add(options_.latency_seconds, kDeliver, request);
  }
  for (const std::uint32_t column : cost.reads)
    if (column < part.first || column > part.last)
      add(options_.latency_seconds, kDeliver,
          make_request(job, application, part, column, kDataRead, part.low, part.high));
}

void Model::window_ended(std::uint32_t index) {
  Application &application = applications_[index];
  ++result_.window_count;
  application.at_work = application.client_count;
  for (std::uint32_t i = 0; i < application.client_count; ++i) begin_write(application.first_client + i);
}

void Model::acknowledge(std::uint32_t index) {
  const Job job = jobs_[index];
  free_jobs_.push_back(index);
  if (job.purpose == Purpose::window) {
    if (--applications_[job.owner].pending == 0) window_ended(job.owner);
  } else if (--clients_[job.owner].pending == 0) {
    job.purpose == Purpose::read ? end_read(job.owner) : end_write(job.owner);
  }
}

// ---- links

void Model::send(std::uint32_t index, std::uint32_t request, std::uint64_t bytes) {
  Client &client = clients_[index];
  client.link_free += link_seconds(bytes, options_.client_link_bytes_per_second);
  events_.add(client.link_free + options_.latency_seconds, kArrive,
              take(messages_, free_messages_, Message{request, bytes}));
}

void Model::send_between(std::uint32_t server, std::uint32_t request, std::uint64_t bytes) {
  double &free = servers_[server].out_free;
  free = std::max(free, now_) + link_seconds(bytes, options_.server_link_bytes_per_second);
  events_.add(free + options_.latency_seconds, kArrive, take(messages_, free_messages_, Message{request, bytes}));
}

void Model::arrive(std::uint32_t index) {
  const Message message = messages_[index];
  free_messages_.push_back(index);
  if (options_.server_link_bytes_per_second <= 0) return deliver(message.request);
  double &free = servers_[requests_[message.request].server].in_free;
  free = std::max(free, now_) + link_seconds(message.bytes, options_.server_link_bytes_per_second);
  events_.add(free, kDeliver, message.request);
}

void Model::deliver(std::uint32_t request) {
  if (--requests_[request].awaits == 0) enter(request);
}

// ---- servers

void Model::count_area() {
  area_ += static_cast<double>(in_servers_) * (now_ - area_since_);
  area_since_ = now_;
}

void Model::enter(std::uint32_t index) {
  Request &request = requests_[index];
  Server &server = servers_[request.server];
  count_area();
  ++in_servers_;
  request.entered = now_;
  if (server.busy < device_.channel_count()) {
    ++server.busy;
    return serve(request.server, index);
  }
  if (server.first == kNone) {
    server.first = index;
  } else {
    requests_[server.last].next = index;
  }
  server.last = index;
}

void Model::serve(std::uint32_t server, std::uint32_t index) {
  const Request &request = requests_[index];
  const bool write = !request.reads_first && request.role != kDataRead && request.role != kClientRead;
  const double seconds = device_.access(servers_[server].head, request.position, request.bytes, write, now_, random_);
  servers_[server].busy_seconds += seconds;
  add(seconds, request.reads_first ? kReadDone : kDone, index);
}

void Model::read_done(std::uint32_t index) {
  const Request &request = requests_[index];
  Server &server = servers_[request.server];
  if (request.role == kDataWrite) {  // the difference is sent while the data is written
    ++result_.data_read_count;
    for (std::uint32_t parity = jobs_[request.job].parities; parity != kNone; parity = requests_[parity].sibling)
      send_between(request.server, parity, request.bytes);
  } else {
    ++result_.parity_read_count;
  }
  const double seconds = device_.write_back(server.head, request.position, request.bytes, now_, random_);
  server.busy_seconds += seconds;
  add(seconds, kDone, index);
}

void Model::done(std::uint32_t index) {
  const Request request = requests_[index];
  free_requests_.push_back(index);
  count_area();
  --in_servers_;
  ++result_.request_count;
  request_seconds_ += now_ - request.entered;
  switch (request.role) {
    case kDataRead:
      ++result_.data_read_count;
      for (std::uint32_t parity = jobs_[request.job].parities; parity != kNone; parity = requests_[parity].sibling)
        send_between(request.server, parity, request.bytes);
      break;
    case kDataWrite:
      ++result_.data_write_count;
      break;
    case kParityWrite:
      ++result_.parity_write_count;
      break;
    case kMove:
      ++result_.move_write_count;
      break;
    case kClientRead:
      break;
  }
  Server &server = servers_[request.server];
  if (server.first == kNone) {
    --server.busy;
  } else {
    const std::uint32_t next = server.first;
    server.first = requests_[next].next;
    serve(request.server, next);
  }
  if (request.moves) deliver(request.sibling);
  double answered = now_ + options_.latency_seconds;
  if (request.role == kClientRead) {  // the data takes both links
    Client &client = clients_[jobs_[request.job].owner];
    server.out_free =
        std::max(server.out_free, now_) + link_seconds(request.bytes, options_.server_link_bytes_per_second);
    client.link_free = std::max(client.link_free, server.out_free + options_.latency_seconds) +
                       link_seconds(request.bytes, options_.client_link_bytes_per_second);
    answered = client.link_free;
  }
  if (--jobs_[request.job].pending == 0) events_.add(answered, kAcknowledge, request.job);
}

// ---- measuring

void Model::start_measuring() {
  count_area();
  measuring_ = true;
  measuring_since_ = now_;
  area_ = request_seconds_ = 0;
  result_ = {};
  result_.confidence = 1;
  for (Server &server : servers_) server.busy_seconds = 0;
  batch_seconds_ = std::max(now_ / kBatches, options_.most_seconds * 1e-9);
  batch_end_ = now_ + batch_seconds_;
  measured_from_bytes_ = batch_begin_bytes_ = written_bytes_;
}

bool Model::batch_ended() {
  batches_.push_back(static_cast<double>(written_bytes_ - batch_begin_bytes_));
  batch_begin_bytes_ = written_bytes_;
  if (batches_.size() == 2 * kBatches) {
    for (std::size_t i = 0; i < kBatches; ++i) batches_[i] = batches_[2 * i] + batches_[2 * i + 1];
    batches_.resize(kBatches);
    batch_seconds_ *= 2;
  }
  batch_end_ += batch_seconds_;
  if (batches_.size() != kBatches) return false;
  result_.confidence = interval_of(batches_);
  return options_.confidence > 0 && result_.confidence <= options_.confidence;
}

Result Model::run() {
  constexpr std::uint64_t kEventsPerReport = 1 << 16;
  const std::uint64_t count = clients_.size() * (is_delayed() ? options_.writes_per_window : 1);
  warm_up_writes_ = count * std::clamp(kWarmUpWrites / count, kLeastOfEach, kMostOfEach);
  // Applications begin one after the other, within about the time of a write of every client, not all at once.
  Head head;
  Random random(options_.seed);
  const double spread =
      device_.access(head, units_ / 2, std::min(options_.write_bytes, options_.unit_bytes), true, 0, random) *
      static_cast<double>(clients_.size()) / (static_cast<double>(servers_.size()) * device_.channel_count());
  for (std::uint32_t i = 0; i < applications_.size(); ++i) {
    Application &application = applications_[i];
    application.at_work = application.client_count;
    const double begin = std::min(spread, options_.most_seconds / 16) * i / static_cast<double>(applications_.size());
    for (std::uint32_t j = 0; j < application.client_count; ++j)
      events_.add(begin, kBegin, application.first_client + j);
  }
  const double warm_up_end = options_.most_seconds * kMostWarmUp;
  bool stopped = false;
  std::uint64_t event_count = 0;
  while (!stopped) {
    const Event event = events_.first();
    if (event.time >= options_.most_seconds) break;
    if (!measuring_ && event.time >= warm_up_end) {
      now_ = warm_up_end;
      start_measuring();
    }
    if (measuring_ && event.time >= batch_end_) {
      now_ = batch_end_;
      stopped = batch_ended();
      continue;
    }
    events_.remove_first();
    now_ = event.time;
    if (++event_count % kEventsPerReport == 0 && options_.progress) {
      const double by_time = now_ / options_.most_seconds;
      const double ratio = measuring_ ? options_.confidence / std::max(result_.confidence, options_.confidence) : 0;
      options_.progress(std::max(by_time, ratio * ratio), now_);
    }
    switch (static_cast<What>(event.what)) {
      case kBegin:
        begin_write(event.index);
        break;
      case kArrive:
        arrive(event.index);
        break;
      case kDeliver:
        deliver(event.index);
        break;
      case kReadDone:
        read_done(event.index);
        break;
      case kDone:
        done(event.index);
        break;
      case kAcknowledge:
        acknowledge(event.index);
        break;
      case kEndWindow:
        end_window(event.index);
        break;
    }
  }
  if (!stopped) now_ = options_.most_seconds;
  if (!measuring_) start_measuring();
  count_area();
  result_.simulated_seconds = now_;
  result_.measured_seconds = now_ - measuring_since_;
  result_.event_count = event_count;
  if (result_.read_count > 0) result_.read_seconds /= static_cast<double>(result_.read_count);
  if (result_.measured_seconds <= 0 || result_.write_count == 0) return result_;
  result_.bytes_per_second = static_cast<double>(written_bytes_ - measured_from_bytes_) / result_.measured_seconds;
  result_.write_seconds /= static_cast<double>(result_.write_count);
  if (result_.request_count > 0)
    result_.request_seconds = request_seconds_ / static_cast<double>(result_.request_count);
  result_.queue_length = area_ / result_.measured_seconds;
  const double most = result_.measured_seconds * device_.channel_count();
  for (const Server &server : servers_) {
    result_.utilisation += server.busy_seconds / most / static_cast<double>(servers_.size());
    result_.most_utilisation = std::max(result_.most_utilisation, server.busy_seconds / most);
  }
  return result_;
}

}  // namespace tandem::bench::storage
