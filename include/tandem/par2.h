/* SPDX-License-Identifier: Apache-2.0 */
/* par2.h - PAR 2.0 sets: files stay as they are, and recovery files beside them protect them. PAR 1.0 can be read.
 *
 *     const char *folder = "photos";
 *     tandem_par2_create_options create = {.struct_bytes = sizeof create, .path = "photos.par2"};
 *     create.source_paths = &folder;
 *     create.source_count = 1;
 *     create.recovery_percent = 10;
 *     tandem_par2_create(NULL, &create, NULL);  // photos.par2, photos.vol000+01.par2, ...
 *
 *     tandem_par2_verify_options options = {.struct_bytes = sizeof options, .path = "photos.par2"};
 *     tandem_par2_report *report;
 *     tandem_par2_verify(&options, &report);
 *     tandem_par2_summary summary = {.struct_bytes = sizeof summary};
 *     tandem_par2_report_query(report, &summary);                        // complete, or what is missing
 *     if (summary.repair_needed && summary.repair_possible) tandem_par2_repair(NULL, report, NULL);
 *     tandem_par2_report_destroy(report);
 *
 * The format is that of the "Parity Volume Set Specification 2.0"; sets of other programs can be read. A set cuts its
 * files into slices of one size; the last slice of a file is filled with zeros. A recovery slice replaces any slice
 * that is lost. MD5 and CRC-32 find accidents. They do not stop an attacker.
 *
 *   names      Packet files are read as untrusted input. Nothing is read or written under a name that is absolute, has
 *              a part "..", a part of more than 255 bytes, or more than 4095 bytes, is there twice, or is "a" beside
 *              "a/b": the file counts as UNREADABLE (EPERM, ENAMETOOLONG, EEXIST, EISDIR). Parts "." and "" are left
 *              out. An empty file with a "/" at the end of its name is a folder. Backslashes count as slashes, unless
 *              a file exists that has such a name. Names in UTF-16 (UniFileN packets) come first. A set that has one
 *              of its packet files as a file is refused (UNSUPPORTED).
 *   promise    What could be restored before a call can be restored after it, unless an option named for it allowed the
 *              loss or the status is not TANDEM_OK.
 *   threads    Each call starts its own threads. They end before the call returns, and they block all signals.
 *              Callbacks run on the calling thread.
 *   errors     As in tandem.h: tandem_last_error_message() has the sentence. Damage is a result, not an error.
 */
#ifndef TANDEM_PAR2_H
#define TANDEM_PAR2_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TANDEM_PAR2_MAX_SLICES 32768 /* of a set; each file that is not empty has at least one */

/* Receives the progress of a call, about ten times a second, on the calling thread.
 *   total_bytes   the work that is known; grows when damage makes a search necessary
 * Returns 0 to continue. Any other value ends the call with TANDEM_ERROR_CANCELLED. */
typedef int32_t (*tandem_par2_progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);

/* ---- create -------------------------------------------------------------------------------------- */

/* How many recovery slices go into each packet file. */
enum tandem_par2_volumes_value {
  TANDEM_PAR2_DOUBLING = 0, /* 1, 2, 4, 8, ... and the rest; with volume_count, larger ones: 2, 4, 8, ... */
  TANDEM_PAR2_LIMITED = 1,  /* the same, but no packet file has more recovery slices than the largest file has slices;
                               after 1000 of them, one more has the rest */
  TANDEM_PAR2_UNIFORM = 2   /* as equal as possible */
};

