// SPDX-License-Identifier: MIT

import CPostgres
import Foundation

/// Hears what other hubs on the same database have written, on a connection and a thread of its own.
final class PostgresListener: Sendable {
  private static let pause: TimeInterval = 3

  /// `onConnect`: from now on everything is heard; what was before may have been missed.
  init(
    address: String, password: String?, onConnect: @escaping @Sendable () -> Void,
    onNews: @escaping @Sendable (HubNews) -> Void
  ) {
    Thread.detachNewThread {
      while true {
        // `try?`: a server that is away is told of by those who write.
        if let connection = try? PostgresHubDatabase.connect(address, password) {
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
  /// As it was told: gateway, bucket and number.
  init?(_ payload: String) {
    // A command's id, which stands in the middle, may hold blanks.
    let scalars = payload.unicodeScalars
    guard let first = scalars.firstIndex(of: " "), let last = scalars.lastIndex(of: " "), first < last,
      let seq = Int64(payload[scalars.index(after: last)...])
    else { return nil }
    self.init(gateway: String(payload[..<first]), bucket: String(payload[scalars.index(after: first)..<last]), seq: seq)
  }
}
