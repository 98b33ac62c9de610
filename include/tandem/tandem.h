/* SPDX-License-Identifier: Apache-2.0 */
/* tandem.h - Reed-Solomon erasure coding on every processor of a machine.
 *
 * Split data into k shards of equal length and compute m more, of parity. Any k of the k+m shards restore the rest.
 *
 *     tandem_codec *codec;                              // what to compute: 10 data + 4 parity shards
 *     tandem_codec_options options = {.struct_bytes = sizeof options, .k = 10, .m = 4};
 *     tandem_codec_create(&options, &codec);
 *     tandem_encode(NULL, codec, data, parity, shard_bytes);             // on all cores: 10 pointers in, 4 out
 *     tandem_decode(NULL, codec, shards, present, shard_bytes);          // rebuilds what present[] misses
 *
 * The header goes from simple to advanced. Plans, prepared once for many runs, and jobs, beside the caller, come last.
 * device.h: shards in the memory of devices; diagnose.h: what a code and a plan do, damage; tools.h: lists, limits,
 * tuning.
 *
 * These rules hold for every function, unless its comment says otherwise:
 *
 *   bytes      All shards of one call have shard_bytes bytes, at least 1. Addresses need no alignment. Shards are
 *              fastest at multiples of 64 bytes and at different offsets in their 4 KiB pages.
 *              tandem_shards_allocate places them so. Sizes are checked for overflow.
 *   overlap    No output may overlap another output or an input. Inputs may alias each other. Calls of 4 KiB or
 *              more in total check this (TANDEM_ERROR_OVERLAP). Debug builds always check it.
 *   context    NULL stands for the process's own context: all defaults, made by the first call that needs it. It is
 *              never destroyed, so it writes no timeline. The call that makes it may also fail with the statuses of
 *              tandem_context_create.
 *   ownership  Until a call returns (a job: until it was waited for), do not write to its inputs and do not touch its
 *              outputs. The library keeps no pointer afterwards.
 *   errors     Every function returns a tandem_status. After a failure, tandem_last_error_message() has a sentence
 *              with the numbers. A call that is refused for its arguments has written nothing. After
 *              TANDEM_ERROR_CANCELLED and TANDEM_ERROR_DEVICE the outputs are undefined.
 *   threads    Any thread may call any function at any time, on the same objects too. The one exception: an object
 *              must not be destroyed while another call uses it.
 *   stack      A call needs up to 80 KiB of the calling thread's stack.
 *   fork       A child process may use contexts, codecs and plans that its parent made. Jobs that run at the fork
 *              belong to the parent. If the parent had used a device, its contexts fail (TANDEM_ERROR_DEVICE).
 *   field      GF(2^8) with the polynomial 0x11d (x^8 + x^4 + x^3 + x^2 + 1) and generator 2: up to 256 shards.
 *              GF(2^16): up to 65,536 shards, on the CPU alone (docs/matrices.md). Shards of GF(2^16) have an even
 *              number of bytes. Shards in packets have whole groups of packets.
 */
#ifndef TANDEM_TANDEM_H
#define TANDEM_TANDEM_H

#include <stddef.h>
#include <stdint.h>

#define TANDEM_API __attribute__((visibility("default")))

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
  TANDEM_ERROR_NOT_MDS = 7,         /* this (k, m, matrix) could lose data that m parity shards should save */
  TANDEM_ERROR_NOT_RECOVERABLE = 8, /* the shards that are left do not determine the wanted ones */
  TANDEM_ERROR_CANCELLED = 9,       /* by tandem_job_cancel, or by a progress callback */
  TANDEM_ERROR_DEVICE = 10,         /* a device failed, or computed wrongly; its work could not be repeated elsewhere */
  TANDEM_ERROR_IO = 11,             /* files.h: the operating system refused; errno is in the message */
  TANDEM_ERROR_DAMAGED = 12,        /* files.h: bytes on disk are not what was written */
  TANDEM_ERROR_INTERNAL = 13        /* a defect of Tandem: please report the message */
};

/* The name of a status ("TANDEM_ERROR_OVERLAP"), or "TANDEM_STATUS_UNKNOWN". Static storage; any thread. */
TANDEM_API const char *tandem_status_name(tandem_status status);

