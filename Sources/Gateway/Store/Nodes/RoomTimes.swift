// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// What a room has had from us, and may have had: it ignores posts that are older. All times are of the radio's clock.
public struct RoomTimes: Equatable, Sendable {
  /// Questions that the room may have had although no answer came: its answer may be lost.
  public struct Doubt: Equatable, Sendable {
    /// Of the last one. If the room has had it, it ignores posts up to this time.
    public var last: UInt32
    /// Of the first login: the room may know us from then on.
    public var firstLogin: UInt32?

    public init(last: UInt32, firstLogin: UInt32?) { (self.last, self.firstLogin) = (last, firstLogin) }
  }

  /// Of the last login, request or post that the room has had, of those that are not under way here.
  public var known: UInt32?
  /// Of our last post, if the room has had something newer than the radio's clock.
  public var ahead: UInt32?
  public var doubt: Doubt?

  public init() {}
}

/// Rooms compare with what they had before this program was started, too.
extension Store {
  public static let maxRoomTimes = 64

  private var nameOfRoomTimes: String { "room_times/\(radio)" }

  /// Of the rooms of the attached radio.
  public func roomTimes() throws(StoreError) -> [PublicKey: RoomTimes] {
    var found: [PublicKey: RoomTimes] = [:]
    for room in try (meta(nameOfRoomTimes)?.text ?? "").split(separator: ",").prefix(Self.maxRoomTimes) {
      let parts = room.split(separator: " ")
      guard parts.count == 5, let key = Hex.bytes(String(parts[0])).flatMap({ PublicKey(bytes: $0) }) else { continue }
      let numbers = parts.dropFirst().map { UInt32($0) }
      var times = RoomTimes()
      (times.known, times.ahead) = (numbers[0], numbers[1])
      times.doubt = numbers[2].map { RoomTimes.Doubt(last: $0, firstLogin: numbers[3]) }
      found[key] = times
    }
    return found
  }

  /// Within a `write`.
  public func keep(_ rooms: [PublicKey: RoomTimes]) throws(SQLiteError) {
    let words = rooms.prefix(Self.maxRoomTimes).map { key, times in
      let numbers = [times.known, times.ahead, times.doubt?.last, times.doubt?.firstLogin]
      return ([key.hex] + numbers.map { $0.map(String.init) ?? "-" }).joined(separator: " ")
    }
    try setMeta(nameOfRoomTimes, .text(words.joined(separator: ",")))
  }
}
