// SPDX-License-Identifier: MIT
//
// What a gateway says and does: docs/hub-protocol.md, as Sources/Gateway/Relay does it. Every answer is judged: `wrong` counts what no hub may say.
#include "fleet.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static const int64_t OPEN_LIMIT = 20, PATIENCE = 15, ANSWER_LIMIT = 30, KEEP_ALIVE = 300;
static const int MESSAGES_BEFORE_NODES = 8;

// Gateways that send lanes, and those that a hub of version 1 has answered.
static int lane_of(const struct gateway *g, int64_t seq) { return !g->is_old && is_advert(g, seq) ? NODES : MESSAGES; }

bool has_all(const struct gateway *g) { return g->done == g->created; }

// MARK: The journal

int64_t made_at(const struct gateway *g, int64_t seq) {
  return seq < g->first_kept || seq > g->created ? (figures.load_began ? figures.load_began : started) : g->made[seq % g->made_room];
}

static int64_t made_ms(const struct gateway *g, int64_t seq) {
  if (seq < g->first_kept) return started_ms - 3600000 + seq;
  return started_ms + (made_at(g, seq) - started) / MS;
}

void create(struct gateway *g, int64_t made) {
  int64_t kept = g->created + 1 - g->first_kept;
  if (kept + 1 > g->made_room) {
    uint32_t room = g->made_room ? g->made_room * 2 : 4;
    int64_t *list = malloc(room * sizeof *list);
    for (int64_t seq = g->first_kept; seq <= g->created; seq++) list[seq % room] = g->made[seq % g->made_room];
    free(g->made);
    g->made = list;
    g->made_room = room;
  }
  g->created++;
  g->made[g->created % g->made_room] = made;
  figures.created++;
}

// The hub has more of a lane: those are done.
static void advance(struct gateway *g, int lane, int64_t through, int64_t now) {
  int64_t count = 0;
  for (int64_t seq = g->lanes[lane].taken + 1; seq <= through; seq++) {
    if (lane_of(g, seq) != lane) continue;
    add(&latencies, now - made_at(g, seq));
    count++;
  }
  g->lanes[lane].taken = through;
  g->done += count;
  took(now, count);
  // A writer's times tell when its messages were announced to others.
  if (has_all(g) && options.mode != FANOUT) g->first_kept = g->created + 1;
  if (count && options.mode == STORM && figures.lost_at && !figures.retaken_first) {
    figures.retaken_first = now;
    told("taken again");
  }
}

// MARK: Saying

static void say(struct gateway *g, const char *text) {
  char room[2048];
  size_t length = strlen(text);
  memcpy(room + 16, text, length);
  send_text(g, room + 16, length);
}

void opened(struct gateway *g) {
  char text[512];
  snprintf(text, sizeof text,
    "{\"type\":\"hello\",\"protocol\":%d,\"gateway\":\"%s\",\"epoch\":\"%016llx\",\"version\":\"0.1.0\",\"keep_alive_s\":%d,\"brief\":true}",
    options.is_old ? 1 : 2, g->id, (unsigned long long)mixed((uint64_t)started_ms + (uint64_t)g->index), (int)KEEP_ALIVE);
  g->hello_at = now_ns();
  g->is_told = false;
  say(g, text);
}

static void introduce(struct gateway *g) {
  char text[1024], digest[20];
  if (options.tells_state) {
    say(g,
      "{\"type\":\"state\",\"name\":\"gateway\",\"body\":{\"version\":\"0.1.0\",\"link\":\"serial:/dev/serial/by-id/usb-tty\","
      "\"radio\":\"up\",\"name\":\"Ridge Repeater\",\"sync\":\"synced\",\"clock_trusted\":true}}");
  }
  if (!options.has_news && !g->is_listener) return;
  channel_digest(digest, g->index / options.hearers % options.channels);
  int used = snprintf(text, sizeof text,
    "{\"type\":\"request\",\"id\":\"%u\",\"method\":\"getUpdatesState\",\"params\":{\"buckets\":[\"commands\",\"documents\"", ++g->number);
  if (g->is_listener) used += snprintf(text + used, sizeof text - (size_t)used, ",\"channel/%s\"", digest);
  snprintf(text + used, sizeof text - (size_t)used, "]}}");
  say(g, text);
}

static void fetch(struct gateway *g) {
  char text[512], digest[20];
  channel_digest(digest, g->index / options.hearers % options.channels);
  snprintf(text, sizeof text,
    "{\"type\":\"request\",\"id\":\"%u\",\"method\":\"getUpdates\",\"params\":{\"bucket\":\"channel/%s\",\"after\":%lld,\"until\":%lld,\"limit\":100}}",
    ++g->number, digest, (long long)g->bucket_known, (long long)g->bucket_new);
  g->is_fetching = true;
  say(g, text);
}

// MARK: Sending batches

