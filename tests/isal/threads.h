/* SPDX-License-Identifier: Apache-2.0 */
/* How many threads this process has. */
#pragma once

#include <dirent.h>
#include <stdlib.h>

static int threads_of_process(void) {
  DIR *tasks = opendir("/proc/self/task");
  int count = 0;
  if (tasks == NULL) abort();
  for (const struct dirent *task; (task = readdir(tasks)) != NULL;) count += task->d_name[0] != '.';
  closedir(tasks);
  return count;
}
