// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "CCrashDisk.h"
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static int (*_Atomic sync_hook)(int);

void crash_disk_hook_syncs(int (*hook)(int descriptor)) { atomic_store(&sync_hook, hook); }

static int synced(long call, int descriptor) {
  int (*hook)(int) = atomic_load(&sync_hook);
  return hook != NULL && hook(descriptor) == 0 ? 0 : (int)syscall(call, descriptor);
}

// A program's own functions take the place of those of the C library.
int fsync(int descriptor) { return synced(SYS_fsync, descriptor); }
int fdatasync(int descriptor) { return synced(SYS_fdatasync, descriptor); }
