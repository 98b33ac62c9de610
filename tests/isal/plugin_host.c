/* SPDX-License-Identifier: Apache-2.0 */
/* A program without ISA-L that opens a plugin with ISA-L. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  int (*run)(void) = plugin != NULL ? (int (*)(void))dlsym(plugin, "plugin_run") : NULL;
  if (run == NULL)
    return fprintf(stderr, "%s\n", plugin != NULL || argc == 2 ? dlerror() : "usage: plugin_host PLUGIN"), 1;
  return run();
}