/* The message of the calling thread's last failure, with the numbers: "3 of 10 data shards missing, only 2 parity
 * shards present". Empty before the first failure. The thread owns the storage, and its next failure overwrites it.
 * Success leaves it unchanged. At most 511 bytes, zero-terminated. */
TANDEM_API const char *tandem_last_error_message(void);

/* The version of the library that runs: "0.1.0". */
TANDEM_API const char *tandem_version_string(void);

/* ---- codec: what to compute ---------------------------------------------------------------------- */

typedef struct tandem_codec tandem_codec;

/* Generator matrices. Each preset computes the same parity bytes as the programs that its comment names. Formulas,
 * sources and limits are in docs/matrices.md. r is the parity row, c the data column; 2 generates the field. Values
 * are pinned. */
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
  TANDEM_MATRIX_PAR2 = 16,                   /* PAR2 recovery blocks 0 .. m-1, or from first_exponent on;
                                                k <= 32768; MDS for m <= 3 or k <= 2 */
  TANDEM_MATRIX_LIBERASURECODE_RS_VAND = 17, /* pyeclib liberasurecode_rs_vand; k + m <= 32 */
  /* Over GF(2^8), with local groups; the options' local_groups must say how many. */
  TANDEM_MATRIX_LRC_AZURE = 18,               /* an XOR for each group, then m - local_groups global parities */
  TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC = 19, /* pyeclib isa_l_rs_lrc: the global parities, then one for each group */
  TANDEM_MATRIX_CUSTOM = 1000                 /* `coefficients` of the options */
};

enum tandem_field_value {
  TANDEM_FIELD_GF8 = 0, /* bytes modulo 0x11d */
  TANDEM_FIELD_GF16 = 1 /* 16 bits; custom matrices: little-endian words modulo 0x1100b */
};

/* How the elements of the field lie in a shard. */
enum tandem_layout_value {
  TANDEM_LAYOUT_BYTES = 0,  /* GF(2^8): one byte each; GF(2^16): as the matrix defines it */
  TANDEM_LAYOUT_PACKETS = 1 /* Jerasure's: a shard is a row of groups, each of word_bits packets of packet_bytes. An
                               element is bit b of byte j of all packets of a group, lowest bit in the first packet */
};

typedef struct tandem_codec_options {
  size_t struct_bytes;      /* sizeof(tandem_codec_options): lets the struct grow */
  uint32_t k;               /* data shards, >= 1 */
  uint32_t m;               /* parity shards, >= 0; k + m <= 256, in GF(2^16) <= 65536 */
  int32_t matrix;           /* enum tandem_matrix_value */
  int32_t field;            /* enum tandem_field_value; presets over GF(2^16) take 0, too */
  const void *coefficients; /* TANDEM_MATRIX_CUSTOM: m x k elements, row-major; copied. GF(2^8): bytes; GF(2^16):
                               uint16_t. Else NULL */
  int32_t allow_non_mds;    /* non-zero: accept a matrix that cannot recover from every loss of m shards */
  int32_t reserved;         /* 0 */
  int32_t layout;           /* enum tandem_layout_value; packets: jerasure-cauchy-orig, -good and custom matrices */
  uint32_t word_bits;       /* packets: 8 or 4, in GF(2^16) 16; 0 = 8 or 16. 4: GF(2^4) with x^4 + x + 1; presets have
                               k + m <= 16, custom coefficients are bytes below 16. Other layouts: 0 */
  uint64_t packet_bytes;    /* packets: a multiple of 8, word_bits * packet_bytes <= 2^32. Other layouts: 0 */
  uint32_t local_groups;    /* matrices with local groups: the number of groups, from 1 to the smaller of k and m. Each
                               group has one of the m parity shards to itself. Other matrices: 0 */
  uint32_t first_exponent;  /* par2: parity shard r is recovery block first_exponent + r, below 65535. Others: 0 */
} tandem_codec_options;