static int64_t next_of(struct gateway *g, int lane) {
  struct lane *l = &g->lanes[lane];
  while (l->read < g->created && lane_of(g, l->read + 1) != lane) l->read++;
  return l->read < g->created ? l->read + 1 : 0;
}

static void void_batches(struct gateway *g, int lane) {
  int kept = 0;
  struct batch list[MOST_WINDOW];
  for (int i = 0; i < g->batch_count; i++) {
    struct batch *b = &g->batches[(g->first_batch + i) % MOST_WINDOW];
    if (lane >= 0 && b->lane != lane) {
      list[kept++] = *b;
    } else {
      g->bytes_under_way -= b->bytes;
      figures.resent += b->events;
    }
  }
  memcpy(g->batches, list, (size_t)kept * sizeof *list);
  g->first_batch = 0;
  g->batch_count = kept;
  for (int l = 0; l < LANES; l++) {
    if (lane < 0 || l == lane) g->lanes[l].sent = g->lanes[l].read = g->lanes[l].taken;
  }
}

static void send_batch(struct gateway *g, int lane, size_t most) {
  static char room[16 + BATCH_BYTES + 4096];
  char *text = room + 16, *p = text;
  struct lane *l = &g->lanes[lane];
  struct batch *b = &g->batches[(g->first_batch + g->batch_count) % MOST_WINDOW];
  *b = (struct batch){.number = ++g->number, .lane = lane, .ahead = g->bytes_under_way, .sent = now_ns()};
  p += sprintf(p, "{\"type\":\"events\",\"n\":%u,", b->number);
  if (!g->is_old) p += sprintf(p, "\"lane\":\"%s\",", lane == NODES ? "nodes" : "messages");
  p += sprintf(p, "\"after\":%lld,\"events\":[", (long long)l->sent);
  for (int64_t seq; (int)b->events < g->limit && (seq = next_of(g, lane)); b->events++) {
    char *before = p;
    if (b->events) *p++ = ',';
    size_t size = write_event(p, g, seq, made_ms(g, seq));
    if (b->events && b->bytes + size > most) {
      p = before;
      break;
    }
    p += size;
    b->bytes += (uint32_t)size;
    b->last = l->read = seq;
  }
  *p++ = ']';
  *p++ = '}';
  l->sent = b->last;
  if (l->top < l->sent) l->top = l->sent;
  g->batch_count++;
  g->bytes_under_way += b->bytes;
  figures.batches++;
  figures.events_sent += b->events;
  send_text(g, text, (size_t)(p - text));
}

// Nothing that was sent is on the line any more.
static bool has_arrived(const struct gateway *g) {
  int left = 0;
  return !g->out_used && !ioctl(g->fd, SIOCOUTQ, &left) && !left;
}

// Sends as long as more may be under way. Source: Sources/Gateway/Relay/Shipping/Shipment.swift.
void ship(struct gateway *g) {
  while (g->phase == LINKED && !g->rests && g->fd >= 0 && g->batch_count < g->window) {
    bool has_messages = next_of(g, MESSAGES), has_nodes = options.nodes && !g->is_old && next_of(g, NODES);
    if (!has_messages && !has_nodes) return;
    int lane = has_messages && !(has_nodes && g->messages_in_row >= MESSAGES_BEFORE_NODES) ? MESSAGES : NODES;
    int64_t whole = g->pacer.window / pacer_parts(&g->pacer, g->window);
    if (whole > BATCH_BYTES) whole = BATCH_BYTES;
    bool fits = !g->batch_count || g->bytes_under_way + whole <= pacer_limit(&g->pacer, has_arrived(g));
    if (!fits || g->batch_count >= (g->window > 1 ? g->window - 1 : 1)) {
      // A message does not wait behind what is below it.
      bool is_ahead = lane == MESSAGES;
      for (int i = 0; i < g->batch_count; i++) is_ahead &= g->batches[(g->first_batch + i) % MOST_WINDOW].lane == NODES;
      if (!is_ahead) return;
    }
    g->messages_in_row = lane == MESSAGES ? g->messages_in_row + 1 : 0;
    send_batch(g, lane, (size_t)(whole < 1 ? 1 : whole));
  }
}

// MARK: Reading what the hub says

// The value of a field of the object itself, not of what is in it; NULL: it has none.
static const char *field(const char *p, const char *name) {
  size_t length = strlen(name);
  if (*p++ != '{') return NULL;
  for (int depth = 1; *p && depth; p++) {
    if (*p == '{' || *p == '[') depth++;
    if (*p == '}' || *p == ']') depth--;
    if (*p != '"') continue;
    const char *word = ++p;
    while (*p && *p != '"') p += *p == '\\' && p[1] ? 2 : 1;
    if (!*p) return NULL;
    if (depth == 1 && p[1] == ':' && (size_t)(p - word) == length && !memcmp(word, name, length)) return p + 2;
  }
  return NULL;
}

