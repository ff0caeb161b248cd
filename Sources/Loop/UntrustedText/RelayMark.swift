// SPDX-License-Identifier: MIT

/// Texts of other places on a channel: `⇄SENDER@GATEWAY: TEXT`. No gateway and no hub passes one on again. Pure.
///
/// A radio whose name contains `: ` makes others see the text behind a part of its name, and people and programs quote texts: so the
/// mark is looked for everywhere, and not only where a text begins.
public enum RelayMark {
  public static let sign = "⇄"
  private static let mark: Unicode.Scalar = "⇄"
  /// Scalars of a name, and of a text, that are looked at: no channel carries more.
  private static let mostLooked = 1024

  /// As it is sent: nothing in it controls, hides or reorders what is shown. `nil`: a gateway is not called like this.
  public static func text(sender: String, gateway: String, text: String) -> String? {
    guard isGateway(gateway) else { return nil }
    return "\(sign)\(Visible.line(sender))@\(gateway): \(Visible.line(text))"
  }

  /// The alphabet of `gateway.id`.
  public static func isGateway(_ id: String) -> Bool {
    (1...64).contains(id.utf8.count) && id.unicodeScalars.allSatisfy(isOfGateway)
  }

  /// The text, or its sender's name with it, begins with the mark, also behind what is not seen and behind `NAME: `; or the mark is anywhere
  /// before `@GATEWAY: `.
  public static func isIn(_ text: String, from sender: String = "") -> Bool {
    let scalars = [sender, ": ", text].flatMap { $0.unicodeScalars.prefix(mostLooked) }
    for place in scalars.indices where scalars[place] == mark {
      let before = scalars[..<place].last { !Visible.isUnseen($0) }
      if before == nil || before == ":" || hasGateway(scalars[(place + 1)...]) { return true }
    }
    return false
  }

  /// A name that receivers of `NAME: TEXT` take for a shorter name and a part of the text.
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
