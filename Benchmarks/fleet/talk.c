// SPDX-License-Identifier: MIT
//
// What gateways say: bodies as docs/hub-protocol.md describes them and Sources/Gateway/Store/Journal/EventBody.swift writes them, made anew from
// (gateway, seq) whenever they are sent, so that a fleet keeps no journals. A text ends with its group and its seq: nothing is said twice, and
// check.py knows what must be there.
#include "fleet.h"

#include <stdlib.h>
#include <string.h>

static const char *built_in[] = {
  "anyone near the ridge who can copy this", "Wetter wird schlechter, wir gehen runter", "3.92V on the repeater, sun is back",
  "bien reçu, à demain", "is the relay at Belchen up again?", "ok 73", "test from the new antenna, -104 dBm here",
  "unterwegs nach Todtnau, melde mich heute abend", "gracias, nos vemos en la casa", "snow on the pass, road still open",
};
static char **texts = (char **)built_in;
static size_t text_count = sizeof built_in / sizeof *built_in;
static const char *names[] = {
  "Hilde T-Deck", "Jörg", "mobil 7", "DL4KX", "Wanda", "Café Bär", "Piotr", "🦊 Fuchs", "van Dijk", "Marie-Claude", "Ben", "basecamp",
  "Iñigo", "Tower Rd", "OE9 Sepp", "Ridge Repeater",
};

// One text a line, without anything that JSON escapes.
void read_texts(void) {
  if (!options.texts) return;
  FILE *file = fopen(options.texts, "r");
  if (!file) {
    perror(options.texts);
    exit(64);
  }
  char line[512];
  size_t room = 0;
  char **list = NULL;
  text_count = 0;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    if (!*line || strpbrk(line, "\"\\\t\r")) continue;
    if (text_count == room) list = realloc(list, (room = room ? room * 2 : 1024) * sizeof *list);
    list[text_count++] = strdup(line);
  }
  fclose(file);
  if (!text_count) {
    fprintf(stderr, "fleet: %s has no texts\n", options.texts);
    exit(64);
  }
  texts = list;
}

// Gateways of a group hear the same.
static uint64_t group(const struct gateway *gateway) { return (uint64_t)(gateway->index / options.hearers); }

static uint64_t drawn(const struct gateway *gateway, int64_t seq) {
  return mixed(options.seed * 0x9E3779B97F4A7C15u + group(gateway) * 0x100000001B3u + (uint64_t)seq);
}

bool is_advert(const struct gateway *gateway, int64_t seq) {
  return options.nodes > 0 && (int)(drawn(gateway, seq) % 100) < options.nodes;
}

void channel_digest(char *at, int number) { sprintf(at, "%016llx", (unsigned long long)mixed(0xC4A77E1 + (uint64_t)number)); }

size_t write_event(char *at, const struct gateway *gateway, int64_t seq, int64_t made_ms) {
  char *p = at;
  uint64_t luck = drawn(gateway, seq), own = mixed(luck + (uint64_t)gateway->index);
  p += sprintf(p, "{\"seq\":%lld,\"at\":%lld,\"trusted\":true,", (long long)seq, (long long)made_ms);
  if (is_advert(gateway, seq)) {
    uint64_t node = mixed(group(gateway) * 1000 + luck / 128 % 200);
    return (size_t)(p - at) + (size_t)sprintf(p,
      "\"kind\":\"advert\",\"body\":{\"key\":\"%016llx%016llx%016llx%016llx\",\"name\":\"%s %d\",\"type\":\"repeater\",\"favourite\":false,"
      "\"flags\":0,\"hops\":%d,\"path\":\"%02x\",\"lat\":%.6f,\"lon\":%.6f,\"last_advert\":%lld,\"last_modified\":%lld,\"on_radio\":true,"
      "\"first_seen\":%lld,\"last_heard\":%lld}}",
      (unsigned long long)node, (unsigned long long)mixed(node + 1), (unsigned long long)mixed(node + 2), (unsigned long long)mixed(node + 3),
      names[node % 16], (int)(node / 16 % 200), (int)(own % 4), (int)(own / 8 % 256), 47 + (double)(node % 1000000) / 1e6,
      7 + (double)(node / 7 % 1000000) / 1e6, (long long)(made_ms / 1000), (long long)(made_ms / 1000), (long long)(started_ms - 86400000),
      (long long)made_ms);
  }
  int channel = (int)(group(gateway) % (uint64_t)options.channels);
  char digest[20], name[16] = "Public";
  channel_digest(digest, channel);
  if (channel) sprintf(name, "#mesh-%d", channel);
  // The sender's clock: the same for all who hear it.
  long long sender_time = started_ms / 1000 - 3600 + seq / 8;
  p += sprintf(p,
    "\"kind\":\"message\",\"body\":{\"id\":%lld,\"kind\":\"channel\",\"sender_name\":\"%s\",\"channel\":\"%s\",\"channel_name\":\"%s\","
    "\"sender_time\":%lld,\"text\":\"%s %llu.%lld\",\"snr\":%.2f,\"hops\":%d,\"direct\":false}}",
    (long long)seq, names[luck / 128 % 16], digest, name, sender_time, texts[luck / 2048 % text_count],
    (unsigned long long)group(gateway), (long long)seq, (double)(own % 81) / 4 - 8, (int)(own / 128 % 5));
  return (size_t)(p - at);
}
