// SPDX-License-Identifier: MIT

import CPostgres
import Foundation

/// Receives notifications of other hubs on the same database, on its own connection and thread.
final class PostgresListener: Sendable {
  private static let pause: TimeInterval = 3

  /// `onConnect`: notifications arrive from now on; earlier ones may have been missed.
  init(
    address: String, password: String?, onConnect: @escaping @Sendable () -> Void,
    onNews: @escaping @Sendable (HubNews) -> Void
  ) {
    Thread.detachNewThread {
      while true {
        // `try?`: writes report an unreachable server.
        if let connection = try? PostgresHubDatabase.connect(
          address, password, name: PostgresHubDatabase.listenerName)
        {
          Self.listen(connection, onConnect, onNews)
          PQfinish(connection)
        }
        Thread.sleep(forTimeInterval: Self.pause)
      }
    }
  }

  /// Until the connection ends.
  private static func listen(
    _ connection: OpaquePointer, _ onConnect: () -> Void, _ onNews: (HubNews) -> Void
  ) {
    let answer = PQexec(connection, "LISTEN \(PostgresHubDatabase.channel)")
    defer { PQclear(answer) }
    guard PQresultStatus(answer) == PGRES_COMMAND_OK else { return }
    onConnect()
    while PQstatus(connection) == CONNECTION_OK {
      var descriptor = pollfd(fd: PQsocket(connection), events: Int16(POLLIN), revents: 0)
      guard poll(&descriptor, 1, -1) >= 0 || errno == EINTR else { return }
      guard PQconsumeInput(connection) == 1 else { return }
      while let notification = PQnotifies(connection) {
        if let news = HubNews(String(cString: notification.pointee.extra)) { onNews(news) }
        PQfreemem(notification)
      }
    }
  }
}

extension HubNews {
  var payload: String { "\(gateway) \(bucket) \(seq)" }

  /// The notification: gateway, bucket and number.
  init?(_ payload: String) {
    // A command's id, in the middle, may contain spaces.
    let scalars = payload.unicodeScalars
    guard let first = scalars.firstIndex(of: " "), let last = scalars.lastIndex(of: " "), first < last,
      let seq = Int64(payload[scalars.index(after: last)...])
    else { return nil }
    self.init(gateway: String(payload[..<first]), bucket: String(payload[scalars.index(after: first)..<last]), seq: seq)
  }
}
