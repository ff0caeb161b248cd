// SPDX-License-Identifier: MIT
//
// rows KIND CONNINFO COUNT: the rows of COUNT channel messages, each heard once, written to a hub's tables by other means than a hub:
//
//   unnest     transactions of 200 events, one `INSERT … SELECT FROM unnest` for each table
//   pipelined  transactions of 200 events, prepared statements of one row, in libpq's pipeline mode
//   single     an event a transaction, prepared statements of one row, one after another
//   copy       COPY of the events alone, 1000 a transaction
//
// The tables are a hub's, as version 3 of its schema has them (Sources/Hub/Hub/Database/HubSchema.swift); where there are none they are made: later
// hubs are compared with the same. Prints a line of JSON.
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 200, COPIED = 1000, TABLES = 4 };
static PGconn *link_;
static long position;

static void fail(const char *what) {
  fprintf(stderr, "rows: %s: %s", what, PQerrorMessage(link_));
  exit(1);
}

static void done(PGresult *result, const char *what) {
  ExecStatusType status = PQresultStatus(result);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_COPY_IN) fail(what);
  PQclear(result);
}

static void run(const char *sql) { done(PQexec(link_, sql), sql); }

static const char *tables =
  "CREATE TABLE IF NOT EXISTS events(id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, gateway TEXT NOT NULL, epoch TEXT NOT NULL, "
  "seq BIGINT NOT NULL, at BIGINT NOT NULL, trusted BIGINT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, UNIQUE(gateway, epoch, seq));"
  "CREATE INDEX IF NOT EXISTS events_by_kind ON events(gateway, kind, id);"
  "CREATE TABLE IF NOT EXISTS messages(position BIGINT PRIMARY KEY, identity TEXT NOT NULL UNIQUE, channel TEXT, at BIGINT NOT NULL, "
  "body TEXT NOT NULL);"
  "CREATE TABLE IF NOT EXISTS heard(message BIGINT NOT NULL, gateway TEXT NOT NULL, at BIGINT NOT NULL, body TEXT NOT NULL, "
  "PRIMARY KEY(message, gateway));"
  "CREATE TABLE IF NOT EXISTS updates(gateway TEXT NOT NULL, bucket TEXT NOT NULL, seq BIGINT NOT NULL, id TEXT NOT NULL, at BIGINT NOT NULL, "
  "body TEXT NOT NULL, PRIMARY KEY(gateway, bucket, seq));"
  "CREATE INDEX IF NOT EXISTS updates_by_id ON updates(gateway, bucket, id)";

struct statement {
  const char *name, *one, *many;
  int values;
};

// One row of each table, by value and by arrays.
static const struct statement statements[TABLES] = {
  {"event", "INSERT INTO events(gateway, epoch, seq, at, trusted, kind, body) VALUES ($1, $2, $3::bigint, $4::bigint, 1, 'message', $5)",
   "INSERT INTO events(gateway, epoch, seq, at, trusted, kind, body) SELECT g, e, s, a, 1, 'message', b "
   "FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[]) AS t(g, e, s, a, b) ON CONFLICT DO NOTHING", 5},
  {"message", "INSERT INTO messages(position, identity, channel, at, body) VALUES ($1::bigint, $2, $3, $4::bigint, $5)",
   "INSERT INTO messages(position, identity, channel, at, body) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[]) "
   "ON CONFLICT DO NOTHING", 5},
  {"heard", "INSERT INTO heard(message, gateway, at, body) VALUES ($1::bigint, $2, $3::bigint, $4)",
   "INSERT INTO heard(message, gateway, at, body) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[]) ON CONFLICT DO NOTHING", 4},
  {"update", "INSERT INTO updates(gateway, bucket, seq, id, at, body) VALUES ('', $1, $2::bigint, $3, $4::bigint, $5)",
   "INSERT INTO updates(gateway, bucket, seq, id, at, body) SELECT '', b, s, i, a, t "
   "FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[]) AS u(b, s, i, a, t) ON CONFLICT DO NOTHING", 5},
};