static int64_t number(const char *object, const char *name, int64_t absent) {
  const char *value = object ? field(object, name) : NULL;
  return value && *value >= '0' && *value <= '9' ? atoll(value) : absent;
}

static bool is(const char *value, const char *word) {
  size_t length = strlen(word);
  return value && *value == '"' && !strncmp(value + 1, word, length) && value[1 + length] == '"';
}

static void welcomed(struct gateway *g, const char *text) {
  int64_t now = now_ns(), has[LANES] = {0, 0};
  g->is_old = number(text, "protocol", 1) < 2;
  if (g->is_old) {
    has[MESSAGES] = number(text, "acknowledged", 0);
  } else {
    const char *lanes = field(text, "lanes");
    has[MESSAGES] = number(lanes, "messages", 0);
    has[NODES] = number(lanes, "nodes", 0);
  }
  for (int lane = 0; lane < LANES; lane++) {
    if (has[lane] < g->lanes[lane].taken) {
      wrong(g, "lost: lane %d was acknowledged up to %lld, and the hub has %lld", lane, (long long)g->lanes[lane].taken, (long long)has[lane]);
      has[lane] = g->lanes[lane].taken;
    }
    if (has[lane] > g->created) {
      wrong(g, "lane %d up to %lld, of %lld events", lane, (long long)has[lane], (long long)g->created);
      has[lane] = g->created;
    }
    advance(g, lane, has[lane], now);
  }
  void_batches(g, -1);
  int64_t window = number(text, "window", 1);
  g->window = (int)(window < 1 ? 1 : window > MOST_WINDOW ? MOST_WINDOW : window);
  g->phase = LINKED;
  g->rests = false;
  pacer_reset(&g->pacer);
  g->heard = now;
  figures.linked++;
  if (!figures.first_linked) figures.first_linked = now;
  if (figures.lost_at && !figures.relinked_first) figures.relinked_first = now;
  add(&links, now - g->began);
  add(&hellos, now - g->hello_at);
  introduce(g);
  ship(g);
}

// Nothing is tried for a while; then the link is made anew, or, if `busy` keeps it, the same is sent again.
static void rest(struct gateway *g, double seconds) {
  void_batches(g, -1);
  g->rests = true;
  pause_for(g, seconds);
}

static void answered(struct gateway *g, int64_t n, const char *text) {
  figures.answers++;
  struct batch *b = g->batch_count ? &g->batches[g->first_batch] : NULL;
  // Of a batch that is void.
  if (!b || n < b->number) return;
  if (n != b->number) {
    wrong(g, "batch %lld is answered before %u", (long long)n, b->number);
    return lost(g, "answers out of order");
  }
  int64_t now = now_ns();
  const char *type = text ? field(text, "type") : NULL;
  if (!text || is(type, "taken")) {
    int64_t through = text ? number(text, "acknowledged", -1) : b->last;
    struct batch taken = *b;
    if (through < g->lanes[b->lane].taken) wrong(g, "lane %d goes back from %lld to %lld", b->lane, (long long)g->lanes[b->lane].taken, (long long)through);
    if (through > g->lanes[b->lane].top) wrong(g, "lane %d is acknowledged up to %lld, sent up to %lld", b->lane, (long long)through, (long long)g->lanes[b->lane].top);
    g->first_batch = (g->first_batch + 1) % MOST_WINDOW;
    g->batch_count--;
    g->bytes_under_way -= taken.bytes;
    if (through <= g->lanes[taken.lane].taken) return rest(g, 0);
    g->failures = 0;
    int64_t limit = g->limit * 2LL;
    g->limit = (int)(limit > options.batch_events ? options.batch_events : limit);
    int64_t sent = g->lanes[taken.lane].sent;
    advance(g, taken.lane, through < sent ? through : sent, now);
    pacer_answered(&g->pacer, &taken, now, MOST_UNDER_WAY, pacer_parts(&g->pacer, g->window));
    if (through < taken.last) {
      figures.partial++;
      void_batches(g, taken.lane);
    }
    bool wants_more = options.events ? g->created < options.events : now < figures.load_began + (int64_t)(options.seconds * 1e9);
    if (options.mode == SINGLE && has_all(g) && wants_more) create(g, now);
    return ship(g);
  }
  if (is(type, "busy")) {
    figures.busy++;
    double after = (double)number(text, "retry_after_s", 1);
    figures.busy_wait += after;
    return rest(g, after);
  }
  if (is(type, "out_of_order")) {
    figures.out_of_order++;
    return rest(g, 0);
  }
  wrong(g, "%.200s", text);
  rest(g, 60);
}

