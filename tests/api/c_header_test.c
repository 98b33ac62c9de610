/* SPDX-License-Identifier: Apache-2.0 */
/* Each header compiles alone, as C11 and as C++17, and a C program uses them. Compiled as both. */
#include "tandem/tandem.h"

#include "tandem/device.h"
#include "tandem/diagnose.h"
#include "tandem/files.h"
#include "tandem/mpi.h"
#include "tandem/par2.h"
#include "tandem/tools.h"
#include "tandem/volume.h"

#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#define ASSERT_STATIC static_assert
#else
#define ASSERT_STATIC _Static_assert
#endif

/* Pinned for ever: what compiled programs rely on. */
ASSERT_STATIC(sizeof(tandem_status) == 4, "status is an int32_t");
ASSERT_STATIC(TANDEM_ERROR_INVALID_ARGUMENT == 1 && TANDEM_ERROR_UNSUPPORTED == 2 && TANDEM_ERROR_UNAVAILABLE == 3 &&
                  TANDEM_ERROR_OUT_OF_MEMORY == 4 && TANDEM_ERROR_TOO_LARGE == 5 && TANDEM_ERROR_OVERLAP == 6 &&
                  TANDEM_ERROR_NOT_MDS == 7 && TANDEM_ERROR_NOT_RECOVERABLE == 8 && TANDEM_ERROR_CANCELLED == 9 &&
                  TANDEM_ERROR_DEVICE == 10 && TANDEM_ERROR_IO == 11 && TANDEM_ERROR_DAMAGED == 12 &&
                  TANDEM_ERROR_INTERNAL == 13,
              "status values");
ASSERT_STATIC(TANDEM_SHARDS_PINNED == 1, "flags of shards");
ASSERT_STATIC(TANDEM_MATRIX_ISAL_CAUCHY == 0 && TANDEM_MATRIX_ISAL_VANDERMONDE == 1 && TANDEM_MATRIX_BACKBLAZE == 2 &&
                  TANDEM_MATRIX_ZFEC == 3 && TANDEM_MATRIX_LIBERASURECODE_ISAL_VAND_INV == 4 &&
                  TANDEM_MATRIX_JERASURE_VANDERMONDE == 5 && TANDEM_MATRIX_JERASURE_CAUCHY_ORIG == 6 &&
                  TANDEM_MATRIX_JERASURE_CAUCHY_GOOD == 7 && TANDEM_MATRIX_RAID6 == 8 && TANDEM_MATRIX_ZFS_RAIDZ == 9 &&
                  TANDEM_MATRIX_SNAPRAID_CAUCHY == 10 && TANDEM_MATRIX_SNAPRAID_VANDERMONDE == 11 &&
                  TANDEM_MATRIX_PAR1 == 12 && TANDEM_MATRIX_HDFS_RS_LEGACY == 13 && TANDEM_MATRIX_LEOPARD16 == 14 &&
                  TANDEM_MATRIX_REED_SOLOMON_SIMD == 15 && TANDEM_MATRIX_PAR2 == 16 &&
                  TANDEM_MATRIX_LIBERASURECODE_RS_VAND == 17 && TANDEM_MATRIX_LRC_AZURE == 18 &&
                  TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC == 19 && TANDEM_MATRIX_CUSTOM == 1000,
              "matrix values");
ASSERT_STATIC(TANDEM_PAR2_COMPLETE == 0 && TANDEM_PAR2_MISSING == 3 && TANDEM_PAR2_UNREADABLE == 4,
              "states of files of PAR2 sets");
ASSERT_STATIC(TANDEM_PAR2_SET_FAILED == 11 && TANDEM_PAR2_FILE_RIGHT == 32 && TANDEM_PAR2_FILE_REPAIRED == 40 &&
                  TANDEM_PAR2_NO_LIST == 65 && TANDEM_PAR2_ATTENTION == 1 && TANDEM_PAR2_UNREAD == 3 &&
                  TANDEM_PAR2_LOST == 4,
              "events of trees");
ASSERT_STATIC(TANDEM_VOLUME_DELAY == 4 && TANDEM_VOLUME_MEMBER_STALE == 3, "values of volumes");
ASSERT_STATIC(sizeof(tandem_volume_extent) == 24 && sizeof(tandem_volume_window) == 16,
              "what compiled programs lay out");

ASSERT_STATIC(sizeof(tandem_stripe) == 40, "what compiled programs lay out");

static int failures = 0;

static void expect(int truth, const char *what) {
  if (truth) return;
  ++failures;
  fprintf(stderr, "%s: %s\n", what, tandem_last_error_message());
}

int main(void) {
  enum { K = 3, M = 2, BYTES = 1000 };
  static unsigned char shards[K + M][BYTES], truth[K + M][BYTES];
  void *pointers[K + M];
  const void *data[K];
  uint8_t present[K + M] = {1, 0, 1, 1, 0};
  tandem_context *context = NULL;
  tandem_codec *codec = NULL;
  tandem_codec_options options;
  char version[40];
  int i, j;

  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.k = K;
  options.m = M;
  for (i = 0; i < K + M; ++i) {
    for (j = 0; j < BYTES; ++j) shards[i][j] = (unsigned char)(17 * i + 5 * j + 3 * i * j + 1);
    pointers[i] = shards[i];
    if (i < K) data[i] = shards[i];
  }
  sprintf(version, "%d.%d.%d", TANDEM_VERSION_MAJOR, TANDEM_VERSION_MINOR, TANDEM_VERSION_PATCH);
  expect(strcmp(tandem_version_string(), version) == 0, "version");
  expect(tandem_context_create(NULL, &context) == TANDEM_OK, "tandem_context_create");
  expect(tandem_codec_create(&options, &codec) == TANDEM_OK, "tandem_codec_create");
  expect(tandem_encode(context, codec, data, pointers + K, BYTES) == TANDEM_OK, "tandem_encode");
  memcpy(truth, shards, sizeof shards);
  memset(shards[1], 0, BYTES);
  memset(shards[4], 0, BYTES);
  expect(tandem_decode(context, codec, pointers, present, BYTES) == TANDEM_OK, "tandem_decode");
  expect(memcmp(shards, truth, sizeof shards) == 0, "the rebuilt bytes");
  tandem_codec_destroy(codec);
  tandem_context_destroy(context);
  if (failures == 0) puts("C header: all right");
  return failures;
}
