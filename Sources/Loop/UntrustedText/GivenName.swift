// SPDX-License-Identifier: MIT

/// What people may call a radio, a node or a channel. The name goes through the radio to other people's screens, so it
/// must be one visible line, in which nothing controls, hides or reorders what is shown. Pure.
///
/// Names that others chose and the radio has already are not judged.
public enum GivenName {
  /// Bytes of a name in a radio.
  private static let length = 1...31

  /// What is wrong with the name; `nil`: nothing. `what`: its name in the sentence, such as `the channel's name`.
  public static func fault(_ name: [UInt8], _ what: String) -> String? {
    let text = String(decoding: name, as: UTF8.self)
    guard length.contains(name.count) else {
      return "\(what) must have \(length.lowerBound) to \(length.upperBound) bytes"
    }
    guard !Visible.isBlank(text) else { return "nothing of \(what) is visible" }
    guard Visible.line(text).isExactly(text) else {
      return "\(what) has characters that control, hide or reorder what is shown"
    }
    return nil
  }

  /// What is wrong with a channel's name. Something has to be visible behind the sign of a hashtag channel, too.
  public static func channelFault(_ name: [UInt8]) -> String? {
    if let wrong = fault(name, "the channel's name") { return wrong }
    guard name.first == UInt8(ascii: "#"), Visible.isBlank(String(decoding: name.dropFirst(), as: UTF8.self)) else {
      return nil
    }
    return "nothing of the channel's name is visible behind the #"
  }

  /// What is wrong with the name of one's own radio. Receivers would take a part of it for text, or would take all of
  /// its texts for those of another place, which no gateway and no hub passes on.
  public static func radioFault(_ name: [UInt8]) -> String? {
    if let wrong = fault(name, "the radio's name") { return wrong }
    guard !RelayMark.splits(name: name) else { return "the radio's name has a colon before a space" }
    guard !RelayMark.isIn("", from: String(decoding: name, as: UTF8.self)) else {
      return "the radio's name has the mark \(RelayMark.sign) of texts from other places: no gateway and no hub would "
        + "pass on what this radio says"
    }
    return nil
  }
}
