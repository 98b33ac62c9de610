/* SPDX-License-Identifier: Apache-2.0 */
/* storage.h - a simulator of a storage system: clients write through links to servers with disks.
 *
 * It shows what parity costs there. Part of libtandem_volume. docs/STORAGE.md describes the model.
 */
#ifndef TANDEM_STORAGE_H
#define TANDEM_STORAGE_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How parity is computed. */
typedef int32_t tandem_storage_strategy;
#define TANDEM_STORAGE_RAID0 ((tandem_storage_strategy)0)        /* no parity */
#define TANDEM_STORAGE_STANDARD ((tandem_storage_strategy)1)     /* by each write, which does not know what is zero */
#define TANDEM_STORAGE_AVOID ((tandem_storage_strategy)2)        /* by each write, and writes go to unwritten places */
#define TANDEM_STORAGE_DELAYED ((tandem_storage_strategy)3)      /* at the end of each window of an application */
#define TANDEM_STORAGE_DELAYED_MOVE ((tandem_storage_strategy)4) /* the same, and the data moves to its final place */

/* Where the writes of an application's clients go. Delayed parity always uses INTERLEAVED: the layer that holds the
 * data of a window chooses the place. */
typedef int32_t tandem_storage_placement;
#define TANDEM_STORAGE_SCATTERED ((tandem_storage_placement)0)   /* each write to a random place of a random row */
#define TANDEM_STORAGE_INTERLEAVED ((tandem_storage_placement)1) /* one after the other in the application's file */

typedef int32_t tandem_storage_kind;
#define TANDEM_STORAGE_CONSTANT ((tandem_storage_kind)0) /* a fixed time for each read and each write */
#define TANDEM_STORAGE_HDD ((tandem_storage_kind)1)      /* seek, rotation, transfer */
#define TANDEM_STORAGE_SSD ((tandem_storage_kind)2)      /* channels that share the transfer rate */
#define TANDEM_STORAGE_MEASURED ((tandem_storage_kind)3) /* latencies drawn from a table */

/* One point of a measured distribution of latencies. Points with the same is_write and request_bytes form one
 * distribution. */
typedef struct tandem_storage_latency {
  uint64_t request_bytes;
  double quantile; /* 0 to 1: this part of the requests took at most `seconds` */
  double seconds;
  int32_t is_write;
  uint32_t reserved; /* 0 */
} tandem_storage_latency;

typedef struct tandem_storage_device {
  size_t struct_bytes; /* sizeof(tandem_storage_device) */
  tandem_storage_kind kind;
  uint32_t channel_count;                               /* requests served at once; HDD: 1. 0 = 1 */
  double read_seconds, write_seconds;                   /* fixed time of each request; CONSTANT: its whole time */
  double read_bytes_per_second, write_bytes_per_second; /* HDD and SSD: of all channels together */
  uint64_t capacity_bytes;                              /* HDD: of the surface; others: not used */
  double revolution_seconds;                            /* HDD */
  /* HDD: a seek to the next track; the average seek between random places; a seek from edge to edge */
  double read_track_seek_seconds, read_average_seek_seconds, read_full_seek_seconds;
  double write_track_seek_seconds, write_average_seek_seconds, write_full_seek_seconds;
  const tandem_storage_latency *latencies; /* MEASURED: latency_count points; others: NULL */
  size_t latency_count, latency_stride_bytes;
} tandem_storage_device;

/* Fills in a device from a data sheet.
 *   name        "hdd": Seagate Constellation ST9500430SS; "ssd": Intel SSD DC S3700 800 GB
 *   device_out  struct_bytes set by the caller; the rest is written on TANDEM_OK
 * Ownership: device_out points to nothing.
 * Status: INVALID_ARGUMENT (NULL, or no such name).
 * On failure nothing is written.
 * Threads: any. */
TANDEM_API tandem_status tandem_storage_named_device(const char *name, tandem_storage_device *device_out);

/* Receives the progress every few hundredths of a second, on the simulating thread. `part` is an estimate of the part
 * that is done. Non-zero: stop. */
typedef int32_t (*tandem_storage_callback)(void *user, double part, double simulated_seconds);

typedef struct tandem_storage_options {
  size_t struct_bytes; /* sizeof(tandem_storage_options) */
  tandem_storage_strategy strategy;
  tandem_storage_placement placement;
  uint32_t server_count;
  uint32_t width;        /* servers of a row, data and parity; 0 = server_count */
  uint32_t parity_count; /* of each row: 1 is RAID-5, 2 is RAID-6; RAID0: 0 */
  uint32_t client_count;
  uint32_t clients_per_application; /* 0 = 147 */
  uint32_t writes_per_window;       /* of each client between two hints, with delayed parity; 0 = 1 */
  uint64_t unit_bytes;              /* of a row on one server; 0 = 1 MiB */
  uint64_t write_bytes;             /* a divisor or a multiple of unit_bytes; 0 = 128 KiB */
  const tandem_storage_device *device;
  double server_link_bytes_per_second; /* each way; 0 = no limit */
  double client_link_bytes_per_second; /* 0 = no limit */
  double latency_seconds;              /* of each message */
  double most_seconds;                 /* simulated time, warm-up included; 0 = 1000 */
  double confidence;                   /* stop when half the 95 % interval of the rate is at most this part of the rate;
                                          0 = simulate most_seconds */
  uint64_t seed;                       /* the same options and seed give the same result */
  tandem_storage_callback progress;    /* NULL = none */
  void *progress_user;
} tandem_storage_options;

typedef struct tandem_storage_result {
  size_t struct_bytes;      /* set by the caller: sizeof(tandem_storage_result) */
  double simulated_seconds; /* total */
  double measured_seconds;  /* after the warm-up. All figures below, except event_count, cover this time */
  double bytes_per_second;  /* of data that clients wrote */
  double confidence;        /* half the 95 % interval of that rate, as a part of it; 1: the run was too short */
  uint64_t event_count;     /* total */
  uint64_t write_count;     /* completed writes of clients */
  double write_seconds;     /* mean time of a client's write */
  uint64_t data_read_count, parity_read_count, data_write_count, parity_write_count; /* I/Os of the servers */
  uint64_t move_write_count;    /* DELAYED_MOVE: to the final place; not in data_write_count */
  uint64_t parity_update_count; /* updates of one row, with all its parity units */
  uint64_t window_count;        /* windows that ended */
  uint64_t request_count;       /* completed by the servers; read-then-write of the same place is one */
  double request_seconds;       /* mean time of a request in the server, waiting included */
  double queue_length;          /* requests in all servers, waiting included, mean over time */
  double utilisation;           /* of the servers' channels, mean */
  double most_utilisation;      /* of the busiest server */
} tandem_storage_result;

/* Simulates clients that write. Each client begins its next write when the last one is complete.
 *   options      device and the counts must be set
 *   result_out   struct_bytes set by the caller; the rest is written on TANDEM_OK
 * tandem_volume_plan_write (volume.h) decides which I/Os a write needs.
 * Ownership: nothing is kept.
 * Status: INVALID_ARGUMENT (NULL; an invalid count, size or time, with its value in the message), TOO_LARGE,
 *   UNSUPPORTED (options of a newer version), CANCELLED, OUT_OF_MEMORY, INTERNAL.
 * On failure nothing is written.
 * Threads: any; runs on the calling one. */
TANDEM_API tandem_status tandem_storage_simulate(const tandem_storage_options *options,
                                                 tandem_storage_result *result_out);

#ifdef __cplusplus
}
#endif
#endif