/* Makes a codec. A codec is immutable; threads and contexts share it freely.
 *   options      see above; options that this version does not know must be zero
 *   codec_out    the new codec, for tandem_codec_destroy; untouched on failure
 *
 * Some matrices cannot recover from every loss of m shards: presets beyond their proven MDS limit, and custom matrices
 * that are not MDS. They are refused unless allow_non_mds is set. So are custom matrices too large to check (more than
 * 10^6 minors). With allow_non_mds a decode looks for an invertible set of survivors (else NOT_RECOVERABLE).
 *
 * Local groups: the k data shards are cut into local_groups runs. The first k % local_groups runs are one shard longer.
 * The code rebuilds any m - local_groups + 1 lost shards, and many larger losses (docs/matrices.md). It rebuilds one
 * lost data shard from its group alone. It is not MDS and needs no allow_non_mds.
 *
 * GF(2^16): leopard16, reed-solomon-simd and par2 need memory and time linear in k + m. A decode of par2 needs a square
 * matrix of the lost shards, at most 2 GiB. Custom matrices and their decodes: at most 64 MiB of coefficients.
 *
 * Packets: shard_bytes of every call must be a multiple of word_bits * packet_bytes. Pieces of scattered shards end at
 * such multiples. Packets run on the CPU alone. A code of more than 2^24 bits (word_bits^2 * k * m) is refused.
 *
 * Status: INVALID_ARGUMENT (k = 0; k + m > 256 or 65536; unknown matrix, field or layout; a matrix of the other field,
 *   or beyond the preset's range; word_bits, packet_bytes, local_groups or first_exponent without such a layout or
 *   matrix), UNSUPPORTED (unknown non-zero trailing option bytes), NOT_MDS, TOO_LARGE (coefficients, bits),
 *   OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_codec_create(const tandem_codec_options *options, tandem_codec **codec_out);

/* Destroys a codec. NULL is allowed. Plans made from it stay valid. */
TANDEM_API void tandem_codec_destroy(tandem_codec *codec);

/* ---- context: where to run ----------------------------------------------------------------------- */

typedef struct tandem_context tandem_context;

enum tandem_log_level_value { TANDEM_LOG_DEBUG = 0, TANDEM_LOG_INFO = 1, TANDEM_LOG_WARNING = 2 };

/* Receives what the library decided and why. Any thread may call it, several at once. It must not call back into
 * Tandem. `message` is one line without a newline, valid during the call. */
typedef void (*tandem_log_callback)(void *user, int32_t level, const char *message);

typedef struct tandem_context_options {
  size_t struct_bytes;              /* sizeof(tandem_context_options) */
  const char *backend;              /* NULL = "auto": the CPU; GPUs join once calls have moved 4 GiB.
                                       "hybrid": the CPU and all GPUs. "hybrid:cpu+opencl:0:0": these together.
                                       "cpu". "cuda": the first usable GPU. "opencl": its first GPU or accelerator, else
                                       its first device. Or a device of tandem_devices() in tools.h: "opencl:0:1",
                                       "cuda:0". Plans for device memory need that device named. "auto" with an
                                       executor means the CPU */
  const char *kernel;               /* NULL = the best that this CPU has; the name of a CPU kernel forces it */
  uint32_t thread_count;            /* 0 = every core that affinity and cgroup quota allow */
  int32_t log_level;                /* the lowest enum tandem_log_level_value that log_callback receives */
  tandem_log_callback log_callback; /* NULL = silent */
  void *log_user;
  const char *resources;   /* NULL, or amounts such as "cpu=5,my.disks=2": see tandem_context_set_resource in tools.h */
  const char *tuning_file; /* NULL = TANDEM_TUNING, else tandem/tuning.tsv in the user's data folder; "" = none */
  const char *policy; /* hybrid: NULL = "auto": no slow device delays the end; "budget": an idle worker takes a chunk.
                         Both keep within `resources` */
  const char *timeline_file; /* a trace for Perfetto, written when the context ends: which worker ran which range when
                                (docs/internals/TIMELINE.md). A file that exists is refused, unless this process made
                                it. NULL = TANDEM_TIMELINE, else none; "" = none */
  const char *expert; /* NULL, or what only experiments need: "executor=openmp,pin=1". docs/environment.md has the keys:
                         executor, pin and technique of the CPU, device_technique */
} tandem_context_options;

