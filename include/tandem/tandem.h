/* tandem.h - Reed-Solomon erasure coding on every processor of a machine.
 *
 * Split data into k equal shards, compute m parity shards, lose any m of the k+m, get them back.
 *
 *     tandem_context *context;                          // where to run: all cores of this machine
 *     tandem_codec *codec;                              // what to compute: 10 data + 4 parity shards
 *     tandem_codec_options options = {.struct_bytes = sizeof options, .k = 10, .m = 4};
 *     tandem_context_create(NULL, &context);
 *     tandem_codec_create(&options, &codec);
 *     tandem_encode(context, codec, data, parity, shard_bytes);          // 10 pointers in, 4 out
 *     tandem_decode(context, codec, shards, present, shard_bytes);       // rebuilds what present[] misses
 *
 * The header goes from simple to advanced: codec and context, the plain functions, many stripes and
 * scattered memory, then plans and jobs for programs that repeat themselves or want to go on meanwhile.
 *
 * What holds everywhere, unless a function says otherwise:
 *
 *   bytes      Shard i of one call is shard_bytes long, >= 1, any length. Addresses need no alignment
 *              (64 bytes, and shards that do not all start at the same offset in a 4 KiB page, are
 *              fastest; tandem_shards_allocate does both). Sizes are checked for overflow.
 *   overlap    No output overlaps another output or an input; inputs may alias each other. Checked
 *              (TANDEM_ERROR_OVERLAP) from 64 KiB of total bytes up, and always in debug builds.
 *   ownership  The library takes a read interest in inputs and a write interest in outputs until the
 *              function returns (or its job is waited for). It keeps no pointer afterwards.
 *   errors     Every function returns a tandem_status. Anything but TANDEM_OK leaves a sentence with the
 *              numbers in tandem_last_error_message(). A call refused for its arguments has written
 *              nothing; TANDEM_ERROR_CANCELLED and TANDEM_ERROR_DEVICE leave outputs undefined.
 *   threads    Any function may be called from any thread at any time, on the same objects too, except
 *              that an object must not be destroyed while another call uses it.
 *   stack      A call needs up to 80 KiB of the calling thread's stack.
 *   fork       A child process may go on using contexts, codecs and plans made before the fork; jobs
 *              still running at the fork belong to the parent. Contexts of devices (OpenCL) return
 *              TANDEM_ERROR_DEVICE in a child whose parent had used a device: drivers do not survive a fork.
 *   field      GF(2^8) with polynomial 0x11d (x^8 + x^4 + x^3 + x^2 + 1), generator 2, up to 256 shards; or
 *              GF(2^16), up to 65,536 shards (docs/MATRICES.md), on the CPU alone. Shards of GF(2^16) have an
 *              even number of bytes, shards in packets whole groups of them.
 */
#ifndef TANDEM_TANDEM_H
#define TANDEM_TANDEM_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define TANDEM_API
#else
#define TANDEM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TANDEM_VERSION_MAJOR 0
#define TANDEM_VERSION_MINOR 1
#define TANDEM_VERSION_PATCH 0

/* ---- status ------------------------------------------------------------------------------------- */

typedef int32_t tandem_status; /* one of enum tandem_status_value; values are pinned for ever */

enum tandem_status_value {
  TANDEM_OK = 0,
  TANDEM_ERROR_INVALID_ARGUMENT = 1, /* NULL, zero, or out of range */
  TANDEM_ERROR_UNSUPPORTED = 2,      /* well-formed, but this version cannot do it */
  TANDEM_ERROR_UNAVAILABLE = 3,      /* unknown, or this machine lacks it: a kernel, an executor, a device */
  TANDEM_ERROR_OUT_OF_MEMORY = 4,
  TANDEM_ERROR_TOO_LARGE = 5,       /* a product of sizes does not fit */
  TANDEM_ERROR_OVERLAP = 6,         /* an output overlaps another buffer, or two registered ranges overlap */
  TANDEM_ERROR_NOT_MDS = 7,         /* this (k, m, matrix) could lose data that m parities should save */
  TANDEM_ERROR_NOT_RECOVERABLE = 8, /* the shards that are left do not determine the wanted ones */
  TANDEM_ERROR_CANCELLED = 9,       /* tandem_job_cancel, or a progress callback said stop */
  TANDEM_ERROR_DEVICE = 10,         /* a device failed and its work could not be proven or redone */
  TANDEM_ERROR_IO = 11,             /* files.h: the operating system refused; errno is in the message */
  TANDEM_ERROR_DAMAGED = 12,        /* files.h: bytes on disk are not what was written */
  TANDEM_ERROR_INTERNAL = 13        /* a defect of Tandem: please report the message */
};

/* The name of a status ("TANDEM_ERROR_OVERLAP"), or "TANDEM_STATUS_UNKNOWN". Static storage; any thread. */
TANDEM_API const char *tandem_status_name(tandem_status status);

/* The sentence for the calling thread's last failure, with the numbers, e.g. "3 of 10 data shards missing,
 * only 2 parity shards present". Empty before the first. Storage belongs to the thread and is overwritten by
 * its next failure; success leaves it alone. At most 511 bytes, zero-terminated. */
TANDEM_API const char *tandem_last_error_message(void);

/* Sets the calling thread's sentence and returns `status`. For libraries on top of this one (volume.h, mpi.h), so that
 * their users ask for every message in one place. The message is copied, and shortened in the middle if it is too
 * long; NULL: the name of the status. */
TANDEM_API tandem_status tandem_set_last_error(tandem_status status, const char *message);

/* The version of the library that is running: (major << 16) | (minor << 8) | patch, and "0.1.0". */
TANDEM_API uint32_t tandem_version(void);
TANDEM_API const char *tandem_version_string(void);

/* ---- codec: what to compute ---------------------------------------------------------------------- */

typedef struct tandem_codec tandem_codec;

/* Generator matrices: bytes that other programs read and write. Formulas, sources and limits of each are
 * in docs/MATRICES.md. r is the parity row, c the data column; 2 generates the field. Values are pinned. */
