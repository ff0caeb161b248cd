// SPDX-License-Identifier: MIT

import Store

/// Events of the schedules: the state that they describe, and a number that is unique over all epochs.
enum ScheduledEvent {
  /// A kind of state of one node.
  struct State: Hashable {
    let kind: EventKind
    let node: [UInt8]

    init?(_ event: JournalEvent) {
      guard let kind = EventKind(rawValue: event.kind), Self.kinds.contains(kind) else { return nil }
      self.kind = kind
      let start = kind == .telemetry || kind == .status ? 9 : 8
      guard event.body.count > start + 64 else { return nil }
      node = Array(event.body[start..<start + 64])
    }

    static let kinds: [EventKind] = [.advert, .contact, .telemetry, .status]
  }

  static func body(_ kind: EventKind, identity: Int64, node: Int, filling: Int) -> [UInt8] {
    let field = kind == .telemetry || kind == .status ? "node" : "key"
    let (number, zeros) = (String(node), [UInt8](repeating: UInt8(ascii: "0"), count: 24))
    var body = Array("{\"\(field)\":\"".utf8)
    body += zeros.dropLast(number.utf8.count)
    body += number.utf8
    body += [UInt8](repeating: UInt8(ascii: "a"), count: 40)
    body += "\",\"id\":\(identity),\"x\":\"".utf8
    body += [UInt8](repeating: UInt8(ascii: "y"), count: filling)
    body += "\",\"readings\":[]}".utf8
    return body
  }

  /// Events that the upstream itself has written have no number: the result is their negative seq.
  static func identity(of event: JournalEvent) -> Int64 {
    let start = event.body.dropFirst(74).prefix(6)
    for (place, byte) in start.enumerated() where byte == UInt8(ascii: ":") {
      if let number = number(event.body.dropFirst(74 + place + 1)) { return number }
    }
    return -event.seq
  }

  static func folded(of event: JournalEvent) -> Int64? {
    let tail = event.body.suffix(24)
    guard let colon = tail.lastIndex(of: UInt8(ascii: ":")), tail[..<colon].suffix(8).elementsEqual("\"folded\"".utf8)
    else { return nil }
    return number(tail[(colon + 1)...])
  }

  private static func number(_ digits: ArraySlice<UInt8>) -> Int64? {
    var value: Int64?
    for digit in digits {
      guard digit >= 48, digit <= 57 else { break }
      value = (value ?? 0) * 10 + Int64(digit - 48)
    }
    return value
  }
}
