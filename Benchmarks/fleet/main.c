// SPDX-License-Identifier: MIT
//
// A fleet of gateways at one hub: options, time, and what is offered when. README.md tells what each mode does.
#include "fleet.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct options options;
struct gateway *gateways;
int64_t started_ms, started;
int poller;

static uint64_t luck;
static struct alarm {
  int64_t when;
  int index;
  uint32_t number;
} *alarms;
static size_t alarm_count, alarm_room;
// The next event of the fleet; 0: none is offered.
static int64_t next_event;
static int next_turn, opening_next;

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * SECOND + t.tv_nsec;
}

uint64_t mixed(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double chance(void) { return (double)(mixed(luck++) >> 11) / 9007199254740992.0; }

// MARK: Alarms: a heap, earliest first. One that was set anew leaves the older behind, which nobody hears.

void wake_at(struct gateway *g, int64_t when) {
  g->wake = when;
  if (alarm_count == alarm_room) alarms = realloc(alarms, (alarm_room = alarm_room ? alarm_room * 2 : 1024) * sizeof *alarms);
  struct alarm fresh = {when, g->index, ++g->wake_number};
  size_t i = alarm_count++;
  for (; i && alarms[(i - 1) / 2].when > when; i = (i - 1) / 2) alarms[i] = alarms[(i - 1) / 2];
  alarms[i] = fresh;
}

static struct alarm next_alarm(void) {
  struct alarm first = alarms[0], last = alarms[--alarm_count];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < alarm_count; i = child) {
    if (child + 1 < alarm_count && alarms[child + 1].when < alarms[child].when) child++;
    if (alarms[child].when >= last.when) break;
    alarms[i] = alarms[child];
  }
  if (alarm_count) alarms[i] = last;
  return first;
}

static void awake(struct gateway *g) {
  if (g->phase == WAITING) {
    figures.opened++;
    open_link(g);
  } else if (g->phase == LINKED && g->rests) {
    g->rests = false;
    if (options.busy_keeps_link) return ship(g);
    // As meshpostd does: it greets the hub anew.
    figures.linked--;
    close_link(g);
    figures.opened++;
    open_link(g);
  }
}

// MARK: Options

static void usage(void) {
  fprintf(stderr,
    "fleet MODE --port N --token-file FILE [OPTION…]\n"
    "  backlog   --events M of each gateway wait when it comes\n"
    "  steady    --rate R events a second of each, for --seconds\n"
    "  single    one event at a time of each, for --seconds, or --events of each\n"
    "  idle      links without events, for --seconds\n"
    "  storm     links and --rate, until they were lost and are back, and all is taken\n"
    "  fanout    --writers at --rate for --seconds, --listeners of their channel\n"
    "  --host A  --gateways N  --opening N (links being opened at once; 0: all)  --sources N (addresses 127.0.0.2 …)\n"
    "  --channels N  --hearers K (gateways that hear the same)  --nodes PERCENT (adverts)  --batch N (events)\n"
    "  --even (not by chance)  --seed N  --texts FILE  --limit S (seconds in all)  --backoff S (longest)\n"
    "  --news (asks for its buckets)  --state (tells its state)  --fetch (getUpdates after has_new)  --compress  --version-1\n"
    "  --dictionary FILE (with --compress: as gateways do it; FILE has a line for what gateways say, and one for hubs)\n"
    "  --busy keep|greet  --journal FILE (what was acknowledged, for check.py)  --progress\n");
  exit(64);
}

static char *token_of(const char *name) {
  static char token[512];
  FILE *file = fopen(name, "r");
  if (!file || !fgets(token, sizeof token, file)) {
    perror(name);
    exit(66);
  }
  fclose(file);
  token[strcspn(token, "\r\n")] = 0;
  return token;
}

