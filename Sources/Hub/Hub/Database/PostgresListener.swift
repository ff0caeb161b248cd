// SPDX-License-Identifier: MIT

import CPostgres
import EventLoop
import Glibc

/// Receives notifications of other hubs on the same database, on its own connection and thread.
final class PostgresListener: Sendable {
  private static let pause: UInt32 = 3
  /// Seconds without a notification until it tests the server: a server that hangs does not end the connection.
  private static let silence: Int32 = 30

  /// `onConnect`: notifications arrive after this call; it may have missed earlier ones.
  init(
    address: String, password: String?, onConnect: @escaping @Sendable () -> Void,
    onChange: @escaping @Sendable (HubChange) -> Void
  ) {
    DetachedThread.run {
      while true {
        // `try?`: writes report an unreachable server.
        if let connection = try? PostgresHubDatabase.connect(
          address, password, name: PostgresHubDatabase.listenerName)
        {
          Self.listen(connection, onConnect, onChange)
          PQfinish(connection)
        }
        sleep(Self.pause)
      }
    }
  }

  private static func listen(
    _ connection: OpaquePointer, _ onConnect: () -> Void, _ onChange: (HubChange) -> Void
  ) {
    // `try?`: it connects again.
    guard (try? PostgresHubDatabase.execute("LISTEN \(PostgresHubDatabase.channel)", on: connection)) == true else {
      return
    }
    onConnect()
    while PQstatus(connection) == CONNECTION_OK {
      var descriptor = pollfd(fd: PQsocket(connection), events: Int16(POLLIN), revents: 0)
      let ready = poll(&descriptor, 1, silence * 1000)
      guard ready >= 0 || errno == EINTR else { return }
      if ready == 0 {
        // `try?`: it connects again.
        guard (try? PostgresHubDatabase.execute("SELECT 1", on: connection)) == true else { return }
      } else if PQconsumeInput(connection) != 1 {
        return
      }
      while let notification = PQnotifies(connection) {
        if let change = HubChange(String(cString: notification.pointee.extra)) { onChange(change) }
        PQfreemem(notification)
      }
    }
  }
}

extension HubChange {
  var payload: String { "\(gateway) \(bucket) \(seq)" }

  /// Parses a notification: gateway, bucket and number.
  init?(_ payload: String) {
    // A command's id, in the middle, may contain spaces.
    let scalars = payload.unicodeScalars
    guard let first = scalars.firstIndex(of: " "), let last = scalars.lastIndex(of: " "), first < last,
      let seq = Int64(payload[scalars.index(after: last)...])
    else { return nil }
    self.init(gateway: String(payload[..<first]), bucket: String(payload[scalars.index(after: first)..<last]), seq: seq)
  }
}