typedef struct tandem_par2_create_options {
  size_t struct_bytes;             /* sizeof(tandem_par2_create_options) */
  const char *path;                /* the packet file without recovery slices; ".par2" is added if it is missing. The
                                      others are "base.vol<first>+<count>.par2" beside it */
  const char *base_path;           /* the folder that names are relative to; NULL = that of `path` */
  const char *const *source_paths; /* regular files below base_path; a folder stands for all regular files below it,
                                      except packet files of this name. Symbolic links inside it are left out */
  size_t source_count;             /* at least 1 */
  uint64_t slice_bytes; /* a multiple of 4, above 1 GiB at most as long as the largest file; 0 = the smallest with which
                           slice_count slices suffice */
  uint32_t slice_count; /* if slice_bytes is 0: the most slices; 0 = slices of a 2,000th of all bytes, of 4 KiB at
                           least if a file has as much, and as many as that makes */
  uint32_t recovery_slice_count; /* 0 = recovery_percent of the slices */
  double recovery_percent;       /* of the slices, rounded, at least one; 0 and recovery_slice_count 0: no recovery
                                    slices */
  uint32_t first_exponent;       /* of the recovery slices: to add some to a set, begin after those that it has */
  int32_t volumes;               /* enum tandem_par2_volumes_value */
  uint32_t volume_count; /* packet files with recovery slices, at most 1000; 0 = as many as DOUBLING makes, which
                            may also need fewer. LIMITED: 0 */
  uint32_t thread_count; /* that read and hash; 0 = one for each core. The context's threads code */
  uint64_t memory_bytes; /* for slices: the call codes columns of all slices that fit into it, and at least 64
                            bytes of each; 0 = 64 MiB */
  int32_t force;         /* non-zero: existing packet files of these names are replaced */
  int32_t no_sync;       /* non-zero: the operating system decides when bytes reach the disk */
  tandem_par2_progress progress; /* NULL = none */
  void *progress_user;
  uint32_t critical_copies; /* least number of copies that each packet file has of each packet that is no recovery
                               slice, at most 16; from 2 on, the first is at the beginning and the last at the end.
                               0 = 1 copy, and one more each time that the recovery slices of the file double */
  uint32_t reserved;
} tandem_par2_create_options;

typedef struct tandem_par2_create_result {
  size_t struct_bytes; /* set by the caller: sizeof(tandem_par2_create_result) */
  uint8_t set_id[16];
  uint64_t slice_bytes;
  uint32_t file_count, slice_count, recovery_slice_count;
  uint32_t packet_file_count;
  uint64_t source_bytes, packet_file_bytes;
} tandem_par2_create_result;

/* Makes the packet files of a set.
 *   context      where recovery slices are computed; NULL = the process's own
 *   options      see above
 *   result_out   NULL, or a struct with struct_bytes set; written on TANDEM_OK
 * The files, slice_bytes and the exponents determine all packets but those of the creator and of Unicode names: every
 * program makes the same bytes. Names are bytes, in most programs UTF-8. A name beyond ASCII that is valid UTF-8 has a
 * Unicode packet too. Packet files are written beside their final names, and renamed when all are complete. A call that
 * fails leaves the folder as it was; but with force, if a rename fails, earlier ones stay. If the process dies,
 * temporaries ".NAME.*.tmp" may be left; tandem_par2_repair removes them. A file that changes during the call is
 * refused (IO). Status: INVALID_ARGUMENT (a source that does not exist, is no regular file or lies outside of
 * base_path; sizes and counts out of range: the message has the numbers), TOO_LARGE (more than TANDEM_PAR2_MAX_SLICES
 * slices or files), OUT_OF_MEMORY, IO (also if a packet file exists), CANCELLED, DEVICE. Threads: any. */
TANDEM_API tandem_status tandem_par2_create(tandem_context *context, const tandem_par2_create_options *options,
                                            tandem_par2_create_result *result_out);

/* ---- verify -------------------------------------------------------------------------------------- */

/* What is read of a set. */
enum tandem_par2_scope_value {
  TANDEM_PAR2_ALL = 0,          /* its packet files and its files */
  TANDEM_PAR2_DESCRIPTIONS = 1, /* only what it describes, fast: each recovery slice counts as intact */
  TANDEM_PAR2_PACKETS = 2       /* its packet files */
};

