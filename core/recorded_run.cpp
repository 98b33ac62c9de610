// SPDX-License-Identifier: Apache-2.0
#include "core/recorded_run.hpp"

#include <algorithm>
#include <cstdio>

namespace tandem::core {

TaskText::TaskText(const Task &task) noexcept {
  const int length = std::snprintf(text_, sizeof text_, "%s %ux%u", name_of(task.mode), task.prepared->rows(),
                                   task.prepared->columns());
  length_ = static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof text_) - 1));
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