static void announced(struct gateway *g, const char *text) {
  const char *bucket = field(text, "bucket");
  if (!bucket || strncmp(bucket, "\"channel/", 9)) return;
  int64_t seq = number(text, "seq", 0);
  figures.notices++;
  if (seq <= g->bucket_new) return;
  g->bucket_new = seq;
  // With one writer a number of the bucket is a message of its.
  const struct gateway *writer = &gateways[options.gateways - 1];
  if (options.mode == FANOUT && options.writers == 1 && seq - g->bucket_base <= writer->created)
    add(&notices, now_ns() - made_at(writer, seq - g->bucket_base));
  if (options.fetches && !g->is_fetching) fetch(g);
}

static void responded(struct gateway *g, const char *text) {
  const char *result = field(text, "result"), *buckets = result ? field(result, "buckets") : NULL;
  if (!result) {
    // The hub cannot tell just now; the next link, or the next `has_new`, asks again.
    g->is_fetching = false;
    figures.unanswered++;
    return;
  }
  if (buckets) {
    const char *channel = strstr(buckets, "\"channel/");
    const char *seq = channel ? strstr(channel, "\"seq\":") : NULL;
    int64_t known = seq ? atoll(seq + 6) : 0;
    if (!g->was_linked) g->bucket_base = known;
    g->was_linked = true;
    if (!g->bucket_known) g->bucket_known = known;
    if (g->bucket_new < known) g->bucket_new = known;
  } else {
    g->is_fetching = false;
    figures.fetched++;
    int64_t last = number(result, "last", 0);
    if (last > g->bucket_known) g->bucket_known = last;
  }
  if (options.fetches && g->is_listener && !g->is_fetching && g->bucket_new > g->bucket_known) fetch(g);
}

void message(struct gateway *g, char *text, size_t length) {
  if (length && text[0] >= '0' && text[0] <= '9') return answered(g, atoll(text), NULL);
  const char *type = field(text, "type");
  if (!type || strlen(text) != length) return wrong(g, "no message: %.200s", text), lost(g, "no message");
  // The welcome, or that it will take a while.
  if (g->phase == GREETING && !g->is_told) {
    g->is_told = true;
    add(&first_words, now_ns() - g->hello_at);
  }
  if (is(type, "welcome")) return g->phase == GREETING ? welcomed(g, text) : wrong(g, "a second welcome");
  if (is(type, "response")) return responded(g, text);
  if (is(type, "has_new")) return announced(g, text);
  if (field(text, "n")) answered(g, number(text, "n", -1), text);
}

// MARK: Ends

void pause_for(struct gateway *g, double least) {
  double ceiling = 1;
  for (int i = 0; i < g->failures && ceiling < options.backoff_limit; i++) ceiling *= 2;
  if (ceiling > options.backoff_limit) ceiling = options.backoff_limit;
  if (g->failures < 1000) g->failures++;
  double seconds = 0.1 + chance() * (ceiling - 0.1);
  if (seconds < least) seconds = least;
  wake_at(g, now_ns() + (int64_t)(seconds * 1e9));
}

void lost(struct gateway *g, const char *why) {
  (void)why;
  if (g->phase == LINKED) {
    figures.linked--;
    figures.lost_links++;
    if (!figures.lost_at && options.mode == STORM) {
      figures.lost_at = now_ns();
      told("lost");
    }
  }
  if (g->batch_count) {
    int events = (int)g->batches[g->first_batch].events;
    if (events < g->limit) g->limit = events;
    g->limit = g->limit >= 8 ? g->limit / 4 : 1;
  }
  void_batches(g, -1);
  close_link(g);
  g->rests = g->is_pinged = g->is_fetching = false;
  g->phase = WAITING;
  pause_for(g, 0);
}

// Now and then: what has waited too long?
void watch(struct gateway *g, int64_t now) {
  int64_t still = now - g->moved;
  switch (g->phase) {
  case CONNECTING:
  case UPGRADING:
    if (now - g->began > OPEN_LIMIT * SECOND) {
      figures.open_failures++;
      lost(g, "not open in time");
    }
    break;
  case GREETING:
    if (now - g->hello_at > PATIENCE * SECOND && still > PATIENCE * SECOND) {
      figures.hello_timeouts++;
      lost(g, "no welcome in time");
    }
    break;
  case LINKED:
    if (g->batch_count && still > ANSWER_LIMIT * SECOND && now - g->batches[g->first_batch].sent > ANSWER_LIMIT * SECOND) {
      figures.answer_timeouts++;
      lost(g, "no answer in time");
    } else if (g->is_pinged && now - g->heard > (KEEP_ALIVE + PATIENCE) * SECOND) {
      figures.ping_timeouts++;
      lost(g, "no answer to a ping");
    } else if (!g->is_pinged && now - g->heard > KEEP_ALIVE * SECOND) {
      g->is_pinged = true;
      send_ping(g);
    }
    break;
  default: break;
  }
}
