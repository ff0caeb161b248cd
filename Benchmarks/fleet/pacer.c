// SPDX-License-Identifier: MIT
//
// How much a gateway has under way: Sources/Gateway/Relay/Shipping/Pacer.swift, line by line, so that the fleet loads a hub as gateways do.
#include "fleet.h"

static const int64_t CALM = 900, LATE = 1800, CALM_IN_PARTS = 500, LATE_IN_PARTS = 1000, LASTING = 600000, MODEST = 4000;

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }

int pacer_parts(const struct pacer *p, int window) { return window == 1 ? 1 : window > 4 && p->window >= 6000 ? 4 : 2; }

int64_t pacer_limit(const struct pacer *p, bool has_arrived) { return has_arrived ? most_of(p->window, most_of(p->known, MODEST)) : p->window; }

void pacer_reset(struct pacer *p) {
  struct pacer next = {.window = 1, .base = -1, .proven_at = p->proven_at};
  next.known = most_of(p->known ? p->known : MODEST, most_of(p->window, p->doubt) / 2);
  *p = next;
}

static void shrink(struct pacer *p, double bytes, int64_t now) {
  p->window = most_of(1, (int64_t)(bytes < (double)p->window ? bytes : (double)p->window));
  p->known = p->window;
  p->shrunk_at = p->proven_at = now;
  if (p->doubt) p->doubt = p->window;
}

static double share(const struct pacer *p, int64_t took, int parts) {
  double right = (double)(p->base + (parts > 2 ? CALM_IN_PARTS : CALM) * MS) / (double)took;
  return right < 0.8 ? right : 0.8;
}

void pacer_answered(struct pacer *p, const struct batch *b, int64_t now, int64_t limit, int parts) {
  int64_t silence = now - most_of(b->sent, p->answered_at);
  p->answered_at = now;
  if (p->proven_at && now - p->proven_at > LASTING * MS) {
    p->window = 1;
    p->known = MODEST;
    p->proven_at = p->doubt = 0;
  }
  if (p->base >= 0 && silence > p->base + LATE * MS) {
    p->resumed_at = now;
    if (!p->doubt) {
      p->doubt = p->window;
      p->window = most_of(1, p->window / 2);
    } else {
      shrink(p, b->bytes * share(p, silence, 2), now);
    }
    return;
  }
  if (p->resumed_at && b->sent < p->resumed_at) return;
  int64_t took = now - b->sent, base = p->base < 0 ? took : least_of(p->base, took);
  if (b->ahead == 0 && b->events == 1) base += (took - base) / 2;
  p->base = base;
  bool was_full = b->ahead + b->bytes >= p->window / 2;
  int64_t waited = took - base;
  if (waited > (parts > 2 ? LATE_IN_PARTS : LATE) * MS) {
    if (!p->shrunk_at || b->sent >= p->shrunk_at) shrink(p, (b->ahead + b->bytes) * share(p, took, parts), now);
    return;
  }
  if (was_full) p->proven_at = now;
  if (waited > (parts > 2 ? CALM_IN_PARTS : CALM) * MS) return;
  if (was_full) {
    int64_t least = most_of(p->window, b->bytes);
    p->window = most_of(least + b->bytes, least_of(least + b->bytes * 3LL, p->known));
  }
  if (p->doubt) p->window = most_of(p->window, p->doubt);
  p->doubt = 0;
  p->window = least_of(p->window, most_of(limit, 1));
}
