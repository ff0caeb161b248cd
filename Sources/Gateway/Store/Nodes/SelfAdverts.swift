// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// A radio's last advert, as far as this gateway knows.
public struct AdvertRecord: Equatable, Sendable {
  public var radio: PublicKey
  public var at: Moment
  /// Whether it was flooded, or sent only to direct neighbours.
  public var isFlood: Bool
  /// The advert's content besides the key: name, and position if shared.
  public var content: String

  public init(radio: PublicKey, at: Moment, isFlood: Bool, content: String) {
    self.radio = radio
    self.at = at
    self.isFlood = isFlood
    self.content = content
  }
}

extension Store {
  /// The last advert that was sent through this gateway; `nil`: none yet.
  public func lastAdvert() throws(StoreError) -> AdvertRecord? {
    guard let radio = try meta("advert_radio").flatMap(\.blob).flatMap({ PublicKey(bytes: $0) }),
      let at = try meta("advert_at")?.integer
    else { return nil }
    return AdvertRecord(
      radio: radio, at: Moment(milliseconds: max(0, at), trusted: try meta("advert_trusted")?.integer == 1),
      isFlood: try meta("advert_flood")?.integer == 1, content: try meta("advert_content").flatMap(\.text) ?? "")
  }

  /// Within a `write`.
  public func setLastAdvert(_ record: AdvertRecord) throws(SQLiteError) {
    try setMeta("advert_radio", .blob(record.radio.bytes))
    try setMeta("advert_at", .integer(record.at.milliseconds))
    try setMeta("advert_trusted", .integer(record.at.trusted ? 1 : 0))
    try setMeta("advert_flood", .integer(record.isFlood ? 1 : 0))
    try setMeta("advert_content", .text(record.content))
  }
}