enum tandem_matrix_value {
  TANDEM_MATRIX_ISAL_CAUCHY = 0,                  /* 1 / ((k + r) xor c): ISA-L, HDFS RS, DAOS, XRootD */
  TANDEM_MATRIX_ISAL_VANDERMONDE = 1,             /* 2^(r*c): ISA-L gf_gen_rs_matrix; seldom MDS for m > 3 */
  TANDEM_MATRIX_BACKBLAZE = 2,                    /* Backblaze, klauspost default, MinIO, SeaweedFS */
  TANDEM_MATRIX_ZFEC = 3,                         /* zfec, Tahoe-LAFS */
  TANDEM_MATRIX_LIBERASURECODE_ISAL_VAND_INV = 4, /* pyeclib isa_l_rs_vand_inv; k+m <= 255 */
  TANDEM_MATRIX_JERASURE_VANDERMONDE = 5,         /* Jerasure reed_sol_van, Ceph jerasure */
  TANDEM_MATRIX_JERASURE_CAUCHY_ORIG = 6,         /* with layout packets: Jerasure and Ceph cauchy_orig,
                                                     liberasurecode jerasure_rs_cauchy (packets of 1024 bytes) */
  TANDEM_MATRIX_JERASURE_CAUCHY_GOOD = 7,         /* with layout packets: Jerasure and Ceph cauchy_good */
  TANDEM_MATRIX_RAID6 = 8,                        /* 1 ; 2^c: Linux md, btrfs; m <= 2 */
  TANDEM_MATRIX_ZFS_RAIDZ = 9,                    /* 1 ; 2^(k-1-c) ; 4^(k-1-c): OpenZFS; m <= 3 */
  TANDEM_MATRIX_SNAPRAID_CAUCHY = 10,             /* SnapRAID; m <= 6, k <= 251 */
  TANDEM_MATRIX_SNAPRAID_VANDERMONDE = 11,        /* SnapRAID -z: 1 ; 2^c ; 2^-c; m <= 3 */
  TANDEM_MATRIX_PAR1 = 12,                        /* (c+1)^r: PAR1; rarely MDS */
  TANDEM_MATRIX_HDFS_RS_LEGACY = 13,              /* HDFS RS-LEGACY; k+m <= 255 */
  /* Over GF(2^16); the options' field must say so. */
  TANDEM_MATRIX_LEOPARD16 = 14,              /* klauspost/reedsolomon WithLeopardGF16; k + pow2(m) <= 65536 */
  TANDEM_MATRIX_REED_SOLOMON_SIMD = 15,      /* reed-solomon-simd, PyPI reed-solomon-leopard; the smaller of k and m,
                                                rounded up to a power of two, plus the other <= 65536 */
  TANDEM_MATRIX_PAR2 = 16,                   /* PAR2 recovery blocks 0 .. m-1; k <= 32768; MDS for m <= 3 or k <= 2 */
  TANDEM_MATRIX_LIBERASURECODE_RS_VAND = 17, /* pyeclib liberasurecode_rs_vand; k + m <= 32 */
  /* Over GF(2^8), with local groups; the options' local_groups must say how many. */
  TANDEM_MATRIX_LRC_AZURE = 18,               /* an XOR for each group, then m - local_groups global parities */
  TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC = 19, /* pyeclib isa_l_rs_lrc: the global parities, then one for each group */

  TANDEM_MATRIX_CUSTOM = 1000 /* `coefficients` of the options */
};

enum tandem_field_value {
  TANDEM_FIELD_GF8 = 0, /* bytes modulo 0x11d */
  TANDEM_FIELD_GF16 = 1 /* 16 bits. Custom matrices: little-endian words modulo 0x1100b */
};

/* How the elements of the field lie in a shard. */
enum tandem_layout_value {
  TANDEM_LAYOUT_BYTES = 0,  /* GF(2^8): a byte each; GF(2^16): as the matrix has it */
  TANDEM_LAYOUT_PACKETS = 1 /* Jerasure's: a shard is a row of groups, each of word_bits packets of packet_bytes. Bit b
                               of byte j of all packets of a group is an element, its lowest bit in the first packet */
};

typedef struct tandem_codec_options {
  size_t struct_bytes;      /* sizeof(tandem_codec_options): lets the struct grow */
  uint32_t k;               /* data shards, >= 1 */
  uint32_t m;               /* parity shards, >= 0; k + m <= 256, in GF(2^16) <= 65536 */
  int32_t matrix;           /* enum tandem_matrix_value */
  int32_t field;            /* enum tandem_field_value */
  const void *coefficients; /* TANDEM_MATRIX_CUSTOM: m x k elements, row-major; copied. GF(2^8): bytes; GF(2^16):
                               uint16_t. Else NULL */
  int32_t allow_non_mds;    /* non-zero: accept a matrix that cannot recover from every loss of m shards */
  int32_t reserved;         /* 0 */
  int32_t layout;           /* enum tandem_layout_value; packets: jerasure-cauchy-orig, -good and custom matrices */
  uint32_t word_bits;       /* packets: 8 or 4, in GF(2^16) 16; 0 = 8 or 16. 4: GF(2^4) with x^4 + x + 1: presets have
                               k + m <= 16, custom coefficients are bytes below 16. Else 0 */
  uint64_t packet_bytes;    /* packets: a multiple of 8, word_bits * packet_bytes <= 2^32. Else 0 */
  uint32_t local_groups;    /* matrices with local groups: their number, 1 to the smaller of k and m; so many of the m
                               parity shards belong to one group each. Others: 0 */
  uint32_t reserved2;       /* 0 */
} tandem_codec_options;

