// SPDX-License-Identifier: MIT
// A wall clock that is wrong, steps, and gains or loses its synchronisation while a program runs: for tests.
//
//   cc -shared -fPIC -o clock.so clock.c; LD_PRELOAD=clock.so MESHPOST_TEST_CLOCK=FILE program
//
// FILE holds two numbers, read anew at each look: seconds that the wall clock is ahead, and 1 while it is synchronised. Without the
// file the clock is the machine's. Monotonic clocks stay as they are: nobody sets those. MESHPOST_TEST_BOOT names a file that stands for the
// kernel's boot_id: another content is another boot.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

static int look(long *ahead, long *synchronised) {
  const char *location = getenv("MESHPOST_TEST_CLOCK");
  char text[64] = {0};
  int file = location ? open(location, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return 0;
  ssize_t count = read(file, text, sizeof text - 1);
  close(file);
  if (count <= 0) return 0;
  char *rest = NULL;
  *ahead = strtol(text, &rest, 10);
  *synchronised = strtol(rest, NULL, 10);
  return 1;
}

int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  const char *boot = getenv("MESHPOST_TEST_BOOT");
  if (boot && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) path = boot;
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int code = (int)syscall(SYS_clock_gettime, clock, now);
  long ahead, synchronised;
  if (code == 0 && clock == CLOCK_REALTIME && look(&ahead, &synchronised)) now->tv_sec += ahead;
  return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

int adjtimex(struct timex *state) {
  long ahead, synchronised = 1;
  look(&ahead, &synchronised);
  memset(state, 0, sizeof *state);
  state->status = synchronised ? 0 : STA_UNSYNC;
  return synchronised ? TIME_OK : TIME_ERROR;
}