/* Makes a context. Threads start and devices are touched only when a call needs them. On the CPU, a call that moves
 * less than 256 KiB, inputs and outputs together, runs on the calling thread. If this machine lacks the device, the
 * first plan or call returns UNAVAILABLE.
 *   options      NULL = all defaults. The strings are copied
 *   context_out  the new context, for tandem_context_destroy; untouched on failure
 *
 * Options left at zero are read from the environment (docs/environment.md): TANDEM_BACKEND, TANDEM_KERNEL,
 * TANDEM_THREADS, TANDEM_RESOURCES, TANDEM_POLICY, TANDEM_TIMELINE, TANDEM_TUNING, TANDEM_EXPERT. TANDEM_CHECK_DEVICES
 * has no option: "all" compares all that devices compute with the CPU, in place of the first answer of each kernel.
 *
 * The tuning file holds what tandem_autotune (tools.h) found on this machine. It changes speed, never bytes. A damaged,
 * newer or foreign file is ignored, with a warning in the log.
 *
 * An option that has no effect on the backend is refused:
 *   - policy, unless the backend is a hybrid
 *   - kernel, thread_count, and executor, pin and technique of expert, if the backend has no CPU threads (a device
 *     alone, a hybrid without "cpu"); device_technique, if it is no device alone
 *   - pin=1 of expert, for one thread or an executor other than pthread
 * Environment variables are defaults for all programs: they are not refused.
 *
 * Status: INVALID_ARGUMENT (also an option without effect; the message names it and the backend), UNSUPPORTED (unknown
 *   trailing options), UNAVAILABLE (this machine lacks the backend, kernel or executor, or it does not exist; the
 *   message lists those that there are), IO (timeline_file cannot be written), OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_context_create(const tandem_context_options *options, tandem_context **context_out);

/* Destroys a context. Waits until its threads have finished what they run, such as a search for GPUs. NULL is allowed.
 * Destroy its plans and jobs first. */
TANDEM_API void tandem_context_destroy(tandem_context *context);

typedef struct tandem_context_info {
  size_t struct_bytes;   /* set by the caller: sizeof(tandem_context_info) */
  const char *backend;   /* "cpu", "opencl:0:0", "cuda:0" ("opencl", "cuda" before the first call); they live as
                            long as the context */
  const char *kernel;    /* "avx512-gfni"; devices: "auto", "compiled", "tables", "transform" */
  const char *executor;  /* "pthread"; devices: "device"; where several are named together: "hybrid" */
  uint32_t thread_count; /* of the CPU; devices: 0 */
  uint32_t caller_count; /* recommended number of calling threads, if each has work of its own between calls:
                            thread_count. OpenCL: the cores, plus the calls that a device works on */
  uint64_t kernel_calls; /* 0 = the named kernel has not run yet. Chunks count; all small calls count as one */
  const char *resources; /* the resources that its tasks hold, besides those that plans name: "cpu", or
                            "cpu,gpu,opencl_mib"; lives as long as the context */
} tandem_context_info;

/* Tells what a context decided. Status: INVALID_ARGUMENT. */
TANDEM_API tandem_status tandem_context_query(const tandem_context *context, tandem_context_info *info_out);

/* ---- plain functions ------------------------------------------------------------------------------- */

/* Computes the m parity shards of k data shards.
 *   data         k pointers to shard_bytes each, read
 *   parity       m pointers to shard_bytes each, written; an entry may be NULL: that parity is not wanted
 * Status: INVALID_ARGUMENT (a NULL pointer, shard_bytes = 0), TOO_LARGE, OVERLAP (checked from 4 KiB on, all shards
 *   together), OUT_OF_MEMORY, DEVICE. */
TANDEM_API tandem_status tandem_encode(tandem_context *context, const tandem_codec *codec, const void *const *data,
                                       void *const *parity, size_t shard_bytes);

/* Rebuilds lost shards, data and parity alike, in one pass.
 *   shards       k+m pointers, data first. Present shards are read as needed (tandem_plan_query, diagnose.h). A missing
 *                shard is rebuilt into its pointer; with NULL it is not rebuilt
 *   present      k+m bytes; non-zero: the shard is intact
 * If nothing is missing, or nothing is wanted, the call writes nothing and returns TANDEM_OK.
 * Status: INVALID_ARGUMENT, TOO_LARGE, OVERLAP (checked from 4 KiB on, all shards that are read or written together),
 *   NOT_RECOVERABLE (says how many of which are missing), OUT_OF_MEMORY, DEVICE. */
