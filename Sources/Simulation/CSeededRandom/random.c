// SPDX-License-Identifier: MIT

// A world repeats only if its gateways' ids and pauses do. The programs ask the system for random numbers; in a program with this file, these
// functions answer in place of the C library's.
#include <stddef.h>
#include <sys/types.h>

#include "seeded_random.h"

static uint64_t state = 1;

void seeded_random_begin(uint64_t seed) { state = seed; }

// SplitMix64. Several threads may ask at once: each gets some number.
static uint64_t next(void) {
  uint64_t z = __atomic_add_fetch(&state, 0x9E3779B97F4A7C15u, __ATOMIC_RELAXED);
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