/* Makes a codec: immutable, shared freely between threads and contexts.
 *   options      see above; options beyond what this version knows must be zero
 *   codec_out    the new codec; untouched on failure. tandem_codec_destroy ends it
 * A preset beyond its proven MDS limit, and a custom matrix that is not MDS or too large to check (more than
 * 10^6 minors), is refused unless allow_non_mds is set; decoding then finds an invertible set of survivors or
 * returns TANDEM_ERROR_NOT_RECOVERABLE for that loss.
 * Local groups: the k data shards are cut into local_groups runs, the first k % local_groups of them one longer. The
 * code rebuilds any m - local_groups + 1 lost shards and many larger losses (docs/MATRICES.md), one lost data shard
 * from its group alone. It is not MDS and needs no allow_non_mds.
 * GF(2^16): leopard16 and reed-solomon-simd need memory and time linear in k + m. par2 and custom matrices are kept
 * whole and are refused beyond 64 MiB of coefficients; so is a decode that would need a larger matrix.
 * Packets: shard_bytes of every call must be a multiple of word_bits * packet_bytes, and pieces of scattered shards end
 * at such multiples. They run on the CPU alone. A code of more than 2^24 bits (word_bits^2 * k * m) is refused.
 * Status: INVALID_ARGUMENT (k = 0, k + m > 256 or 65536, unknown matrix or field, a matrix of the other field, beyond
 *   the preset's range, an unknown layout, word_bits or packet_bytes that it does not have, local_groups that the
 *   matrix does not have), UNSUPPORTED (unknown non-zero trailing option bytes), NOT_MDS, TOO_LARGE (coefficients,
 *   bits), OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_codec_create(const tandem_codec_options *options, tandem_codec **codec_out);

/* Ends a codec. NULL is allowed. Plans made from it stay valid. */
TANDEM_API void tandem_codec_destroy(tandem_codec *codec);

/* The parity rows of the generator matrix, m x k elements, row-major.
 *   coefficients_out  bytes in GF(2^8), uint16_t in GF(2^16) (any alignment; leopard16 and reed-solomon-simd:
 *                     coordinates of the Cantor basis, docs/MATRICES.md). Untouched on failure
 *   capacity_bytes    its size; at least m * k, in GF(2^16) 2 * m * k
 * Status: INVALID_ARGUMENT when NULL, or when capacity_bytes is too small. Threads: any. */
TANDEM_API tandem_status tandem_codec_coefficients(const tandem_codec *codec, void *coefficients_out,
                                                   size_t capacity_bytes);

/* Names of matrices as the command line spells them ("isal-cauchy"). tandem_matrix_name returns NULL for an
 * unknown value; tandem_matrix_from_name returns INVALID_ARGUMENT for an unknown name. */
TANDEM_API const char *tandem_matrix_name(int32_t matrix);
TANDEM_API tandem_status tandem_matrix_from_name(const char *name, int32_t *matrix_out);

/* The field of a preset, enum tandem_field_value: what `field` of the options must be for it.
 *   matrix     enum tandem_matrix_value, but not TANDEM_MATRIX_CUSTOM, which has either field
 *   field_out  untouched on failure
 * Status: INVALID_ARGUMENT (NULL, no such preset). Threads: any. */
TANDEM_API tandem_status tandem_matrix_field(int32_t matrix, int32_t *field_out);

/* 1 for a preset with local groups, which needs `local_groups` of the options; else 0. Threads: any. */
TANDEM_API int32_t tandem_matrix_has_local_groups(int32_t matrix);

/* ---- context: where to run ----------------------------------------------------------------------- */

typedef struct tandem_context tandem_context;

/* How the CPU's work is spread over threads. */
enum tandem_executor_value {
  TANDEM_EXECUTOR_DEFAULT = 0, /* pthread; serial where only one thread is allowed */
  TANDEM_EXECUTOR_SERIAL = 1,  /* the calling thread alone */
  TANDEM_EXECUTOR_PTHREAD = 2, /* a pool of the context's own, started by the first large call */
  TANDEM_EXECUTOR_OPENMP = 3   /* the process' OpenMP runtime (libtandem_openmp.so, in tandem/ beside the library) */
};

/* What one CPU thread takes. By parity, as in the Jerasure 2.0 paper, a chunk is as long as the shards, so that cancel
 * and budget act late. */
enum tandem_partition_value {
  TANDEM_PARTITION_DEFAULT = 0, /* column */
  TANDEM_PARTITION_COLUMN = 1,  /* byte ranges of all shards */
  TANDEM_PARTITION_PARITY = 2   /* some of the outputs, whole length */
};

/* OpenMP's schedule clause. */
enum tandem_schedule_value {
  TANDEM_SCHEDULE_DEFAULT = 0, /* static */
  TANDEM_SCHEDULE_STATIC = 1,
  TANDEM_SCHEDULE_DYNAMIC = 2
};

enum tandem_log_level_value { TANDEM_LOG_DEBUG = 0, TANDEM_LOG_INFO = 1, TANDEM_LOG_WARNING = 2 };

/* Hears what the library decided and why. May be called from any thread, several at once; must not call back
 * into Tandem. `message` is one line without a newline, valid during the call. */
typedef void (*tandem_log_callback)(void *user, int32_t level, const char *message);

typedef struct tandem_context_options {
  size_t struct_bytes;              /* sizeof(tandem_context_options) */
  const char *backend;              /* NULL = "auto": the CPU, and where there are GPUs those too, once calls have moved
                                       4 GiB; "hybrid": the CPU and what GPUs there are; "hybrid:cpu+opencl:0:0": these
                                       together; "cpu", "opencl" (its first GPU or accelerator, else its first device),
                                       "cuda" (the first GPU that can be used), or a device of tandem_devices() in
                                       tools.h: "opencl:0:1", "cuda:0". Plans for the memory of a device want that
                                       device named. "auto" with an executor is the CPU */
  const char *kernel;               /* NULL = the best this CPU has; a CPU kernel's name forces it. OpenCL, CUDA:
                                       "compiled" or "tables" forces that technique */
  uint32_t thread_count;            /* 0 = every core that affinity and cgroup quota allow */
  int32_t executor;                 /* enum tandem_executor_value */
  int32_t partition;                /* enum tandem_partition_value */
  int32_t schedule;                 /* enum tandem_schedule_value; dynamic needs the executor OpenMP */
  int32_t pin_threads;              /* non-zero: pthread workers are pinned, one to a core of the affinity mask */
  int32_t log_level;                /* the lowest enum tandem_log_level_value that log_callback hears */
  const char *resources;            /* NULL, or amounts such as "cpu=5,widgets=2": see tandem_context_set_resource */
  tandem_log_callback log_callback; /* NULL = silent */
  void *log_user;
  const char *tuning_file; /* NULL = TANDEM_TUNING, else tandem/tuning.json in the user's data folder; "" = none */
  const char *policy; /* of a hybrid: NULL = "auto": work is shared so that nobody stalls the finish; "budget": whoever
                         is idle takes a chunk, within `resources`; "free": without them */
  const char *timeline_file; /* which worker (thread, lane of a device) did which range when, and when the functions of
                                files.h read, hashed and wrote: a trace that Perfetto opens, written when the context
                                ends (docs/TIMELINE.md); NULL = TANDEM_TIMELINE, else none; "" = none */
  const char *technique;     /* of the CPU: NULL or "" = whichever costs less; "matrix": a product for each coefficient;
                                "transform": work that data shards share. A plan or call that has no transform is refused
                                then (UNSUPPORTED), but for updates and accumulation of single shards */
} tandem_context_options;

