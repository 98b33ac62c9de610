/* SPDX-License-Identifier: Apache-2.0 */
/* A library in the place of libnvidia-ml.so.1: two GPUs, and the first one counts energy. */
#pragma GCC visibility push(default)

static int gpus[2];
static unsigned long long millijoules;

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = &gpus[index];
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *found) {
  if (device != &gpus[0]) return 3; /* NVML_ERROR_NOT_SUPPORTED */
  *found = millijoules += 1500;
  return 0;
}
