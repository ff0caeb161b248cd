// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Sync

/// Contact lists that come from the radio itself, each to the client that asked.
final class RadioLists {
  enum Event {
    case frame([UInt8])
    /// With its last frame.
    case ended([UInt8])
    case failed
  }

  private let connection: RadioConnection
  private var listeners: [UInt64: (Event) -> Void] = [:]

  init(_ connection: RadioConnection, _ synchronizer: Synchronizer) {
    self.connection = connection
    connection.onListBegan = { [weak self] id, _ in self?.pass(id) }
    synchronizer.onForeignContact = { [weak self] id in self?.pass(id) }
  }

  /// False: the radio is not to be had.
  func ask(_ command: Command, _ frame: [UInt8], _ listener: @escaping (Event) -> Void) -> Bool {
    var asked: UInt64?
    let id = connection.submit(command, .client) { [weak self] outcome in
      guard let self else { return }
      if let asked { self.listeners[asked] = nil }
      if case .contacts = outcome { listener(.ended(self.connection.frameInHand)) } else { listener(.failed) }
    }
    asked = id
    if let id { listeners[id] = listener }
    return id != nil
  }

  private func pass(_ id: UInt64) { listeners[id]?(.frame(connection.frameInHand)) }
}