/* Makes a context. No thread starts and no device is touched before a call needs it: whether the machine has the
 * device that is asked for, the first plan or call says (UNAVAILABLE).
 *   options      NULL = all defaults. The strings are copied
 *   context_out  the new context; untouched on failure. tandem_context_destroy ends it
 * Options left at zero are read from the environment (docs/ENVIRONMENT.md): TANDEM_BACKEND, TANDEM_KERNEL,
 * TANDEM_THREADS, TANDEM_EXECUTOR, TANDEM_RESOURCES, TANDEM_POLICY, TANDEM_TIMELINE, TANDEM_TUNING.
 * The tuning file (what tandem_autotune of tools.h found here) is read once. One that is damaged, of a newer version or
 * of other devices is ignored, with a warning to log_callback: it changes speed, never bytes. A hybrid with the policy
 * "auto" writes the speeds that it has learned into that file when the context ends.
 * An option that has no effect on the backend is refused: a policy where it is no hybrid; thread_count, executor,
 * partition by parity, schedule, pin_threads, technique where it has no CPU threads (a device alone, a hybrid without
 * "cpu"); the kernel of such a hybrid; executor and pin_threads where a hybrid of several has a policy other than
 * "auto". What the environment says is a default for all programs: it is not refused. Status: INVALID_ARGUMENT (also an
 * option without effect; the message names it and the backend), UNSUPPORTED (unknown trailing options), UNAVAILABLE (a
 * backend, kernel or executor that does not exist or that this machine lacks; the message lists those that it has), IO
 * (timeline_file cannot be written), OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_context_create(const tandem_context_options *options, tandem_context **context_out);

/* Ends a context: waits for its threads to finish what they run, a search for GPUs among them. NULL is allowed. Plans
 * and jobs made from it must have been destroyed. */
TANDEM_API void tandem_context_destroy(tandem_context *context);

/* Sets how much of a named resource the tasks of this context may hold at once, all calls and jobs together, also
 * while they run: waiting tasks feel it at once, others at their next chunk. Nothing is counted before the first one.
 *   name     1 to 63 characters of A-Z a-z 0-9 _ . -
 *   amount   >= 1; a resource that is not set has no limit
 * A task holds all that it needs, or waits; in the order of asking, except that one that fits may pass a waiting one
 * that needs some of the same, at most 16 times. It holds
 *   "cpu"          1: a chunk on the CPU, or a whole call that moves less than 256 KiB; a thread that copies shards to
 *                  or from a device's staging memory
 *   "gpu"          1: a run on a device, a hybrid's task on one. Jobs on device memory: only during their submit
 *   "pinned_mib"   32 (MiB of staging memory): a hybrid's task on a device
 *   "opencl_mib", "cuda_mib"   MiB of the context's own buffers on its device, from the next call on. Not set: half
 *                  of the OpenCL device's memory, half of what is free on the CUDA device at its first use
 *   others         what `resources` of tandem_plan_options says
 * A call whose task needs more than the whole amount fails (INVALID_ARGUMENT), also if that was lowered in between:
 * its outputs are undefined then.
 * Status: INVALID_ARGUMENT (NULL, a name that is none, amount 0), OUT_OF_MEMORY.
 * Threads: any, also while calls and jobs run. */
TANDEM_API tandem_status tandem_context_set_resource(tandem_context *context, const char *name, uint64_t amount);

typedef struct tandem_context_info {
  size_t struct_bytes;   /* set by the caller: sizeof(tandem_context_info) */
  const char *backend;   /* "cpu", "opencl:0:0", "cuda:0" ("opencl", "cuda" before the first call); they live as
                            long as the context */
  const char *kernel;    /* "avx512-gfni"; devices: "auto", "compiled", "tables" */
  const char *executor;  /* "pthread"; devices: "device"; where several are named together: "hybrid" */
  uint32_t thread_count; /* of the CPU; devices: 0 */
  uint32_t reserved;
  uint64_t
      kernel_calls; /* 0 = the named kernel has not run yet. Counts chunks; all small calls together count as one */
  uint64_t inline_bytes; /* a call that moves fewer bytes, inputs and outputs together, is done by the thread that makes
                            it; 0 = each call may go elsewhere */
  uint32_t caller_count; /* threads that keep all of it busy by calling at once, with work of their own between calls:
                            thread_count. OpenCL: the cores, and the calls that a device has in hand */
  uint32_t reserved_2;
  const char *resources; /* names of the resources that its tasks hold beside those that plans name: "cpu", or
                            "cpu,gpu,opencl_mib"; lives as long as the context */
} tandem_context_info;

/* What a context decided. Status: INVALID_ARGUMENT. */
TANDEM_API tandem_status tandem_context_query(const tandem_context *context, tandem_context_info *info_out);

/* ---- plain functions ------------------------------------------------------------------------------- */

/* Computes the m parity shards of k data shards.
 *   data         k pointers to shard_bytes each, read
 *   parity       m pointers to shard_bytes each, written; an entry may be NULL: that parity is not wanted
 * Status: INVALID_ARGUMENT (a NULL pointer, shard_bytes = 0), TOO_LARGE, OVERLAP, OUT_OF_MEMORY, DEVICE. */
TANDEM_API tandem_status tandem_encode(tandem_context *context, const tandem_codec *codec, const void *const *data,
                                       void *const *parity, size_t shard_bytes);

/* Rebuilds lost shards, data and parity alike, in one pass.
 *   shards       k+m pointers, data first. Present shards are read as needed (see tandem_plan_shards_to_read);
 *                each missing shard with a non-NULL pointer is rebuilt into it; one with NULL is not wanted
 *   present      k+m bytes; non-zero where shard i is intact
 * Nothing missing, or nothing wanted, is TANDEM_OK and writes nothing.
 * Status: INVALID_ARGUMENT, TOO_LARGE, OVERLAP, NOT_RECOVERABLE (says how many of which are missing),
 *   OUT_OF_MEMORY, DEVICE. */
