// SPDX-License-Identifier: MIT

/// A query parameter of a request of the control socket.
public struct QueryField: Sendable {
  public enum Kind: Sendable {
    case text
    /// An integer.
    case whole
    case choice([String])
  }

  public let name: String
  public let kind: Kind
  public let isRequired: Bool

  static func text(_ name: String) -> QueryField { QueryField(name: name, kind: .text, isRequired: false) }
  static func required(_ name: String) -> QueryField { QueryField(name: name, kind: .text, isRequired: true) }
  static func whole(_ name: String) -> QueryField { QueryField(name: name, kind: .whole, isRequired: false) }
  static func choice(_ name: String, _ values: String...) -> QueryField {
    QueryField(name: name, kind: .choice(values), isRequired: false)
  }
  static func flag(_ name: String) -> QueryField { choice(name, "0", "1") }

  private static let mostDigits = 40

  /// What the parameter must be; `nil`: this value is one.
  fileprivate func expected(insteadOf value: String) -> String? {
    switch kind {
    case .text: return nil
    case .whole:
      let digits = value.utf8.first == UInt8(ascii: "-") ? value.utf8.dropFirst() : value.utf8[...]
      let isWhole = (1...Self.mostDigits).contains(digits.count) && digits.allSatisfy { (0x30...0x39).contains($0) }
      return isWhole ? nil : "a whole number"
    case .choice(let values): return values.contains(value) ? nil : values.joined(separator: " or ")
    }
  }
}

extension Route {
  /// The query parameters of the request, required ones first.
  public var query: [QueryField] {
    switch self {
    case .sync: [.flag("follow")]
    case .startSync: [.flag("full")]
    case .messages:
      [
        .whole("limit"), .text("after"), .text("before"), .text("q"), .text("from"), .text("with"), .text("channel"),
        .text("conversation"), .whole("since"), .whole("until"), .choice("direction", "received", "sent", "both"),
        .flag("follow"), .flag("upstreams"), .flag("ways"), .text("radio"),
      ]
    case .conversations: [.flag("unread"), .text("radio")]
    case .live: [.whole("after")]
    case .contacts: [.flag("on_radio"), .whole("heard"), .text("radio")]
    case .readings: [.text("node"), .text("kind"), .whole("limit"), .flag("newest"), .text("radio")]
    case .journal, .events: [.whole("limit"), .whole("after"), .flag("follow")]
    case .resolve: [.required("name")]
    case .outgoing: [.whole("limit"), .text("id"), .flag("follow"), .flag("upstreams"), .flag("ways"), .text("radio")]
    case .attempts, .retryOutgoing: [.required("id")]
    case .cancelOutgoing, .adoptOutgoing: [.text("id"), .flag("held")]
    case .removeContact, .shareContact: [.required("contact")]
    case .exportContact: [.text("contact")]
    case .removeChannel: [.required("channel")]
    case .snapshots: [.required("node")]
    case .airtime: [.whole("hours")]
    case .scan: [.whole("seconds")]
    case .pair, .forget: [.required("address")]
    case .documents: [.text("prefix"), .text("after")]
    case .retryOutbox: [.text("upstream"), .whole("seq")]
    case .dropOutbox, .skipUpstream: [.required("upstream"), .whole("seq")]
    case .pauseUpstream, .resumeUpstream, .testUpstream, .removeUpstream, .forgetUpstream:
      [.required("upstream")]
    case .alerts: [.choice("state", "all", "open"), .whole("before"), .whole("limit")]
    case .backup: [.text("replaces"), .text("folder"), .text("name")]
    default: []
    }
  }

  /// Why a query is refused; `nil`: it is not. A parameter that is ignored would do something else than was asked: deleting all dead letters instead
  /// of one.
  public func refusal(of given: [String: String]) -> String? {
    let known = query
    for (name, value) in given.sorted(by: { $0.key < $1.key }) {
      guard let field = known.first(where: { $0.name == name }) else {
        let names = known.isEmpty ? "none" : known.map(\.name).joined(separator: ", ")
        return "\"\(name)\" is not a parameter of this request: expected \(names)"
      }
      if let expected = field.expected(insteadOf: value) { return "\"\(name)\" must be \(expected)" }
    }
    return nil
  }
}
