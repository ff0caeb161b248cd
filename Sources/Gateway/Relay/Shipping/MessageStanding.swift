// SPDX-License-Identifier: MIT

import Store

/// Whether an upstream has a message: the event with its text. The states of a sent message are later events.
public struct MessageStanding: Equatable, Sendable {
  public enum State: String, Sendable {
    /// The upstream has acknowledged the message.
    case acknowledged
    /// The upstream does not have it yet.
    case waiting
    /// The upstream has refused it; see `meshpost upstream dead`.
    case deadLetter = "dead_letter"
    /// The upstream has refused it, and the dead letter was dropped.
    case dropped
    /// The upstream's filter leaves the message out, or the upstream was added later and begins with newer events.
    case filtered
    /// The message has had its turn. The upstream leaves out old events, and the gateway does not record whether this was one.
    case passed
    /// The message was deleted from the journal before the upstream had it.
    case lost
    /// The message is older than the records about this, or its event was deleted along with lost ones.
    case unknown
  }

  public var upstream: String
  public var state: State
  /// Whether the upstream has a sent message's newest state, too; `nil`: a received message, or one that it does not have.
  public var isCurrent: Bool?
  /// The dead letter's number, for a retry.
  public var deadLetter: Int64?
  /// It waits for the end of a sent message: the upstream gets only that (`outgoing = "ended"`).
  public var awaitsEnd = false
}

extension Relay {
  /// Whether each upstream has a message.
  public func standings(of message: ConversationRow) throws(StoreError) -> [MessageStanding] {
    try upstreams.map { (upstream) throws(StoreError) in try upstream.journal.standing(of: message) }
  }
}

extension JournalReader {
  /// Whether this upstream has a message.
  func standing(of message: ConversationRow) throws(StoreError) -> MessageStanding {
    let events =
      switch message {
      case .received(let stored): try store.events(ofMessage: stored.id)
      case .sent(let outgoing, _): try store.events(ofOutgoing: outgoing.id)
      }
    var standing = MessageStanding(upstream: name, state: .unknown)
    guard let events else { return standing }
    guard let text = textEvent(events, of: message) else {
      var filter = filter
      filter.endsOnly = false
      standing.awaitsEnd = try filter.passes(event(events.text, of: message), store)
      standing.state = standing.awaitsEnd ? .waiting : .filtered
      return standing
    }
    standing.state = try state(of: message, event: text)
    switch standing.state {
    case .deadLetter: standing.deadLetter = text
    case .acknowledged, .passed:
      guard case .sent = message else { break }
      let letter = try store.letter(events.newest, of: name)
      standing.isCurrent = events.newest <= lanes.messages.taken && letter == nil
      if letter == .dead { standing.deadLetter = events.newest }
    case .waiting, .dropped, .filtered, .lost, .unknown: break
    }
    return standing
  }

  /// The event that brings the text to this server; `nil`: there is none yet, because the message has not ended.
  private func textEvent(_ events: MessageEvents, of message: ConversationRow) -> Int64? {
    guard case .sent = message, filter.endsOnly, events.text > store.wholeEndsFrom else { return events.text }
    return events.ended
  }

  private func state(of message: ConversationRow, event seq: Int64) throws(StoreError) -> MessageStanding.State {
    switch try store.letter(seq, of: name) {
    case .dead: return .deadLetter
    case .dropped: return .dropped
    case nil: break
    }
    let isTaken = seq <= lanes.messages.taken
    if seq <= beginning { return .filtered }
    if !filter.passesAll || filter.onlyConcerning || !isTaken && filter.age != nil {
      let event = try event(seq, of: message)
      guard try filter.passes(event, store) else { return .filtered }
      if !isTaken, let present, filter.age?.passes(event, present) == false { return .filtered }
    }
    guard isTaken else { return seq <= store.deletedThrough.messages ? .lost : .waiting }
    if seq <= (try store.missedThrough(name)) { return .unknown }
    return filter.age == nil ? .acknowledged : .passed
  }

  /// The event as it is, or was, in the journal.
  private func event(_ seq: Int64, of message: ConversationRow) throws(StoreError) -> JournalEvent {
    let (kind, moment, body): (EventKind, Moment, [UInt8]) =
      switch message {
      case .received(let stored):
        (.message, stored.received, EventBody.message(stored, channelName: try store.nameOfChannel(of: stored)))
      case .sent(let outgoing, _): (.outgoing, outgoing.created, EventBody.outgoing(outgoing))
      }
    return JournalEvent(
      seq: seq, at: moment.milliseconds, trusted: moment.trusted, kind: kind.rawValue, body: body)
  }
}
