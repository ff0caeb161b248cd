// SPDX-License-Identifier: MIT
//
// A link's connection: TCP, the WebSocket's handshake, frames. With --compress each message is compressed alone, and with --dictionary as gateways
// do it, with what was said before as context. Either way zlib's state is one for the whole fleet.
#include "fleet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

static uint8_t shared[1 << 18];

static void want(struct gateway *g, int events) {
  if (g->wanted == events) return;
  struct epoll_event event = {.events = (uint32_t)events, .data.u32 = (uint32_t)g->index};
  epoll_ctl(poller, g->wanted < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, g->fd, &event);
  g->wanted = events;
}

void open_link(struct gateway *g) {
  g->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (g->fd < 0) {
    perror("fleet: socket");
    exit(71);
  }
  g->wanted = -1;
  g->phase = CONNECTING;
  g->began = g->moved = now_ns();
  int one = 1;
  setsockopt(g->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct sockaddr_in address = {.sin_family = AF_INET};
  if (options.sources > 1) {
    // One address has some 28,000 ports; the port is chosen when it connects.
    setsockopt(g->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    address.sin_addr.s_addr = htonl(0x7F000002u + (uint32_t)(g->index % options.sources));
    if (bind(g->fd, (struct sockaddr *)&address, sizeof address)) return lost(g, strerror(errno));
  }
  address.sin_port = htons((uint16_t)options.port);
  inet_pton(AF_INET, options.host, &address.sin_addr);
  if (connect(g->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) return lost(g, strerror(errno));
  want(g, EPOLLOUT);
}

void close_link(struct gateway *g) {
  if (g->fd >= 0) close(g->fd);
  g->fd = -1;
  g->wanted = -1;
  free(g->out);
  free(g->in);
  free(g->up.bytes);
  free(g->down.bytes);
  g->up = g->down = (struct said){NULL, 0};
  g->out = g->in = NULL;
  g->out_used = g->out_sent = g->out_room = g->in_used = g->in_room = 0;
}

static void keep(uint8_t **buffer, size_t *used, size_t *room, const void *bytes, size_t count) {
  if (*used + count > *room) {
    *room = (*used + count) * 2;
    *buffer = realloc(*buffer, *room);
  }
  memcpy(*buffer + *used, bytes, count);
  *used += count;
}

static bool put(struct gateway *g, const void *bytes, size_t count) {
  figures.bytes_out += (int64_t)count;
  ssize_t gone = 0;
  if (!g->out_used) {
    gone = send(g->fd, bytes, count, MSG_NOSIGNAL);
    if (gone < 0 && errno != EAGAIN) return false;  // read tells of the end
    if (gone > 0) g->moved = now_ns();
    if (gone < 0) gone = 0;
  }
  if ((size_t)gone < count) {
    keep(&g->out, &g->out_used, &g->out_room, (const char *)bytes + gone, count - (size_t)gone);
    want(g, EPOLLIN | EPOLLOUT);
  }
  return true;
}

static void flush(struct gateway *g) {
  while (g->out_sent < g->out_used) {
    ssize_t gone = send(g->fd, g->out + g->out_sent, g->out_used - g->out_sent, MSG_NOSIGNAL);
    if (gone <= 0) return;
    g->out_sent += (size_t)gone;
    g->moved = now_ns();
  }
  free(g->out);
  g->out = NULL;
  g->out_used = g->out_sent = g->out_room = 0;
  want(g, EPOLLIN);
}

static bool frame(struct gateway *g, int first, char *text, size_t length) {
  uint8_t head[14];
  size_t size = 2;
  head[0] = (uint8_t)first;
  if (length < 126) {
    head[1] = (uint8_t)(0x80 | length);
  } else if (length < 65536) {
    head[1] = 0x80 | 126;
    head[2] = (uint8_t)(length >> 8);
    head[3] = (uint8_t)length;
    size = 4;
  } else {
    head[1] = 0x80 | 127;
    for (int i = 0; i < 8; i++) head[2 + i] = (uint8_t)((uint64_t)length >> (56 - 8 * i));
    size = 10;
  }
  uint32_t key = (uint32_t)mixed((uint64_t)now_ns() ^ (uint64_t)g->index << 32);
  memcpy(head + size, &key, 4);
  size += 4;
  uint64_t wide = (uint64_t)key << 32 | key;
  size_t at = 0;
  for (; at + 8 <= length; at += 8) {
    uint64_t word;
    memcpy(&word, text + at, 8);
    word ^= wide;
    memcpy(text + at, &word, 8);
  }
  for (; at < length; at++) text[at] ^= (char)(key >> (at % 4 * 8));
  memcpy(text - size, head, size);
  return put(g, text - size, size + length);
}

// MARK: Compression (RFC 7692). Shorter messages go out as they are.

enum { COMPRESSED_FROM = 16, MOST_ANSWER = 1 << 20 };

// How far back a message may refer: zlib's deflate never goes to its whole window.
enum { REACH_UP = (1 << 12) - 262, REACH_DOWN = 1 << 10 };

static char dictionary_up[4096], dictionary_down[4096];

void read_dictionaries(void) {
  if (!options.dictionary) return;
  FILE *file = fopen(options.dictionary, "r");
  if (!file || !fgets(dictionary_up, sizeof dictionary_up, file) || !fgets(dictionary_down, sizeof dictionary_down, file)) {
    perror(options.dictionary);
    exit(66);
  }
  dictionary_up[strcspn(dictionary_up, "\n")] = dictionary_down[strcspn(dictionary_down, "\n")] = 0;
  fclose(file);
}

static void add_said(struct said *said, size_t reach, const char *text, size_t length) {
  if (!options.dictionary) return;
  if (length > reach) text += length - reach, length = reach;
  size_t old = said->count + length > reach ? reach - length : said->count;
  uint8_t *next = malloc(old + length);
  if (old) memcpy(next, said->bytes + said->count - old, old);
  memcpy(next + old, text, length);
  free(said->bytes);
  *said = (struct said){next, old + length};
}

// The dictionary's end, and what was said after it.
static uInt context(uint8_t *to, const struct said *said, size_t reach, const char *dictionary) {
  size_t all = strlen(dictionary), left = reach - said->count, old = all < left ? all : left;
  memcpy(to, dictionary + all - old, old);
  if (said->count) memcpy(to + old, said->bytes, said->count);
  return (uInt)(old + said->count);
}

static size_t deflated(struct gateway *g, char *to, size_t room, const char *text, size_t length) {
  static z_stream stream;
  static uint8_t before[REACH_UP];
  if (!stream.state && deflateInit2(&stream, 6, Z_DEFLATED, -12, 5, Z_DEFAULT_STRATEGY) != Z_OK) abort();
  deflateReset(&stream);
  if (options.dictionary) deflateSetDictionary(&stream, before, context(before, &g->up, REACH_UP, dictionary_up));
  stream.next_in = (Bytef *)(uintptr_t)text;
  stream.avail_in = (uInt)length;
  stream.next_out = (Bytef *)to;
  stream.avail_out = (uInt)room;
  if (deflate(&stream, Z_SYNC_FLUSH) != Z_OK || stream.avail_in || !stream.avail_out) abort();
  add_said(&g->up, REACH_UP, text, length);
  // Without the end that every message has.
  return room - stream.avail_out - 4;
}

// NULL: damaged. The text has an end.
static char *inflated(struct gateway *g, const char *bytes, size_t *length) {
  static z_stream stream;
  static char to[MOST_ANSWER + 1];
  static uint8_t before[REACH_DOWN];
  if (!stream.state && inflateInit2(&stream, -10) != Z_OK) abort();
  inflateReset(&stream);
  if (options.dictionary) inflateSetDictionary(&stream, before, context(before, &g->down, REACH_DOWN, dictionary_down));
  stream.next_out = (Bytef *)to;
  stream.avail_out = MOST_ANSWER;
  const void *parts[] = {bytes, "\0\0\377\377"};
  size_t sizes[] = {*length, 4};
  for (int i = 0; i < 2; i++) {
    stream.next_in = (Bytef *)(uintptr_t)parts[i];
    stream.avail_in = (uInt)sizes[i];
    int code = inflate(&stream, Z_SYNC_FLUSH);
    if ((code != Z_OK && code != Z_BUF_ERROR) || stream.avail_in) return NULL;
  }
  *length = MOST_ANSWER - stream.avail_out;
  to[*length] = 0;
  add_said(&g->down, REACH_DOWN, to, *length);
  return to;
}

bool send_text(struct gateway *g, char *text, size_t length) {
  static char packed[16 + 2 * BATCH_BYTES];
  if (!g->compresses || length < COMPRESSED_FROM) return frame(g, 0x81, text, length);
  return frame(g, 0xC1, packed + 16, deflated(g, packed + 16, sizeof packed - 16, text, length));
}

void send_ping(struct gateway *g) {
  char room[32];
  frame(g, 0x89, room + 16, 0);
}

static void upgrade(struct gateway *g) {
  char request[1024];
  int length = snprintf(request, sizeof request,
    "GET /v1/gateways/%s/link HTTP/1.1\r\nHost: %s:%d\r\nUser-Agent: meshpostd\r\nAuthorization: Bearer %s\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: meshpost.v1\r\n%s\r\n",
    g->id, options.host, options.port, options.token,
    !options.compresses ? "" : options.dictionary
      ? "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=12; server_max_window_bits=10, meshpost-dictionary-1\r\n"
      : "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=12; server_max_window_bits=10; "
        "server_no_context_takeover; client_no_context_takeover\r\n");
  g->phase = UPGRADING;
  want(g, EPOLLIN);
  put(g, request, (size_t)length);
}

// The bytes that were used of `bytes`; -1: the link is gone.
static ssize_t take_upgrade(struct gateway *g, char *bytes, size_t count) {
  char *end = memmem(bytes, count, "\r\n\r\n", 4);
  if (!end) return 0;
  if (count < 12 || memcmp(bytes, "HTTP/1.1 101", 12)) {
    figures.refused_upgrades++;
    *strchr(bytes, '\r') = 0;
    if (figures.refused_upgrades <= 3) fprintf(stderr, "fleet: no link: %s\n", bytes);
    lost(g, "no upgrade");
    return -1;
  }
  g->compresses = memmem(bytes, (size_t)(end - bytes), "permessage-deflate", 18);
  g->phase = GREETING;
  opened(g);
  return end + 4 - bytes;
}

static ssize_t take_frame(struct gateway *g, char *bytes, size_t count) {
  if (count < 2) return 0;
  uint8_t first = (uint8_t)bytes[0];
  size_t length = (uint8_t)bytes[1] & 0x7F, head = 2;
  if (length == 126) {
    if (count < 4) return 0;
    length = (size_t)(uint8_t)bytes[2] << 8 | (uint8_t)bytes[3];
    head = 4;
  } else if (length == 127) {
    if (count < 10) return 0;
    length = 0;
    for (int i = 0; i < 8; i++) length = length << 8 | (uint8_t)bytes[2 + i];
    head = 10;
  }
  if (length > MOST_BATCH * 8) {
    wrong(g, "a frame of %zu bytes", length);
    lost(g, "a frame too long");
    return -1;
  }
  if (count < head + length) return 0;
  switch (first) {
  case 0x81: {
    // The text gets an end of its own for a while.
    char after = bytes[head + length];
    bytes[head + length] = 0;
    message(g, bytes + head, length);
    bytes[head + length] = after;
    break;
  }
  case 0xC1: {
    size_t plain = length;
    char *text = g->compresses ? inflated(g, bytes + head, &plain) : NULL;
    if (!text) {
      wrong(g, "a message that cannot be decompressed");
      lost(g, "a damaged message");
      return -1;
    }
    message(g, text, plain);
    break;
  }
  case 0x88: lost(g, "closed by the hub"); return -1;
  case 0x89: {
    char pong[16 + 125];
    if (length > 125) return lost(g, "a ping too long"), -1;
    memcpy(pong + 16, bytes + head, length);
    frame(g, 0x8A, pong + 16, length);
    break;
  }
  case 0x8A: break;
  default:
    wrong(g, "a frame that begins with %02x", first);
    lost(g, "a frame of another kind");
    return -1;
  }
  // What was said may have ended the link.
  return g->fd < 0 ? -1 : (ssize_t)(head + length);
}

static void received(struct gateway *g, char *bytes, size_t count) {
  size_t used = 0;
  while (used < count) {
    int fd = g->fd;
    ssize_t step = (g->phase == UPGRADING ? take_upgrade : take_frame)(g, bytes + used, count - used);
    if (step < 0 || g->fd != fd) return;
    if (!step) break;
    used += (size_t)step;
  }
  if (used == count) return;
  char *rest = bytes + used;
  size_t left = count - used;
  uint8_t *before = g->in;
  g->in = NULL;
  g->in_used = g->in_room = 0;
  keep(&g->in, &g->in_used, &g->in_room, rest, left);
  free(before);
}

void wire_event(struct gateway *g, uint32_t events) {
  if (g->phase == CONNECTING) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(g->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
      figures.open_failures++;
      return lost(g, strerror(error));
    }
    g->moved = now_ns();
    return upgrade(g);
  }
  if (events & EPOLLOUT) flush(g);
  if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
  ssize_t count = recv(g->fd, shared, sizeof shared - 1, 0);
  if (count < 0 && errno == EAGAIN) return;
  if (count <= 0) return lost(g, count ? strerror(errno) : "ended by the hub");
  g->moved = g->heard = now_ns();
  g->is_pinged = false;
  figures.bytes_in += count;
  if (!g->in_used) return received(g, (char *)shared, (size_t)count);
  keep(&g->in, &g->in_used, &g->in_room, shared, (size_t)count);
  keep(&g->in, &g->in_used, &g->in_room, "", 1);  // room for an end
  uint8_t *whole = g->in;
  size_t used = g->in_used - 1;
  g->in = NULL;
  g->in_used = g->in_room = 0;
  received(g, (char *)whole, used);
  free(whole);
}