typedef struct tandem_par2_verify_options {
  size_t struct_bytes;            /* sizeof(tandem_par2_verify_options) */
  const char *path;               /* a packet file of the set, with or without ".par2". "base.par2", "base.*.par2" and
                                     files that begin with a packet of this set, all beside it, are read too.
                                     "base.par" or "base.p01": of PAR 1.0, each file is a slice */
  const char *base_path;          /* the folder of the set's files; NULL = that of `path` */
  const char *const *extra_paths; /* files that are searched if something is missing: renamed, joined, split or shifted
                                     data. Packet files, by ".par2" or by their first bytes, are read as such too */
  size_t extra_count;
  uint32_t thread_count;         /* 0 = one for each core */
  uint32_t search_distance;      /* not 0: slices that begin more bytes away from a multiple of the size of a slice are
                                    not found */
  tandem_par2_progress progress; /* NULL = none */
  void *progress_user;
  int32_t scope; /* enum tandem_par2_scope_value. Unless it is ALL, each file counts as missing, and the report cannot
                    be repaired */
  uint64_t rate_bytes_per_second; /* of the files and recovery slices; one thread reads them. 0 = no limit */
} tandem_par2_verify_options;

/* What a call found. */
typedef struct tandem_par2_report tandem_par2_report;

enum tandem_par2_file_state_value {
  TANDEM_PAR2_COMPLETE = 0, /* right under its name */
  TANDEM_PAR2_RENAMED = 1,  /* another file has its content (found_as) */
  TANDEM_PAR2_DAMAGED = 2,  /* it exists, but has wrong, missing or additional bytes */
  TANDEM_PAR2_MISSING = 3,
  TANDEM_PAR2_UNREADABLE = 4 /* it may be right, but it cannot be looked at or read: error_number says why */
};

/* Checks the files of a set and searches for what is missing.
 *   options      see above
 *   report_out   for tandem_par2_report_destroy; untouched on failure
 * The checksums of slices decide: a file is right if it has the right length and all its slices are right. Nothing is
 * written. The search looks at extra_paths and at files of the set that are not right under their own names, at each
 * offset. It also looks at "NAME.<number>" beside a file NAME of the set: a repair that was killed may have left it.
 * Files of the same size in the folder of a missing file are compared with it as a whole.
 *   damaged      also bytes that the medium has lost (EIO and the like)
 *   unreadable   neither damaged nor missing: what the process may not read or cannot look at (EACCES, EPERM, ELOOP,
 *                ESTALE, ENOMEM, ...)
 * Needs about 1 MiB of memory for each thread, and 32 KiB for each file of the set at most.
 * The set is that of the first packet. If no copy of its main packet is intact, it is made anew from other packets.
 * A program that replaces sets must keep a set that is of no use. This tells it apart from no set:
 *   not there        IO, "cannot find a set"; lstat of the file says ENOENT
 *   cannot be read   IO: a packet file cannot be opened, looked at or read, or is no regular file, as a symbolic link
 *                    to nothing
 *   is damaged       DAMAGED: the main packet has no intact copy and cannot be made, as in an empty file; or
 *                    NOT_RECOVERABLE: descriptions of files have none. Less damage: OK, damaged_packet_bytes
 * Status: INVALID_ARGUMENT, IO (also if a folder cannot be listed, or the process may not open more files), DAMAGED,
 *   NOT_RECOVERABLE, TOO_LARGE (more than TANDEM_PAR2_MAX_SLICES slices or files), UNSUPPORTED
 *   (slices larger than 1 GiB and each file, or than 2^48 bytes; a file twice), OUT_OF_MEMORY, CANCELLED.
 * Threads: any. */
TANDEM_API tandem_status tandem_par2_verify(const tandem_par2_verify_options *options, tandem_par2_report **report_out);

/* Returns the length of the name of the set in a path: 3 for "d/a.vol03+4.par2", "d/a.par2" and "d/a.p01". Other paths
 * count whole. NULL: 0. Threads: any. */
TANDEM_API size_t tandem_par2_base_length(const char *path);

/* NULL is allowed. */
TANDEM_API void tandem_par2_report_destroy(tandem_par2_report *report);

