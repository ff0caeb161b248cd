// SPDX-License-Identifier: MIT
//
// LD_PRELOAD: a disk whose flush takes $SLOW_FLUSH_US microseconds longer, as that of a card or a busy server does. What is slept away costs no
// processor time, and files are as durable as without.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void linger(void) {
  static long most = -1;
  if (most < 0) {
    const char *text = getenv("SLOW_FLUSH_US");
    most = text ? atol(text) : 0;
  }
  int error = errno;
  struct timespec left = {most / 1000000, most % 1000000 * 1000};
  while (nanosleep(&left, &left) && errno == EINTR) {}
  errno = error;
}

int fdatasync(int file) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  int result = real(file);
  linger();
  return result;
}

int fsync(int file) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  int result = real(file);
  linger();
  return result;
}