static void read_options(int count, char **words) {
  static const char *modes[] = {"backlog", "steady", "single", "idle", "storm", "fanout"};
  options = (struct options){.host = "127.0.0.1", .gateways = 100, .opening = 200, .channels = 10, .hearers = 1, .batch_events = BATCH_EVENTS,
    .rate = 1, .seconds = 10, .limit = 120, .backoff_limit = 300, .seed = 1, .busy_keeps_link = true, .mode = (enum mode)-1};
  if (count < 2) usage();
  for (int i = 0; i < 6; i++) {
    if (!strcmp(words[1], modes[i])) options.mode = (enum mode)i, options.mode_name = modes[i];
  }
  if ((int)options.mode < 0) usage();
  if (options.mode == BACKLOG) options.opening = 0;
  if (options.mode == FANOUT) options.channels = options.writers = 1;
  struct { const char *name; int *value; } numbers[] = {
    {"--port", &options.port}, {"--gateways", &options.gateways}, {"--opening", &options.opening}, {"--sources", &options.sources},
    {"--channels", &options.channels}, {"--hearers", &options.hearers}, {"--nodes", &options.nodes}, {"--listeners", &options.listeners},
    {"--writers", &options.writers}, {"--batch", &options.batch_events}};
  struct { const char *name; double *value; } reals[] = {
    {"--rate", &options.rate}, {"--seconds", &options.seconds}, {"--limit", &options.limit}, {"--backoff", &options.backoff_limit}};
  struct { const char *name; bool *value; } flags[] = {
    {"--even", &options.even}, {"--news", &options.has_news}, {"--state", &options.tells_state}, {"--fetch", &options.fetches},
    {"--version-1", &options.is_old}, {"--progress", &options.shows}, {"--compress", &options.compresses}};
  for (int i = 2; i < count; i++) {
    const char *word = words[i];
    bool known = false;
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
      if (!strcmp(word, flags[k].name)) known = *flags[k].value = true;
    }
    if (known) continue;
    if (++i == count) usage();
    const char *value = words[i];
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
      if (!strcmp(word, numbers[k].name)) known = true, *numbers[k].value = atoi(value);
    }
    for (size_t k = 0; k < sizeof reals / sizeof *reals; k++) {
      if (!strcmp(word, reals[k].name)) known = true, *reals[k].value = atof(value);
    }
    if (!strcmp(word, "--host")) known = true, options.host = value;
    if (!strcmp(word, "--texts")) known = true, options.texts = value;
    if (!strcmp(word, "--dictionary")) known = true, options.dictionary = value;
    if (!strcmp(word, "--journal")) known = true, options.journal = value;
    if (!strcmp(word, "--events")) known = true, options.events = atoll(value);
    if (!strcmp(word, "--seed")) known = true, options.seed = strtoull(value, NULL, 10);
    if (!strcmp(word, "--token-file")) known = true, options.token = token_of(value);
    if (!strcmp(word, "--busy")) known = true, options.busy_keeps_link = !strcmp(value, "keep");
    if (!known) usage();
  }
  if (!options.port || !options.token || options.gateways < 1 || options.hearers < 1 || options.channels < 1) usage();
  if (options.batch_events < 1 || options.batch_events > 1000 || options.nodes > 99) usage();
  // The smallest number of ports of an address that systems have is 28,232.
  if (!options.sources) options.sources = (options.gateways + 19999) / 20000;
  if (!options.writers || options.writers > options.gateways) options.writers = options.gateways;
  if (options.listeners > options.gateways) options.listeners = options.gateways;
}

static void raise_limit(void) {
  rlim_t wanted = (rlim_t)options.gateways + 64;
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  if (limit.rlim_max < wanted) limit.rlim_max = wanted;
  if (setrlimit(RLIMIT_NOFILE, &limit)) {
    fprintf(stderr, "fleet: %d gateways need %llu open files: %s\n", options.gateways, (unsigned long long)wanted, strerror(errno));
    exit(71);
  }
}

static void make_gateways(void) {
  gateways = calloc((size_t)options.gateways, sizeof *gateways);
  for (int i = 0; i < options.gateways; i++) {
    struct gateway *g = &gateways[i];
    *g = (struct gateway){.index = i, .fd = -1, .wanted = -1, .window = 1, .limit = options.batch_events, .first_kept = 1};
    snprintf(g->id, sizeof g->id, "%016llx", (unsigned long long)mixed(options.seed * 1000003 + (uint64_t)i));
    g->is_listener = i < options.listeners;
    g->is_writer = i >= options.gateways - options.writers;
    pacer_reset(&g->pacer);
    if (options.mode == BACKLOG || options.mode == IDLE) {
      g->created = options.events;
      g->first_kept = g->created + 1;
      figures.created += g->created;
    }
  }
}

// MARK: What is offered

static void open_more(void) {
  while (opening_next < options.gateways && (!options.opening || opening_next - figures.linked < options.opening)) {
    figures.opened++;
    open_link(&gateways[opening_next++]);
  }
}