typedef struct tandem_par2_summary {
  size_t struct_bytes; /* set by the caller: sizeof(tandem_par2_summary) */
  uint8_t set_id[16];
  uint64_t slice_bytes;
  uint32_t slice_count;       /* of all files together */
  uint32_t found_slice_count; /* at their places or elsewhere. The others are lost, or in files that are UNREADABLE */
  uint32_t recovery_slice_count; /* intact ones with different exponents */
  uint32_t file_count, complete_count, renamed_count, damaged_count, missing_count;
  int32_t repair_needed;   /* non-zero: not all files are complete. Files may also be only UNREADABLE */
  int32_t repair_possible; /* non-zero: there are at least as many recovery slices as missing slices, within 65536 -
                              slice_count exponents, and the set has recovery data for each file that is not complete;
                              an empty file needs none. If the exponents have gaps, the recovery slices may still not
                              suffice */
  uint64_t damaged_packet_bytes; /* of packet files, in no intact packet */
  uint32_t repaired_count;       /* of files, since the verify */
  uint32_t unreadable_count;
  uint32_t remade_packet_file_count; /* by tandem_par2_repair */
  uint32_t reserved;
} tandem_par2_summary;

/* Status: INVALID_ARGUMENT (NULL; struct_bytes). Threads: any. */
TANDEM_API tandem_status tandem_par2_report_query(const tandem_par2_report *report, tandem_par2_summary *summary_out);

typedef struct tandem_par2_file {
  const char *name;     /* as in the set, with '/' between folders */
  const char *found_as; /* renamed: the path of the other file; else NULL */
  uint64_t bytes;       /* that it must have */
  int32_t state;        /* enum tandem_par2_file_state_value */
  int32_t recoverable;  /* 0: the set only describes it, and has no recovery data for it */
  uint32_t slice_count, found_slice_count;
  int32_t repaired;     /* non-zero: tandem_par2_repair has made it complete */
  int32_t error_number; /* unreadable: errno; else 0 */
} tandem_par2_file;

typedef struct tandem_par2_packet_file {
  const char *path;
  uint64_t bytes;
  uint64_t damaged_bytes; /* in no intact packet */
  uint32_t packet_count;  /* intact ones of this set; 0 with intact bytes: it is of other sets */
  uint32_t recovery_slice_count;
  uint32_t lost_recovery_slice_count; /* recovery slices that its name tells and it lacks, if it is_lost */
  int32_t is_lost; /* non-zero: tandem_par2_repair with `packets` makes it anew. It is damaged, or missing: then bytes
                      is 0 */
} tandem_par2_packet_file;

/* A file that was searched because something is missing. */
typedef struct tandem_par2_searched_file {
  const char *path;
  const char *name;           /* of the set's file that all slices found here belong to; NULL: several files, or none */
  uint32_t slice_count;       /* of that file */
  uint32_t found_slice_count; /* that were found here, and before that nowhere else */
  uint32_t repeated_slice_count; /* that were found here, and another file has them too */
  int32_t error_number;          /* not 0: errno, why it could not be searched */
} tandem_par2_searched_file;

enum tandem_par2_list_value {
  TANDEM_PAR2_FILES = 0,          /* tandem_par2_file: the files of the set in its order */
  TANDEM_PAR2_PACKET_FILES = 1,   /* tandem_par2_packet_file: those that were read. With TANDEM_PAR2_PACKETS also those
                                     that are missing, as far as it shows: "base.par2", and one file for each gap among
                                     the exponents */
  TANDEM_PAR2_SEARCHED_FILES = 2, /* tandem_par2_searched_file: other files than those of the set, without those that a
                                     renamed file was found as. If something is missing, also files beside the set that
                                     may have packets of it, and cannot be read at their beginnings */
  TANDEM_PAR2_TEMPORARIES = 3     /* const char *: paths of temporaries that killed calls left beside files and packet
                                     files of the set. None if a process is writing one */
};