TANDEM_API tandem_status tandem_decode(tandem_context *context, const tandem_codec *codec, void *const *shards,
                                       const uint8_t *present, size_t shard_bytes);

#define TANDEM_SHARD_NONE UINT32_MAX

typedef struct tandem_verify_result {
  size_t struct_bytes;           /* set by the caller: sizeof(tandem_verify_result) */
  int32_t consistent;            /* 1 if every parity byte matches the data, else 0 */
  uint32_t bad_parity_count;     /* parity shards with at least one mismatch */
  uint64_t mismatch_byte_count;  /* mismatching parity bytes, all shards together */
  uint64_t first_mismatch_bytes; /* offset in the shard of the first mismatching column; 0 if none */
  uint32_t first_bad_shard;      /* index (k..k+m-1) of the first parity that differs there, or TANDEM_SHARD_NONE */
  uint32_t suspect_shard;        /* the one shard (0..k+m-1) that explains every mismatch by its damage alone; needs
                                    m >= 2. TANDEM_SHARD_NONE if no shard, or more than one, explains them */
} tandem_verify_result;

/* Checks that parity matches data, and tells where it does not. Reads all k+m shards once: decode missing ones first.
 *   shards       k+m pointers, read
 *   result_out   struct_bytes set by the caller; the rest is written on TANDEM_OK
 * A mismatch is a result, not an error: the status is TANDEM_OK.
 * Status: INVALID_ARGUMENT, TOO_LARGE, OUT_OF_MEMORY, DEVICE. */
TANDEM_API tandem_status tandem_verify(tandem_context *context, const tandem_codec *codec, const void *const *shards,
                                       size_t shard_bytes, tandem_verify_result *result_out);

/* Brings parity up to date after data shard `index` changed, without reading the other shards:
 * parity[r] ^= coefficient[r][index] * (old_data ^ new_data).
 *   old_data, new_data   shard_bytes each, read; may be the same address
 *   parity               m pointers, read and written; an entry may be NULL: left alone
 * Status: INVALID_ARGUMENT (also index >= k), TOO_LARGE, OVERLAP (checked from 4 KiB on, all shards together),
 *   OUT_OF_MEMORY, DEVICE. */
TANDEM_API tandem_status tandem_update(tandem_context *context, const tandem_codec *codec, uint32_t index,
                                       const void *old_data, const void *new_data, void *const *parity,
                                       size_t shard_bytes);

/* Adds one data shard to parity: parity[r] ^= coefficient[r][index] * data. Start with parity of zeros, or set `first`
 * to overwrite the old bytes. After each of the k shards was added once, in any order, parity has the bytes that
 * tandem_encode writes. Status: as tandem_update (OVERLAP: checked from 4 KiB on). */
TANDEM_API tandem_status tandem_accumulate(tandem_context *context, const tandem_codec *codec, uint32_t index,
                                           const void *data, void *const *parity, size_t shard_bytes, int32_t first);

enum tandem_shards_flag_value {
  TANDEM_SHARDS_PINNED = 1 /* registered for devices until they are freed: tandem_memory_register in device.h */
};

/* Allocates `count` shards of shard_bytes each in one allocation. Each starts at a 64-byte boundary. The starts differ
 * by an odd number of cache lines, so that shards do not collide in the L1 cache. flags are 0, or enum
 * tandem_shards_flag_value. shards_out gets `count` pointers. Free with tandem_shards_free(shards_out[0]).
 * Status: INVALID_ARGUMENT, UNSUPPORTED (an unknown flag, with its value), TOO_LARGE, OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_shards_allocate(size_t count, size_t shard_bytes, uint32_t flags, void **shards_out);

/* Frees shards of tandem_shards_allocate. NULL is allowed. Memory that begins at first_shard is unregistered first.
 * While a run uses that memory, nothing is freed, and tandem_last_error_message() says so. */
TANDEM_API void tandem_shards_free(void *first_shard);

