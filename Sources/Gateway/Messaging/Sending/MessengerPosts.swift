// SPDX-License-Identifier: MIT

import Companion
import SQLite
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

  /// Whether the room ignores the post with this time, because it has had something newer from us since.
  func isTooOld(_ time: UInt32?, _ message: OutgoingMessage) -> Bool {
    guard message.kind == .room, let time, let room = message.recipient else { return false }
    return rooms[room]?.known.map { time <= $0 } ?? false
  }

  /// A time that is newer than all that the room has had from us: the clock of a program that shares the radio may be ahead of the radio's.
  func timePast(_ room: PublicKey) -> UInt32? {
    guard let times = rooms[room], let known = times.known else { return nil }
    let time = max(known, times.ahead ?? 0) &+ 1
    rooms[room]?.ahead = time
    keepRooms()
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
    change(room) { times in
      (times.known, times.ahead) = (time, nil)
      if let doubt = times.doubt, doubt.last <= time { times.doubt = nil }
    }
  }

  /// A question with this time of the radio's clock is on its way to a room, whose answer may get lost.
  func roomMayHave(_ room: PublicKey, at time: UInt32, isLogin: Bool) {
    change(room) { times in
      times.doubt = RoomTimes.Doubt(
        last: max(times.doubt?.last ?? 0, time), firstLogin: times.doubt?.firstLogin ?? (isLogin ? time : nil))
    }
  }

  private func change(_ room: PublicKey, _ change: (inout RoomTimes) -> Void) {
    if rooms[room] == nil, rooms.count >= Store.maxRoomTimes { rooms = [:] }
    change(&rooms[room, default: RoomTimes()])
    keepRooms()
  }

  /// A room compares with what it had before a restart, too.
  func keepRooms() {
    store.post(when: .soon, "what rooms have had") { [rooms] store throws(SQLiteError) in try store.keep(rooms) }
  }

  /// Reads what the attached radio's rooms have had before.
  func recallRooms() { rooms = store.ifReadable { try store.roomTimes() } ?? [:] }

  /// Whether the room may ignore a post that is under way, because a question that it has not answered may have reached it.
  func mayIgnorePost(in room: PublicKey) -> Bool {
    guard let doubt = rooms[room]?.doubt else { return false }
    return session.transmitted(to: room).contains { row($0)?.senderTime.map { $0 <= doubt.last } ?? false }
  }

  /// A room has acknowledged a post that was not under way here, as those of programs that share the radio.
  func roomTook(_ message: OutgoingMessage) {
    guard message.kind == .room, let room = message.recipient, let time = message.senderTime,
      !isTooOld(time, message)
    else { return }
    roomWasAsked(room, at: time)
  }

  /// False: the room of a post is being asked whether it was started anew. The post tries again later, because others wait while it is in hand.
  func isRoomSure(_ id: Int64) -> Bool {
    guard !doubted.isEmpty, let room = row(id)?.recipient else { return true }
    return !doubted.contains(room)
  }
}