/* Lists what a report has. Texts belong to the report.
 *   list            enum tandem_par2_list_value
 *   elements_out    `capacity` elements, stride_bytes apart; NULL with capacity 0 only counts
 *   stride_bytes    the size of an element
 *   count_out       how many there are; may be more than capacity
 * Status: INVALID_ARGUMENT (NULL; no such list; stride_bytes smaller than an element). Threads: any. */
TANDEM_API tandem_status tandem_par2_report_list(const tandem_par2_report *report, int32_t list, void *elements_out,
                                                 size_t capacity, size_t stride_bytes, size_t *count_out);

/* ---- repair -------------------------------------------------------------------------------------- */

typedef struct tandem_par2_repair_options {
  size_t struct_bytes;   /* sizeof(tandem_par2_repair_options) */
  uint64_t memory_bytes; /* for slices, as in create; 0 = 64 MiB */
  uint32_t thread_count; /* that read, hash and write; 0 = one for each core. The context's threads code */
  int32_t rename_only;   /* non-zero: only whole files that were found elsewhere are put in their places */
  int32_t keep_replaced; /* non-zero: a wrong file that another one replaces stays, as "NAME.1" (the first number
                            that is free) */
  int32_t no_sync;       /* non-zero: the operating system decides when bytes reach the disk */
  tandem_par2_progress progress; /* NULL = none. Cancels until the first existing file changes */
  void *progress_user;
  int32_t packets; /* non-zero: when all files are complete, damaged and missing packet files are made anew. Not
                      with rename_only */
  uint32_t reserved;
} tandem_par2_repair_options;

/* Repairs what tandem_par2_verify found. On TANDEM_OK the report describes the new state. With rename_only, files may
 * still not be complete. An UNREADABLE file stays as it is, and the others are repaired; what they replace stays as
 * "NAME.1" then. So does a file without recovery data, one that has a folder or a device in its place, and one that
 * needs recovery slices if these do not suffice. The call fails when the others are repaired: the message names some.
 *   context      where lost slices are computed; NULL = the process's own
 *   report       of tandem_par2_verify
 *   options      NULL: all defaults
 * If the right slices of a file lie at their places, it is repaired in place: only its damaged slices are written. Else
 * a whole file that was found elsewhere is renamed, if it is one of the set's or of extra_paths below the base folder,
 * and its folder can be written to. Else the file is written beside, and renamed. Owner and times of the damaged file
 * are kept where permitted, and so are its permission bits. A symbolic link at a file's place is replaced, never
 * written through; a pipe, socket or device is refused (IO). Folders below the base folder must not be symbolic links.
 * If another program has changed a file before it is written or renamed, it stays as that program wrote it (DAMAGED).
 * Order: all lost slices are computed and checked, in memory_bytes or in an unnamed file in the base folder, before an
 *   existing file changes. If the call fails before that, each file is as it was. But if they cannot be computed (too
 *   few or wrong recovery slices, gaps among the exponents), files that need none of them are then still repaired. If a
 *   rename fails, old files get their names back.
 * Kill: if the call fails later or the process dies, nothing is lost. The old file may then be called "NAME.1" (verify
 *   reads it), temporaries ".NAME.*.tmp" may be left, and the call can be made again, after a new verify. A call that
 *   leaves all files complete removes the set's temporaries of dead calls; it does so too if nothing is to be repaired.
 * Packets: reads all files once more. In the folder of the set, files are made anew that are damaged; that have fewer
 *   recovery slices than their names tell ("base.vol7+8.par2" has 8) or no copy of another packet; "base.par2", if
 *   there are volumes; and a file for each gap among the exponents with no more of them than the set has. What Tandem
 *   made comes back byte for byte, but for gaps of several files. A damaged file stays if it has no intact packet of
 *   the set, packets of other sets or of unknown kinds, or recovery slices that its name does not tell; if nothing
 *   tells which it had; if it is a link or has two names; and if the set protects it. If a file has changed since the
 *   verify, the call fails (DAMAGED). More recovery data than twice what there is, is not made (TOO_LARGE).
 *   keep_replaced is for the set's own files: a damaged packet file does not stay.
 *
 * Cost: the equations of e lost slices take about 2 e^2 bytes beside memory_bytes. With g gaps among the exponents they
 *   take up to 10 e^2, and about e^2 g steps of the context, at most 2^36.
 *
 * Status: INVALID_ARGUMENT, NOT_RECOVERABLE (the message has the numbers of lost and of recovery slices; also for too
 *   many gaps among the exponents), DAMAGED (a file has changed since verify, or what was computed is wrong), IO (also
 *   if only the slices that cannot be read are too many), TOO_LARGE, UNSUPPORTED, OUT_OF_MEMORY, CANCELLED, DEVICE. If
 *   files were repaired and others stay, the message says so.
 *
 * Threads: one call at a time for each report. */