TANDEM_API tandem_status tandem_decode(tandem_context *context, const tandem_codec *codec, void *const *shards,
                                       const uint8_t *present, size_t shard_bytes);

#define TANDEM_SHARD_NONE UINT32_MAX

typedef struct tandem_verify_result {
  size_t struct_bytes;           /* set by the caller: sizeof(tandem_verify_result) */
  int32_t consistent;            /* 1 when every parity byte is what the data says, else 0 */
  uint32_t bad_parity_count;     /* parity shards with at least one mismatch */
  uint64_t mismatch_byte_count;  /* mismatching parity bytes, all shards together */
  uint64_t first_mismatch_bytes; /* offset in the shard of the first mismatching column; 0 if none */
  uint32_t first_bad_shard;      /* index (k..k+m-1) of the first parity that differs there, or TANDEM_SHARD_NONE */
  uint32_t suspect_shard;        /* the one shard (0..k+m-1) whose damage alone explains every mismatch, where m >= 2
                                    allows to tell; TANDEM_SHARD_NONE if none does, or several may */
} tandem_verify_result;

/* Checks that parity matches data, reading all k+m shards once, and says where it does not.
 *   shards       k+m pointers, read
 *   result_out   struct_bytes set by the caller; the rest is written on TANDEM_OK
 * A mismatch is a result, not an error: the status is TANDEM_OK.
 * Status: INVALID_ARGUMENT, TOO_LARGE, OUT_OF_MEMORY, DEVICE. */
TANDEM_API tandem_status tandem_verify(tandem_context *context, const tandem_codec *codec, const void *const *shards,
                                       size_t shard_bytes, tandem_verify_result *result_out);

/* A part of one shard with damage, or, where shard is TANDEM_SHARD_NONE, of the stripe with columns that tandem_locate
 * cannot explain. */
typedef struct tandem_damage_range {
  uint32_t shard;
  uint32_t reserved;    /* 0 */
  uint64_t begin_bytes; /* offset in the shard of its first damaged byte */
  uint64_t end_bytes;   /* offset behind its last one */
  uint64_t byte_count;  /* damaged bytes of it; up to 4096 between two of them are not */
} tandem_damage_range;

typedef struct tandem_locate_options {
  size_t struct_bytes;
  const uint8_t *present;      /* k+m bytes, 0 = the shard is known to be lost: it is not read, its pointer may be NULL.
                                  NULL: all are present */
  int32_t repair;              /* 1: put the named bytes right, in place, but only if every column is explained */
  int32_t reserved;            /* 0 */
  uint64_t *damaged_bytes_out; /* NULL, or k+m numbers: damaged bytes of each shard */
  tandem_damage_range *ranges; /* the first ones are written here, by shard and then begin_bytes, no shard last; NULL
                                  with capacity 0 */
  uint64_t range_capacity;
} tandem_locate_options;

typedef struct tandem_locate_result {
  size_t struct_bytes;          /* set by the caller: sizeof(tandem_locate_result) */
  int32_t consistent;           /* 1: every parity byte is what the data says; all the rest is 0 but the next */
  uint32_t most_damaged_shards; /* the guarantee: so many damaged shards of a column can be named */
  uint32_t damaged_shard_count; /* shards with at least one damaged byte */
  int32_t repaired;             /* 1: all damage was put right, and the stripe was verified again */
  uint64_t damaged_byte_count;  /* all shards together */
  uint64_t beyond_byte_count;   /* columns beyond the guarantee: damaged, but no shard is named for them */
  uint64_t range_count;         /* how many ranges there are; may be more than the capacity */
} tandem_locate_result;

/* Names the damaged shards of a stripe without checksums. A column is one byte of each shard. If at most
 * most_damaged_shards of a column's present shards are damaged, exactly these are named. That number is
 * (m - lost shards) / 2, with local groups (m - local_groups + 1 - lost shards) / 2, rounded down.
 *   shards       k+m pointers, data first; read, and written by a repair
 *   options      NULL = all zero
 *   result_out   struct_bytes set by the caller; the rest is written on TANDEM_OK
 * More damage than that is counted in beyond_byte_count, and no shard is named for such a column. If the number
 * before the division is even, a column with one damaged shard too many may look like other damage, about once in
 * 256^most_damaged_shards / C(k+m, most_damaged_shards) columns. So where columns are beyond the guarantee, a shard
 * is named only for far more columns than chance would explain. Its other columns count as beyond the guarantee.
 * A clean stripe costs a verify. A damaged one is read once more, from the first mismatch to the end; a repair reads
 * it twice more. Columns are solved one by one where their damaged shards change all the time, or where they are
 * beyond the guarantee. One takes some microseconds with Reed-Solomon codes. With local groups it takes 0.1
 * milliseconds for k = 20 and 6 global parity shards, but 20 milliseconds for k = 200.
 * Memory: up to 4 MiB, about 2 KiB for each set of shards that are damaged together, and 32 bytes for a range.
 * Ownership: as everywhere.
 * Status: INVALID_ARGUMENT (NULL, shard_bytes = 0, an unknown value of repair), TOO_LARGE, OVERLAP (repair),
 *   NOT_RECOVERABLE (nothing is left to compare with), UNSUPPORTED (a code that is not MDS and has no local groups,
 *   in GF(2^16), in packets, or with more than a million sets of shards to try), DAMAGED (the shards changed during a
 *   repair), OUT_OF_MEMORY, DEVICE.
 * On failure: a repair may have put some bytes right; it writes no wrong ones.
 * Threads: any; no other call may write to the shards meanwhile. */
TANDEM_API tandem_status tandem_locate(tandem_context *context, const tandem_codec *codec, void *const *shards,
                                       size_t shard_bytes, const tandem_locate_options *options,
                                       tandem_locate_result *result_out);

/* Brings parity up to date after data shard `index` changed, without reading the other shards:
 * parity[r] ^= coefficient[r][index] * (old_data ^ new_data).
 *   old_data, new_data   shard_bytes each, read; may be the same address
 *   parity               m pointers, read and written; an entry may be NULL: left alone
 * Status: INVALID_ARGUMENT (also index >= k), TOO_LARGE, OVERLAP, OUT_OF_MEMORY, DEVICE. */
