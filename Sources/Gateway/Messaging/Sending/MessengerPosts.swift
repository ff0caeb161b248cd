// SPDX-License-Identifier: MIT

import Companion
import Store

/// A room ignores a post whose time is older than that of anything that it has had from us since.
extension Messenger {
  /// A room that was started anew, and did not know us until we logged in: it has ignored each post in between.
  struct Forgetting {
    /// By this machine's clock, in milliseconds since 1970.
    var startedAt: Int64
    /// The time of the login, by the radio's clock: of the first one that it may have had.
    var login: UInt32
  }

  /// Questions that a room may have had although no answer came: its answer may be lost. Their times are of the radio's clock.
  struct RoomDoubt {
    /// Of the last one. If the room has had it, it ignores posts up to this time.
    var last: UInt32
    /// Of the first login: the room may know us from then on.
    var firstLogin: UInt32?
  }

  /// Whether the room ignores the post with this time, because it has had something newer from us since.
  func isTooOld(_ time: UInt32?, _ message: OutgoingMessage) -> Bool {
    guard message.kind == .room, let time, let room = message.recipient else { return false }
    return roomTimes[room].map { time <= $0 } ?? false
  }

  /// A time that is newer than all that the room has had from us: the clock of a program that shares the radio may be ahead of the radio's.
  func timePast(_ room: PublicKey) -> UInt32? {
    guard let known = roomTimes[room] else { return nil }
    let time = max(known, postsAhead[room] ?? 0) &+ 1
    postsAhead[room] = time
    return time
  }

  /// Whether the room certainly has not taken the post: it did not know us during all attempts with its present time.
  func wasIgnored(_ message: OutgoingMessage) -> Bool {
    guard let room = message.recipient, let time = message.senderTime, let forgetting = forgettings[room] else {
      return false
    }
    return message.created.milliseconds >= forgetting.startedAt && time <= forgetting.login
  }

  /// A room has answered a login or a request with this time of the radio's clock, or has taken a post with it.
  func roomWasAsked(_ room: PublicKey, at time: UInt32) {
    if roomTimes.count >= Self.mostRooms { (roomTimes, postsAhead) = ([:], [:]) }
    (roomTimes[room], postsAhead[room]) = (time, nil)
    if let doubt = roomDoubts[room], doubt.last <= time { roomDoubts[room] = nil }
  }

  /// A question with this time of the radio's clock is on its way to a room, whose answer may get lost.
  func roomMayHave(_ room: PublicKey, at time: UInt32, isLogin: Bool) {
    if roomDoubts.count >= Self.mostRooms { roomDoubts.removeAll() }
    let before = roomDoubts[room]
    roomDoubts[room] = RoomDoubt(
      last: max(before?.last ?? 0, time), firstLogin: before?.firstLogin ?? (isLogin ? time : nil))
  }

  /// Whether the room may ignore a post that is under way, because a question that it has not answered may have reached it.
  func mayIgnorePost(in room: PublicKey) -> Bool {
    guard let doubt = roomDoubts[room] else { return false }
    return session.transmitted(to: room).contains { row($0)?.senderTime.map { $0 <= doubt.last } ?? false }
  }

  /// A room has acknowledged a post that was not under way here, as those of programs that share the radio.
  func roomTook(_ message: OutgoingMessage) {
    guard message.kind == .room, let room = message.recipient, let time = message.senderTime,
      !isTooOld(time, message)
    else { return }
    roomWasAsked(room, at: time)
  }

  private static let mostRooms = 64

  /// False: the room of a post is being asked whether it was started anew. The post tries again later, because others wait while it is in hand.
  func isRoomSure(_ id: Int64) -> Bool {
    guard !doubted.isEmpty, let room = row(id)?.recipient else { return true }
    return !doubted.contains(room)
  }
}
