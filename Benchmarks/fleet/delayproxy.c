// SPDX-License-Identifier: MIT
//
// delayproxy LISTEN TARGET ONEWAY_US: a server on this machine's port TARGET seems ONEWAY_US microseconds away each way at port LISTEN.
//
// A line delays bytes, not requests: what is sent while earlier bytes are on their way arrives right behind them, so pipelined statements pay
// one round trip together. Each direction of each connection is a queue of pieces with the time at which each is due. A queue that holds MOST
// bytes reads no more: the sender waits, as it does for a window of TCP. An end passes through behind the bytes before it. Nothing is lost.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 65536, MOST = 4 << 20 };

struct piece {
  struct piece *next;
  int64_t due;
  size_t count, sent;
  char bytes[];
};

// One direction: from `in` to `out`.
struct way {
  struct piece *first, **last;
  size_t held;
  bool has_end, is_done, is_blocked;
  int64_t end_due;
};

struct line {
  struct line *next;
  int fds[2];
  struct way ways[2];  // 0: from the client to the server
  uint32_t wanted[2];
};

static struct line *lines;
static int64_t delay;
static int poller;
static char buffer[PIECE];

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

// Asks epoll for what can be used now: bytes while there is room, room while bytes are overdue.
static void want(struct line *l, int side) {
  uint32_t events = 0;
  if (!l->ways[side].has_end && l->ways[side].held < MOST) events |= EPOLLIN;
  if (l->ways[1 - side].is_blocked) events |= EPOLLOUT;
  if (events == l->wanted[side]) return;
  l->wanted[side] = events;
  struct epoll_event event = {.events = events, .data.u64 = (uint64_t)(uintptr_t)l | (uint64_t)side};
  if (epoll_ctl(poller, EPOLL_CTL_MOD, l->fds[side], &event)) fail("epoll_ctl");
}

static void take(struct line *l, int side, int64_t now) {
  struct way *w = &l->ways[side];
  if (w->has_end || w->held >= MOST) return;
  ssize_t count = recv(l->fds[side], buffer, sizeof buffer, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    w->has_end = true;
    w->end_due = now + delay;
    return;
  }
  struct piece *p = malloc(sizeof *p + (size_t)count);
  if (!p) fail("malloc");
  *p = (struct piece){.due = now + delay, .count = (size_t)count};
  memcpy(p->bytes, buffer, (size_t)count);
  *w->last = p;
  w->last = &p->next;
  w->held += (size_t)count;
}

static void drop(struct way *w) {
  while (w->first) {
    struct piece *p = w->first;
    w->first = p->next;
    free(p);
  }
  w->last = &w->first;
  w->held = 0;
}

// What is due goes out.
static void give(struct line *l, int side, int64_t now) {
  struct way *w = &l->ways[side];
  w->is_blocked = false;
  while (w->first && w->first->due <= now) {
    struct piece *p = w->first;
    ssize_t gone = send(l->fds[1 - side], p->bytes + p->sent, p->count - p->sent, MSG_NOSIGNAL);
    if (gone < 0 && (errno == EAGAIN || errno == EINTR)) {
      w->is_blocked = true;
      return;
    }
    if (gone < 0) {
      // Nobody reads there any more: the sender is told by an end.
      drop(w);
      w->has_end = w->is_done = true;
      shutdown(l->fds[side], SHUT_RDWR);
      return;
    }
    p->sent += (size_t)gone;
    if (p->sent < p->count) continue;
    w->held -= p->count;
    w->first = p->next;
    if (!w->first) w->last = &w->first;
    free(p);
  }
  if (!w->first && w->has_end && !w->is_done && w->end_due <= now) {
    shutdown(l->fds[1 - side], SHUT_WR);
    w->is_done = true;
  }
}

static void meet(int listener, const struct sockaddr_in *target) {
  int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (client < 0) return;
  int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  if (server < 0 || connect(server, (const struct sockaddr *)target, sizeof *target)) {
    close(client);
    if (server >= 0) close(server);
    return;
  }
  struct line *l = calloc(1, sizeof *l);
  if (!l) fail("calloc");
  *l = (struct line){.next = lines, .fds = {client, server}, .wanted = {EPOLLIN, EPOLLIN}};
  lines = l;
  for (int side = 0; side < 2; side++) {
    l->ways[side].last = &l->ways[side].first;
    setsockopt(l->fds[side], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)(uintptr_t)l | (uint64_t)side};
    // The server's side has connected by now.
    if (fcntl(l->fds[side], F_SETFL, O_NONBLOCK)) fail("fcntl");
    if (epoll_ctl(poller, EPOLL_CTL_ADD, l->fds[side], &event)) fail("epoll_ctl");
  }
}

// Both directions are over: the line is gone.
static void forget(void) {
  for (struct line **place = &lines; *place;) {
    struct line *l = *place;
    if (!l->ways[0].is_done || !l->ways[1].is_done) {
      place = &l->next;
      continue;
    }
    *place = l->next;
    for (int side = 0; side < 2; side++) {
      close(l->fds[side]);
      drop(&l->ways[side]);
    }
    free(l);
  }
}

int main(int count, char **words) {
  if (count != 4) {
    fprintf(stderr, "delayproxy LISTEN TARGET ONEWAY_US\n");
    return 64;
  }
  delay = atol(words[3]) * 1000;
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_TIMERSLACK, 1000);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in target = own;
  target.sin_port = htons((uint16_t)atoi(words[2]));
  if (bind(listener, (struct sockaddr *)&own, sizeof own) || listen(listener, 128)) fail("listen");
  poller = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event)) fail("epoll_ctl");
  printf("ready\n");
  fflush(stdout);
  while (true) {
    int64_t now = now_ns(), next = INT64_MAX;
    for (struct line *l = lines; l; l = l->next) {
      for (int side = 0; side < 2; side++) {
        struct way *w = &l->ways[side];
        int64_t due = w->is_blocked ? INT64_MAX : w->first ? w->first->due : w->has_end && !w->is_done ? w->end_due : INT64_MAX;
        if (due < next) next = due;
      }
    }
    struct timespec patience = {0, 0}, *limit = &patience;
    if (next == INT64_MAX) limit = NULL;
    if (next > now && limit) patience = (struct timespec){(next - now) / 1000000000, (next - now) % 1000000000};
    struct epoll_event events[64];
    int ready = epoll_pwait2(poller, events, 64, limit, NULL);
    now = now_ns();
    for (int i = 0; i < ready; i++) {
      if (!events[i].data.u64) {
        meet(listener, &target);
        continue;
      }
      struct line *l = (struct line *)(uintptr_t)(events[i].data.u64 & ~(uint64_t)1);
      int side = (int)(events[i].data.u64 & 1);
      if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) take(l, side, now);
      if (events[i].events & EPOLLOUT) l->ways[1 - side].is_blocked = false;
    }
    for (struct line *l = lines; l; l = l->next) {
      for (int side = 0; side < 2; side++) give(l, side, now);
      for (int side = 0; side < 2; side++) want(l, side);
    }
    forget();
  }
}