TANDEM_API tandem_status tandem_update(tandem_context *context, const tandem_codec *codec, uint32_t index,
                                       const void *old_data, const void *new_data, void *const *parity,
                                       size_t shard_bytes);

/* Feeds one data shard into parity: parity[r] ^= coefficient[r][index] * data. Start from parity of zeros (or set
 * `first` to have the old bytes ignored and overwritten); when each of the k shards was fed once, in any order,
 * parity is what tandem_encode would have written.
 * Status: as tandem_update. */
TANDEM_API tandem_status tandem_accumulate(tandem_context *context, const tandem_codec *codec, uint32_t index,
                                           const void *data, void *const *parity, size_t shard_bytes, int32_t first);

/* k+m shards of shard_bytes each from one allocation, placed so that they do not collide in the L1 cache: each
 * starts at a 64-byte boundary, staggered by an odd number of cache lines. shards_out gets `count` pointers.
 * End with tandem_shards_free(shards_out[0]). Status: INVALID_ARGUMENT, TOO_LARGE, OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_shards_allocate(size_t count, size_t shard_bytes, void **shards_out);

enum tandem_shards_flag_value {
  TANDEM_SHARDS_PINNED = 1 /* the whole allocation is registered, as by tandem_memory_register, until it is freed */
};

/* tandem_shards_allocate with `flags`: 0, or enum tandem_shards_flag_value.
 * Status: as tandem_shards_allocate; UNSUPPORTED (an unknown flag, with its value). */
TANDEM_API tandem_status tandem_shards_allocate_flags(size_t count, size_t shard_bytes, uint32_t flags,
                                                      void **shards_out);

/* Frees what one of the two allocated; NULL is allowed. Memory that is registered and begins at first_shard is
 * unregistered first. While a run uses it, nothing is freed and tandem_last_error_message() says so. */
TANDEM_API void tandem_shards_free(void *first_shard);

/* Registers memory of the host for devices: they use shards that lie in it without a copy on the host. It is pinned
 * for all CUDA devices at once, by the first run on one of them that uses it: that run is slower. On the CPU and on
 * OpenCL devices it changes no speed, so a program may register its memory on every machine. Memory that the driver
 * does not pin (mapped read-only, a page that others have registered) is copied as before; log_callback hears why.
 *   memory       where it begins; any alignment. It should share no page with other registered memory
 *   bytes        its length, >= 1. Of use to the shards of a run that lie in it whole
 * Ownership: it stays the caller's, and must be unregistered before it is freed or unmapped. The registration belongs
 * to the process and to no context: contexts made before and after use it. A child after fork has no registrations.
 * While any memory is registered, a call on memory of the host takes a lock for a moment.
 * Status: INVALID_ARGUMENT (NULL, 0 bytes, exactly this memory is registered already), TOO_LARGE (the end does not fit
 *   the address space), OVERLAP (a part of it is registered: the message has both ranges), OUT_OF_MEMORY. Nothing is
 *   registered on failure.
 * Threads: any. A run that began before may go on without it.
 *     tandem_memory_register(shards, bytes);  // once, for buffers that many calls use
 *     tandem_encode(context, codec, data, parity, shard_bytes);
 *     tandem_memory_unregister(shards); */
TANDEM_API tandem_status tandem_memory_register(void *memory, size_t bytes);

/* Ends the registration of the memory that begins at `memory`; what drivers pinned of it is released before this
 * returns.
 *   memory       where the registered memory begins, as it was given to tandem_memory_register
 * Status: INVALID_ARGUMENT (NULL; no registered memory begins there; a run or a job that was not waited for still uses
 *   it, with their number; a child process of the one that registered it). The registration stays on failure.
 * Threads: any. */
TANDEM_API tandem_status tandem_memory_unregister(void *memory);

/* ---- many stripes ---------------------------------------------------------------------------------- */

enum tandem_memory_value { TANDEM_MEMORY_HOST = 0, TANDEM_MEMORY_CUDA = 1, TANDEM_MEMORY_OPENCL = 2 };

typedef struct tandem_stripe {
  void *const *shards;    /* k+m pointers, data first */
  const uint8_t *present; /* decode: k+m bytes, as for tandem_decode. encode: NULL */
  size_t shard_bytes;     /* of this stripe */
  int32_t memory;         /* enum tandem_memory_value; host here */
  tandem_status status;   /* decode: this stripe's own result; CANCELLED where the call failed before its turn */
} tandem_stripe;

/* Encodes or decodes many stripes in one call, spread over all threads, small stripes together.
 *   stripes        stripe_count structs, stride_bytes apart (sizeof(tandem_stripe), or more inside a struct of
 *                  yours; a multiple of the struct's alignment)
 * Encode checks every stripe before it writes the first byte; the message names the stripe at fault. Decode goes on
 * past a stripe that cannot be decoded, records it in stripes[i].status, and returns the first such status. If running
 * fails (DEVICE, OUT_OF_MEMORY) it stops and returns that: status TANDEM_OK then still means rebuilt.
 * Shards of different stripes must not overlap (only data shards may be shared); this is not checked across stripes.
 * Status: as tandem_encode and tandem_decode; INVALID_ARGUMENT for a stride smaller than the struct. */
TANDEM_API tandem_status tandem_encode_stripes(tandem_context *context, const tandem_codec *codec,
                                               const tandem_stripe *stripes, size_t stripe_count, size_t stride_bytes);
TANDEM_API tandem_status tandem_decode_stripes(tandem_context *context, const tandem_codec *codec,
                                               tandem_stripe *stripes, size_t stripe_count, size_t stride_bytes);

/* ---- scattered shards -------------------------------------------------------------------------------- */

typedef struct tandem_segment {
  void *address; /* read or written as the shard it belongs to */
  size_t bytes;  /* 0 is allowed */
} tandem_segment;

typedef struct tandem_scattered_shard {
  const tandem_segment *segments; /* in order; NULL = this shard is not given (as a NULL pointer elsewhere) */
  size_t segment_count;           /* the segments' bytes add up to shard_bytes */
} tandem_scattered_shard;

