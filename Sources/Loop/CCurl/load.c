// Calls of libcurl, which is loaded at the first: the program runs without it. Its variadic functions get a form for each type of value.
#define _GNU_SOURCE
#include "CCurl.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

// As far as it is used; the library's own has a union behind `easy` (curl/multi.h).
struct message {
  int kind;
  void *easy;
  union {
    void *whatever;
    int result;
  } data;
};
enum { MESSAGE_DONE = 1 };

// CURLOPT_NOPROGRESS, _XFERINFOFUNCTION, _XFERINFODATA; CURLINFO_ACTIVESOCKET; CURLMOPT_….
enum { NO_PROGRESS = 43, PROGRESS_FUNCTION = 20219, PROGRESS_DATA = 10057, ACTIVE_SOCKET = 0x500000 + 44 };
enum { SOCKET_FUNCTION = 20001, SOCKET_DATA = 10002, TIMER_FUNCTION = 20004, TIMER_DATA = 10005 };

static struct {
  int (*global_init)(long flags);
  void *(*easy_init)(void);
  void (*easy_cleanup)(void *easy);
  int (*easy_setopt)(void *easy, int option, ...);
  int (*easy_getinfo)(void *easy, int info, ...);
  const char *(*easy_strerror)(int code);
  void *(*multi_init)(void);
  int (*multi_setopt)(void *multi, int option, ...);
  int (*multi_add_handle)(void *multi, void *easy);
  int (*multi_remove_handle)(void *multi, void *easy);
  int (*multi_socket_action)(void *multi, int descriptor, int ready, int *running);
  struct message *(*multi_info_read)(void *multi, int *left);
  int (*multi_cleanup)(void *multi);
} curl;

#define FIND(name) (*(void **)&curl.name = dlsym(library, "curl_" #name))

static int load(void) {
  // Debian's packages libcurl4 and libcurl3-gnutls: the same library, over OpenSSL and over GnuTLS.
  void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) return 0;
  if (FIND(global_init) && FIND(easy_init) && FIND(easy_cleanup) && FIND(easy_setopt) && FIND(easy_getinfo) && FIND(easy_strerror) &&
      FIND(multi_init) && FIND(multi_setopt) && FIND(multi_add_handle) && FIND(multi_remove_handle) && FIND(multi_socket_action) &&
      FIND(multi_info_read) && FIND(multi_cleanup) && curl.global_init(0) == 0)
    return 1;
  dlclose(library);
  return 0;
}

int meshpost_curl_is_installed(void) {
  // It may be installed while the program runs: it is looked for until it is there.
  static int is_loaded;
  if (!is_loaded) is_loaded = load();
  return is_loaded;
}

meshpost_curl_easy *meshpost_curl_easy_init(void) { return curl.easy_init(); }
void meshpost_curl_easy_cleanup(meshpost_curl_easy *easy) { curl.easy_cleanup(easy); }

int meshpost_curl_set_text(meshpost_curl_easy *easy, int option, const char *value) {
  return curl.easy_setopt(easy, option, value);
}

int meshpost_curl_set_number(meshpost_curl_easy *easy, int option, long value) {
  return curl.easy_setopt(easy, option, value);
}

static int progressed(void *data, int64_t a, int64_t b, int64_t c, int64_t d) {
  (void)a, (void)b, (void)c, (void)d;
  long *count = data;
  if (*count <= 0) return 1;
  --*count;
  return 0;
}

int meshpost_curl_limit_progress(meshpost_curl_easy *easy, long *count) {
  int code = curl.easy_setopt(easy, PROGRESS_FUNCTION, progressed);
  if (!code) code = curl.easy_setopt(easy, PROGRESS_DATA, (void *)count);
  if (!code) code = curl.easy_setopt(easy, NO_PROGRESS, 0L);
  return code;
}

long meshpost_curl_get_number(meshpost_curl_easy *easy, int info) {
  long value = 0;
  return curl.easy_getinfo(easy, info, &value) == 0 ? value : 0;
}

int meshpost_curl_get_socket(meshpost_curl_easy *easy) {
  int descriptor = -1;
  return curl.easy_getinfo(easy, ACTIVE_SOCKET, &descriptor) == 0 ? descriptor : -1;
}

meshpost_curl_multi *meshpost_curl_multi_init(
    meshpost_curl_socket_function socket, meshpost_curl_timer_function timer, void *data) {
  void *multi = curl.multi_init();
  if (!multi) return NULL;
  if (curl.multi_setopt(multi, SOCKET_FUNCTION, socket) == 0 && curl.multi_setopt(multi, SOCKET_DATA, data) == 0 &&
      curl.multi_setopt(multi, TIMER_FUNCTION, timer) == 0 && curl.multi_setopt(multi, TIMER_DATA, data) == 0)
    return multi;
  curl.multi_cleanup(multi);
  return NULL;
}

int meshpost_curl_multi_add(meshpost_curl_multi *multi, meshpost_curl_easy *easy) { return curl.multi_add_handle(multi, easy); }

int meshpost_curl_multi_remove(meshpost_curl_multi *multi, meshpost_curl_easy *easy) {
  return curl.multi_remove_handle(multi, easy);
}

int meshpost_curl_multi_act(meshpost_curl_multi *multi, int descriptor, int ready) {
  int running = 0;
  return curl.multi_socket_action(multi, descriptor, ready, &running);
}

int meshpost_curl_multi_has_ended(meshpost_curl_multi *multi, int *code) {
  int left = 0;
  struct message *message;
  while ((message = curl.multi_info_read(multi, &left))) {
    if (message->kind != MESSAGE_DONE) continue;
    *code = message->data.result;
    return 1;
  }
  return 0;
}

void meshpost_curl_multi_cleanup(meshpost_curl_multi *multi) { curl.multi_cleanup(multi); }

const char *meshpost_curl_words(int code) { return curl.easy_strerror(code); }
