// SPDX-License-Identifier: MIT
// A machine whose time passes faster while a program runs: an hour in six minutes. For benchmarks.
//
//   cc -shared -fPIC -o faster.so faster.c; LD_PRELOAD=faster.so MESHPOST_TEST_SPEED=10 program
//
// Clocks that nobody sets run so many times as fast, and waiting for descriptors ends so many times as early. The wall clock stays as it is.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long speed(void) {
  const char *text = getenv("MESHPOST_TEST_SPEED");
  long times = text ? strtol(text, NULL, 10) : 1;
  return times > 0 ? times : 1;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static long begin;
  int code = (int)syscall(SYS_clock_gettime, clock, now);
  if (code != 0 || (clock != CLOCK_MONOTONIC && clock != CLOCK_BOOTTIME)) return code;
  if (begin == 0) begin = now->tv_sec;
  long nanoseconds = ((now->tv_sec - begin) * 1000000000 + now->tv_nsec) * speed();
  now->tv_sec = begin + nanoseconds / 1000000000;
  now->tv_nsec = nanoseconds % 1000000000;
  return 0;
}

int epoll_pwait(int descriptor, struct epoll_event *events, int most, int milliseconds, const sigset_t *signals) {
  int wait = milliseconds > 0 ? (int)((milliseconds + speed() - 1) / speed()) : milliseconds;
  return (int)syscall(SYS_epoll_pwait, descriptor, events, most, wait, signals, _NSIG / 8);
}

int epoll_wait(int descriptor, struct epoll_event *events, int most, int milliseconds) {
  return epoll_pwait(descriptor, events, most, milliseconds, NULL);
}