TANDEM_API tandem_status tandem_par2_repair(tandem_context *context, tandem_par2_report *report,
                                            const tandem_par2_repair_options *options);

/* ---- trees --------------------------------------------------------------------------------------- */

/* How much a call found to do. */
enum tandem_par2_severity_value {
  TANDEM_PAR2_FINE = 0,
  TANDEM_PAR2_ATTENTION = 1, /* damage that can be repaired, missing redundancy, a change that waits for an option */
  TANDEM_PAR2_UNREAD = 3,    /* something could not be read or written */
  TANDEM_PAR2_LOST = 4       /* damage that cannot be repaired */
};

enum tandem_par2_event_value {
  /* Of a set. */
  TANDEM_PAR2_SET_BEGUN = 0,     /* it is looked at now; scrub: a callback that returns 1 leaves it out */
  TANDEM_PAR2_SET_UNCHANGED = 1, /* sync: it describes the files as they are */
  TANDEM_PAR2_SET_MADE = 2,
  TANDEM_PAR2_SET_REPLACED = 3,
  TANDEM_PAR2_SET_REMOVED = 4,
  TANDEM_PAR2_SET_KEPT = 5,     /* sync: it stays as it is although files differ from it */
  TANDEM_PAR2_SET_COMPLETE = 6, /* scrub: the set and its files are right */
  TANDEM_PAR2_SET_OUTDATED = 7, /* scrub: files are newer than the set, all others are right */
  TANDEM_PAR2_SET_RECOVERABLE = 8,
  TANDEM_PAR2_SET_LOST = 9,
  TANDEM_PAR2_SET_ABSENT = 10, /* the list of the tree's sets has it, and it is not there */
  TANDEM_PAR2_SET_FAILED = 11,
  /* Of a file; these come before the last event of its set. */
  TANDEM_PAR2_FILE_RIGHT = 32,
  TANDEM_PAR2_FILE_ADDED = 33,
  TANDEM_PAR2_FILE_CHANGED = 34, /* it is newer than the set says */
  TANDEM_PAR2_FILE_SUSPECT = 35, /* it differs, and is not newer than the set says: damage, or an old version */
  TANDEM_PAR2_FILE_GONE = 36,
  TANDEM_PAR2_FILE_UNREADABLE = 37,
  TANDEM_PAR2_FILE_IS_PACKETS = 38,  /* sync: a packet file of another set; it is not protected */
  TANDEM_PAR2_FILE_UNPROTECTED = 39, /* scrub: it is in no set */
  TANDEM_PAR2_FILE_REPAIRED = 40,
  /* Of the tree. */
  TANDEM_PAR2_FOLDER_UNREADABLE = 64,
  TANDEM_PAR2_NO_LIST = 65,         /* without the list of sets, missing sets cannot be named */
  TANDEM_PAR2_ACCEPTED_NOTHING = 66 /* sync: accepting this path had no effect */
};

