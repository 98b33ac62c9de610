#include "core/recorded_run.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::core {

TaskText::TaskText(const Task &task) noexcept {
  const auto end = fmt::format_to_n(text_, sizeof text_, "{} {}x{}", name_of(task.mode), task.prepared->rows(),
                                    task.prepared->columns());
  length_ = std::min(end.size, sizeof text_);
}

void RecordedRun::record() const noexcept {
  if (tasks_.empty()) return;
  const Task &first = tasks_.front();
  std::uint64_t begin = first.offset_bytes, end = begin, bytes = 0;
  for (const Task &task : tasks_) {
    end += task.length_bytes;
    bytes += task.length_bytes * task.prepared->columns();
  }
  timeline_->add({timeline_->row_of_this_thread(kind_), TaskText(first).text(), begin, end, bytes, start_seconds_,
                  base::Timeline::now(), std::uncaught_exceptions() == exception_count_});
}

}  // namespace tandem::core
