// SPDX-License-Identifier: MIT

#include <stdint.h>

/// From now on, this program's random numbers are those of the seed: those of Swift and of the libraries that ask the C library.
void seeded_random_begin(uint64_t seed);
