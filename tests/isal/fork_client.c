/* SPDX-License-Identifier: Apache-2.0 */
/* Threads make their first large calls while the main thread forks; each child makes large calls of its own. Run with
 * TANDEM_ISAL_THREADS=2: a child may be forked while a thread, which it does not have, is at any point of opening
 * libtandem and starting threads. At every such point the child neither crashes nor hangs, and its bytes are right. A
 * child that is forked when all is done must have a thread of its own: without that, nothing was put to the test.
 *
 *   fork_client ROUNDS [FIRST_SEED]
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <isa-l.h>

#include "threads.h"

enum {
  k = 4,
  m = 2,
  len = 1500000,      /* with k + m shards more than the 8 MiB from which on calls are handed over */
  slice_len = 100000, /* less */
  matrix_count = 6,
  thread_count = 4,
  thread_count_of_child = 2,
  call_count = 2, /* of each thread */
  fork_count = 5, /* in each round */
  child_seconds = 20,
  round_seconds = 100,
  wrong_bytes = 9, /* statuses of a child */
  no_threads = 8
};

static unsigned char *data[k], *expected[matrix_count][m];
static unsigned char tables[matrix_count][32 * k * m];

static void *allocate(size_t bytes) {
  void *memory = malloc(bytes);
  if (memory == NULL) abort();
  return memory;
}

/* What the first process prepares, without a large call. */
static void prepare(void) {
  uint64_t state = 1;
  for (int i = 0; i < k; ++i) {
    data[i] = allocate(len);
    for (int b = 0; b < len; ++b) data[i][b] = (unsigned char)((state = state * 6364136223846793005u + 1) >> 56);
  }
  for (int matrix = 0; matrix < matrix_count; ++matrix) {
    unsigned char coefficients[k * m];
    for (int i = 0; i < k * m; ++i) coefficients[i] = (unsigned char)(2 + i * 31 + matrix * 7);
    ec_init_tables(k, m, coefficients, tables[matrix]);
    for (int i = 0; i < m; ++i) expected[matrix][i] = allocate(len);
    for (int start = 0; start < len; start += slice_len) {
      unsigned char *from[k], *to[m];
      for (int i = 0; i < k; ++i) from[i] = data[i] + start;
      for (int i = 0; i < m; ++i) to[i] = expected[matrix][i] + start;
      ec_encode_data(slice_len, k, m, tables[matrix], from, to);
    }
  }
}

static void *call(void *first_matrix) {
  unsigned char *parity[m];
  for (int i = 0; i < m; ++i) parity[i] = allocate(len);
  for (int n = 0; n < call_count; ++n) {
    const int matrix = (int)((uintptr_t)first_matrix + (unsigned)n) % matrix_count;
    for (int i = 0; i < m; ++i) memset(parity[i], 0, len);
    ec_encode_data(len, k, m, tables[matrix], data, parity);
    for (int i = 0; i < m; ++i)
      if (memcmp(parity[i], expected[matrix][i], len) != 0) _exit(wrong_bytes);
  }
  for (int i = 0; i < m; ++i) free(parity[i]);
  return NULL;
}

static void start(pthread_t *threads, int count, unsigned seed) {
  for (int i = 0; i < count; ++i)
    if (pthread_create(&threads[i], NULL, call, (void *)(uintptr_t)(seed + (unsigned)i)) != 0) abort();
}

static void join(const pthread_t *threads, int count) {
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
}

/* The status of a child, waited for and told about. */
static int end_of(pid_t child, const char *name, unsigned seed) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) abort();
  if (status == 0) return 0;
  if (WIFSIGNALED(status)) {
    fprintf(stderr, "seed %u: the %s ended with signal %d%s\n", seed, name, WTERMSIG(status),
            WTERMSIG(status) == SIGALRM ? ": it hung" : "");
  } else {
    const char *why = WEXITSTATUS(status) == wrong_bytes  ? ": wrong bytes"
                      : WEXITSTATUS(status) == no_threads ? ": it started no thread"
                                                          : "";
    fprintf(stderr, "seed %u: the %s ended with %d%s\n", seed, name, WEXITSTATUS(status), why);
  }
  return 1;
}

/* In a process that has made no large call yet. */
static int play_round(unsigned seed) {
  pthread_t threads[thread_count], threads_of_child[thread_count_of_child];
  pid_t children[fork_count];
  int failed_count = 0;
  alarm(round_seconds);
  start(threads, thread_count, seed);
  for (int i = 0; i < fork_count; ++i) {
    usleep(100 * (unsigned)i + seed * 37 % 600); /* at other moments in each round */
    children[i] = fork();
    if (children[i] != 0) continue;
    alarm(child_seconds);
    start(threads_of_child, thread_count_of_child, seed + (unsigned)i);
    join(threads_of_child, thread_count_of_child);
    _exit(0);
  }
  for (int i = 0; i < fork_count; ++i) failed_count += end_of(children[i], "child", seed);
  join(threads, thread_count);

  const pid_t last = fork();
  if (last == 0) {
    alarm(child_seconds);
    call((void *)(uintptr_t)seed);
    _exit(threads_of_process() == 2 ? 0 : no_threads);
  }
  failed_count += end_of(last, "last child", seed);
  return failed_count != 0;
}

int main(int argc, char **argv) {
  const unsigned round_count = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
  const unsigned first_seed = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
  unsigned failed_count = 0;
  if (round_count == 0) return fprintf(stderr, "usage: fork_client ROUNDS [FIRST_SEED]\n"), 2;
  prepare();
  for (unsigned seed = first_seed; seed < first_seed + round_count; ++seed) {
    const pid_t child = fork();
    if (child == 0) _exit(play_round(seed));
    failed_count += (unsigned)end_of(child, "round", seed);
  }
  printf("%u of %u rounds failed\n", failed_count, round_count);
  return failed_count != 0;
}