/* tandem_encode and tandem_decode for shards that lie in pieces (scatter-gather lists); every shard may be cut at
 * places of its own.
 *   shards       k+m entries, data first
 * Status: as the plain functions; INVALID_ARGUMENT when a shard's segments do not add up to shard_bytes. */
TANDEM_API tandem_status tandem_encode_scattered(tandem_context *context, const tandem_codec *codec,
                                                 const tandem_scattered_shard *shards, size_t shard_bytes);
TANDEM_API tandem_status tandem_decode_scattered(tandem_context *context, const tandem_codec *codec,
                                                 const tandem_scattered_shard *shards, const uint8_t *present,
                                                 size_t shard_bytes);

/* ---- plans and jobs ------------------------------------------------------------------------------------ */

typedef struct tandem_plan tandem_plan;
typedef struct tandem_job tandem_job;

enum tandem_operation_value {
  TANDEM_OPERATION_ENCODE = 0,
  TANDEM_OPERATION_DECODE = 1,
  TANDEM_OPERATION_VERIFY = 2,
  TANDEM_OPERATION_UPDATE = 3,
  TANDEM_OPERATION_ACCUMULATE = 4 /* parity ^= coefficient * data, one data shard */
};

typedef struct tandem_plan_options {
  size_t struct_bytes;
  int32_t operation;      /* enum tandem_operation_value */
  int32_t memory;         /* enum tandem_memory_value: where the shards of every run lie. OPENCL, CUDA: contexts
                             of such a device; see tandem_plan_arguments */
  const uint8_t *present; /* decode: k+m bytes, as for tandem_decode */
  const uint8_t *wanted;  /* k+m bytes, non-zero = to be written; NULL = every parity (encode, update, accumulate) or
                             every missing shard (decode). A wanted shard must not be present */
  uint32_t index;         /* update, accumulate: the data shard */
  uint32_t first;         /* accumulate: non-zero: the old bytes of parity are ignored and overwritten */
  const char *resources; /* NULL, or what each task of the plan holds beside what its kind holds, such as "widgets=2" or
                            "disk=1,licences=3". Counted where an amount is set: tandem_context_set_resource, which
                            also has the names that are refused here because how much a task holds is fixed */
  uint32_t wait_for_kernel; /* 1: tandem_plan_create returns when the fastest kernel for these shards is compiled and
                               loaded; for OpenCL memory, whose program belongs to a queue, the first run waits instead.
                               0: it compiles in the background, see there. On the CPU kernels are always
                               ready; a hybrid refuses 1 for host memory (UNSUPPORTED) */
  uint32_t reserved;        /* 0 */

  const uint32_t *read_costs; /* decode: k+m costs of reading a shard; the plan reads the cheapest set that it finds
                                 (see tandem_plan_shards_to_read). NULL: all are 1 */
} tandem_plan_options;

/* Prepares an operation: solves for the coefficient matrix, builds the kernel's tables. Running a plan then costs
 * neither. A plan for device memory is ready at once with a kernel that serves every matrix (technique tables). Threads
 * of the context compile the kernel of this matrix meanwhile, once for a matrix, and keep it in the cache; the first
 * submit after that uses it. If the compile fails, the log says so once and runs stay with tables. wait_for_kernel, and
 * the kernel "compiled" of the context, wait for the compile (some tenths of a second, minutes for the widest codes). A
 * plan outlives its codec, not its context.
 * Status: INVALID_ARGUMENT (also resources that are malformed, or beyond the whole amount; read_costs of another
 * operation), UNSUPPORTED (a memory kind that no backend of the context reaches; read_costs in GF(2^16)),
 * NOT_RECOVERABLE, TOO_LARGE (GF(2^16): a matrix of more than 64 MiB, or a decode without a closed form of more than
 * 4096 lost data shards, see docs/MATRICES.md), OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_plan_create(tandem_context *context, const tandem_codec *codec,
                                            const tandem_plan_options *options, tandem_plan **plan_out);
/* Ends a plan. NULL is allowed. Jobs of it go on. */
TANDEM_API void tandem_plan_destroy(tandem_plan *plan);

typedef struct tandem_plan_info {
  size_t struct_bytes;                /* set by the caller: sizeof(tandem_plan_info) */
  const char *technique;              /* shards in the cache: "matrix"; of wide codes on the CPU also "transform" and,
                                         for a decode, "syndromes, matrix" or "syndromes, transform"; of packets also
                                         "shared sums". Valid for ever */
  const char *technique_out_of_cache; /* the same, for runs that move more than out_of_cache_bytes */
  uint32_t products, matrix_products; /* with the shards in the cache: products of one vector by a coefficient, for one
                                         vector of each shard; and by the matrix; of packets: additions, for one vector
                                         of each packet. 0: there was no choice */
  uint64_t out_of_cache_bytes; /* all shards read and written together; UINT64_MAX: every run counts as in the cache */
} tandem_plan_info;

/* How a plan is run, and why.
 *   plan       any plan; of a hybrid it is what runs small calls that answers
 *   info_out   struct_bytes set by the caller; the rest is written on TANDEM_OK
 * Status: INVALID_ARGUMENT (NULL), OUT_OF_MEMORY. Nothing is written on failure. Any thread. */
TANDEM_API tandem_status tandem_plan_query(const tandem_plan *plan, tandem_plan_info *info_out);

/* One way to run a plan, and what it costs for one vector of each shard. */
typedef struct tandem_plan_technique {
  const char *name;                       /* as `technique` above */
  uint32_t products;                      /* of a vector by a coefficient; 0: not counted, there is no choice */
  uint32_t is_used, is_used_out_of_cache; /* 0 or 1: it is how the plan is run */
  uint32_t reserved;
  double cost, cost_out_of_cache; /* estimated times, in products of the matrix; the least one is used unless the
                                     context forces a technique */
} tandem_plan_technique;

/* Lists all ways to run a plan, the matrix first.
 *   plan             as for tandem_plan_query
 *   techniques_out   room for `capacity` structs, stride_bytes apart; NULL with capacity 0 only counts
 *   stride_bytes     sizeof(tandem_plan_technique); of each element only the bytes that fit are written
 *   count_out        how many there are; may be more than capacity, then the first `capacity` were written
 * Status: INVALID_ARGUMENT (a NULL pointer, stride_bytes < sizeof(tandem_plan_technique) of version 0.1),
 *   OUT_OF_MEMORY. Nothing is written on failure. Any thread. */
