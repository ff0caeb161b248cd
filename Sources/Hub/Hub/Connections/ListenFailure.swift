// SPDX-License-Identifier: MIT

import Glibc
import NIOCore

/// Why the hub cannot listen at its address.
struct ListenFailure: Error, CustomStringConvertible {
  let description: String

  /// `nil`: the error is about something else.
  init?(_ error: any Error, host: String, port: Int) {
    let place = host.unicodeScalars.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
    let remedy = "choose another host or port in hub.toml"
    if error is SocketAddressError || error is SocketAddressError.UnknownHost {
      description = "\(host) is unknown: set host to an address of this machine, or to a name that it resolves"
      return
    }
    guard let code = (error as? IOError)?.errnoCode else { return nil }
    switch code {
    case EADDRINUSE: description = "\(place) is in use by another program, perhaps another hub: end it, or \(remedy)"
    case EADDRNOTAVAIL: description = "\(place): this machine does not have this address: \(remedy)"
    case EACCES: description = "\(place): this user may not listen at this port: \(remedy)"
    default: description = "\(place): \(String(cString: strerror(code)))"
    }
  }
}
