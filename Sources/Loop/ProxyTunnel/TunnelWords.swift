// SPDX-License-Identifier: MIT

import CCurl

/// Describes a failed attempt through a proxy: whether the proxy or the server behind it is at fault. Never contains
/// the password.
struct TunnelWords {
  let proxy: TunnelSettings
  let host: String

  private var name: String { "the proxy \(proxy.shown)" }

  var notInstalled: String { "\(name) needs libcurl, which is not installed (Debian: libcurl4)" }
  var noAddress: String { "no address for \(name)" }

  func timedOut(hasReachedProxy: Bool) -> String {
    hasReachedProxy
      ? "\(name) has not connected to \(host) in time" : "\(name) cannot be reached: no answer in time"
  }

  /// `code` and `trouble`: curl's; `status`: an HTTP proxy's; `system`: the kernel's error; `said`: curl's words for
  /// the code.
  func failed(
    _ code: Int, status: Int, trouble: Int, system: String?, isTooLong: Bool, hasReachedProxy: Bool, _ said: String
  ) -> String {
    if isTooLong { return "\(name) sends an endless answer: is it an HTTP proxy?" }
    if status != 0, !(200..<300).contains(status) { return refused(status) }
    switch code {
    case MESHPOST_CURLE_COULDNT_RESOLVE_PROXY: return noAddress
    case MESHPOST_CURLE_COULDNT_CONNECT where trouble == 0:
      return "\(name) cannot be reached: \(system ?? "no connection")"
    case MESHPOST_CURLE_OPERATION_TIMEDOUT: return timedOut(hasReachedProxy: hasReachedProxy)
    case MESHPOST_CURLE_PROXY: return socks(trouble)
    case MESHPOST_CURLE_RECV_ERROR: return "\(name) ended the connection without an answer"
    default: return "\(name): \(said)"
    }
  }

  /// An HTTP proxy has refused.
  private func refused(_ status: Int) -> String {
    switch status {
    case 407: asks
    case 403: "\(name) does not allow connections to \(host) (403)"
    case 502, 503, 504: "\(name) has no connection to \(host) (\(status))"
    default: "\(name) refuses to connect to \(host) (\(status))"
    }
  }

  private var asks: String {
    proxy.user == nil ? "\(name) requires a user and a password" : "\(name) does not accept the user and password"
  }

  /// A SOCKS proxy, or curl's side of that protocol, has failed.
  private func socks(_ trouble: Int) -> String {
    switch trouble {
    case MESHPOST_CURLPX_NO_AUTH, MESHPOST_CURLPX_USER_REJECTED: asks
    case MESHPOST_CURLPX_IDENTD, MESHPOST_CURLPX_IDENTD_DIFFER: "\(name) does not accept the user"
    case MESHPOST_CURLPX_LONG_HOSTNAME: "\(host) is too long a name for \(name)"
    case MESHPOST_CURLPX_LONG_USER, MESHPOST_CURLPX_LONG_PASSWD:
      "user or password is too long for \(name)"
    case MESHPOST_CURLPX_RESOLVE_HOST: "no address for \(host), looked up here for \(name)"
    case MESHPOST_CURLPX_REPLY_CONNECTION_REFUSED: "\(name): \(host) refuses the connection"
    case MESHPOST_CURLPX_REPLY_HOST_UNREACHABLE: "\(name) cannot reach \(host), or does not know its name"
    case MESHPOST_CURLPX_REPLY_NETWORK_UNREACHABLE: "\(name) cannot reach the network of \(host)"
    case MESHPOST_CURLPX_REPLY_TTL_EXPIRED: "\(name) has not connected to \(host) in time"
    case MESHPOST_CURLPX_REPLY_NOT_ALLOWED: "\(name) does not allow connections to \(host)"
    case MESHPOST_CURLPX_REPLY_GENERAL_SERVER_FAILURE, MESHPOST_CURLPX_REQUEST_FAILED:
      "\(name) has no connection to \(host), and does not say why"
    case MESHPOST_CURLPX_REPLY_ADDRESS_TYPE_NOT_SUPPORTED,
      MESHPOST_CURLPX_REPLY_COMMAND_NOT_SUPPORTED:
      "\(name) cannot connect to such an address as \(host)"
    case MESHPOST_CURLPX_BAD_VERSION, MESHPOST_CURLPX_BAD_ADDRESS_TYPE,
      MESHPOST_CURLPX_UNKNOWN_MODE:
      "\(name) does not speak SOCKS \(proxy.kind == .socks4 || proxy.kind == .socks4a ? 4 : 5)"
    case MESHPOST_CURLPX_CLOSED, MESHPOST_CURLPX_RECV_ADDRESS, MESHPOST_CURLPX_RECV_AUTH,
      MESHPOST_CURLPX_RECV_CONNECT, MESHPOST_CURLPX_RECV_REQACK:
      "\(name) ended the connection without an answer"
    default: "\(name) refuses to connect to \(host)"
    }
  }
}
