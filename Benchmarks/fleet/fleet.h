// SPDX-License-Identifier: MIT
//
// What the parts of the load generator share. One process, one thread: gateways are rows of one array, and nothing here locks.
#ifndef FLEET_H
#define FLEET_H
#define _GNU_SOURCE

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { LANES = 2, MESSAGES = 0, NODES = 1, MOST_WINDOW = 16, MOST_BATCH = 1 << 20 };
// As a gateway's defaults: batch_events, batch_bytes, and what may be under way in all.
enum { BATCH_EVENTS = 200, BATCH_BYTES = 64 << 10, MOST_UNDER_WAY = 512 << 10 };

static const int64_t MS = 1000000, SECOND = 1000000000;

enum mode { BACKLOG, STEADY, SINGLE, IDLE, STORM, FANOUT };

struct options {
  enum mode mode;
  const char *mode_name, *host, *token, *texts, *journal, *dictionary;
  int port, gateways, sources, opening, channels, hearers, nodes, listeners, writers, batch_events;
  // Events of each gateway: in a backlog, before it is idle, or one at a time; 0: as many as the seconds allow.
  int64_t events;
  // Events a second, of each gateway that writes.
  double rate, seconds, limit, backoff_limit;
  uint64_t seed;
  bool even, busy_keeps_link, has_news, fetches, tells_state, is_old, shows, compresses;
};

// AWAY: nothing is tried; WAITING: until a time; then a connection, HTTP's answer, the hub's welcome.
enum phase { AWAY, WAITING, CONNECTING, UPGRADING, GREETING, LINKED };

struct batch {
  uint32_t number, events, bytes, ahead;
  int lane;
  int64_t last, sent;
};

// Of the line: how many bytes may be under way. Source: Sources/Gateway/Relay/Shipping/Pacer.swift.
struct pacer {
  int64_t window, known, base, shrunk_at, answered_at, proven_at, resumed_at, doubt;
};

struct lane {
  // The hub has acknowledged up to here; sent up to here on this link; looked at up to here.
  int64_t taken, sent, read;
  // Sent up to here on any link: what was given up may be stored after all, by a database that was slow.
  int64_t top;
};

struct gateway {
  int index, fd, wanted;  // `wanted`: what epoll was asked for
  enum phase phase;
  bool is_old, is_writer, is_listener, is_pinged, was_linked, rests, compresses, is_told;
  char id[20];
  // Frames: what did not go out yet, and the beginning of what has not come whole.
  uint8_t *out, *in;
  size_t out_used, out_sent, out_room, in_used, in_room;
  // Said by each end, as far as a message may refer back; with a dictionary.
  struct said { uint8_t *bytes; size_t count; } up, down;
  int64_t began, hello_at, moved, heard, wake;
  uint32_t wake_number;
  // The journal: events 1 … `created`; when each was made, from `first_kept` on, in a ring.
  int64_t created, done, first_kept;
  int64_t *made;
  uint32_t made_room;
  struct lane lanes[LANES];
  struct batch batches[MOST_WINDOW];
  int first_batch, batch_count, window, limit, failures;
  uint32_t bytes_under_way, number, messages_in_row;
  struct pacer pacer;
  // The channel's bucket: the number that it had, that is known, and that was announced.
  int64_t bucket_base, bucket_known, bucket_new;
  bool is_fetching;
};

struct figures {
  int64_t linked, opened, open_failures, refused_upgrades, lost_links, hello_timeouts, answer_timeouts, ping_timeouts;
  int64_t batches, events_sent, answers, busy, out_of_order, resent, notices, fetched, unanswered, partial;
  int64_t acknowledged, created;
  int64_t bytes_out, bytes_in;
  // Monotonic nanoseconds; 0: has not happened.
  int64_t load_began, quiet, first_linked, all_linked, first_taken, last_taken, lost_at, relinked_first, relinked_all, retaken_first;
  double busy_wait;
};

struct samples {
  uint32_t *values;
  size_t count, room;
};

extern struct options options;
extern struct figures figures;
extern struct gateway *gateways;
// From creation to acknowledgement; from connecting to welcome; from hello to welcome; from creation to notice. Microseconds.
extern struct samples latencies, links, hellos, first_words, notices;
extern int64_t started_ms, started;
extern int poller;

int64_t now_ns(void);
uint64_t mixed(uint64_t value);
double chance(void);

// report.c
void add(struct samples *samples, int64_t ns);
void took(int64_t now, int64_t count);
void wrong(const struct gateway *gateway, const char *format, ...) __attribute__((format(printf, 2, 3)));
int wrongs(void);
void told(const char *event);
void report(void);
void keep_journal(void);

// talk.c
void read_texts(void);
bool is_advert(const struct gateway *gateway, int64_t seq);
size_t write_event(char *at, const struct gateway *gateway, int64_t seq, int64_t made_ms);
void channel_digest(char *at, int number);

// wire.c
void read_dictionaries(void);
void open_link(struct gateway *gateway);
void close_link(struct gateway *gateway);
void wire_event(struct gateway *gateway, uint32_t events);
// `text` has 16 bytes in front that may be overwritten; it is masked in place.
bool send_text(struct gateway *gateway, char *text, size_t length);
void send_ping(struct gateway *gateway);

// gateway.c
void opened(struct gateway *gateway);
void lost(struct gateway *gateway, const char *why);
void message(struct gateway *gateway, char *text, size_t length);
void create(struct gateway *gateway, int64_t made);
void ship(struct gateway *gateway);
void watch(struct gateway *gateway, int64_t now);
int64_t made_at(const struct gateway *gateway, int64_t seq);
bool has_all(const struct gateway *gateway);
void pause_for(struct gateway *gateway, double seconds);

// pacer.c
int64_t pacer_limit(const struct pacer *p, bool has_arrived);
void pacer_reset(struct pacer *pacer);
int pacer_parts(const struct pacer *pacer, int window);
void pacer_answered(struct pacer *pacer, const struct batch *batch, int64_t now, int64_t limit, int parts);

// main.c
void wake_at(struct gateway *gateway, int64_t when);

#endif
