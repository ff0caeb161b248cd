// SPDX-License-Identifier: MIT

/// The mark of a text from another place on a channel: `⇄SENDER@GATEWAY: TEXT`. No gateway and no hub passes such a
/// text on again. Pure.
///
/// If a radio's name contains `: `, receivers see the text behind a part of its name, and people and programs quote
/// texts. So the mark is looked for everywhere, and not only at the start.
public enum RelayMark {
  public static let sign = "⇄"
  private static let mark: Unicode.Scalar = "⇄"
  /// Scalars of a name and of a text that are examined: no channel carries more.
  private static let mostLooked = 1024

  /// The text to send; nothing in it controls, hides or reorders what is shown. `nil`: the gateway's name is invalid.
  public static func text(sender: String, gateway: String, text: String) -> String? {
    guard isGateway(gateway) else { return nil }
    return "\(sign)\(Visible.line(sender))@\(gateway): \(Visible.line(text))"
  }

  /// The alphabet of `gateway.id`.
  public static func isGateway(_ id: String) -> Bool {
    // Ids are parts of paths, which `.` and `..` would change.
    (1...64).contains(id.utf8.count) && id.unicodeScalars.allSatisfy(isOfGateway) && ![".", ".."].contains(id)
  }

  /// Whether the text, or its sender's name with it, has the mark at the start, after only invisible characters, after
  /// a colon, or anywhere before `@GATEWAY: `.
  public static func isIn(_ text: String, from sender: String = "") -> Bool {
    let scalars = [sender, ": ", text].flatMap { $0.unicodeScalars.prefix(mostLooked) }
    for place in scalars.indices where scalars[place] == mark {
      let before = scalars[..<place].last { !Visible.isUnseen($0) }
      if before == nil || before == ":" || hasGateway(scalars[(place + 1)...]) { return true }
    }
    return false
  }

  /// Whether receivers of `NAME: TEXT` would take this name for a shorter name and a part of the text.
  public static func splits(name: some Sequence<UInt8>) -> Bool {
    var last: UInt8 = 0
    for byte in name {
      if last == 0x3A, byte == 0x20 { return true }
      last = byte
    }
    return false
  }

  private static func hasGateway(_ scalars: ArraySlice<Unicode.Scalar>) -> Bool {
    for place in scalars.indices where scalars[place] == "@" {
      let id = scalars[(place + 1)...].prefix(while: isOfGateway)
      if !id.isEmpty, scalars[id.endIndex...].starts(with: [":", " "]) { return true }
    }
    return false
  }

  private static func isOfGateway(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar {
    case "a"..."z", "A"..."Z", "0"..."9", ".", "_", "-": true
    default: false
    }
  }
}