/* Cuts content (NULL if it is empty) into the k data shards, with zeros after its end; and joins it again.
 *   shards        k pointers to shard_bytes each. join: those after the end of the content may be NULL
 *   shard_bytes   tandem_split_bytes gives the least length that holds the content and that the code can take
 * Status: INVALID_ARGUMENT (a NULL; k * shard_bytes < content_bytes), TOO_LARGE, OVERLAP, OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_split_bytes(const tandem_codec *codec, size_t content_bytes, size_t *shard_bytes_out);
TANDEM_API tandem_status tandem_split(const tandem_codec *codec, const void *content, size_t content_bytes,
                                      void *const *shards, size_t shard_bytes);
TANDEM_API tandem_status tandem_join(const tandem_codec *codec, const void *const *shards, size_t shard_bytes,
                                     void *content_out, size_t content_bytes);

/* ---- many stripes ---------------------------------------------------------------------------------- */

enum tandem_memory_value { TANDEM_MEMORY_HOST = 0, TANDEM_MEMORY_CUDA = 1, TANDEM_MEMORY_OPENCL = 2 };

typedef struct tandem_stripe {
  void *const *shards;     /* k+m pointers, data first */
  const uint8_t *present;  /* decode: k+m bytes, as for tandem_decode. encode: NULL */
  size_t shard_bytes;      /* of this stripe */
  int32_t memory;          /* enum tandem_memory_value; host here, others in device.h */
  tandem_status status;    /* decode: this stripe's own result; CANCELLED where the call failed before its turn */
  const uint64_t *offsets; /* device memory: k+m byte offsets of the shards in their buffers; NULL = all 0 */
} tandem_stripe;

/* Encodes or decodes many stripes in one call. The stripes are spread over all threads, small ones together.
 *   stripes        stripe_count structs, stride_bytes apart. stride_bytes is sizeof(tandem_stripe), or more if they lie
 *                  inside a struct of yours; a multiple of the struct's alignment
 * Encode checks every stripe before it writes the first byte. The message names the stripe at fault.
 * Decode continues after a stripe that cannot be decoded. It stores that stripe's status in stripes[i].status and
 * returns the first such status. If a run fails (DEVICE, OUT_OF_MEMORY), decode stops and returns that status; a stripe
 * with status TANDEM_OK is then still rebuilt.
 * Shards of different stripes must not overlap; only data shards may be shared. This is not checked across stripes.
 * Within a stripe it is checked from 4 KiB on.
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
  const tandem_segment *segments; /* in order; NULL = this shard is not given (elsewhere: a NULL pointer) */
  size_t segment_count;           /* the segments' bytes add up to shard_bytes */
} tandem_scattered_shard;

/* tandem_encode and tandem_decode for shards that lie in pieces (scatter-gather lists). Each shard may be cut at
 * different places.
 *   operation    TANDEM_OPERATION_ENCODE or TANDEM_OPERATION_DECODE
 *   shards       k+m entries, data first
 *   present      decode: as for tandem_decode. encode: NULL
 * Status: as the plain functions (OVERLAP: checked from 4 KiB on); INVALID_ARGUMENT when a shard's segments do not add
 *   up to shard_bytes. */
TANDEM_API tandem_status tandem_code_scattered(tandem_context *context, const tandem_codec *codec, int32_t operation,
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
  int32_t operation;        /* enum tandem_operation_value */
  int32_t memory;           /* enum tandem_memory_value: where the shards of every run lie. OPENCL, CUDA: for contexts
                               of such a device; see device.h */
  const uint8_t *present;   /* decode: k+m bytes, as for tandem_decode */
  const uint8_t *wanted;    /* k+m bytes, non-zero = write this shard; it must not be present. NULL = every parity shard
                               (encode, update, accumulate) or every missing shard (decode) */
  uint32_t index;           /* update, accumulate: the data shard */
  uint32_t first;           /* accumulate: non-zero: the old bytes of parity are ignored and overwritten */
  const char *resources;    /* NULL, or resources that each task of the plan holds besides its usual ones: "my.disks=2".
                               They are counted if an amount is set (tandem_context_set_resource). Refused: the built-in
                               names listed there, because their shares are fixed, and other names without a dot */
  uint32_t wait_for_kernel; /* 1: tandem_plan_create waits until the fastest kernel for these shards is compiled; with
                               OpenCL memory the first run waits instead, because a program belongs to a queue. 0: it is
                               compiled in the background. A hybrid refuses 1 for host memory (UNSUPPORTED) */
  uint32_t reserved;        /* 0 */
  const uint32_t *read_costs; /* decode: k+m costs, one for reading each shard. The plan reads the cheapest set that it
                                 finds (tandem_plan_query, diagnose.h). NULL: all costs are 1 */
  int32_t (*cancelled)(void *user); /* matrix par2: asked while a decode is solved. Non-zero: ends with CANCELLED */
  void *cancelled_user;
} tandem_plan_options;