static int64_t pause_between(void) {
  double rate = options.rate * options.writers;
  if (rate <= 0) return INT64_MAX / 4;
  return (int64_t)((options.even ? 1 : -log(1 - chance())) / rate * 1e9);
}

static void begin_load(int64_t now) {
  figures.load_began = now;
  told("load");
  if (options.mode == SINGLE) {
    for (int i = 0; i < options.gateways; i++) {
      create(&gateways[i], now);
      ship(&gateways[i]);
    }
  }
  if (options.mode == STEADY || options.mode == STORM || options.mode == FANOUT) next_event = now + pause_between();
}

static void offer(int64_t now) {
  while (next_event && next_event <= now) {
    int first = options.gateways - options.writers;
    int turn = options.even ? next_turn++ % options.writers : (int)(chance() * options.writers);
    struct gateway *g = &gateways[first + turn];
    // It was made when it was due, however late this is.
    create(g, next_event);
    ship(g);
    next_event += pause_between();
    bool is_over = options.mode != STORM && next_event > figures.load_began + (int64_t)(options.seconds * 1e9);
    if (is_over || (options.mode == STORM && figures.relinked_all)) next_event = 0;
  }
}

// True: that was all.
static bool look(int64_t now) {
  if (opening_next < options.gateways) open_more();
  if (!figures.all_linked && figures.linked == options.gateways) {
    figures.all_linked = now;
    told("linked");
    if (!figures.load_began) begin_load(now);
  }
  if (figures.lost_at && !figures.relinked_all && figures.linked == options.gateways) {
    figures.relinked_all = now;
    told("linked again");
  }
  if (!figures.load_began) return false;
  if (options.mode == IDLE && !figures.quiet && figures.acknowledged >= figures.created) {
    figures.quiet = now;
    told("quiet");
  }
  bool has_time = now < (figures.quiet ? figures.quiet : figures.load_began) + (int64_t)(options.seconds * 1e9);
  switch (options.mode) {
  case IDLE: return figures.quiet && !has_time;
  case BACKLOG: return figures.acknowledged >= figures.created;
  case STEADY:
  case FANOUT: return !next_event && figures.acknowledged >= figures.created;
  case SINGLE: return figures.acknowledged >= figures.created && (options.events ? figures.created >= options.events * options.gateways : !has_time);
  case STORM: return figures.relinked_all && !next_event && figures.acknowledged >= figures.created;
  }
  return true;
}

static void run(void) {
  struct epoll_event events[512];
  int64_t end = started + (int64_t)(options.limit * 1e9), watched = started, shown = started;
  if (options.mode == BACKLOG) begin_load(started);
  while (true) {
    int64_t now = now_ns();
    while (alarm_count && alarms[0].when <= now) {
      struct alarm a = next_alarm();
      if (gateways[a.index].wake_number == a.number) awake(&gateways[a.index]);
    }
    offer(now);
    if (look(now) || now > end) return;
    if (now - watched > SECOND) {
      watched = now;
      for (int i = 0; i < options.gateways; i++) watch(&gateways[i], now);
    }
    if (options.shows && now - shown > SECOND) {
      shown = now;
      fprintf(stderr, "fleet: %lld linked, %lld of %lld taken, %lld busy\n", (long long)figures.linked, (long long)figures.acknowledged,
        (long long)figures.created, (long long)figures.busy);
    }
    int64_t until = now + 200 * MS;
    if (alarm_count && alarms[0].when < until) until = alarms[0].when;
    if (next_event && next_event < until) until = next_event;
    int64_t wait = until - now_ns();
    struct timespec patience = {0, wait < 0 ? 0 : wait};
    int count = epoll_pwait2(poller, events, 512, &patience, NULL);
    for (int i = 0; i < count; i++) {
      struct gateway *g = &gateways[events[i].data.u32];
      if (g->fd >= 0) wire_event(g, events[i].events);
    }
  }
}

int main(int count, char **words) {
  read_options(count, words);
  read_texts();
  read_dictionaries();
  raise_limit();
  luck = mixed(options.seed);
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  started_ms = t.tv_sec * 1000LL + t.tv_nsec / MS;
  started = now_ns();
  poller = epoll_create1(EPOLL_CLOEXEC);
  make_gateways();
  run();
  report();
  keep_journal();
  return wrongs() ? 1 : 0;
}