// The values of a message's rows, as text.
struct row {
  char gateway[20], epoch[20], seq[24], at[24], position[24], identity[40], channel[20], bucket[32], body[320], joined[280], report[140], update[280];
};

static void fill(struct row *r, long number) {
  long gateway = number % 200, seq = number / 200 + 1;
  uint64_t luck = (uint64_t)number * 0x9E3779B97F4A7C15u;
  sprintf(r->gateway, "%016llx", (unsigned long long)(gateway + 1) * 0x100000001B3u);
  sprintf(r->epoch, "%016lx", position);
  sprintf(r->seq, "%ld", seq);
  sprintf(r->at, "%lld", 1795236950695LL + number);
  sprintf(r->position, "%ld", position + number + 1);
  sprintf(r->identity, "%016llx%016llx", (unsigned long long)luck, (unsigned long long)(luck ^ (uint64_t)position));
  sprintf(r->channel, "%016llx", (unsigned long long)(number % 10 + 1) * 0x100000001B3u);
  sprintf(r->bucket, "channel/%s", r->channel);
  const char *shared = "\"kind\":\"channel\",\"sender_name\":\"Hilde T-Deck\",\"channel\":";
  const char *text = "Wetter wird schlechter, wir gehen runter nach Todtnau";
  sprintf(r->body, "{\"id\":%ld,%s\"%s\",\"channel_name\":\"#mesh-1\",\"sender_time\":1795236950,\"text\":\"%s %ld\",\"snr\":5.25,\"hops\":2,\"direct\":false}",
    seq, shared, r->channel, text, number);
  sprintf(r->joined, "{%s\"%s\",\"channel_name\":\"#mesh-1\",\"sender_time\":1795236950,\"text\":\"%s %ld\"}", shared, r->channel, text, number);
  sprintf(r->report, "{\"gateway\":\"%s\",\"at\":%s,\"seq\":%s,\"snr\":5.25,\"hops\":2,\"direct\":false}", r->gateway, r->at, r->seq);
  sprintf(r->update, "{\"gateway\":\"%s\",\"channel\":\"%s\",\"channel_name\":\"#mesh-1\",\"sender_name\":\"Hilde T-Deck\",\"sender_time\":1795236950,"
    "\"at\":%s,\"trusted\":true,\"text\":\"%s %ld\"}", r->gateway, r->channel, r->at, text, number);
}

static void values(const struct row *r, int table, const char **list) {
  const char *of[TABLES][5] = {
    {r->gateway, r->epoch, r->seq, r->at, r->body},
    {r->position, r->identity, r->channel, r->at, r->joined},
    {r->position, r->gateway, r->at, r->report, NULL},
    {r->bucket, r->position, r->identity, r->at, r->update},
  };
  memcpy(list, of[table], sizeof of[table]);
}

// An array as PostgreSQL reads it: {"…","…"}.
static char *array(char *p, const struct row *rows, int count, int table, int value) {
  *p++ = '{';
  for (int i = 0; i < count; i++) {
    const char *list[5];
    values(&rows[i], table, list);
    if (i) *p++ = ',';
    *p++ = '"';
    for (const char *c = list[value]; *c; c++) {
      if (*c == '"' || *c == '\\') *p++ = '\\';
      *p++ = *c;
    }
    *p++ = '"';
  }
  *p++ = '}';
  *p++ = 0;
  return p;
}

static void by_arrays(const struct row *rows, int count) {
  static char room[5][BATCH * 700];
  run("BEGIN");
  for (int table = 0; table < TABLES; table++) {
    const char *list[5];
    for (int v = 0; v < statements[table].values; v++) {
      array(room[v], rows, count, table, v);
      list[v] = room[v];
    }
    done(PQexecPrepared(link_, statements[table].name, statements[table].values, list, NULL, NULL, 0), "many");
  }
  run("COMMIT");
}

