// SPDX-License-Identifier: MIT
//
// publish PORT CLIENTS MESSAGES WINDOW: messages as the fleet's to an MQTT broker with QoS 1, each client up to WINDOW unanswered. The yardstick
// beside a hub: a broker that answers before anything is on a disk. Prints a line of JSON.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct client {
  int fd;
  long sent, answered;
  uint8_t in[4];
  int have;
};

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void all(int fd, const void *bytes, size_t count) {
  for (const char *p = bytes; count;) {
    ssize_t gone = send(fd, p, count, MSG_NOSIGNAL);
    if (gone <= 0) fail("send");
    p += gone;
    count -= (size_t)gone;
  }
}

static void begin(struct client *c, int port, int number) {
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int one = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
  uint8_t packet[32] = {0x10, 0, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 60, 0, 0};
  int length = sprintf((char *)packet + 14, "fleet%d", number);
  packet[1] = (uint8_t)(12 + length);
  packet[13] = (uint8_t)length;
  all(c->fd, packet, (size_t)(14 + length));
  uint8_t answer[4];
  if (recv(c->fd, answer, 4, MSG_WAITALL) != 4 || answer[0] != 0x20 || answer[3]) fail("the broker does not let us in");
}

static void publish(struct client *c, int number) {
  char packet[1024], body[800], topic[64];
  int length = snprintf(body, sizeof body,
    "{\"gateway\":\"%016x\",\"epoch\":\"679d2de0392ac027\",\"seq\":%ld,\"at\":1795236950695,\"trusted\":true,\"kind\":\"message\",\"body\":{\"id\":%ld,"
    "\"kind\":\"channel\",\"sender_name\":\"Hilde T-Deck\",\"channel\":\"1155f1870f917786\",\"channel_name\":\"Public\",\"sender_time\":1795236950,"
    "\"text\":\"Wetter wird schlechter, wir gehen runter nach Todtnau %d.%ld\",\"snr\":5.25,\"hops\":2,\"direct\":false}}",
    number, c->sent + 1, c->sent + 1, number, c->sent + 1);
  int named = sprintf(topic, "meshpost/%016x/message", number), size = 2 + named + 2 + length, at = 0;
  packet[at++] = 0x32;
  packet[at++] = (char)(size % 128 | 128);
  packet[at++] = (char)(size / 128);
  packet[at++] = 0;
  packet[at++] = (char)named;
  memcpy(packet + at, topic, (size_t)named);
  at += named;
  long identifier = c->sent % 65535 + 1;
  packet[at++] = (char)(identifier >> 8);
  packet[at++] = (char)identifier;
  memcpy(packet + at, body, (size_t)length);
  all(c->fd, packet, (size_t)(at + length));
  c->sent++;
}

int main(int count, char **words) {
  if (count != 5) {
    fprintf(stderr, "publish PORT CLIENTS MESSAGES WINDOW\n");
    return 64;
  }
  int clients = atoi(words[2]), window = atoi(words[4]);
  long messages = atol(words[3]), left = (long)clients * messages;
  struct client *list = calloc((size_t)clients, sizeof *list);
  struct pollfd *polls = calloc((size_t)clients, sizeof *polls);
  for (int i = 0; i < clients; i++) {
    begin(&list[i], atoi(words[1]), i);
    polls[i] = (struct pollfd){.fd = list[i].fd, .events = POLLIN};
  }
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int i = 0; i < clients; i++) {
    while (list[i].sent < messages && list[i].sent < window) publish(&list[i], i);
  }
  while (left) {
    if (poll(polls, (nfds_t)clients, 60000) <= 0) fail("poll");
    for (int i = 0; i < clients; i++) {
      if (!polls[i].revents) continue;
      struct client *c = &list[i];
      uint8_t buffer[4096];
      ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
      if (got <= 0) fail("the broker hung up");
      for (ssize_t k = 0; k < got; k++) {
        c->in[c->have++] = buffer[k];
        if (c->have < 4) continue;
        c->have = 0;
        if (c->in[0] != 0x40) fail("no PUBACK");
        c->answered++;
        left--;
        if (c->sent < messages) publish(c, i);
      }
    }
  }
  clock_gettime(CLOCK_MONOTONIC, &b);
  double seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
  printf("{\"kind\":\"mqtt\",\"events\":%ld,\"seconds\":%.3f,\"per_second\":%.1f}\n", clients * messages, seconds, (double)(clients * messages) / seconds);
  return 0;
}
