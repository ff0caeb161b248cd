// SPDX-License-Identifier: MIT

/// The compression that two ends of a WebSocket have agreed on. Source: RFC 7692 § 7.
public struct PerMessageDeflate: Equatable, Sendable {
  /// Meshpost's own extension: both windows begin with the `LinkDictionary`.
  static let dictionaryName = LinkDictionary.name
  private static let name = "permessage-deflate"

  /// Each end refers back at most 2^bits bytes.
  public var clientBits = 15
  public var serverBits = 15
  /// Each message has the earlier ones as context.
  public var clientKeepsContext = true
  public var serverKeepsContext = true
  public var hasDictionary = false

  /// zlib cannot compress with a window of 256 bytes: then messages are sent uncompressed.
  public var clientCompresses: Bool { clientBits >= 9 }

  // MARK: The client

  /// The compression that a client offers.
  public struct Offer: Equatable, Sendable {
    public var clientBits: Int
    public var serverBits: Int
    public var dictionary: Bool

    public init(clientBits: Int, serverBits: Int, dictionary: Bool) {
      self.clientBits = clientBits
      self.serverBits = serverBits
      self.dictionary = dictionary
    }

    /// The value of the `Sec-WebSocket-Extensions` header.
    public var value: String {
      let offer =
        "\(PerMessageDeflate.name); client_max_window_bits=\(clientBits); server_max_window_bits=\(serverBits)"
      return dictionary ? "\(offer), \(PerMessageDeflate.dictionaryName)" : offer
    }
  }

  /// The server's answer does not fit the offer.
  public struct Objection: Error, Equatable, Sendable {
    public init() {}
  }

  /// Reads the server's answer to an offer; `nil`: no compression. Throws if the answer does not fit the offer.
  public static func answered(_ values: [String], to offer: Offer) throws(Objection) -> PerMessageDeflate? {
    guard !values.isEmpty else { return nil }
    guard let list = ExtensionList(values)?.items else { throw Objection() }
    let agreed = list.filter { $0.name == name }
    guard agreed.count == 1, var result = PerMessageDeflate(agreed[0]),
      agreed[0].parameters.contains(where: { $0.name == "server_max_window_bits" }),
      result.serverBits <= offer.serverBits
    else { throw Objection() }
    let others = list.filter { $0.name != name }
    guard others.isEmpty || (others == [.init(name: dictionaryName)] && offer.dictionary) else { throw Objection() }
    result.hasDictionary = !others.isEmpty
    result.clientBits = min(result.clientBits, offer.clientBits)
    return result
  }

  // MARK: The server

  /// Chooses among a client's offers and makes the answer; `nil`: no offer is acceptable. An offer that does not let
  /// the server limit the client's window is declined, because that window costs the server memory.
  public static func accepted(
    _ values: [String], clientBits: Int, serverBits: Int
  ) -> (agreed: PerMessageDeflate, answer: String)? {
    guard let list = ExtensionList(values)?.items else { return nil }
    for offer in list where offer.name == name {
      guard offer.parameters.contains(where: { $0.name == "client_max_window_bits" }),
        var agreed = PerMessageDeflate(offer), agreed.serverBits >= 9
      else { continue }
      agreed.clientBits = min(agreed.clientBits, clientBits)
      var answer = "\(name); client_max_window_bits=\(agreed.clientBits)"
      if offer.parameters.contains(where: { $0.name == "server_max_window_bits" }) {
        agreed.serverBits = min(agreed.serverBits, serverBits)
        answer += "; server_max_window_bits=\(agreed.serverBits)"
      } else {
        agreed.serverBits = serverBits
      }
      if !agreed.serverKeepsContext { answer += "; server_no_context_takeover" }
      if !agreed.clientKeepsContext { answer += "; client_no_context_takeover" }
      agreed.hasDictionary = list.contains(.init(name: dictionaryName))
      return (agreed, agreed.hasDictionary ? "\(answer), \(dictionaryName)" : answer)
    }
    return nil
  }

  public init() {}

  /// `nil`: a parameter is unknown, repeated, or has an invalid value.
  private init?(_ item: ExtensionList.Item) {
    guard Set(item.parameters.map(\.name)).count == item.parameters.count else { return nil }
    for (name, value) in item.parameters.map({ ($0.name, $0.value) }) {
      switch (name, value) {
      case ("server_no_context_takeover", nil): serverKeepsContext = false
      case ("client_no_context_takeover", nil): clientKeepsContext = false
      case ("client_max_window_bits", nil): break  // in an offer: the server may choose the size
      case ("client_max_window_bits", let value?):
        guard let bits = Self.bits(value) else { return nil }
        clientBits = bits
      case ("server_max_window_bits", let value?):
        guard let bits = Self.bits(value) else { return nil }
        serverBits = bits
      default: return nil
      }
    }
  }

  /// A number from 8 to 15 without leading zeros.
  private static func bits(_ text: String) -> Int? {
    guard let bits = Int(text), (8...15).contains(bits), "\(bits)" == text else { return nil }
    return bits
  }
}

/// The parsed value of `Sec-WebSocket-Extensions`. Source: RFC 6455 § 9.1.
public struct ExtensionList {
  struct Item: Equatable {
    var name: String
    var parameters: [Parameter] = []
  }

  struct Parameter: Equatable {
    var name: String
    var value: String?
  }

  private(set) var items: [Item] = []

  /// Several headers form one list. `nil`: the list is malformed.
  init?(_ values: [String]) {
    for value in values {
      for item in value.utf8.split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false) {
        let parts = item.split(separator: UInt8(ascii: ";"), omittingEmptySubsequences: false).map(Self.trimmed)
        // RFC 9110 § 5.6.1: empty list elements are ignored.
        if parts.count == 1, parts[0].isEmpty { continue }
        guard let name = Self.token(parts[0]) else { return nil }
        var read = Item(name: name)
        for part in parts.dropFirst() {
          guard let parameter = Self.parameter(part) else { return nil }
          read.parameters.append(parameter)
        }
        items.append(read)
      }
    }
  }

  private static func parameter(_ part: Substring.UTF8View) -> Parameter? {
    guard let equals = part.firstIndex(of: UInt8(ascii: "=")) else { return token(part).map { Parameter(name: $0) } }
    guard let name = token(trimmed(part[..<equals])) else { return nil }
    var value = trimmed(part[part.index(after: equals)...])
    // The content of a quoted value must be a token.
    if value.count >= 2, value.first == UInt8(ascii: "\""), value.last == UInt8(ascii: "\"") {
      value = value.dropFirst().dropLast()
    }
    return token(value).map { Parameter(name: name, value: $0) }
  }

  private static func trimmed(_ part: Substring.UTF8View) -> Substring.UTF8View {
    let isBlank = { (byte: UInt8) in byte == 0x20 || byte == 0x09 }
    var part = part.drop(while: isBlank)
    while let last = part.last, isBlank(last) { part.removeLast() }
    return part
  }

  private static func token(_ part: Substring.UTF8View) -> String? {
    guard !part.isEmpty, part.allSatisfy(isToken) else { return nil }
    return String(Substring(part))
  }

  /// A sign of a token of HTTP, RFC 9110 § 5.6.2.
  public static func isToken(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "a")...UInt8(ascii: "z"):
      true
    default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
    }
  }
}