static void by_rows(const struct row *rows, int count, int pipelined) {
  const char *list[5];
  if (!pipelined) {
    run("BEGIN");
    for (int i = 0; i < count; i++) {
      for (int t = 0; t < TABLES; t++) {
        values(&rows[i], t, list);
        done(PQexecPrepared(link_, statements[t].name, statements[t].values, list, NULL, NULL, 0), "one");
      }
    }
    return run("COMMIT");
  }
  PQenterPipelineMode(link_);
  PQsendQueryParams(link_, "BEGIN", 0, NULL, NULL, NULL, NULL, 0);
  for (int i = 0; i < count; i++) {
    for (int t = 0; t < TABLES; t++) {
      values(&rows[i], t, list);
      if (!PQsendQueryPrepared(link_, statements[t].name, statements[t].values, list, NULL, NULL, 0)) fail("send");
    }
  }
  PQsendQueryParams(link_, "COMMIT", 0, NULL, NULL, NULL, NULL, 0);
  PQpipelineSync(link_);
  for (int left = count * TABLES + 2; left;) {
    PGresult *result = PQgetResult(link_);
    if (!result) continue;
    done(result, "pipelined");
    left--;
    PQclear(PQgetResult(link_));
  }
  PGresult *sync = PQgetResult(link_);
  if (PQresultStatus(sync) != PGRES_PIPELINE_SYNC) fail("sync");
  PQclear(sync);
  PQexitPipelineMode(link_);
}

static void by_copy(const struct row *rows, int count) {
  char line[1024];
  run("COPY events(gateway, epoch, seq, at, trusted, kind, body) FROM STDIN");
  for (int i = 0; i < count; i++) {
    const struct row *r = &rows[i];
    int size = snprintf(line, sizeof line, "%s\t%s\t%s\t%s\t1\tmessage\t%s\n", r->gateway, r->epoch, r->seq, r->at, r->body);
    if (PQputCopyData(link_, line, size) != 1) fail("copy");
  }
  if (PQputCopyEnd(link_, NULL) != 1) fail("copy");
  for (PGresult *result; (result = PQgetResult(link_));) done(result, "copy");
}

// That a table is there already.
static void quiet(void *nobody, const char *words) { (void)nobody, (void)words; }

int main(int count, char **words) {
  if (count != 4) {
    fprintf(stderr, "rows unnest|pipelined|single|copy CONNINFO COUNT\n");
    return 64;
  }
  const char *kind = words[1];
  long most = atol(words[3]);
  link_ = PQconnectdb(words[2]);
  if (PQstatus(link_) != CONNECTION_OK) fail("connect");
  PQsetNoticeProcessor(link_, quiet, NULL);
  run(tables);
  // Behind what is there.
  PGresult *result = PQexec(link_, "SELECT greatest((SELECT coalesce(max(position), 0) FROM messages), (SELECT coalesce(max(seq), 0) FROM updates), (SELECT coalesce(max(id), 0) FROM events))");
  if (PQresultStatus(result) != PGRES_TUPLES_OK) fail("position");
  position = atol(PQgetvalue(result, 0, 0));
  PQclear(result);
  int many = !strcmp(kind, "unnest"), copies = !strcmp(kind, "copy"), step = copies ? COPIED : !strcmp(kind, "single") ? 1 : BATCH;
  for (int t = 0; t < TABLES && !copies; t++)
    done(PQprepare(link_, statements[t].name, many ? statements[t].many : statements[t].one, statements[t].values, NULL), "prepare");
  struct row *rows = calloc(COPIED, sizeof *rows);
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  long written = 0;
  for (; written < most; written += step) {
    for (int i = 0; i < step; i++) fill(&rows[i], written + i);
    if (many) by_arrays(rows, step);
    else if (copies) by_copy(rows, step);
    else by_rows(rows, step, !strcmp(kind, "pipelined"));
  }
  clock_gettime(CLOCK_MONOTONIC, &b);
  double seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
  printf("{\"kind\":\"%s\",\"events\":%ld,\"seconds\":%.3f,\"per_second\":%.1f}\n", kind, written, seconds, (double)written / seconds);
  return 0;
}