/* Prepares an operation: solves for the coefficient matrix and builds the kernel's tables. Runs of the plan do neither
 * again. A plan may outlive its codec, but not its context.
 *
 * A plan for device memory is ready at once, with a kernel that serves every matrix (technique tables). The kernel of
 * this matrix is compiled in the background; later submits use it. If the compile fails, the log says so once.
 * wait_for_kernel, and device_technique=compiled of the context, wait: tenths of a second, minutes for wide codes.
 *
 * Status: INVALID_ARGUMENT (also resources that are malformed or exceed the whole amount; read_costs or cancelled
 *   of another operation), UNSUPPORTED (a memory kind that no backend of the context reaches; read_costs in GF(2^16)),
 *   NOT_RECOVERABLE, TOO_LARGE (GF(2^16): a matrix of more than 64 MiB, or an elimination that is too large: see
 *   docs/matrices.md), CANCELLED, OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_plan_create(tandem_context *context, const tandem_codec *codec,
                                            const tandem_plan_options *options, tandem_plan **plan_out);
/* Destroys a plan. NULL is allowed. Its jobs continue. */
TANDEM_API void tandem_plan_destroy(tandem_plan *plan);

typedef struct tandem_plan_arguments {
  size_t struct_bytes;
  void *const *shards;  /* k+m pointers, data first. The plan needs the shards that it reads and those that it writes;
                           the others are ignored and may be NULL. update: shards[index] is the old data */
  const void *new_data; /* update: the new bytes of shard `index` */
  size_t shard_bytes;
  tandem_verify_result *verify_result;        /* verify: written when the run is done; struct_bytes set by the caller */
  struct tandem_verify_ranges *verify_ranges; /* verify: where the mismatches lie (diagnose.h); NULL = no search */
  /* Of plans for device memory; device.h says what they mean. Others: NULL and 0. */
  void *queue;              /* a stream of CUDA, or a cl_command_queue */
  const uint64_t *offsets;  /* k+m byte offsets of the shards in their buffers; NULL = all 0 */
  uint64_t new_data_offset; /* update: offset of new_data */
} tandem_plan_arguments;

/* Runs a plan. With job_out NULL, returns when it is done. Otherwise starts the run as a job and returns.
 *
 * A job: the arguments are checked before the call returns. The outputs are complete after tandem_job_wait has returned
 * TANDEM_OK. On device memory, the call returns when the commands are in the queue, and a later cancel has no effect.
 * Ownership: of a job, the pointer array and the offsets are copied. The shards, new_data, queue, verify_result and
 *   verify_ranges must stay until the job is over.
 * Status: as the plain function of the same operation (OVERLAP: checked from 4 KiB on). Device memory: device.h.
 *   *job_out is untouched on failure. */
TANDEM_API tandem_status tandem_plan_run(const tandem_plan *plan, const tandem_plan_arguments *arguments,
                                         tandem_job **job_out);

/* Waits until a job is over, and returns its status. Several threads may wait, and each may wait several times.
 * Status: as tandem_plan_run; CANCELLED; INVALID_ARGUMENT (NULL, or a child process of the one that submitted it). */
TANDEM_API tandem_status tandem_job_wait(tandem_job *job);

/* Asks a job to stop; it does so within one chunk. The next wait then returns TANDEM_ERROR_CANCELLED, and outputs are
 * undefined. A job that was over stays as it was. Small jobs (less than 256 KiB moved) ignore the request.
 * Status: INVALID_ARGUMENT (NULL). */
TANDEM_API tandem_status tandem_job_cancel(tandem_job *job);

/* Waits for the job, then frees it. NULL is allowed. In a child process it does nothing. */
TANDEM_API void tandem_job_destroy(tandem_job *job);

#ifdef __cplusplus
}
#endif
#endif
