#include <zlib.h>

// Macros that Swift cannot see.
static inline int meshpost_deflate_begin(z_stream *stream, int bits, int memory) {
  return deflateInit2(stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, bits, memory, Z_DEFAULT_STRATEGY);
}
static inline int meshpost_inflate_begin(z_stream *stream, int bits) { return inflateInit2(stream, bits); }
