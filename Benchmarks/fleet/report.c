// SPDX-License-Identifier: MIT
//
// What was measured, as lines of JSON on standard output. Moments are seconds of the monotonic clock, as Python's time.monotonic().
#include "fleet.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct figures figures;
struct samples latencies, links, hellos, first_words, notices;
static int wrong_count;
static char wrong_lines[20][320];
static uint32_t per_second[3600];

void add(struct samples *s, int64_t ns) {
  if (s->count == s->room) s->values = realloc(s->values, (s->room = s->room ? s->room * 2 : 4096) * sizeof *s->values);
  int64_t us = ns < 0 ? 0 : ns / 1000;
  s->values[s->count++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

void took(int64_t now, int64_t count) {
  if (!count) return;
  figures.acknowledged += count;
  if (!figures.first_taken) figures.first_taken = now;
  figures.last_taken = now;
  int64_t second = (now - figures.load_began) / SECOND;
  if (second >= 0 && second < 3600) per_second[second] += (uint32_t)count;
}

void wrong(const struct gateway *gateway, const char *format, ...) {
  if (wrong_count < 20) {
    char words[256];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    snprintf(wrong_lines[wrong_count], sizeof *wrong_lines, "%s: %s", gateway->id, words);
    fprintf(stderr, "fleet: WRONG: %s\n", wrong_lines[wrong_count]);
  }
  wrong_count++;
}

int wrongs(void) { return wrong_count; }

static double at(int64_t moment) { return moment ? (double)moment / 1e9 : 0; }

void told(const char *event) {
  printf("{\"event\":\"%s\",\"at\":%.6f,\"linked\":%" PRId64 ",\"acknowledged\":%" PRId64 "}\n", event, at(now_ns()), figures.linked,
    figures.acknowledged);
  fflush(stdout);
}

static int by_size(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static void percentiles(const char *name, struct samples *s) {
  printf(",\"%s\":{\"count\":%zu", name, s->count);
  if (s->count) {
    qsort(s->values, s->count, sizeof *s->values, by_size);
    static const double parts[] = {0.5, 0.95, 0.99, 1};
    static const char *names[] = {"p50_ms", "p95_ms", "p99_ms", "max_ms"};
    for (int i = 0; i < 4; i++) {
      size_t place = (size_t)(parts[i] * (double)s->count + 0.999999);
      printf(",\"%s\":%.3f", names[i], s->values[(place < 1 ? 1 : place > s->count ? s->count : place) - 1] / 1000.0);
    }
  }
  printf("}");
}

static void quoted(const char *text) {
  putchar('"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') putchar('\\');
    if ((unsigned char)*text >= 0x20) putchar(*text);
  }
  putchar('"');
}

void report(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  double cpu = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 + (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
  int64_t done = 0, versions = 0;
  for (int i = 0; i < options.gateways; i++) {
    done += has_all(&gateways[i]);
    versions += gateways[i].is_old;
  }
  double seconds = figures.last_taken ? at(figures.last_taken - figures.load_began) : 0;
  printf("{\"event\":\"result\",\"mode\":\"%s\",\"gateways\":%d,\"complete\":%s,\"version_1\":%" PRId64 ",\"seconds\":%.3f,\"per_second\":%.1f",
    options.mode_name, options.gateways, done == options.gateways ? "true" : "false", versions, seconds,
    seconds > 0 ? (double)figures.acknowledged / seconds : 0);
#define SHOW(name) printf(",\"" #name "\":%" PRId64, figures.name)
  SHOW(created), SHOW(acknowledged), SHOW(linked), SHOW(batches), SHOW(events_sent), SHOW(resent), SHOW(answers), SHOW(busy);
  SHOW(out_of_order), SHOW(partial), SHOW(opened), SHOW(open_failures), SHOW(refused_upgrades), SHOW(lost_links), SHOW(hello_timeouts);
  SHOW(answer_timeouts), SHOW(ping_timeouts), SHOW(notices), SHOW(fetched), SHOW(unanswered), SHOW(bytes_out), SHOW(bytes_in);
#define MOMENT(name) printf(",\"" #name "\":%.6f", at(figures.name))
  MOMENT(load_began), MOMENT(first_linked), MOMENT(all_linked), MOMENT(first_taken), MOMENT(last_taken), MOMENT(lost_at);
  MOMENT(relinked_first), MOMENT(relinked_all), MOMENT(retaken_first);
  printf(",\"busy_wait_s\":%.1f,\"own_cpu_s\":%.3f", figures.busy_wait, cpu);
  percentiles("latency", &latencies);
  percentiles("link", &links);
  percentiles("hello", &hellos);
  percentiles("first_word", &first_words);
  percentiles("notice", &notices);
  int last = 3600;
  while (last && !per_second[last - 1]) last--;
  printf(",\"timeline\":[");
  for (int i = 0; i < last; i++) printf("%s%u", i ? "," : "", per_second[i]);
  printf("],\"wrong\":%d,\"wrong_lines\":[", wrong_count);
  for (int i = 0; i < wrong_count && i < 20; i++) {
    if (i) putchar(',');
    quoted(wrong_lines[i]);
  }
  printf("]}\n");
  fflush(stdout);
}

// For check.py: what the hub has acknowledged to whom.
void keep_journal(void) {
  if (!options.journal) return;
  FILE *file = fopen(options.journal, "w");
  if (!file) {
    perror(options.journal);
    exit(73);
  }
  for (int i = 0; i < options.gateways; i++) {
    const struct gateway *g = &gateways[i];
    fprintf(file, "%s %016llx %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", g->id,
      (unsigned long long)mixed((uint64_t)started_ms + (uint64_t)i), i / options.hearers, g->lanes[MESSAGES].taken, g->lanes[NODES].taken,
      g->done, g->created);
  }
  fclose(file);
}
