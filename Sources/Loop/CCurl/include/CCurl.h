// libcurl's interface, as much of it as is used here: how it opens a connection through a proxy. The library is loaded when
// the first upstream needs a proxy: it brings two dozen more, which a gateway without a proxy would carry for nothing. Numbers are those
// of libcurl.so.4, whose interface has not changed since 2006.
#ifndef MESHPOST_CCURL_H
#define MESHPOST_CCURL_H

// Loads the library if it is not loaded yet; 0: it is not installed. Ask before anything else is called.
int meshpost_curl_is_installed(void);

typedef struct meshpost_curl_easy meshpost_curl_easy;
typedef struct meshpost_curl_multi meshpost_curl_multi;

// What a descriptor is to be watched for (CURL_POLL_…), and what it is ready for (CURL_CSELECT_…).
enum { MESHPOST_CURL_WATCH_IN = 1, MESHPOST_CURL_WATCH_OUT = 2, MESHPOST_CURL_UNWATCH = 4 };
enum { MESHPOST_CURL_READY_IN = 1, MESHPOST_CURL_READY_OUT = 2, MESHPOST_CURL_READY_ERROR = 4 };
// In a descriptor's place: the time has come (CURL_SOCKET_TIMEOUT).
enum { MESHPOST_CURL_TIME = -1 };

// Names are curl's, without the prefix CURLOPT_.
enum {
  MESHPOST_CURL_URL = 10002,
  MESHPOST_CURL_PROXY = 10004,
  MESHPOST_CURL_HTTPPROXYTUNNEL = 61,
  MESHPOST_CURL_NOSIGNAL = 99,
  MESHPOST_CURL_PROXYAUTH = 111,
  MESHPOST_CURL_CONNECT_ONLY = 141,
  MESHPOST_CURL_CONNECTTIMEOUT_MS = 156,
  MESHPOST_CURL_PROXYUSERNAME = 10175,
  MESHPOST_CURL_PROXYPASSWORD = 10176,
  MESHPOST_CURL_NOPROXY = 10177,
  MESHPOST_CURL_PROTOCOLS = 181,
  MESHPOST_CURL_SOCKS5_AUTH = 267,
  MESHPOST_CURL_QUICK_EXIT = 322,
};
// CURLAUTH_BASIC, CURLPROTO_HTTP.
enum { MESHPOST_CURL_BASIC = 1, MESHPOST_CURL_HTTP = 1 };

// Names are curl's, without the prefix CURLINFO_.
enum {
  MESHPOST_CURL_HTTP_CONNECTCODE = 0x200000 + 22,
  MESHPOST_CURL_OS_ERRNO = 0x200000 + 25,
  MESHPOST_CURL_PROXY_ERROR = 0x200000 + 59,
};

// Why there is no connection: curl's CURLE_… and CURLPX_….
enum {
  MESHPOST_CURLE_COULDNT_RESOLVE_PROXY = 5,
  MESHPOST_CURLE_COULDNT_RESOLVE_HOST = 6,
  MESHPOST_CURLE_COULDNT_CONNECT = 7,
  MESHPOST_CURLE_OPERATION_TIMEDOUT = 28,
  MESHPOST_CURLE_ABORTED_BY_CALLBACK = 42,
  MESHPOST_CURLE_RECV_ERROR = 56,
  MESHPOST_CURLE_PROXY = 97,
};
enum {
  MESHPOST_CURLPX_BAD_ADDRESS_TYPE = 1,
  MESHPOST_CURLPX_BAD_VERSION,
  MESHPOST_CURLPX_CLOSED,
  MESHPOST_CURLPX_IDENTD = 7,
  MESHPOST_CURLPX_IDENTD_DIFFER,
  MESHPOST_CURLPX_LONG_HOSTNAME,
  MESHPOST_CURLPX_LONG_PASSWD,
  MESHPOST_CURLPX_LONG_USER,
  MESHPOST_CURLPX_NO_AUTH,
  MESHPOST_CURLPX_RECV_ADDRESS,
  MESHPOST_CURLPX_RECV_AUTH,
  MESHPOST_CURLPX_RECV_CONNECT,
  MESHPOST_CURLPX_RECV_REQACK,
  MESHPOST_CURLPX_REPLY_ADDRESS_TYPE_NOT_SUPPORTED,
  MESHPOST_CURLPX_REPLY_COMMAND_NOT_SUPPORTED,
  MESHPOST_CURLPX_REPLY_CONNECTION_REFUSED,
  MESHPOST_CURLPX_REPLY_GENERAL_SERVER_FAILURE,
  MESHPOST_CURLPX_REPLY_HOST_UNREACHABLE,
  MESHPOST_CURLPX_REPLY_NETWORK_UNREACHABLE,
  MESHPOST_CURLPX_REPLY_NOT_ALLOWED,
  MESHPOST_CURLPX_REPLY_TTL_EXPIRED,
  MESHPOST_CURLPX_REPLY_UNASSIGNED,
  MESHPOST_CURLPX_REQUEST_FAILED,
  MESHPOST_CURLPX_RESOLVE_HOST,
  MESHPOST_CURLPX_UNKNOWN_MODE = 32,
  MESHPOST_CURLPX_USER_REJECTED,
};

meshpost_curl_easy *meshpost_curl_easy_init(void);
void meshpost_curl_easy_cleanup(meshpost_curl_easy *easy);
// 0: set. A text is copied.
int meshpost_curl_set_text(meshpost_curl_easy *easy, int option, const char *value);
int meshpost_curl_set_number(meshpost_curl_easy *easy, int option, long value);
// The connection attempt ends when curl has looked at its progress so often: it does so at each byte of a proxy's answer, and reads
// on as long as there are any. `count` is alive as long as the handle.
int meshpost_curl_limit_progress(meshpost_curl_easy *easy, long *count);
// 0: there is none.
long meshpost_curl_get_number(meshpost_curl_easy *easy, int info);
// The connected socket, which is curl's; -1: there is none.
int meshpost_curl_get_socket(meshpost_curl_easy *easy);

typedef int (*meshpost_curl_socket_function)(meshpost_curl_easy *easy, int descriptor, int what, void *data, void *unused);
typedef int (*meshpost_curl_timer_function)(meshpost_curl_multi *multi, long milliseconds, void *data);

// Both functions are called while curl is at work, and may not call it.
meshpost_curl_multi *meshpost_curl_multi_init(
    meshpost_curl_socket_function socket, meshpost_curl_timer_function timer, void *data);
int meshpost_curl_multi_add(meshpost_curl_multi *multi, meshpost_curl_easy *easy);
int meshpost_curl_multi_remove(meshpost_curl_multi *multi, meshpost_curl_easy *easy);
int meshpost_curl_multi_act(meshpost_curl_multi *multi, int descriptor, int ready);
// 1: the attempt has ended, with this code; 0: it is under way.
int meshpost_curl_multi_has_ended(meshpost_curl_multi *multi, int *code);
void meshpost_curl_multi_cleanup(meshpost_curl_multi *multi);

// What a code of libcurl says.
const char *meshpost_curl_words(int code);

#endif
