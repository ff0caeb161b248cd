// SPDX-License-Identifier: MIT

/// A message on the bus ("bus message": a *message* is a text on the mesh).
public struct BusMessage: Equatable, Sendable {
  public enum Kind: Equatable, Sendable {
    case call
    case reply(to: UInt32)
    case error(to: UInt32, name: String)
    case signal
  }

  public var kind: Kind
  public var serial: UInt32 = 0
  public var sender: String?
  public var destination: String?
  public var path: String?
  public var interface: String?
  public var member: String?
  public var body: [BusValue]

  public init(
    _ kind: Kind, destination: String? = nil, path: String? = nil, interface: String? = nil, member: String? = nil,
    body: [BusValue] = []
  ) {
    self.kind = kind
    self.destination = destination
    self.path = path
    self.interface = interface
    self.member = member
    self.body = body
  }

  /// A method call.
  public static func call(
    _ destination: String, _ path: String, _ interface: String, _ member: String, _ body: [BusValue] = []
  ) -> BusMessage {
    BusMessage(.call, destination: destination, path: path, interface: interface, member: member, body: body)
  }
}

/// Selects signals. Source: the D-Bus specification, "Match rules".
public struct MatchRule: Hashable, Sendable {
  public var sender: String?
  public var path: String?
  public var interface: String?
  public var member: String?
  /// The first argument, a text.
  public var argument: String?

  public init(
    sender: String? = nil, path: String? = nil, interface: String? = nil, member: String? = nil,
    argument: String? = nil
  ) {
    self.sender = sender
    self.path = path
    self.interface = interface
    self.member = member
    self.argument = argument
  }

  var text: String {
    var parts = ["type='signal'"]
    for (key, value) in [
      ("sender", sender), ("path", path), ("interface", interface), ("member", member), ("arg0", argument),
    ] {
      // These values are names and paths, which cannot contain a quote. One that does matches nothing.
      if let value { parts.append("\(key)='\(value.filter { $0 != "'" })'") }
    }
    return parts.joined(separator: ",")
  }

  /// Ignores the sender, which the bus checks: signals carry unique names, rules well-known ones.
  func matches(_ message: BusMessage) -> Bool {
    guard message.kind == .signal else { return false }
    return (path == nil || path == message.path) && (interface == nil || interface == message.interface)
      && (member == nil || member == message.member)
      && (argument == nil || argument == message.body.first?.string)
  }
}

/// Why an operation on the bus failed.
public enum BusError: Error, Equatable, Sendable, CustomStringConvertible {
  /// There is no bus, or the connection was lost.
  case disconnected(String)
  case timedOut
  /// The peer refused: its error's name and message.
  case refused(name: String, message: String)
  /// The peer's message is malformed.
  case malformed(String)
  /// Our message cannot be encoded.
  case invalid(String)
  case tooManyCalls

  public var description: String {
    switch self {
    case .disconnected(let message): "the system's D-Bus is not available: \(message)"
    case .timedOut: "no D-Bus reply in time"
    case .refused(let name, let message): message.isEmpty ? name : "\(message) (\(name))"
    case .malformed(let message): "invalid D-Bus reply: \(message)"
    case .invalid(let message): "cannot be sent over D-Bus: \(message)"
    case .tooManyCalls: "too many pending D-Bus calls"
    }
  }
}
