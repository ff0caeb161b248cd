// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Store

/// What the radio says of itself: its key, its name and its settings.
extension Synchronizer {
  func journal(_ identity: RadioIdentity) {
    write(when: .soon) { [now] store throws(SQLiteError) in
      _ = try store.append(.radio, at: now, body: EventBody.radio(identity))
    }
  }

  /// Reads the radio's settings again. False: it does not tell them, and what is known may be old. Then each poll asks again. `isChanged`: they may be
  /// others since a command.
  @discardableResult
  public func refreshIdentity(isChanged: Bool = true) async -> Bool {
    let before = connection.identity
    if isChanged { doubtsIdentity = true }
    var isAnswered = false
    for attempt in 0..<3 where !isAnswered && connection.state == .up {
      // Cancelled: the daemon ends, or a client is gone; then the next poll asks again.
      if attempt > 0, Task.isCancelled { break }
      let start = connection.submit(.start(client: "meshpost"), .interactive)
      let device = await connection.ask(.deviceQuery(clientVersion: RadioSession.clientVersion), .interactive)
      guard case .replied(.selfInfo) = await start?.outcome() else { continue }
      switch device {
      case .failed(.timedOut), .failed(.notSent), .failed(.linkLost): break
      default: isAnswered = true  // an old firmware refuses it
      }
    }
    doubtsIdentity = !isAnswered && connection.state == .up
    guard let identity = connection.identity, identity != before else { return isAnswered }
    if isAttached { store.radioWasRenamed(identity.info.name) }
    journal(identity)
    observer?.linkChanged()
    return isAnswered
  }

  /// Its clock and its table may be others now; after a factory reset, so is its key.
  func radioWasRestarted() {
    connection.radioWasRestarted()
    guard isServing else { return }
    if let start = radioStarted { contacts.changes.restarted(at: start) }
    log.notice("the radio was restarted: reading it again")
    tasks.begin { [weak self] in
      self?.restart(fully: true)
      await self?.refreshIdentity()
    }
  }
}