/* Texts are valid during the callback. */
typedef struct tandem_par2_event {
  size_t struct_bytes; /* set by the library */
  const char *path;
  const char *message; /* why, or NULL */
  int32_t what;        /* enum tandem_par2_event_value */
  int32_t severity;    /* enum tandem_par2_severity_value */
  uint64_t bytes;      /* of the files of a set, as it describes them */
  uint32_t file_count;
  uint32_t slice_count, lost_slice_count; /* of the set or the file */
  uint32_t recovery_slice_count;
  double recovery_percent; /* sync: of the set */
} tandem_par2_event;

/* Hears what a call finds and does, on the calling thread. Returns 0 to go on. A negative value ends the call with
 * TANDEM_ERROR_CANCELLED. */
typedef int32_t (*tandem_par2_report_event)(void *user, const tandem_par2_event *event);

enum tandem_par2_action_value { TANDEM_PAR2_SCRUB = 0, TANDEM_PAR2_SYNC = 1 };

typedef struct tandem_par2_tree_options {
  size_t struct_bytes;               /* sizeof(tandem_par2_tree_options) */
  const char *path;                  /* the tree's root */
  const char *const *excluded_globs; /* of names; with a '/', of paths below the root */
  size_t excluded_count;
  const char *const *accepted_paths; /* sync: files that are meant to be as they are, or gone; sets that are gone */
  size_t accepted_count;
  double recovery_percent;        /* sync: of all sets; 0 = a set keeps its own, and a new one has 5 */
  uint32_t thread_count;          /* as in create and verify */
  uint32_t lock_wait_seconds;     /* for a folder that another process has locked; 0 = 60 */
  uint64_t memory_bytes;          /* as in create */
  uint64_t rate_bytes_per_second; /* scrub: as in verify */
  int32_t one_file_system;        /* non-zero: folders of other file systems are left out */
  int32_t no_sync;                /* non-zero: the operating system decides when bytes reach the disk */
  int32_t repair;         /* scrub, non-zero: files are repaired, not those that are newer than their set says */
  int32_t dry_run;        /* sync, non-zero: says what would be done, by sizes and times alone */
  int32_t force;          /* sync, non-zero: all sets are made anew, also those that nothing can be read from */
  int32_t no_verify;      /* sync, non-zero: unchanged files are not checked before their set is replaced */
  int32_t accept_removed; /* sync, non-zero: files and sets that are gone are meant to be gone */
  int32_t accept_many;    /* sync, non-zero: any number of files of a folder may be removed or rewritten at once; else
                             a tenth of those in its set, or 10 */
  tandem_par2_report_event report; /* NULL = none */
  void *report_user;
  tandem_par2_progress progress; /* of each set by itself; NULL = none */
  void *progress_user;
  int32_t action;    /* enum tandem_par2_action_value. Fields of the other action must be 0 */
  uint32_t reserved; /* 0 */
} tandem_par2_tree_options;

/* Keeps the sets of a tree of folders.
 *   context        where recovery slices are computed; NULL = the process's own
 *   options        see above
 *   severity_out   NULL, or what was found, enum tandem_par2_severity_value: the greatest of all events
 *
 * Sync keeps a set ".tandem.par2" in each folder, for the regular files in that folder. A set is made anew if files
 * were added, or are newer than it says. Each other file must have the content that the set describes. If it has not,
 * or is gone or cannot be read, the set stays; files that it does not describe then get a second set,
 * ".tandem-more.par2". It goes when the first set is made anew. So no content that a set can restore is given up,
 * unless an option allows it. ".tandem.par2-sets" in the root lists all sets. After a kill, each set is the old one or
 * the new one.
 *
 * Scrub checks all sets in the folders of a tree, also those of other programs, and names files that are in no set.
 *
 * Status: INVALID_ARGUMENT, IO (the root; scrub: there is no set), OUT_OF_MEMORY, CANCELLED. What else fails in a
 *   folder is an event, and the others have their turn.
 * Threads: any; each folder is locked (flock) while it is looked at. */
TANDEM_API tandem_status tandem_par2_tree(tandem_context *context, const tandem_par2_tree_options *options,
                                          int32_t *severity_out);

#ifdef __cplusplus
}
#endif
#endif