TANDEM_API tandem_status tandem_plan_techniques(const tandem_plan *plan, tandem_plan_technique *techniques_out,
                                                size_t capacity, size_t stride_bytes, size_t *count_out);

/* Which shards a run of the plan reads: read_out gets k+m bytes, 1 = read, 0 = not. For a decode that is the fewest
 * that suffice, or with read_costs the cheapest set: exactly so for codes that are MDS, and for local groups (if one
 * lost data shard is wanted, its group) where the code has no dependencies but those that its groups and counts give;
 * else the cheapest of the sets that are tried. Status: INVALID_ARGUMENT. */
TANDEM_API tandem_status tandem_plan_shards_to_read(const tandem_plan *plan, uint8_t *read_out);

/* A part of one parity shard that does not match the data. */
typedef struct tandem_verify_range {
  uint32_t shard;               /* index, k..k+m-1 */
  uint32_t reserved;            /* 0 */
  uint64_t begin_bytes;         /* offset in the shard of its first byte, which does not match */
  uint64_t end_bytes;           /* offset behind its last byte */
  uint64_t mismatch_byte_count; /* bytes of it that do not match: 1 or more; the others do */
} tandem_verify_range;

typedef struct tandem_plan_arguments {
  size_t struct_bytes;
  void *const *shards;  /* k+m pointers, data first. Needed: those that the plan reads and those it writes;
                           the others are ignored and may be NULL. update: shards[index] is the old data */
  const void *new_data; /* update: the new bytes of shard `index` */
  size_t shard_bytes;
  tandem_verify_result *verify_result; /* verify: written when the run is done; struct_bytes set by the caller */

  /* Of plans for device memory; else NULL and 0.
     TANDEM_MEMORY_CUDA: shards and new_data are device pointers (CUdeviceptr; managed memory too) of the context's GPU;
     queue is a stream of its primary context (a cudaStream_t), in whose order the work is done. NULL is the legacy
     default stream, as everywhere in CUDA. Offsets are added to the pointers. Fastest where all
     shards begin at multiples of 16. With no more jobs of the plan in flight than there were before (eight at most),
     and no verify of longer shards, a submit starts the kernel and neither compiles, allocates nor waits, wherever
     the shards begin; what is new costs the submit that brings it: room for one more job in flight. A verify whose
     records find no room on the device, a few bytes for some thousand of a shard, goes piece by piece, and its submit
     waits for all of them but the last. A submit can be captured into a CUDA graph, the first one too, a verify never
     (UNSUPPORTED; one waited for while its queue is captured names no suspect). The job of a captured submit is over
     at once; its graph must not outlive plan and context. A graph keeps the kernel that it was captured with: of a plan
     whose kernel is still being compiled, the slower one of technique tables (wait_for_kernel avoids that).
     TANDEM_MEMORY_OPENCL: shards and new_data are cl_mem handles, buffers of the queue's context, cast to pointers; one
     buffer may hold several shards, at offsets of their own. Fastest: all shards that are read in one buffer and all
     that are written in one (it may be the same), at offsets that are multiples of 64. */
  void *queue;              /* the cl_command_queue, of the context's device, that the work goes to: it runs after what
                               was put there before. In order; before and after a run in an out-of-order queue put a
                               barrier. Its cl_context, like those of three others at most, is retained until
                               the tandem_context is destroyed: what was compiled for it is kept */
  const uint64_t *offsets;  /* k+m byte offsets of the shards in their buffers; NULL = all 0 */
  uint64_t new_data_offset; /* update: of new_data */

  /* verify: where the mismatches lie, if that is wanted: sorted by shard, then begin_bytes; disjoint; together they
     hold every parity byte that does not match. A range may contain up to a few thousand matching
     bytes between mismatches; with packets up to two groups of them, if that is more. For CUDA device memory they come
     out of the same pass; elsewhere, where something does not match, the shards are read once or twice more from the
     first mismatch to the last, by the run or the job's wait, which no cancel stops then. */
  tandem_verify_range *verify_ranges; /* the first ones are written here when the run is done: no more than there are,
                                         nor than the capacity; NULL with capacity 0 */
  uint64_t verify_range_capacity;
  uint64_t *verify_range_count_out; /* how many ranges there are: may be more than the capacity. NULL, which goes with
                                       verify_ranges NULL: ranges are not looked for */
} tandem_plan_arguments;

/* Runs a plan and returns when it is done. Status: as the plain function of the same operation. Device memory: also
 * INVALID_ARGUMENT (no queue, or one of another device; a buffer of another context or device, or too small for its
 * shard), and every overlap is found. Outputs of a run that fails with DEVICE are undefined. */
TANDEM_API tandem_status tandem_plan_run(const tandem_plan *plan, const tandem_plan_arguments *arguments);

/* Starts a run and returns at once; the bytes are there when tandem_job_wait returned TANDEM_OK. The pointer array and
 * the offsets are copied; the shards, new_data, queue, verify_result, verify_ranges and verify_range_count_out must
 * stay. On device memory it returns when the commands are in the queue; a cancel after that comes too late. Arguments
 * are checked before it returns. Status: as tandem_plan_run. *job_out is untouched on failure. */
TANDEM_API tandem_status tandem_plan_submit(const tandem_plan *plan, const tandem_plan_arguments *arguments,
                                            tandem_job **job_out);

/* Waits until a job is over; may be called again and from several threads, and gives each the job's status.
 * Status: as tandem_plan_run; CANCELLED; INVALID_ARGUMENT (NULL, or a child process of the one that submitted it). */
TANDEM_API tandem_status tandem_job_wait(tandem_job *job);

/* Asks a job to stop; takes effect within one chunk. A job that was over already stays as it was. The next wait
 * returns TANDEM_ERROR_CANCELLED if it took effect; outputs are then undefined. Small jobs (under 256 KiB moved) do not
 * look. Status: INVALID_ARGUMENT (NULL). */
TANDEM_API tandem_status tandem_job_cancel(tandem_job *job);

/* Waits for the job, then frees it. NULL is allowed. In a child process it does nothing. */
TANDEM_API void tandem_job_destroy(tandem_job *job);

#ifdef __cplusplus
}
#endif
#endif
