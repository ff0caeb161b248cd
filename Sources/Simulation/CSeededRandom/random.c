// SPDX-License-Identifier: MIT

// A world repeats only if its gateways' ids and pauses do. The programs ask the system for random numbers; in a program with this file, these
// functions answer in place of the C library's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include "seeded_random.h"

// The world's thread has numbers of its own: how many the hub's threads have taken meanwhile is a matter of the scheduler.
static uint64_t state = 1, others = 2;
static pthread_t world;

void seeded_random_begin(uint64_t seed) {
  state = seed;
  others = ~seed;
  world = pthread_self();
}

// SplitMix64. Several threads may ask at once: each gets some number.
static uint64_t next(void) {
  uint64_t *mine = pthread_equal(pthread_self(), world) ? &state : &others;
  uint64_t z = __atomic_add_fetch(mine, 0x9E3779B97F4A7C15u, __ATOMIC_RELAXED);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static void fill(unsigned char *bytes, size_t count) {
  for (size_t place = 0; place < count; place++) bytes[place] = (unsigned char)next();
}

ssize_t getrandom(void *bytes, size_t count, unsigned flags) {
  (void)flags;
  fill(bytes, count);
  return (ssize_t)count;
}

int getentropy(void *bytes, size_t count) {
  fill(bytes, count);
  return 0;
}

void arc4random_buf(void *bytes, size_t count) { fill(bytes, count); }

uint32_t arc4random(void) { return (uint32_t)next(); }

// Swift's library in release programs asks the kernel by this function.
long syscall(long number, ...) {
  static long (*kernel)(long, ...);
  va_list list;
  va_start(list, number);
  long words[6];
  for (int place = 0; place < 6; place++) words[place] = va_arg(list, long);
  va_end(list);
  if (number == SYS_getrandom) return (long)getrandom((void *)words[0], (size_t)words[1], (unsigned)words[2]);
  if (!kernel) kernel = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return kernel(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
