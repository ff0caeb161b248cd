// SPDX-License-Identifier: MIT

import Store

extension Store {
  /// The newest received messages, newest last. Return false to stop.
  public func eachMessage(
    after: Int64 = 0, limit: Int, _ row: (StoredMessage) -> Bool
  ) throws(StoreError) {
    let newest = try lastMessageID()
    for id in stride(from: max(after, newest - Int64(limit)) + 1, through: newest, by: 1) {
      guard let message = try message(id: id) else { continue }
      guard row(message) else { return }
    }
  }
}
